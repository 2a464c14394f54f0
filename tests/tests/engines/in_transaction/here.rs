//! Repeats of a run that is inside of its transaction, in its own process.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use axum::Router;
use axum::http::StatusCode;
use axum::routing::post;
use futures_util::future::{BoxFuture, join_all};
use sqlx::postgres::PgPoolOptions;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tower_claim::StoreError;
use tower_claim::store::{ClaimRequest, Claimed};
use tower_claim::transaction::{BeginWithClaim, TransactionSlot};
use tower_claim_sqlx::{RunTransaction, Transactions};
use tower_idempotency::{IdempotencyBuilder, OnBusy};

use super::laws::{Answer, send, send_item};
use super::repeats::Held;
use super::{Mode, SECOND, Shop, TOGETHER, insert, until};

/// Transactions that count the claims they begin with.
struct Counted(Transactions, Arc<AtomicU32>);

impl BeginWithClaim for Counted {
    fn begin_with_claim<'a>(
        &'a self,
        request: ClaimRequest<'a>,
        slot: &'a TransactionSlot,
    ) -> BoxFuture<'a, Result<Claimed, StoreError>> {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.begin_with_claim(request, slot)
    }
}

/// The same shop with a layer over the only connection of its pool, and how often it was taken.
async fn over_one_connection(shop: &mut Shop) -> (IdempotencyBuilder, Arc<AtomicU32>) {
    let options = shop.pool.connect_options().as_ref().clone();
    let one = PgPoolOptions::new().max_connections(1);
    let one = one.acquire_timeout(30 * SECOND).connect_with(options).await;
    shop.transactions = super::transactions(&one.expect("it connects"), &shop.schema);
    let claims = Arc::new(AtomicU32::new(0));
    let counted = Counted(shop.transactions.clone(), Arc::clone(&claims));
    (shop.layer().claim_inside(counted), claims)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_repeats_of_a_run_that_is_here_take_no_connection() {
    let mut shop = Shop::open().await;
    let (layer, claims) = over_one_connection(&mut shop).await;
    let held = Held::under(&shop, layer);
    let first = held.begin("key").await;
    let since = Instant::now();
    for _ in 0..10 {
        for repeat in join_all((0..100).map(|_| send(&held.app, "key"))).await {
            assert_eq!(repeat.status, StatusCode::CONFLICT, "{}", repeat.body);
            assert!(repeat.body.contains("in-progress"), "{}", repeat.body);
        }
    }
    println!("1,000 repeats in {:?}", since.elapsed());
    let reused = send_item(&held.app, "key", "another payload").await;
    assert_eq!(reused.status, StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(claims.load(Ordering::Relaxed), 1, "the run's own");
    held.let_go();
    let first = first.await.expect("it does not panic");
    // Right after its answer.
    let again = send(&held.app, "key").await;
    assert!(again.replayed && again.body == first.body, "{}", again.body);
    assert_eq!(claims.load(Ordering::Relaxed), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn over_its_tenants_quota_a_repeat_is_told_of_its_run_all_the_same() {
    for mode in TOGETHER {
        let shop = Shop::open().await;
        let layer = shop.layer_of(mode).max_records_per_tenant(1);
        let held = Held::under(&shop, layer);
        let first = held.begin("key").await;
        let repeat = send(&held.app, "key").await;
        assert_eq!(repeat.status, StatusCode::CONFLICT, "{}", repeat.body);
        let over = send(&held.app, "another").await;
        assert_eq!(over.status, StatusCode::TOO_MANY_REQUESTS, "{mode:?}");
        held.let_go();
        assert_eq!(first.await.expect("no panic").status, StatusCode::OK);
    }
}

/// So many wait for a run.
async fn wait_all(held: &Held, waiting: impl Fn() -> usize) -> Vec<JoinHandle<Answer>> {
    let wait = |_| {
        let app = held.app.clone();
        tokio::spawn(async move { send(&app, "key").await })
    };
    let all: Vec<_> = (0..50).map(wait).collect();
    until("all wait", async || waiting() == 50).await;
    all
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn those_who_wait_are_woken_by_the_end_of_the_run_and_one_asks_for_all() {
    let mut shop = Shop::open().await;
    let (layer, claims) = over_one_connection(&mut shop).await;
    let layer = layer.on_busy(OnBusy::Wait(30 * SECOND));
    let layer = layer.build().expect("good settings");
    let held = Held::at(&shop, &layer);
    let first = held.begin("key").await;
    let all = wait_all(&held, || layer.waiting()).await;
    assert_eq!(claims.load(Ordering::Relaxed), 1, "none has asked");
    held.let_go();
    let first = first.await.expect("it does not panic");
    assert_eq!(first.status, StatusCode::OK, "{}", first.body);
    for waited in join_all(all).await {
        let waited = waited.expect("it does not panic");
        assert!(waited.replayed && waited.body == first.body);
    }
    assert_eq!(claims.load(Ordering::Relaxed), 2, "one for all");
    assert_eq!(shop.rows().await, ["key"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_those_who_wait_for_a_run_that_fails_one_runs() {
    let mut shop = Shop::open().await;
    let (layer, claims) = over_one_connection(&mut shop).await;
    let layer = layer.on_busy(OnBusy::Wait(30 * SECOND));
    let layer = layer.build().expect("good settings");
    let (ran, gate) = (Arc::new(AtomicU32::new(0)), Arc::new(Semaphore::new(0)));
    let (count, open) = (Arc::clone(&ran), Arc::clone(&gate));
    let fails_first = async move |mut tx: RunTransaction| {
        insert(&mut tx, "key", "tea").await;
        match count.fetch_add(1, Ordering::Relaxed) {
            0 => {
                open.acquire().await.expect("never closed").forget();
                StatusCode::BAD_GATEWAY
            }
            _ => StatusCode::OK,
        }
    };
    let app = Router::new().route("/orders", post(fails_first).layer(layer.clone()));
    let held = Held {
        app: app.with_state(shop.clone()),
        written: ran,
        gate,
    };
    let first = held.begin("key").await;
    let all = wait_all(&held, || layer.waiting()).await;
    held.let_go();
    assert_eq!(
        first.await.expect("no panic").status,
        StatusCode::BAD_GATEWAY
    );
    let all = join_all(all).await.into_iter().map(|waited| {
        let waited = waited.expect("it does not panic");
        assert_eq!(waited.status, StatusCode::OK, "{}", waited.body);
        waited.replayed
    });
    assert_eq!(all.filter(|replayed| !replayed).count(), 1, "one ran");
    assert_eq!(shop.rows().await, ["key"], "of the second run only");
    println!("{} claims", claims.load(Ordering::Relaxed));
}

/// By looking: nobody tells of its end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_of_another_process_is_waited_for_as_well() {
    let shop = Shop::open().await;
    let held = Held::over(&shop);
    let first = held.begin("key").await;
    let layer = shop.layer_of(Mode::Inside);
    let layer = layer.on_busy(OnBusy::Wait(30 * SECOND));
    let layer = layer.build().expect("good settings");
    let elsewhere = Held::at(&shop, &layer);
    let all = wait_all(&elsewhere, || layer.waiting()).await;
    held.let_go();
    let first = first.await.expect("it does not panic");
    for waited in join_all(all).await {
        let waited = waited.expect("it does not panic");
        assert!(
            waited.replayed && waited.body == first.body,
            "{}",
            waited.body
        );
    }
    assert_eq!(shop.rows().await, ["key"]);
}
