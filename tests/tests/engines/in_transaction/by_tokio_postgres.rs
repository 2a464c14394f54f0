//! The same over tokio-postgres and a pool of deadpool's.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use deadpool_postgres::{Manager, Pool};
use tokio_postgres::NoTls;
use tower_claim::http::{Gate, Switch};
use tower_claim_postgres::{RunTransaction, Transactions};
use tower_idempotency::IdempotentRun;

use super::laws::{Answer, send};
use super::{Mode, SECOND, Shop, TOGETHER};

/// One connection: whatever a run leaves open, the next one meets.
fn pool(shop: &Shop) -> Pool {
    let mut config: tokio_postgres::Config = shop.url.parse().expect("a URL");
    config.options(format!("-csearch_path={}", shop.schema));
    let pool = Pool::builder(Manager::new(config, NoTls)).max_size(1);
    let pool = pool.runtime(deadpool_postgres::Runtime::Tokio1);
    let pool = pool.wait_timeout(Some(10 * SECOND)).build();
    pool.expect("good settings")
}

pub fn transactions(shop: &Shop) -> Transactions {
    Transactions::new(shop.store.clone(), pool(shop))
}

async fn insert(tx: &RunTransaction) {
    let row = "insert into orders (key, item) values ('key', 'tea')";
    tx.execute(row, &[]).await.expect("a row");
}

/// Sends twice what is answered so: the first time, and the second.
async fn twice(shop: &Shop, mode: Mode, answers: [fn() -> Response; 2]) -> [Answer; 2] {
    let ran = Arc::new(AtomicU32::new(0));
    let handler = async move |tx: RunTransaction| {
        insert(&tx).await;
        answers[ran.fetch_add(1, Ordering::Relaxed) as usize]()
    };
    let transactions = transactions(shop);
    let layer = match mode {
        Mode::Inside => shop.layer().claim_inside(transactions.clone()),
        _ => shop.layer(),
    };
    let layer = layer.build().expect("good settings");
    let app = axum::Router::new().route("/orders", post(handler).layer(layer));
    let app = app.with_state(transactions);
    [send(&app, "key").await, send(&app, "key").await]
}

/// A route whose layer stands so; the handler writes a row, and then answers.
pub fn switched<F>(
    shop: &Shop,
    mode: Mode,
    position: tower_claim::http::Mode,
    answer: impl Fn(RunTransaction) -> F + Clone + Send + Sync + 'static,
) -> axum::Router
where
    F: Future<Output = Response> + Send,
{
    let handler = async move |run: IdempotentRun, tx: RunTransaction| {
        assert!(!run.is_guarded());
        run.point_of_no_return().await.expect("no store is asked");
        insert(&tx).await;
        answer(tx).await
    };
    let transactions = transactions(shop);
    let layer = match mode {
        Mode::Inside => shop.layer().claim_inside(transactions.clone()),
        _ => shop.layer(),
    };
    let layer = layer.gate(Gate::new().switch(Switch::new(position)));
    let layer = layer.build().expect("good settings");
    let app = axum::Router::new().route("/orders", post(handler).layer(layer));
    app.with_state(transactions)
}

fn done() -> Response {
    "done".into_response()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_and_answer_are_committed_together() {
    for mode in TOGETHER {
        let shop = Shop::open().await;
        let [first, again] = twice(&shop, mode, [done, done]).await;
        assert_eq!((first.status, first.replayed), (StatusCode::OK, false));
        assert!(again.replayed && again.body == "done");
        assert_eq!(shop.rows().await, ["key"]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_is_kept_without_its_rows() {
    for mode in TOGETHER {
        let shop = Shop::open().await;
        let refuse = || StatusCode::CONFLICT.into_response();
        let [first, again] = twice(&shop, mode, [refuse, done]).await;
        assert_eq!(
            (first.status, again.status),
            (StatusCode::CONFLICT, StatusCode::CONFLICT)
        );
        assert!(again.replayed && shop.rows().await.is_empty());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failures_and_panics_leave_no_rows_and_a_clean_connection() {
    let fail: fn() -> Response = || StatusCode::BAD_GATEWAY.into_response();
    let panic: fn() -> Response = || panic!("the handler panics");
    for mode in TOGETHER {
        for first in [fail, panic] {
            let shop = Shop::open().await;
            let [first, again] = twice(&shop, mode, [first, done]).await;
            assert!(first.status.is_server_error());
            assert_eq!((again.body.as_str(), again.replayed), ("done", false));
            assert_eq!(shop.rows().await, ["key"], "of the second run only");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_dropped_open_leaves_its_connection_clean() {
    let shop = Shop::open().await;
    let pool = pool(&shop);
    let transactions = Transactions::new(shop.store.clone(), pool.clone());
    let mut request = http::Extensions::new();
    let slot = tower_claim::transaction::TransactionSlot::new();
    request.insert(slot.clone());
    let tx = transactions.begin(&request).await.expect("begun");
    insert(&tx).await;
    // The run is over, and somebody has its transaction yet.
    slot.take().err().expect("still lent");
    drop(tx);
    let client = pool.get().await.expect("the only connection");
    let row = client.query_one("select count(*) from orders", &[]).await;
    assert_eq!(row.expect("an answer").get::<_, i64>(0), 0);
    // The time of a transaction stands still.
    let mut times = Vec::new();
    for _ in 0..2 {
        let row = client.query_one("select now()::text", &[]).await;
        times.push(row.expect("an answer").get::<_, String>(0));
    }
    assert_ne!(times[0], times[1], "a transaction is open");
}
