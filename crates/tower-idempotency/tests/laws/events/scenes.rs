//! One scene for each thing that is told of.

use std::error::Error;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{Request, Response};
use tower::Layer;
use tower::util::BoxCloneSyncService;
use tower_claim::store::FinishRequest;
use tower_claim::testing::{Fault, Operation};
use tower_claim::transaction::{
    CommitError, Lent, OpenTransaction, TransactionSlot, UniqueViolation,
};
use tower_claim::{Clock, LapsePolicy, Moment, Renewal, RunOn};
use tower_http::cors::CorsLayer;
use tower_idempotency::{
    IdempotencyBuilder, IdempotencyLayer, KeyRing, OnStoreDown, Reconciled, RequestBody,
};

use super::order;
use crate::support::*;

/// A layer that is called `orders`, with short leases.
pub(super) fn orders(app: &App) -> IdempotencyBuilder {
    app.builder().named("orders").lease(ms(200))
}

pub(super) fn spawn(service: &Service, ask: Ask) -> tokio::task::JoinHandle<Answer> {
    let service = service.clone();
    tokio::spawn(async move { ask.send(&service).await })
}

/// A fresh run, a replay, a mismatch, a repeat amid a run, and a key that is none.
pub(super) async fn everyday() {
    let app = App::new();
    let service = app.under(&orders(&app).build().unwrap());
    let first = spawn(&service, order().flags("delay=100"));
    tokio::time::sleep(ms(10)).await;
    order()
        .send(&service)
        .await
        .assert_refused(409, "in-progress");
    let first = first.await.unwrap();
    order().send(&service).await.assert_replay_of(&first);
    let other = order().body("s3cret-other");
    other.send(&service).await.assert_refused(422, "key-reused");
    let none = post("/orders").key("s3cret,s3cret");
    none.send(&service).await.assert_refused(400, "key-invalid");
}

/// A run whose heartbeats are not answered, another that takes over, and the first that comes back.
pub(super) async fn zombie() {
    let app = App::new();
    let service = app.under(&orders(&app).build().unwrap());
    let renewals = |fault| app.store.faults().set_for(Operation::Renew, fault);
    renewals(Fault::Down);
    let first = spawn(&service, order().flags("delay=1000"));
    tokio::time::sleep(ms(300)).await;
    renewals(Fault::Ok);
    let second = order().send(&service).await;
    second.assert_fresh(201);
    first.await.unwrap().assert_replay_of(&second);
}

/// A panic before the point of no return, and one behind it.
pub(super) async fn panics() {
    let app = App::new();
    let service = app.under(&orders(&app).build().unwrap());
    let ask = order().flags("panic");
    ask.send(&service)
        .await
        .assert_refused(500, "handler-panicked");
    let ask = order().flags("commit&panic");
    ask.send(&service)
        .await
        .assert_refused(500, "handler-panicked");
}

/// An outcome that the keeper brings home.
pub(super) async fn late() {
    let app = App::new();
    let layer = orders(&app).build().unwrap();
    let service = app.under(&layer);
    let finishes = |fault| app.store.faults().set_for(Operation::Finish, fault);
    finishes(Fault::Down);
    order().send(&service).await.assert_fresh(201);
    finishes(Fault::Ok);
    assert!(layer.drain(ms(30_000)).await);
}

/// One that it cannot bring home.
pub(super) async fn never_home() {
    let app = App::new();
    let layer = orders(&app).build().unwrap();
    let service = app.under(&layer);
    let finishes = |fault| app.store.faults().set_for(Operation::Finish, fault);
    finishes(Fault::Down);
    order().send(&service).await.assert_fresh(201);
    assert!(layer.drain(ms(30_000)).await);
}

/// One that comes when another run has taken over.
pub(super) async fn too_late() {
    let app = App::new();
    let layer = orders(&app).renewal(Renewal::Off).build().unwrap();
    let service = app.under(&layer);
    let finishes = |fault| app.store.faults().set_for(Operation::Finish, fault);
    finishes(Fault::Down);
    order()
        .flags("delay=100")
        .send(&service)
        .await
        .assert_fresh(201);
    tokio::time::sleep(ms(110)).await;
    let second = spawn(&service, order().flags("delay=1000"));
    tokio::time::sleep(ms(10)).await;
    finishes(Fault::Ok);
    second.await.unwrap().assert_fresh(201);
}

/// A transaction that the database refuses.
struct Refused;

