//! `/claims`, `/faults` and who may see them.

use http::Method;
use system_tests::client::{call, get, post, until};
use system_tests::programs::Lab;

use super::effects;
use super::engines::{Engine, on_each_engine};

on_each_engine!(
    claims_are_listed_without_their_business_keys,
    a_store_that_is_down_refuses_and_runs_nothing,
    lost_and_doubled_replies_have_the_effect_of_one,
);

async fn claims_are_listed_without_their_business_keys(on: Engine) {
    let lab = on.lab(&[]);
    post(lab.address(), "/orders")
        .key("my-secret-key")
        .send()
        .await;
    let slow = tokio::spawn(
        call(lab.address(), Method::PUT, "/accounts/my-account")
            .lab("delay=20000")
            .send(),
    );
    let held = |claims: &serde_json::Value| {
        claims
            .as_array()
            .unwrap()
            .iter()
            .any(|c| c["state"] == "held")
    };
    let ask = || async { get(lab.address(), "/claims").send().await.json() };
    let claims = until("a held claim", ask, held).await;
    assert!(
        !claims.to_string().contains("my-secret-key") && !claims.to_string().contains("my-account")
    );
    for claim in claims.as_array().unwrap() {
        let key = claim["key"].as_str().unwrap();
        assert!(
            key.len() == 64 && key.bytes().all(|b| b.is_ascii_hexdigit()),
            "{claim}"
        );
        assert!(
            claim["label"].as_str().unwrap().contains(&key[..8]),
            "{claim}"
        );
        assert!(claim["token"].as_u64().unwrap() > 0);
        assert!(claim["since_ms"].is_number() && claim["expires_in_ms"].is_number());
    }
    assert!(
        claims
            .as_array()
            .unwrap()
            .iter()
            .any(|c| c["state"] == "done")
    );
    slow.abort();
}

#[tokio::test]
async fn operators_show_their_token() {
    let lab = Lab::start(&["--operator-token", "s3cret"]);
    for path in ["/board", "/claims"] {
        assert_eq!(get(lab.address(), path).send().await.status, 401, "{path}");
        let wrong = get(lab.address(), path)
            .header("authorization", "Bearer s3cre")
            .send()
            .await;
        assert_eq!(wrong.status, 401, "{path}");
        let right = get(lab.address(), path)
            .header("authorization", "Bearer s3cret")
            .send()
            .await;
        assert_eq!(right.status, 200, "{path}");
    }
    let purge = format!("/claims/{}/purge?token=1", "0".repeat(64));
    for path in ["/faults?store=down", &purge] {
        let answer = post(lab.address(), path).send().await;
        assert_eq!(answer.status, 401, "{path}");
    }
    assert_eq!(
        post(lab.address(), "/orders").key("k").send().await.status,
        201,
        "the store is not down"
    );
}

async fn a_store_that_is_down_refuses_and_runs_nothing(on: Engine) {
    let lab = on.lab(&[]);
    assert_eq!(
        post(lab.address(), "/orders")
            .key("old")
            .send()
            .await
            .status,
        201
    );
    assert_eq!(
        post(lab.address(), "/faults?store=down")
            .send()
            .await
            .status,
        204
    );
    for key in ["old", "new"] {
        let answer = post(lab.address(), "/orders").key(key).send().await;
        assert_eq!(
            (answer.status.as_u16(), answer.code().as_str()),
            (503, "store-unavailable"),
            "{key}"
        );
        assert!(answer.headers.contains_key("retry-after"));
    }
    let leased = call(lab.address(), Method::PUT, "/accounts/7").send().await;
    assert_eq!(leased.code(), "store-unavailable");
    assert_eq!(
        post(lab.address(), "/orders").send().await.status,
        201,
        "without a key nothing is asked"
    );
    assert_eq!(effects(&lab, "POST /orders").await, 2);
    assert_eq!(
        post(lab.address(), "/faults?store=ok").send().await.status,
        204
    );
    assert!(
        post(lab.address(), "/orders")
            .key("old")
            .send()
            .await
            .replayed()
    );
    assert_eq!(
        post(lab.address(), "/orders")
            .key("new")
            .send()
            .await
            .status,
        201
    );
}

async fn lost_and_doubled_replies_have_the_effect_of_one(on: Engine) {
    let lab = on.lab(&[]);
    for (i, fault) in [
        "lose-reply:1",
        "lose-reply:2",
        "repeat:1",
        "repeat:5",
        "delay:50",
    ]
    .iter()
    .enumerate()
    {
        assert_eq!(
            post(lab.address(), format!("/faults?store={fault}"))
                .send()
                .await
                .status,
            204
        );
        let key = format!("key-{i}");
        let ask = || post(lab.address(), "/orders").key(&key).send();
        let first = until(fault, ask, |answer| answer.status == 201).await;
        let again = until(fault, ask, |answer| answer.status == 201).await;
        assert!(again.replayed(), "{fault}");
        assert_eq!(first.body, again.body, "{fault}");
        assert_eq!(effects(&lab, "POST /orders").await, i as u64 + 1, "{fault}");
        post(lab.address(), "/faults?store=ok").send().await;
    }
}

#[tokio::test]
async fn bad_faults_are_refused() {
    let lab = Lab::start(&[]);
    for query in ["", "?store=broken", "?store=delay:soon", "?store=repeat:-1"] {
        assert_eq!(
            post(lab.address(), format!("/faults{query}"))
                .send()
                .await
                .status,
            400,
            "{query}"
        );
    }
}
