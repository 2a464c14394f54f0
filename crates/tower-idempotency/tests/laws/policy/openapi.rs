//! The fragment of OpenAPI.

use bytes::Bytes;
use http::Response;
use serde_json::Value;

use super::{builder, json, policy};
use crate::support::*;

/// Every reference leads somewhere.
fn references(value: &Value, root: &Value, seen: &mut usize) {
    match value {
        Value::Object(members) => {
            if let Some(Value::String(to)) = members.get("$ref") {
                let pointer = to.strip_prefix('#').unwrap();
                assert!(root.pointer(pointer).is_some(), "{to} leads nowhere");
                *seen += 1;
            }
            members.values().for_each(|v| references(v, root, seen));
        }
        Value::Array(items) => items.iter().for_each(|v| references(v, root, seen)),
        _ => {}
    }
}

#[tokio::test]
async fn the_fragment_of_openapi_holds_together() {
    let full = builder().require_key().scope(|_| "all").require_scope();
    let full = full.max_records_per_tenant(1).tell_status();
    let full = json(&policy(full.policy_at("/policy")).to_openapi());
    let bare = json(&policy(builder().derived_key(|_| "one").one_tenant()).to_openapi());
    for openapi in [&full, &bare] {
        assert_eq!(openapi["openapi"], "3.1.0");
        let mut seen = 0;
        references(openapi, openapi, &mut seen);
        assert!(seen > 10, "{seen}");
    }
    assert!(bare["components"].get("parameters").is_none());

    let components = &full["components"];
    assert_eq!(components["parameters"]["IdempotencyKey"]["required"], true);
    let operation = &components["pathItems"]["Idempotent"]["post"];
    let statuses: Vec<_> = operation["responses"].as_object().unwrap().keys().collect();
    assert_eq!(
        statuses,
        ["2XX", "400", "409", "413", "422", "429", "500", "503"]
    );
    for status in ["409", "429", "503"] {
        let response = &components["responses"][&format!("Idempotency{status}")];
        for header in ["Retry-After", "Link", "Idempotency-Status"] {
            assert!(response["headers"].get(header).is_some(), "{header}");
        }
    }
    for status in ["400", "413", "422", "500"] {
        let response = &components["responses"][&format!("Idempotency{status}")];
        assert!(response["headers"].get("Retry-After").is_none(), "{status}");
    }
    let headers = &components["headers"];
    for name in ["Idempotent-Replayed", "Idempotency-First-Seen"] {
        assert!(headers.get(name).is_some(), "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_examples_are_what_is_sent() {
    let app = App::new();
    let layer = app.builder().require_key().build().unwrap();
    let service = app.under(&layer);
    let openapi = json(&layer.policy().to_openapi());
    let example = |status: u16, code: &str| {
        let content = format!("/components/responses/Idempotency{status}/content");
        let content = openapi.pointer(&content).unwrap();
        content["application/problem+json"]["examples"][code]["value"].clone()
    };
    let ask = post("/orders").key("k").flags("delay=1000");
    let first = tokio::spawn({
        let (ask, service) = (ask.clone(), service.clone());
        async move { ask.send(&service).await }
    });
    tokio::time::sleep(ms(100)).await;
    let busy = ask.send(&service).await;
    assert!(busy.retry_after().is_some());
    assert_eq!(json(busy.text()), example(409, "in-progress"));
    first.await.unwrap();
    let reused = ask.body("another").send(&service).await;
    assert_eq!(json(reused.text()), example(422, "key-reused"));
    let missing = json(post("/orders").send(&service).await.text());
    let told = example(400, "key-missing");
    for member in ["type", "title", "status", "code"] {
        assert_eq!(missing[member], told[member], "{member}");
    }
}

#[tokio::test]
async fn refusals_in_other_words_are_shown_in_these_words() {
    let renamed = builder().on_refusal(|refusal, response| {
        let text = format!("no: {}", refusal.code().name());
        Response::builder()
            .status(response.status())
            .header("content-type", "text/plain")
            .body(Bytes::from(text))
            .unwrap()
    });
    let openapi = json(&policy(renamed).to_openapi());
    let content = &openapi["components"]["responses"]["Idempotency422"]["content"];
    assert!(content.get("application/problem+json").is_none());
    let examples = &content["text/plain"]["examples"];
    assert_eq!(examples["key-reused"]["value"], "no: key-reused");

    let touchy = builder().on_refusal(|_, _| panic!("told to"));
    let openapi = json(&policy(touchy).to_openapi());
    let content = &openapi["components"]["responses"]["Idempotency422"]["content"];
    assert!(content.get("application/problem+json").is_some());
}
