//! Keys, tenants, and methods that need none.

use http::Method;
use system_tests::client::{call, get, post};
use system_tests::programs::Lab;

use super::super::effects;
use super::super::engines::{Engine, on_each_engine};

on_each_engine!(tenants_do_not_meet_and_denied_ones_get_nothing);

async fn tenants_do_not_meet_and_denied_ones_get_nothing(on: Engine) {
    let lab = on.lab(&[]);
    for tenant in ["t1", "t2"] {
        let answer = post(lab.address(), "/orders")
            .key("k")
            .header("x-tenant", tenant)
            .send()
            .await;
        assert_eq!(answer.json()["tenant"], tenant);
        assert!(!answer.replayed());
    }
    assert_eq!(effects(&lab, "POST /orders").await, 2);
    for tenant in [b"t\xE8", b"t\xE9"] {
        let answer = post(lab.address(), "/orders")
            .key("k")
            .header("x-tenant", tenant)
            .send()
            .await;
        assert!(
            !answer.replayed(),
            "two tenants are not one because neither is UTF-8"
        );
    }
    let denied = post(lab.address(), "/orders")
        .key("k")
        .header("x-tenant", "t1")
        .header("x-deny", "1")
        .send()
        .await;
    assert_eq!(denied.status, 403);

    let strict = on.lab(&["--require-tenant", "on"]);
    let answer = post(strict.address(), "/orders").key("k").send().await;
    assert_eq!(
        (answer.status.as_u16(), answer.code().as_str()),
        (400, "scope-missing")
    );
    assert_eq!(effects(&strict, "POST /orders").await, 0);
}

#[tokio::test]
async fn safe_methods_are_not_touched() {
    let lab = Lab::start(&["--require-key", "on"]);
    for method in [Method::GET, Method::HEAD, Method::OPTIONS] {
        for _ in 0..2 {
            let answer = call(lab.address(), method.clone(), "/orders")
                .key("k")
                .send()
                .await;
            assert_eq!(answer.status, 200, "{method}");
            assert!(!answer.replayed());
        }
        assert_eq!(effects(&lab, &format!("{method} /orders")).await, 2);
    }
    let claims = get(lab.address(), "/claims").send().await.json();
    assert_eq!(claims.as_array().map(Vec::len), Some(0), "{claims}");
    assert_eq!(
        post(lab.address(), "/orders").send().await.code(),
        "key-missing"
    );
}

#[tokio::test]
async fn bad_keys_are_refused_without_effect() {
    let lab = Lab::start(&[]);
    let long = "k".repeat(256);
    for key in [
        &b""[..],
        b"\"\"",
        b"   ",
        long.as_bytes(),
        b"caf\xE9",
        b"a,b",
        b"\"a",
        b"\"a\", \"b\"",
    ] {
        let answer = post(lab.address(), "/orders")
            .header("idempotency-key", key)
            .send()
            .await;
        assert_eq!(answer.status, 400, "{key:?}");
        assert_eq!(answer.code(), "key-invalid", "{key:?}");
    }
    let two = post(lab.address(), "/orders")
        .key("a")
        .key("a")
        .send()
        .await;
    assert_eq!(two.code(), "key-invalid");
    assert_eq!(effects(&lab, "POST /orders").await, 0);
    for key in ["order:1/2", &"k".repeat(255)] {
        assert_eq!(
            post(lab.address(), "/orders").key(key).send().await.status,
            201,
            "{key}"
        );
    }

    let strict = Lab::start(&["--keys", "strict"]);
    assert_eq!(
        post(strict.address(), "/orders")
            .key("bare")
            .send()
            .await
            .code(),
        "key-invalid"
    );
    assert_eq!(
        post(strict.address(), "/orders")
            .key("\"quoted\"")
            .send()
            .await
            .status,
        201
    );
}
