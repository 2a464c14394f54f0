//! Marks that the store did not confirm.

use tower_claim::ClaimAdmin;
use tower_claim::testing::{Fault, Operation};
use tower_idempotency::Explanation;

use crate::support::*;

#[tokio::test(start_paused = true)]
async fn a_mark_that_stayed_in_doubt_does_not_lock_the_key() {
    let app = App::new();
    let layer = app.builder().build().unwrap();
    let service = app.under(&layer);
    let ask = post("/orders").key("k");
    let faults = app.store.faults();
    // Each copy of the mark is applied, and no answer comes back: the handler must not begin.
    faults.set_for(Operation::Mark, Fault::LoseReply(1_000_000));
    let failed = ask.clone().flags("commit").request();
    let error = tower::ServiceExt::oneshot(service.clone(), failed).await;
    assert!(error.is_err());
    let told = ask.send(&service).await;
    assert!(told.status == 201 || told.status == 503, "{told:?}");
    assert!(told.status == 201 || told.retry_after().is_some());
    tokio::time::sleep(ms(30_000)).await;
    assert_eq!(ask.send(&service).await.status, 201);
    // Sooner, where it is known that no mark arrived.
    faults.set_for(Operation::Mark, Fault::Down);
    let ask = post("/orders").key("k2");
    let failed = ask.clone().flags("commit").request();
    let error = tower::ServiceExt::oneshot(service.clone(), failed).await;
    assert!(error.is_err());
    ask.send(&service).await.assert_fresh(201);
}

/// The outage that swallowed the answer hides the record, too.
#[tokio::test(start_paused = true)]
async fn a_mark_in_doubt_does_not_lock_the_key_where_the_record_cannot_be_seen() {
    let app = App::new();
    let service = app.service();
    let faults = app.store.faults();
    faults.set_for(Operation::Mark, Fault::LoseReply(1_000_000));
    faults.set_for(Operation::Peek, Fault::Down);
    let ask = post("/orders").key("k");
    let failed = ask.clone().flags("commit").request();
    let error = tower::ServiceExt::oneshot(service.clone(), failed).await;
    assert!(error.is_err());
    faults.set(Fault::Ok);
    tokio::time::sleep(ms(60_000)).await;
    ask.send(&service).await.assert_fresh(201);
}

/// Nothing was done under the key, so there is no answer to be replayed.
#[tokio::test(start_paused = true)]
async fn a_key_that_is_held_for_a_mark_in_doubt_is_refused_and_not_replayed() {
    let app = App::new();
    let layer = app
        .builder()
        .keep_headers_only([http::header::LOCATION])
        .redact(|_| panic!("there is nothing to keep"))
        .on_refusal(|_, mut response| {
            let ours = http::HeaderValue::from_static("1");
            response.headers_mut().insert("x-ours", ours);
            response
        });
    let layer = layer.build().unwrap();
    let service = app.under(&layer);
    let faults = app.store.faults();
    faults.set_for(Operation::Mark, Fault::LoseReply(1_000_000));
    let ask = post("/orders").key("k");
    let failed = ask.clone().flags("commit").request();
    let error = tower::ServiceExt::oneshot(service.clone(), failed).await;
    assert!(error.is_err());
    faults.set(Fault::Ok);

    let told = ask.send(&service).await;
    told.assert_refused(503, "store-unavailable");
    assert!(told.headers.contains_key("x-ours"));
    assert!(told.text().contains("\"reason\":\"mark-in-doubt\""));
    let wait = told.retry_after().unwrap();
    let other = ask.clone().body("other").send(&service).await;
    other.assert_refused(422, "key-reused");
    let lookup = tower_idempotency::KeyLookup::builder(&layer).build();
    let asked = http::Request::get("/")
        .header("idempotency-key", "k")
        .body(());
    let looked = tower::ServiceExt::oneshot(lookup.unwrap(), asked.unwrap()).await;
    assert_eq!(looked.unwrap().status(), 202);
    let operator = layer.operator(app.store.inner().clone());
    let records = app.store.inner().scan(None, 9).await.unwrap().records;
    let explained = operator.explain(records[0].key).await.unwrap();
    assert!(
        matches!(explained, Explanation::Running { .. }),
        "{explained:?}"
    );
    assert_eq!((layer.counts().replays, layer.counts().kept), (0, 0));

    tokio::time::sleep(ms(1000 * wait)).await;
    ask.send(&service).await.assert_fresh(201);
}
