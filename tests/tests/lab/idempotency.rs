//! The options, the flag and the operator's route of the idempotency layers.

use std::fmt::Display;

use http::{Method, Request};
use serde_json::{Value, json};
use system_tests::client::{Answer, Call, call, get, post, until};
use system_tests::programs::Lab;
use tower_claim::MemoryStore;
use tower_idempotency::IdempotencyLayer;

use super::effects;
use super::engines::{Engine, Place, on_each_engine};

on_each_engine!(
    past_the_point_of_no_return_every_answer_is_kept,
    a_panic_past_it_is_unknown_until_an_operator_says_what_happened,
    only_unknown_outcomes_are_resolved,
    a_purged_answer_is_gone_and_a_repeat_runs,
    only_answers_are_purged_and_only_those_that_were_seen,
    closed_is_the_default_and_open_says_that_it_is;
    with short spans:
    a_lapsed_run_under_hold_is_unknown,
);

/// The record of `POST /orders` under this key, without a tenant. `/claims` lists other tests' records, too.
pub(super) fn record_of(place: &Place, key: &str) -> String {
    let store = MemoryStore::new();
    let layer = IdempotencyLayer::builder(store.clone()).namespace(place.namespace());
    let operator = layer.build().expect("it is like the lab's").operator(store);
    let order = Request::post("/orders").header("idempotency-key", key);
    let (order, ()) = order.body(()).expect("a request").into_parts();
    operator.key_of(&order).expect("it has a key").to_string()
}

/// The operator's word.
pub(super) fn resolve(lab: &Lab, key: &str, verdict: &str) -> Call {
    post(lab.address(), format!("/claims/{key}/resolve?as={verdict}"))
}

fn purge(lab: &Lab, key: &str, token: impl Display) -> Call {
    post(lab.address(), format!("/claims/{key}/purge?token={token}"))
}

/// The token of this record, once it is in this state.
async fn token_in(lab: &Lab, key: &str, state: &str) -> u64 {
    let found = async || {
        let claims = get(lab.address(), "/claims").send().await.json();
        let claims = claims.as_array().expect("a list").clone();
        let mut claims = claims.into_iter();
        claims.find(|claim| claim["key"] == *key && claim["state"] == *state)
    };
    let claim = until(state, found, Option::is_some).await;
    claim.expect("it is there")["token"]
        .as_u64()
        .expect("a number")
}

fn order(lab: &Lab) -> Call {
    post(lab.address(), "/orders").key("k")
}

fn code(answer: &Answer) -> (u16, String) {
    (answer.status.as_u16(), answer.code())
}

async fn past_the_point_of_no_return_every_answer_is_kept(on: Engine) {
    let lab = on.lab(&[]);
    let failed = order(&lab).lab("commit&status=503").send().await;
    assert_eq!(failed.status, 503);
    let again = order(&lab).send().await;
    assert!(again.replayed(), "{again:?}");
    assert_eq!((again.status, &again.body), (failed.status, &failed.body));
    assert_eq!(effects(&lab, "POST /orders").await, 1);
    // Without a key there is nothing to mark.
    let bare = post(lab.address(), "/orders").lab("commit").send().await;
    assert_eq!(bare.status, 201);
}

