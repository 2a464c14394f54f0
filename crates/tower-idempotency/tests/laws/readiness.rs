//! A service inside that is busy: a run waits for its place there, and its claim may end meanwhile.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use http::{Request, Response};
use tokio::task::JoinHandle;
use tower::Layer;
use tower::limit::ConcurrencyLimitLayer;
use tower::util::BoxCloneSyncService;
use tower_claim::{LapsePolicy, Renewal};
use tower_idempotency::{IdempotencyBuilder, IdempotencyLayer, IdempotentRun, OnBusy, RequestBody};

use crate::support::*;

/// What the runs under the key `k` were.
#[derive(Clone, Default)]
struct Seen {
    done: Arc<AtomicU64>,
    begun_without_a_claim: Arc<AtomicU64>,
}

impl Seen {
    fn told(&self) -> (u64, u64) {
        let lost = self.begun_without_a_claim.load(Ordering::SeqCst);
        (self.done.load(Ordering::SeqCst), lost)
    }
}

/// Two places; a run takes as long as `x-delay` says, and fails where there is `x-fail`.
fn limited(layer: &IdempotencyLayer, seen: &Seen) -> Service {
    let seen = seen.clone();
    let handler = tower::service_fn(move |request: Request<RequestBody<Body>>| {
        let seen = seen.clone();
        async move {
            let headers = request.headers();
            let (fails, is_k) = (
                headers.contains_key("x-fail"),
                headers["idempotency-key"] == "k",
            );
            let run = request.extensions().get::<IdempotentRun>().unwrap();
            if is_k && run.check().is_err() {
                seen.begun_without_a_claim.fetch_add(1, Ordering::SeqCst);
            }
            let delay = headers.get("x-delay").map_or("10", |d| d.to_str().unwrap());
            tokio::time::sleep(ms(delay.parse().unwrap())).await;
            if is_k && !fails {
                seen.done.fetch_add(1, Ordering::SeqCst);
            }
            let status = if fails { 503 } else { 201 };
            let response = Response::builder().status(status).body(body_of("done"));
            Ok::<_, io::Error>(response.unwrap())
        }
    });
    let limited = ConcurrencyLimitLayer::new(2).layer(handler);
    layer.layer(BoxCloneSyncService::new(limited))
}

fn spawn(service: &Service, ask: Ask) -> JoinHandle<Answer> {
    let service = service.clone();
    tokio::spawn(async move { ask.send(&service).await })
}

fn waiting(app: &App) -> IdempotencyBuilder {
    let builder = app.builder().lease(ms(1000));
    builder.on_busy(OnBusy::Wait(ms(60_000)))
}

/// At 0 `k` runs, at 50 ms a repeat waits for it and gives its place back, which is taken for 5 s; the place of `k`,
/// which fails at 300 ms, is taken for 3 s. Then the repeat is granted the key, and waits for a place.
async fn a_repeat_that_waits_for_a_place(service: &Service) -> JoinHandle<Answer> {
    let k = post("/orders").key("k");
    let failing = k.clone().header("x-fail", "1").header("x-delay", "300");
    spawn(service, failing);
    tokio::time::sleep(ms(50)).await;
    let repeat = spawn(service, k);
    for (key, delay) in [("b1", "5000"), ("b0", "3000")] {
        tokio::time::sleep(ms(20)).await;
        spawn(service, post("/orders").key(key).header("x-delay", delay));
    }
    tokio::time::sleep(ms(20)).await;
    repeat
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_a_place_until_another_took_over_runs_nothing() {
    let app = App::new();
    let (layer, seen) = (waiting(&app).renewal(Renewal::Off), Seen::default());
    let layer = layer.build().unwrap();
    let service = limited(&layer, &seen);
    let waits = a_repeat_that_waits_for_a_place(&service).await;
    // In line for a place before the one that waits.
    let winner = spawn(&service, post("/orders").key("k")).await.unwrap();
    winner.assert_fresh(201);
    waits.await.unwrap();
    post("/orders")
        .key("k")
        .send(&service)
        .await
        .assert_replay_of(&winner);
    tokio::time::sleep(ms(10_000)).await;
    assert_eq!(seen.told(), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_ends_while_its_run_waits_for_a_place_is_given_back_and_nothing_runs() {
    type Set = fn(IdempotencyBuilder) -> IdempotencyBuilder;
    let settings: [Set; 5] = [
        |builder| builder.renewal(Renewal::Off),
        |builder| builder.renewal(Renewal::Off).on_lapse(LapsePolicy::Hold),
        |builder| builder.max_hold(ms(1500)),
        |builder| builder.max_hold(ms(1500)).on_lapse(LapsePolicy::Hold),
        |builder| {
            let stall_after = ms(500);
            builder.renewal(Renewal::Progress { stall_after })
        },
    ];
    for (n, set) in settings.into_iter().enumerate() {
        let app = App::new();
        let (layer, seen) = (set(waiting(&app)).build().unwrap(), Seen::default());
        let service = limited(&layer, &seen);
        let asked = tokio::time::Instant::now();
        let waits = a_repeat_that_waits_for_a_place(&service).await;
        let told = waits.await.unwrap();
        assert_eq!(told.status, 409, "{n}: {:?}", asked.elapsed());
        told.assert_refused(409, "in-progress");
        assert!(asked.elapsed() < ms(3000), "{n}: before there is a place");
        assert_eq!((seen.told(), layer.counts().runs), ((0, 0), 3), "{n}");
        // Nothing is left of it: who comes when there is a place runs.
        tokio::time::sleep(ms(3000)).await;
        let next = post("/orders").key("k").send(&service).await;
        next.assert_fresh(201);
        assert_eq!(seen.told(), (1, 0), "{n}");
    }
}

/// Its handler was not called: a shutdown then leaves nothing to be taken over.
#[test]
fn a_shutdown_while_a_run_waits_for_its_place_gives_the_key_back() {
    let store = tower_claim::MemoryStore::new();
    let layer = || {
        let builder = IdempotencyLayer::builder(store.clone()).tell_status();
        builder.on_busy(OnBusy::Wait(ms(60_000))).build().unwrap()
    };
    let runtime = || {
        let runtime = tokio::runtime::Builder::new_multi_thread();
        { runtime }.worker_threads(1).enable_all().build().unwrap()
    };
    let seen = Seen::default();
    let going_down = layer();
    let service = limited(&going_down, &seen);
    let first = runtime();
    first.block_on(async {
        let waits = a_repeat_that_waits_for_a_place(&service).await;
        let deadline = tokio::time::Instant::now() + ms(2500);
        // `b0` took the place of `k`, and the repeat was granted the key.
        while going_down.counts().runs < 3 || going_down.waiting() > 0 {
            assert!(tokio::time::Instant::now() < deadline, "nobody waits");
            tokio::time::sleep(ms(5)).await;
        }
        tokio::time::sleep(ms(100)).await;
        drop(waits);
    });
    first.shutdown_background();
    drop((service, going_down));
    let service = limited(&layer(), &seen);
    // Long before its lease, of 30 s, could lapse.
    let next = runtime().block_on(async {
        let asked = post("/orders").key("k");
        tokio::time::timeout(ms(10_000), asked.send(&service)).await
    });
    let next = next.unwrap();
    next.assert_fresh(201);
    assert_eq!(next.headers["idempotency-status"], "fresh");
}
