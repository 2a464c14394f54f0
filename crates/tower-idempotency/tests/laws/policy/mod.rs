//! The published policy: made from the built layer, and never behind it.

mod openapi;
mod service;
mod settings;

use http::{HeaderMap, Request};
use serde_json::Value;
use tower::ServiceExt;
use tower_claim::MemoryStore;
use tower_idempotency::{IdempotencyBuilder, IdempotencyLayer, KeyLookup, Policy};

use crate::support::*;

fn builder() -> IdempotencyBuilder {
    IdempotencyLayer::builder(MemoryStore::new())
}

fn policy(builder: IdempotencyBuilder) -> Policy {
    builder.build().unwrap().policy()
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[tokio::test]
async fn the_expiry_is_told_in_plain_words_everywhere() {
    let policy = policy(builder().retention(ms(90 * 60_000)));
    let words = "An answer is kept for 90 minutes after its request was finished, or until the service restarts. After that its key is \
                 forgotten: a request with it runs as if it were new. So stop repeating a request before its key is \
                 90 minutes old.";
    assert_eq!(policy.expiry(), words);
    assert!(policy.to_html().contains(words));
    assert_eq!(json(&policy.to_json())["expiry"], words);
    let openapi = json(&policy.to_openapi());
    let parameter = &openapi["components"]["parameters"]["IdempotencyKey"];
    assert!(parameter["description"].as_str().unwrap().contains(words));
}

fn describes(headers: &HeaderMap) -> Vec<&str> {
    let links = headers.get_all("link").iter();
    links.map(|link| link.to_str().unwrap()).collect()
}

#[tokio::test(start_paused = true)]
async fn refusals_link_to_the_policy_and_answers_do_not() {
    let app = App::new();
    const LINK: &str = "</policy>; rel=\"describedby\"";
    let layer = app
        .builder()
        .require_key()
        .policy_at("/policy")
        .build()
        .unwrap();
    let service = app.under(&layer);
    let refused = post("/orders").send(&service).await;
    assert_eq!(describes(&refused.headers), [LINK]);
    let ask = post("/orders").key("k");
    let first = ask.send(&service).await;
    assert_eq!(describes(&first.headers), ["</a>; rel=a", "</b>; rel=b"]);
    let replay = ask.send(&service).await;
    assert_eq!(describes(&replay.headers), ["</a>; rel=a", "</b>; rel=b"]);
    let reused = ask.body("another").send(&service).await;
    assert_eq!(describes(&reused.headers), [LINK]);
    let lookup = KeyLookup::new(&layer);
    let missing = lookup
        .oneshot(Request::get("/").body(()).unwrap())
        .await
        .unwrap();
    assert_eq!(describes(missing.headers()), [LINK]);

    let unlinked = app.under(&app.builder().require_key().build().unwrap());
    let refused = post("/orders").send(&unlinked).await;
    assert_eq!(describes(&refused.headers), [""; 0]);
}