async fn a_panic_past_it_is_unknown_until_an_operator_says_what_happened(on: Engine) {
    let told = json!({
        "status": 202,
        "headers": { "location": "/orders/7", "link": ["<a>", "<b>"], "content-type": "application/json" },
        "body": { "n": 7 },
    });
    for (verdict, body) in [("absent", None), ("done", None), ("done", Some(told))] {
        let place = on.place();
        let lab = place.lab(&[]);
        let panicked = order(&lab).lab("commit&panic").send().await;
        assert_eq!(code(&panicked), (500, "handler-panicked".to_owned()));
        let unknown = order(&lab).send().await;
        assert_eq!(code(&unknown), (409, "outcome-unknown".to_owned()));

        let key = record_of(&place, "k");
        let said = body.as_ref().map_or(String::new(), Value::to_string);
        let said = resolve(&lab, &key, verdict).body(said).send().await;
        assert_eq!(said.status, 204, "{said:?}");

        let after = order(&lab).send().await;
        let ran = effects(&lab, "POST /orders").await;
        match (verdict, body) {
            ("absent", _) => {
                assert_eq!(
                    (after.status.as_u16(), after.replayed(), ran),
                    (201, false, 2)
                );
            }
            (_, None) => {
                assert_eq!(
                    (code(&after), ran),
                    ((409, "response-not-kept".to_owned()), 1)
                );
            }
            (_, Some(_)) => {
                assert_eq!(
                    (after.status.as_u16(), after.replayed(), ran),
                    (202, true, 1)
                );
                assert_eq!(after.json(), json!({ "n": 7 }));
                assert_eq!(after.headers["location"], "/orders/7");
                assert_eq!(after.headers.get_all("link").iter().count(), 2);
            }
        }
    }
}

async fn only_unknown_outcomes_are_resolved(on: Engine) {
    let place = on.place();
    let lab = place.lab(&["--operator-token", "s3cret"]);
    let allowed = |call: Call| call.header("authorization", "Bearer s3cret").send();
    assert_eq!(order(&lab).send().await.status, 201);
    let key = record_of(&place, "k");
    let claims = allowed(get(lab.address(), "/claims")).await.json();
    let claims = claims.as_array().expect("a list");
    assert!(
        claims.iter().any(|claim| claim["key"] == *key),
        "it is listed under this name"
    );

    assert_eq!(resolve(&lab, &key, "absent").send().await.status, 401);
    for (key, verdict, body, status) in [
        (key.as_str(), "absent", "", 409),
        (&key, "done", "", 409),
        (&key, "done", "{\"status\":200}", 409),
        (&"0".repeat(64), "absent", "", 404),
        ("no-key", "absent", "", 404),
        (&key, "maybe", "", 400),
        (&key, "", "", 400),
        (&key, "done", "[", 400),
        (&key, "done", "{}", 400),
    ] {
        let answer = allowed(resolve(&lab, key, verdict).body(body)).await;
        assert_eq!(answer.status, status, "{key} {verdict} {body}: {answer:?}");
    }
    let asked = allowed(call(
        lab.address(),
        Method::GET,
        format!("/claims/{key}/resolve"),
    ))
    .await;
    assert_eq!(asked.status, 405);
    assert!(order(&lab).send().await.replayed(), "the outcome stands");
}

async fn a_purged_answer_is_gone_and_a_repeat_runs(on: Engine) {
    let place = on.place();
    let lab = place.lab(&[]);
    let first = order(&lab).send().await;
    assert!(order(&lab).send().await.replayed());
    let key = record_of(&place, "k");
    let token = token_in(&lab, &key, "done").await;
    assert_eq!(purge(&lab, &key, token).send().await.status, 204);
    // As after a lost reply.
    assert_eq!(purge(&lab, &key, token).send().await.status, 404);

    let next = order(&lab).send().await;
    assert_eq!((next.status, next.replayed()), (first.status, false));
    assert_eq!(effects(&lab, "POST /orders").await, 2);
    // What comes late finds another answer than it was sent for.
    assert_eq!(purge(&lab, &key, token).send().await.status, 409);
    let replay = order(&lab).send().await;
    assert!(replay.replayed());
    assert_eq!(replay.body, next.body);
    // Another body is another intent only as long as there is an answer.
    let token = token_in(&lab, &key, "done").await;
    assert_eq!(order(&lab).body("other").send().await.status, 422);
    assert_eq!(purge(&lab, &key, token).send().await.status, 204);
    assert_eq!(order(&lab).body("other").send().await.status, 201);
}

