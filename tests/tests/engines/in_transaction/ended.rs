//! What a handler does to its transaction itself: ended, nested, left half-way.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

use axum::Router;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use futures_util::FutureExt;
use sqlx::postgres::PgPoolOptions;
use sqlx::{Acquire, PgPool};
use tower_claim::transaction::TransactionSlot;
use tower_claim_sqlx::RunTransaction;

use super::laws::{Answer, send};
use super::{Mode, SECOND, Shop, TOGETHER, insert, until};

/// How a handler may end it; the last two leave another one open.
const ENDS: [&str; 4] = ["commit", "rollback", "commit; begin", "rollback; begin"];

/// Told to the caller of a handler that ended its transaction, once; and what a healthy one makes of the key then.
async fn is_told_as_a_mistake(shop: &Shop, mode: Mode, ended: Answer, end: &str) {
    let what = format!("{mode:?}, {end}: {}", ended.body);
    assert_eq!(ended.status, StatusCode::INTERNAL_SERVER_ERROR, "{what}");
    assert!(ended.body.contains("handler-panicked"), "{what}");
    assert!(ended.body.contains("ended the transaction"), "{what}");
    let healthy = shop.orders(shop.layer_of(mode).lease(SECOND));
    let mut again = None;
    until("its lease is over", async || {
        let answer = send(&healthy, "key").await;
        assert!(!answer.replayed, "{what}: {}", answer.body);
        again = Some(answer.status);
        answer.status != StatusCode::CONFLICT
    })
    .await;
    assert_eq!(again, Some(StatusCode::CREATED), "{what}");
    let by_itself = usize::from(end.starts_with("commit"));
    assert_eq!(shop.rows().await.len(), 1 + by_itself, "{what}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_that_the_handler_ended_keeps_no_answer() {
    for mode in TOGETHER {
        for end in ENDS {
            let shop = Shop::open().await;
            let ends = async move |mut tx: RunTransaction| {
                insert(&mut tx, "key", "tea").await;
                let ended = sqlx::raw_sql(end).execute(&mut *tx).await;
                ended.expect("the server takes it");
                "done"
            };
            let app = shop.app(shop.layer_of(mode).lease(SECOND), post(ends));
            is_told_as_a_mistake(&shop, mode, send(&app, "key").await, end).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn and_over_tokio_postgres() {
    for mode in TOGETHER {
        for end in ENDS {
            let shop = Shop::open().await;
            let transactions = super::by_tokio_postgres::transactions(&shop);
            let ends = async move |tx: tower_claim_postgres::RunTransaction| {
                let row = "insert into orders (key, item) values ('key', 'tea')";
                tx.execute(row, &[]).await.expect("a row");
                tx.batch_execute(end).await.expect("the server takes it");
                "done"
            };
            let layer = match mode {
                Mode::Inside => shop.layer().claim_inside(transactions.clone()),
                _ => shop.layer(),
            };
            let layer = layer.lease(SECOND).build().expect("good settings");
            let app = Router::new().route("/orders", post(ends).layer(layer));
            let app = app.with_state(transactions);
            is_told_as_a_mistake(&shop, mode, send(&app, "key").await, end).await;
        }
    }
}

/// sqlx rolls back the whole transaction behind a savepoint whose begin was dropped half-way, and tells nobody.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_savepoint_that_was_given_up_half_way_keeps_no_answer_without_its_rows() {
    for mode in TOGETHER {
        let shop = Shop::open().await;
        let gives_up = async |mut tx: RunTransaction| {
            insert(&mut tx, "key", "tea").await;
            while let Some(begun) = tx.begin().now_or_never() {
                let begun = begun.expect("a savepoint");
                begun.rollback().await.expect("rolled back");
            }
            "done"
        };
        let app = shop.app(shop.layer_of(mode).lease(SECOND), post(gives_up));
        let answer = send(&app, "key").await;
        is_told_as_a_mistake(&shop, mode, answer, "given up half-way").await;
    }
}

/// The same shop over a pool of one connection: whatever a run leaves open, the next one meets.
async fn over_one_connection(shop: &Shop) -> (Shop, PgPool) {
    let options = shop.pool.connect_options().as_ref().clone();
    let one = PgPoolOptions::new().max_connections(1);
    let one = one.acquire_timeout(30 * SECOND).connect_with(options).await;
    let one = one.expect("it connects");
    let shop = Shop {
        transactions: super::transactions(&one, &shop.schema),
        ..shop.clone()
    };
    (shop, one)
}

/// The time of a transaction stands still.
async fn assert_no_transaction_is_open(pool: &PgPool, what: &str) {
    let mut times = Vec::new();
    for _ in 0..2 {
        let now: Result<String, _> = sqlx::query_scalar("select now()::text")
            .fetch_one(pool)
            .await;
        times.push(now.expect("an answer"));
    }
    assert_ne!(times[0], times[1], "{what}: a transaction is open");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_savepoint_that_was_forgotten_commits_nothing_and_leaves_a_clean_connection() {
    let done: fn() -> Response = || "done".into_response();
    let refuse: fn() -> Response = || StatusCode::GONE.into_response();
    let fail: fn() -> Response = || StatusCode::BAD_GATEWAY.into_response();
    let panic: fn() -> Response = || panic!("the handler panics");
    for mode in TOGETHER {
        for (says, told) in [
            (done, StatusCode::SERVICE_UNAVAILABLE),
            (refuse, StatusCode::GONE),
            (fail, StatusCode::BAD_GATEWAY),
            (panic, StatusCode::INTERNAL_SERVER_ERROR),
        ] {
            let (shop, pool) = over_one_connection(&Shop::open().await).await;
            let forgets = async move |mut tx: RunTransaction| {
                insert(&mut tx, "outer", "tea").await;
                let mut savepoint = tx.begin().await.expect("a savepoint");
                let row = "insert into orders (key, item) values ('inner', 'tea')";
                let written = sqlx::query(row).execute(&mut *savepoint).await;
                written.expect("a row");
                std::mem::forget(savepoint);
                says()
            };
            let app = shop.app(shop.layer_of(mode), post(forgets));
            let answer = send(&app, "key").await;
            let what = format!("{mode:?}: {} {}", answer.status, answer.body);
            assert_eq!(answer.status, told, "{what}");
            assert_no_transaction_is_open(&pool, &what).await;
            assert!(shop.rows().await.is_empty(), "{what}");
            let again = send(&shop.orders(shop.layer_of(mode)), "key").await;
            assert_eq!(again.replayed, told == StatusCode::GONE, "{what}");
        }
    }
}

/// One of the handler's own making is SQL, and a commit takes it along.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_savepoint_in_sql_that_is_left_open_is_committed_with_the_rest() {
    for mode in TOGETHER {
        let shop = Shop::open().await;
        let nests = async |mut tx: RunTransaction| {
            let savepoint = sqlx::raw_sql("savepoint mine").execute(&mut *tx).await;
            savepoint.expect("a savepoint");
            insert(&mut tx, "key", "tea").await;
            "done"
        };
        let app = shop.app(shop.layer_of(mode), post(nests));
        for replayed in [false, true] {
            let answer = send(&app, "key").await;
            assert_eq!(
                (answer.body.as_str(), answer.replayed),
                ("done", replayed),
                "{mode:?}"
            );
            assert_eq!(shop.rows().await, ["key"]);
        }
    }
}

/// `None` when it was dropped after so many polls.
async fn polled<T>(future: impl Future<Output = T>, mut polls: usize) -> Option<T> {
    let mut future = pin!(future);
    poll_fn(move |cx| {
        if polls == 0 {
            return Poll::Ready(None);
        }
        polls -= 1;
        future.as_mut().poll(cx).map(Some)
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_begin_that_is_dropped_at_any_point_leaves_a_clean_connection() {
    let (shop, pool) = over_one_connection(&Shop::open().await).await;
    let mut polls = 0;
    loop {
        let mut request = http::Extensions::new();
        request.insert(TransactionSlot::new());
        let begun = polled(shop.transactions.begin(&request), polls).await;
        let is_done = begun.is_some();
        drop((begun, request));
        assert_no_transaction_is_open(&pool, &format!("{polls} polls")).await;
        if is_done {
            break;
        }
        polls += 1;
    }
    assert!(polls > 1, "it waits for the server");
}