impl OpenTransaction for Refused {
    fn commit_with(
        self: Box<Self>,
        _: FinishRequest,
    ) -> BoxFuture<'static, Result<(), CommitError>> {
        let quoting: Box<dyn Error + Send + Sync> =
            "ERROR: duplicate key\nDETAIL: Key (iban)=(s3cret-row) already exists.".into();
        Box::pin(async { Err(CommitError::RolledBack(quoting)) })
    }

    fn commit(self: Box<Self>) -> BoxFuture<'static, Result<(), CommitError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn roll_back(self: Box<Self>) -> BoxFuture<'static, ()> {
        Box::pin(std::future::ready(()))
    }
}

/// A handler that takes a transaction, and drops it or not.
async fn in_a_transaction(left: Arc<Mutex<Option<Lent<Refused>>>>, drops: bool) {
    let app = App::new();
    let layer = orders(&app).build().unwrap();
    let handler = tower::service_fn(move |request: Request<RequestBody<Body>>| {
        let slot = request.extensions().get::<TransactionSlot>().unwrap();
        let lent = slot.lend(Refused).unwrap();
        if !drops {
            *left.lock().unwrap() = Some(lent);
        }
        std::future::ready(Ok::<_, io::Error>(Response::new(body_of("s3cret-answer"))))
    });
    let service = layer.layer(BoxCloneSyncService::new(handler));
    let refused = order().send(&service).await;
    refused.assert_refused(503, "store-unavailable");
}

pub(super) async fn not_committed() {
    in_a_transaction(Arc::default(), true).await;
}

pub(super) async fn transaction_left_behind() {
    let left = Arc::default();
    in_a_transaction(Arc::clone(&left), false).await;
}

/// Outcomes without their responses: too big, over the quota, and unfit to be kept.
pub(super) async fn not_kept() {
    let app = App::new();
    for (n, builder) in [
        orders(&app).max_response_body(10),
        orders(&app).max_bytes_per_tenant(300),
        orders(&app).redact(|_| panic!("told to")),
    ]
    .into_iter()
    .enumerate()
    {
        let service = app.under(&builder.build().unwrap());
        let ask = post("/orders").header("x-tenant", "s3cret-tenant");
        let ask = ask.key(&format!("s3cret-{n}-8e03978e")).flags("size=100");
        ask.send(&service).await.assert_fresh(201);
        ask.send(&service)
            .await
            .assert_refused(409, "response-not-kept");
    }
}

/// A runtime that shuts down in the midst of a run.
pub(super) async fn cut_off() {
    let listening = tracing::dispatcher::get_default(Clone::clone);
    let shut_down = move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(async {
            let app = App::new();
            let service = app.under(&orders(&app).build().unwrap());
            let _run = spawn(&service, order().flags("delay=100000"));
            tokio::time::sleep(ms(10)).await;
        });
        drop(runtime);
    };
    let thread = std::thread::spawn(move || {
        tracing::dispatcher::with_default(&listening, shut_down);
    });
    thread.join().unwrap();
}

pub(super) async fn unprotected() {
    let app = App::new();
    let layer = orders(&app).on_store_down(OnStoreDown::RunUnprotected);
    let service = app.under(&layer.build().unwrap());
    app.store.faults().set(Fault::Down);
    order().send(&service).await.assert_fresh(201);
}

/// A hook of each kind that answers, and that panics.
pub(super) async fn reconciled() {
    for n in 0..5 {
        let app = App::new();
        let crashing = orders(&app)
            .renewal(Renewal::Off)
            .on_lapse(LapsePolicy::Hold);
        let crashing = app.under(&crashing.build().unwrap());
        let _crashed = spawn(&crashing, order().flags("delay=100000000"));
        tokio::time::sleep(ms(300)).await;
        let layer = orders(&app).reconcile(app.store.inner().clone(), move |lapsed| async move {
            assert!(!format!("{lapsed:?}").contains("s3cret"), "{lapsed:?}");
            let answer = match n {
                0 => Reconciled::RunAgain,
                1 => Reconciled::Done(secret_answer()),
                2 => Reconciled::Unknown,
                3 => Reconciled::NotYet(ms(10)),
                _ => panic!("told to"),
            };
            assert!(!format!("{answer:?}").contains("s3cret"), "{answer:?}");
            answer
        });
        order().send(&app.under(&layer.build().unwrap())).await;
    }
}

