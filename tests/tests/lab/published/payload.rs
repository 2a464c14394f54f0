//! Fingerprint and request body.

use system_tests::client::post;

use crate::effects;
use crate::engines::Engine;

on_memory_redis_and_postgres!(case_34_what_a_layer_inside_rewrites_makes_no_other_key_or_hash);

/// aws-powertools/powertools-lambda-typescript #5715 and #3424
async fn case_34_what_a_layer_inside_rewrites_makes_no_other_key_or_hash(on: Engine) {
    let lab = on.lab(&["--inner", "rewrite"]);
    for path in ["/orders", "/v1/orders", "/classrooms/7/announcement"] {
        let ask = || post(lab.address(), path).key(path).body("as sent");
        let first = ask().lab("vary=idempotency-key").send().await;
        assert_eq!(first.status, 201, "{path}");
        assert_eq!(first.json()["vary"], "rewritten", "the handler's key");
        for _ in 0..2 {
            let again = ask().send().await;
            assert!(again.replayed(), "{path}: {again:?}");
            assert_eq!(again.body, first.body);
        }
        assert_eq!(effects(&lab, &format!("POST {path}")).await, 1);
    }
    let other = post(lab.address(), "/orders").key("/orders").body("other");
    assert_eq!(other.send().await.code(), "key-reused");
}
