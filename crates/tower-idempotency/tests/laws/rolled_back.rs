//! What becomes of a handler's transaction, by its answer.

use std::io;
use std::sync::{Arc, Mutex};

use futures_util::future::BoxFuture;
use futures_util::stream;
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use tower::Layer;
use tower::util::BoxCloneSyncService;
use tower_claim::store::FinishRequest;
use tower_claim::transaction::{CommitError, OpenTransaction, TransactionSlot};
use tower_claim::{ClaimStore, MemoryStore, Renewal};
use tower_idempotency::{Outcome, RequestBody};

use crate::support::*;

/// A transaction that notes its end.
pub(crate) struct Rows {
    pub(crate) store: Arc<MemoryStore>,
    pub(crate) ends: Arc<Mutex<Vec<&'static str>>>,
}

impl OpenTransaction for Rows {
    fn commit_with(
        self: Box<Self>,
        finish: FinishRequest,
    ) -> BoxFuture<'static, Result<(), CommitError>> {
        self.ends.lock().unwrap().push("committed");
        Box::pin(async move {
            let _ = self.store.finish(finish).await;
            Ok(())
        })
    }

    fn commit(self: Box<Self>) -> BoxFuture<'static, Result<(), CommitError>> {
        self.ends.lock().unwrap().push("committed alone");
        Box::pin(std::future::ready(Ok(())))
    }

    fn roll_back(self: Box<Self>) -> BoxFuture<'static, ()> {
        self.ends.lock().unwrap().push("rolled back");
        Box::pin(std::future::ready(()))
    }
}

/// gRPC tells its refusals behind the message.
#[tokio::test(start_paused = true)]
async fn a_refusal_in_the_trailers_commits_nothing_however_much_of_it_is_kept() {
    let outcomes = [Outcome::Keep, Outcome::Tombstone, Outcome::Release];
    let all = outcomes.map(|outcome| [(outcome, 1 << 20), (outcome, 3)]);
    for (outcome, cap) in all.concat() {
        for (status, end) in [("16", "rolled back"), ("0", "committed")] {
            let app = App::new();
            let by_status = move |status| if status == 0 { Outcome::Keep } else { outcome };
            let layer = app.builder().grpc_outcome(by_status);
            let layer = layer.max_response_body(cap).build().unwrap();
            let (store, ends) = (Arc::clone(app.store.inner()), Arc::default());
            let noted = Arc::clone(&ends);
            let handler = tower::service_fn(move |request: Request<RequestBody<Body>>| {
                let slot = request.extensions().get::<TransactionSlot>().unwrap();
                let (store, ends) = (Arc::clone(&store), Arc::clone(&ends));
                drop(slot.lend(Rows { store, ends }).unwrap());
                let mut trailers = HeaderMap::new();
                trailers.insert("grpc-status", HeaderValue::from_static(status));
                let frames = [
                    Ok(Frame::data("message".into())),
                    Ok(Frame::trailers(trailers)),
                ];
                let body = StreamBody::new(stream::iter(frames)).boxed_unsync();
                let response = Response::builder().header("content-type", "application/grpc");
                std::future::ready(Ok::<_, io::Error>(response.body(body).unwrap()))
            });
            let service = layer.layer(BoxCloneSyncService::new(handler));
            let call = post("/lab.Lab/Order").header("content-type", "application/grpc");
            call.key("k").send(&service).await.assert_fresh(200);
            assert_eq!(*noted.lock().unwrap(), [end], "{status} {outcome:?} {cap}");
        }
    }
}

/// Its claim is given back with the rows; but where a run before it crashed, the next one is to know.
#[tokio::test(start_paused = true)]
async fn a_transaction_that_was_not_given_back_is_no_reason_to_forget_a_crash() {
    let app = App::new();
    let crashing = app.builder().lease(ms(200)).renewal(Renewal::Off).build();
    let crashing = app.under(&crashing.unwrap());
    let ask = post("/orders").key("k");
    let slow = ask.clone().flags("delay=100000000");
    tokio::spawn(async move { slow.send(&crashing).await });
    tokio::time::sleep(ms(300)).await;

    let layer = app.builder().lease(ms(200)).build().unwrap();
    let (store, left_behind) = (Arc::clone(app.store.inner()), Arc::new(Mutex::new(None)));
    let holds_on = Arc::clone(&left_behind);
    let handler = tower::service_fn(move |request: Request<RequestBody<Body>>| {
        let slot = request.extensions().get::<TransactionSlot>().unwrap();
        let (store, ends) = (Arc::clone(&store), Arc::default());
        let lent = slot.lend(Rows { store, ends }).unwrap();
        *holds_on.lock().unwrap() = Some(lent);
        std::future::ready(Ok::<_, io::Error>(Response::new(body_of("ordered"))))
    });
    let service = layer.layer(BoxCloneSyncService::new(handler));
    let refused = ask.send(&service).await;
    refused.assert_refused(503, "store-unavailable");
    ask.send(&service).await.assert_refused(409, "in-progress");
    tokio::time::sleep(ms(300)).await;
    let told = app.builder().tell_status().build().unwrap();
    let next = ask.send(&app.under(&told)).await;
    next.assert_fresh(201);
    assert_eq!(next.headers["idempotency-status"], "taken-over");
    drop(left_behind);
}