async fn only_answers_are_purged_and_only_those_that_were_seen(on: Engine) {
    let place = on.place();
    let lab = place.lab(&[]);
    let slow = post(lab.address(), "/orders").key("slow");
    let slow = tokio::spawn(slow.lab("delay=20000").send());
    let key = record_of(&place, "slow");
    let token = token_in(&lab, &key, "held").await;
    assert_eq!(purge(&lab, &key, token).send().await.status, 409);
    assert_eq!(token_in(&lab, &key, "held").await, token);
    slow.abort();

    assert_eq!(order(&lab).send().await.status, 201);
    let key = record_of(&place, "k");
    let token = token_in(&lab, &key, "done").await;
    for (key, token, status) in [
        (key.as_str(), (token + 1).to_string(), 409),
        (&key, String::new(), 400),
        (&key, "T".to_owned(), 400),
        (&key, (1_u64 << 53).to_string(), 400),
        (&"0".repeat(64), token.to_string(), 404),
        ("no-key", token.to_string(), 404),
    ] {
        let answer = purge(&lab, key, &token).send().await;
        assert_eq!(answer.status, status, "{key} {token}: {answer:?}");
    }
    assert!(order(&lab).send().await.replayed(), "the answer stands");
}

async fn closed_is_the_default_and_open_says_that_it_is(on: Engine) {
    for (option, ran) in [(&[][..], 1), (&["--store-down", "open"], 2)] {
        let lab = on.lab(option);
        let first = order(&lab).send().await;
        post(lab.address(), "/faults?store=down").send().await;
        let without = order(&lab).send().await;
        if ran == 1 {
            assert_eq!(code(&without), (503, "store-unavailable".to_owned()));
            assert!(without.headers.contains_key("retry-after"));
        } else {
            assert_eq!((without.status.as_u16(), without.replayed()), (201, false));
            assert_eq!(without.headers["idempotency-status"], "unprotected");
            let metrics = get(lab.address(), "/metrics").send().await;
            let metrics = String::from_utf8_lossy(&metrics.body).into_owned();
            let counted = r#"idempotency_outcomes_total{layer="orders",outcome="unprotected"} 1"#;
            assert!(metrics.contains(counted), "{metrics}");
        }
        assert_eq!(effects(&lab, "POST /orders").await, ran);
        post(lab.address(), "/faults?store=ok").send().await;
        let after = order(&lab).send().await;
        assert!(after.replayed());
        assert_eq!(after.body, first.body);
    }
}

async fn a_lapsed_run_under_hold_is_unknown(on: Engine) {
    let lab = on.lab(&["--on-lapse", "hold", "--lease", "2s", "--renew", "off"]);
    let first = tokio::spawn(order(&lab).lab("delay=12000").send());
    until("it runs", || effects(&lab, "POST /orders"), |n| *n == 1).await;
    let ask = || order(&lab).send();
    let unknown = until("it lapses", ask, |answer| answer.code() != "in-progress").await;
    assert_eq!(code(&unknown), (409, "outcome-unknown".to_owned()));
    // Nobody took over, so its own word counts.
    assert_eq!(first.await.expect("it was not stopped").status, 201);
    assert!(order(&lab).send().await.replayed());
    assert_eq!(effects(&lab, "POST /orders").await, 1);
}

#[tokio::test]
async fn members_in_another_order_are_one_payload_under_canonical_json_only() {
    for (option, same) in [("raw", false), ("json", true)] {
        let lab = Lab::start(&["--fingerprint", option]);
        let ask = |body: &str| {
            let call = order(&lab).header("content-type", "application/json");
            call.body(body.to_owned()).send()
        };
        assert_eq!(ask("{\"a\":1,\"b\":2}").await.status, 201);
        let other = ask("{ \"b\": 2, \"a\": 1 }").await;
        if same {
            assert!(other.replayed(), "{other:?}");
        } else {
            assert_eq!(code(&other), (422, "key-reused".to_owned()));
        }
        for body in [
            "{\"a\":1.0,\"b\":2}",
            "{\"a\":1,\"b\":2,\"b\":2}",
            "{\"a\":1}",
        ] {
            assert_eq!(
                code(&ask(body).await),
                (422, "key-reused".to_owned()),
                "{body}"
            );
        }
        assert_eq!(effects(&lab, "POST /orders").await, 1);
    }
}
