//! What must not change under one key, where that is not every byte.

use tower_idempotency::{IdempotencyBuilder, RequestFields};

use crate::support::*;

const MULTIPART_X: &str = "multipart/form-data; boundary=X";
const MULTIPART_Y: &str = "multipart/form-data; boundary=YY";
/// Of `{"hello": "world"}` and a line feed (RFC 9530, appendix A).
const DIGEST: &str = "sha-256=:RK/0qy18MlBSVnWgjwz6lZEWjP/lF5HF9bvEF8FabDg=:";

fn ask(content_type: &str, body: &'static str) -> Ask {
    post("/orders")
        .key("8e03978e-40d5-43dd")
        .header("content-type", content_type)
        .body(body)
}

/// `same` are repeats of `first`, `others` are not: once it is done, and while it is running.
async fn assert_payloads(
    settings: impl Fn(IdempotencyBuilder) -> IdempotencyBuilder,
    first: Ask,
    same: &[Ask],
    others: &[Ask],
) {
    let app = App::new();
    let service = app.under(&settings(app.builder()).build().unwrap());
    let running = first.clone().flags("delay=1000");
    let repeats = async {
        tokio::time::sleep(ms(10)).await;
        for ask in same {
            ask.send(&service).await.assert_refused(409, "in-progress");
        }
        for ask in others {
            ask.send(&service).await.assert_refused(422, "key-reused");
        }
    };
    let (answer, ()) = tokio::join!(running.send(&service), repeats);
    answer.assert_fresh(201);
    for ask in same {
        ask.send(&service).await.assert_replay_of(&answer);
    }
    for ask in others {
        ask.send(&service).await.assert_refused(422, "key-reused");
    }
    assert_eq!(app.effects(), 1);
}

#[cfg(feature = "json")]
#[tokio::test(start_paused = true)]
async fn canonical_json_is_one_payload_in_any_order() {
    let json = |body| ask("application/json", body);
    assert_payloads(
        |builder| builder.canonical_json(),
        json(r#"{"a":1,"b":"\u00e9"}"#),
        &[json(r#"{ "b": "é", "a": 1 }"#)],
        &[
            json(r#"{"a":1.0,"b":"é"}"#),
            json(r#"{"a":2,"b":"é"}"#),
            json(r#"{"a":1,"a":1,"b":"é"}"#),
            json(r#"{"a":1,"b":"é""#),
            ask("text/plain", r#"{"a":1,"b":"\u00e9"}"#),
        ],
    )
    .await;
    assert_payloads(
        |builder| builder,
        json(r#"{"a":1,"b":2}"#),
        &[json(r#"{"a":1,"b":2}"#)],
        &[json(r#"{"b":2,"a":1}"#)],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_multipart_form_is_one_payload_behind_any_boundary() {
    assert_payloads(
        |builder| builder.multipart_parts(),
        ask(MULTIPART_X, "--X\r\nA: 1\r\n\r\nhello\r\n--X--\r\n"),
        &[ask(MULTIPART_Y, "--YY\r\nA: 1\r\n\r\nhello\r\n--YY--\r\n")],
        &[
            ask(MULTIPART_Y, "--YY\r\nA: 1\r\n\r\nhullo\r\n--YY--\r\n"),
            ask(MULTIPART_Y, "--YY\r\nA: 2\r\n\r\nhello\r\n--YY--\r\n"),
            ask(MULTIPART_Y, "--X\r\nA: 1\r\n\r\nhello\r\n--X--\r\n"),
            ask(
                MULTIPART_Y,
                "--YY\r\nA: 1\r\n\r\nhello\r\n--YY\r\n\r\n\r\n--YY--\r\n",
            ),
        ],
    )
    .await;
    assert_payloads(
        |builder| builder,
        ask(MULTIPART_X, "--X\r\nA: 1\r\n\r\nhello\r\n--X--\r\n"),
        &[],
        &[ask(MULTIPART_Y, "--YY\r\nA: 1\r\n\r\nhello\r\n--YY--\r\n")],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn only_the_named_fields_are_bound() {
    let form = |body| ask("application/x-www-form-urlencoded", body);
    assert_payloads(
        |builder| builder.fingerprint_fields(RequestFields::new().form("to").form("amount")),
        form("to=ada&amount=5&note=x"),
        &[form("amount=5&to=ada&note=y"), form("amount=5&to=%61da")],
        &[
            form("to=ada&amount=6&note=x"),
            form("to=ada"),
            form("to=ada&amount=5&amount=5"),
        ],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_body_that_is_not_what_its_digest_says_binds_no_key() {
    let app = App::new();
    let layer = app.builder().verify_content_digest().build().unwrap();
    let service = app.under(&layer);
    let honest = "{\"hello\": \"world\"}\n";
    let digest =
        |digest: &str, body| ask("application/json", body).header("content-digest", digest);
    for lying in [
        digest(DIGEST, "{\"hello\": \"wörld\"}\n"),
        digest("sha-256=:AAAA:", honest),
    ] {
        let answer = lying.send(&service).await;
        answer.assert_refused(400, "body-broken");
        assert!(
            answer.text().contains("content-digest"),
            "{}",
            answer.text()
        );
    }
    assert_eq!((app.effects(), app.records()), (0, 0));

    let first = digest(DIGEST, honest).send(&service).await;
    first.assert_fresh(201);
    let repeats = [
        digest(DIGEST, honest),
        digest("sha-512=:AAAA:", honest),
        ask("application/json", honest),
    ];
    for again in repeats {
        again.send(&service).await.assert_replay_of(&first);
    }
    ask("application/json", "{}")
        .send(&service)
        .await
        .assert_refused(422, "key-reused");
    assert_eq!(app.effects(), 1);
}

#[tokio::test(start_paused = true)]
async fn rules_that_exclude_each_other_are_refused_when_built() {
    let app = App::new();
    let refused = |builder: IdempotencyBuilder| builder.build().unwrap_err().setting();
    let fields = || RequestFields::new().form("to");
    let both = app.builder().first_payload_wins().multipart_parts();
    assert_eq!(refused(both), "fingerprint");
    let both = app.builder().fingerprint_fields(fields());
    assert_eq!(refused(both.verify_content_digest()), "fingerprint");
    let none = app.builder().fingerprint_fields(RequestFields::new());
    assert_eq!(refused(none), "fingerprint_fields");
}
