//! How long the calls of the store take.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use http::{Request, Response};
use metrics_util::debugging::DebuggingRecorder;
use tower::util::BoxCloneSyncService;
use tower::{Layer, ServiceExt};
use tower_claim::store::{ClaimRequest, Claimed, FinishRequest};
use tower_claim::testing::{Fault, Operation};
use tower_claim::transaction::{BeginWithClaim, CommitError, OpenTransaction, TransactionSlot};
use tower_claim::{ClaimStore, MemoryStore, StoreError};
use tower_idempotency::{KeyLookup, RequestBody};

use super::Seen;
use crate::support::*;

const CALLS: [(&str, Operation); 6] = [
    ("claim", Operation::Claim),
    ("renew", Operation::Renew),
    ("mark", Operation::Mark),
    ("finish", Operation::Finish),
    ("release", Operation::Release),
    ("peek", Operation::Peek),
];

/// Each call at least once: a run that is renewed and marked, one that is given back, and a look at a key.
async fn call_all(app: &App, layer: &tower_idempotency::IdempotencyLayer) {
    let service = app.under(layer);
    let kept = post("/orders").key("kept-8e03978e");
    // Without its mark it fails.
    let first = kept.clone().flags("commit&delay=400").request();
    if let Ok(response) = soon(service.clone().oneshot(first)).await {
        read(response).await;
    }
    let given_back = post("/orders").key("back-8e03978e");
    given_back.flags("status=503").send(&service).await;
    let look = KeyLookup::new(layer).oneshot(kept.method(http::Method::GET).request());
    soon(look).await.unwrap();
    assert!(layer.drain(ms(60_000)).await);
    // A beat that is under way has an attempt left.
    tokio::time::sleep(ms(1000)).await;
}

/// All spans of one call.
fn spans(seen: &Seen, call: &str, ok: bool) -> Vec<f64> {
    let name = format!("idempotency_store_seconds{{layer=orders,call={call},ok={ok}}}");
    seen.spans.get(&name).cloned().unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn each_call_of_the_store_is_timed_once() {
    let recorder = DebuggingRecorder::new();
    let _recording = metrics::set_default_local_recorder(&recorder);
    let app = App::new();
    let layer = app.builder().named("orders").lease(ms(600));
    let layer = layer.build().unwrap();
    app.store.faults().set(Fault::Delay(ms(20)));
    call_all(&app, &layer).await;
    let calls = app.store.faults().calls();
    let seen = Seen::of(&recorder.snapshotter());
    for (call, operation) in CALLS {
        let timed = spans(&seen, call, true);
        assert!(!timed.is_empty(), "{call}");
        assert_eq!(timed.len() as u64, calls.of(operation), "{call}");
        for span in timed {
            assert!((span - 0.02).abs() < 0.002, "{call}: {span}");
        }
        assert!(spans(&seen, call, false).is_empty(), "{call}");
    }
}

#[tokio::test(start_paused = true)]
async fn each_call_that_fails_is_timed_too_and_so_is_one_that_is_given_up() {
    for (call, operation) in CALLS {
        // Refused at once; and never answered: the keeper gives it up after a sixth of the lease.
        for (fault, takes) in [(Fault::Down, 0.0), (Fault::Delay(ms(3_600_000)), 0.1)] {
            if operation == Operation::Peek && fault != Fault::Down {
                // A look has the patience of who looks.
                continue;
            }
            let recorder = DebuggingRecorder::new();
            let _recording = metrics::set_default_local_recorder(&recorder);
            let app = App::new();
            let layer = app.builder().named("orders").lease(ms(600));
            let layer = layer.build().unwrap();
            app.store.faults().set_for(operation, fault);
            call_all(&app, &layer).await;
            let seen = Seen::of(&recorder.snapshotter());
            let failed = spans(&seen, call, false);
            let calls = app.store.faults().calls().of(operation);
            assert!(calls > 0, "{call} {fault}");
            assert_eq!(failed.len() as u64, calls, "{call} {fault}");
            for span in failed {
                assert!(span <= takes + 0.002, "{call} {fault}: {span}");
            }
            assert!(spans(&seen, call, true).is_empty(), "{call} {fault}");
        }
    }
}

/// A database that takes its time.
struct Slow(Arc<MemoryStore>);

impl OpenTransaction for Slow {
    fn commit_with(
        self: Box<Self>,
        finish: FinishRequest,
    ) -> BoxFuture<'static, Result<(), CommitError>> {
        Box::pin(async move {
            tokio::time::sleep(ms(100)).await;
            let _ = self.0.finish(finish).await;
            Ok(())
        })
    }

    fn commit(self: Box<Self>) -> BoxFuture<'static, Result<(), CommitError>> {
        unreachable!("these runs have a claim")
    }

    fn roll_back(self: Box<Self>) -> BoxFuture<'static, ()> {
        Box::pin(std::future::ready(()))
    }
}

impl BeginWithClaim for Slow {
    fn begin_with_claim<'a>(
        &'a self,
        _: ClaimRequest<'a>,
        _: &'a TransactionSlot,
    ) -> BoxFuture<'a, Result<Claimed, StoreError>> {
        Box::pin(async {
            tokio::time::sleep(ms(50)).await;
            Err(StoreError::unavailable("no connection"))
        })
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_transaction_does_for_the_claim_is_timed_too() {
    let recorder = DebuggingRecorder::new();
    let _recording = metrics::set_default_local_recorder(&recorder);
    let app = App::new();
    let ask = post("/orders").key("8e03978e-40d5-43dd");
    let store = Arc::clone(app.store.inner());
    let handler = tower::service_fn(move |request: Request<RequestBody<Body>>| {
        let slot = request.extensions().get::<TransactionSlot>().unwrap();
        drop(slot.lend(Slow(Arc::clone(&store))).unwrap());
        async { Ok::<_, std::io::Error>(Response::new(body_of("ordered"))) }
    });
    let layer = app.builder().named("orders").build().unwrap();
    let service = layer.layer(BoxCloneSyncService::new(handler));
    ask.send(&service).await.assert_fresh(200);

    let database = Slow(Arc::clone(app.store.inner()));
    let inside = app.builder().named("inside").claim_inside(database);
    let service = app.under(&inside.build().unwrap());
    ask.send(&service)
        .await
        .assert_refused(503, "store-unavailable");

    let seen = Seen::of(&recorder.snapshotter());
    assert_eq!(spans(&seen, "commit", true), [0.1]);
    let claim = "idempotency_store_seconds{layer=inside,call=claim,ok=false}";
    assert_eq!(seen.spans[claim], [0.05]);
}