/// Something that the handler left behind has a clone of the request's extensions.
#[test]
fn a_run_that_goes_down_with_its_runtime_leaves_no_transaction_open() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let entered = runtime.enter();
    let app = App::new();
    let layer = app.builder().build().unwrap();
    let (ends, left_behind) = (Arc::default(), Arc::new(Mutex::new(None)));
    let open = Arc::downgrade(&ends);
    let (begun, has_begun) = std::sync::mpsc::channel();
    let store = Arc::clone(app.store.inner());
    let ends = Arc::new(Mutex::new(Some(ends)));
    let holds_on = Arc::clone(&left_behind);
    let handler = tower::service_fn(move |request: Request<RequestBody<Body>>| {
        let slot = request.extensions().get::<TransactionSlot>().unwrap();
        let (store, ends) = (Arc::clone(&store), ends.lock().unwrap().take().unwrap());
        drop(slot.lend(Rows { store, ends }).unwrap());
        *holds_on.lock().unwrap() = Some(slot.clone());
        begun.send(()).unwrap();
        std::future::pending::<io::Result<Response<Body>>>()
    });
    let service = layer.layer(BoxCloneSyncService::new(handler));
    drop(entered);
    runtime.spawn(async move { post("/orders").key("k").send(&service).await });
    has_begun.recv_timeout(ms(60_000)).unwrap();
    assert!(open.upgrade().is_some(), "it works in its transaction");
    runtime.shutdown_timeout(ms(60_000));
    assert!(open.upgrade().is_none(), "rolled back");
    drop(left_behind);
}

/// How a transaction ends that is not committed, or not seen to be.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fails {
    RolledBack,
    CameSecond,
    /// Rolled back; nobody is told.
    InDoubt,
    /// Committed; nobody is told.
    Committed,
    /// No answer within a lease.
    Silent,
}

struct Failing {
    store: Arc<MemoryStore>,
    fails: Fails,
}

impl OpenTransaction for Failing {
    fn commit_with(
        self: Box<Self>,
        finish: FinishRequest,
    ) -> BoxFuture<'static, Result<(), CommitError>> {
        Box::pin(async move {
            match self.fails {
                Fails::RolledBack => Err(CommitError::RolledBack("a constraint".into())),
                Fails::CameSecond => Err(CommitError::CameSecond("could not serialize".into())),
                Fails::InDoubt => Err(CommitError::InDoubt("the connection is gone".into())),
                Fails::Committed => {
                    let _ = self.store.finish(finish).await;
                    Err(CommitError::InDoubt("the connection is gone".into()))
                }
                Fails::Silent => std::future::pending().await,
            }
        })
    }

    fn commit(self: Box<Self>) -> BoxFuture<'static, Result<(), CommitError>> {
        unreachable!("these runs have a claim")
    }

    fn roll_back(self: Box<Self>) -> BoxFuture<'static, ()> {
        Box::pin(std::future::ready(()))
    }
}

/// The rows of this run are gone; those of the one that crashed may be there.
#[tokio::test(start_paused = true)]
async fn a_commit_that_fails_is_no_reason_to_forget_a_crash() {
    for (fails, code) in [
        (Fails::RolledBack, Some((503, "store-unavailable"))),
        (Fails::CameSecond, Some((409, "in-progress"))),
        (Fails::InDoubt, Some((409, "outcome-unknown"))),
        (Fails::Silent, Some((409, "outcome-unknown"))),
        (Fails::Committed, None),
    ] {
        let app = App::new();
        let crashing = app.builder().lease(ms(200)).renewal(Renewal::Off).build();
        let crashing = app.under(&crashing.unwrap());
        let ask = post("/orders").key("k");
        let slow = ask.clone().flags("delay=100000000");
        tokio::spawn(async move { slow.send(&crashing).await });
        tokio::time::sleep(ms(300)).await;

        let layer = app.builder().lease(ms(200)).build().unwrap();
        let store = Arc::clone(app.store.inner());
        let handler = tower::service_fn(move |request: Request<RequestBody<Body>>| {
            let slot = request.extensions().get::<TransactionSlot>().unwrap();
            let store = Arc::clone(&store);
            drop(slot.lend(Failing { store, fails }).unwrap());
            std::future::ready(Ok::<_, io::Error>(Response::new(body_of("ordered"))))
        });
        let service = layer.layer(BoxCloneSyncService::new(handler));
        let asked = tokio::time::Instant::now();
        let told = ask.send(&service).await;
        let Some((status, code)) = code else {
            told.assert_fresh(200);
            assert!(asked.elapsed() < ms(200), "it is seen at once");
            ask.send(&service).await.assert_replay_of(&told);
            continue;
        };
        told.assert_refused(status, code);
        tokio::time::sleep(ms(1000)).await;
        let other = ask.clone().body("another payload").send(&service).await;
        other.assert_refused(422, "key-reused");
        let told = app.builder().tell_status().build().unwrap();
        let next = ask.send(&app.under(&told)).await;
        next.assert_fresh(201);
        let status = &next.headers["idempotency-status"];
        assert_eq!(status, "taken-over", "{fails:?}");
    }
}