fn secret_answer() -> Response<Bytes> {
    let answer = Response::builder().header("x-answer", "s3cret-header");
    answer.body("s3cret-answer".into()).unwrap()
}

/// A row that is there already, and a hook that knows it, or not, or panics.
pub(super) async fn existing() {
    for n in 0..3 {
        let app = App::new();
        let layer = orders(&app).on_unique_violation("orders_pk", move |row| async move {
            assert!(!format!("{row:?}").contains("s3cret"), "{row:?}");
            match n {
                0 => Some(secret_answer()),
                1 => None,
                _ => panic!("told to"),
            }
        });
        let handler = tower::service_fn(|_: Request<RequestBody<Body>>| {
            let violation = UniqueViolation::new("orders_pk").with_detail("s3cret-row");
            let response = Response::builder().status(409).extension(violation);
            std::future::ready(Ok::<_, io::Error>(response.body(body_of("")).unwrap()))
        });
        let service = layer.build().unwrap();
        order()
            .send(&service.layer(BoxCloneSyncService::new(handler)))
            .await;
    }
}

/// A hook for repeats that panics.
pub(super) async fn rendered() {
    let app = App::new();
    let layer = orders(&app).max_response_body(10);
    let layer = layer.on_not_kept(async |not_kept| {
        assert!(!format!("{not_kept:?}").contains("s3cret"), "{not_kept:?}");
        panic!("told to")
    });
    let service = app.under(&layer.build().unwrap());
    order()
        .flags("size=50")
        .send(&service)
        .await
        .assert_fresh(201);
    let repeat = order().send(&service).await;
    repeat.assert_refused(409, "response-not-kept");
}

pub(super) async fn store_down() {
    let app = App::new();
    let service = app.under(&orders(&app).build().unwrap());
    app.store.faults().set(Fault::Down);
    let refused = order().send(&service).await;
    refused.assert_refused(503, "store-unavailable");
}

/// A kept response, and a ring without its key.
pub(super) async fn unreadable() {
    let app = App::new();
    let under = |ring| app.under(&orders(&app).seal_with(ring).build().unwrap());
    let first = order().send(&under(KeyRing::new("a", [1; 32]))).await;
    first.assert_fresh(201);
    let refused = order().send(&under(KeyRing::new("b", [2; 32]))).await;
    refused.assert_refused(503, "store-unavailable");
}

/// Two keys that are times.
pub(super) async fn weak_key() {
    let app = App::new();
    let service = app.under(&orders(&app).build().unwrap());
    for n in 0..2 {
        let key = format!("s3cret{n}-{}", app.clock.unix_time().as_secs());
        let ask = post("/orders?card=s3cret-query").key(&key);
        ask.send(&service).await.assert_fresh(201);
    }
}

pub(super) async fn misorder() {
    let app = App::new();
    let layer: IdempotencyLayer = orders(&app).build().unwrap();
    for _route in 0..2 {
        let handler = tower::service_fn(async |_: Request<RequestBody<Body>>| {
            Ok::<_, io::Error>(Response::new(body_of("ok")))
        });
        let _service = layer.layer(CorsLayer::permissive().layer(handler));
    }
}

/// A clock that panics once, when it is told to.
#[derive(Debug)]
struct Flaky {
    clock: Arc<dyn Clock>,
    panics: AtomicBool,
}

impl Clock for Flaky {
    fn now(&self) -> Moment {
        let panics = self.panics.swap(false, Ordering::SeqCst);
        assert!(!panics, "told to");
        self.clock.now()
    }

    fn unix_time(&self) -> Duration {
        self.clock.unix_time()
    }

    fn sleep_until(&self, at: Moment) -> BoxFuture<'static, ()> {
        self.clock.sleep_until(at)
    }
}

pub(super) async fn keeper_panics() {
    let app = App::new();
    let clock = Arc::new(Flaky {
        clock: Arc::clone(&app.clock),
        panics: false.into(),
    });
    let layer = IdempotencyLayer::builder(app.store.clone())
        .clock(clock.clone())
        .run_on(RunOn::Task)
        .named("orders")
        .lease(ms(200))
        .one_tenant();
    let service = app.under(&layer.build().unwrap());
    let run = spawn(&service, order().flags("delay=1000"));
    tokio::time::sleep(ms(10)).await;
    // Nobody but the keeper looks at the clock until the handler is done.
    clock.panics.store(true, Ordering::SeqCst);
    run.await.unwrap().assert_fresh(201);
}
