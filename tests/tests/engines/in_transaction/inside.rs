//! Claimed inside of the handler's transaction: what only that mode promises, and what it refuses.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use axum::Router;
use axum::http::StatusCode;
use axum::routing::post;
use futures_util::future::join_all;
use system_tests::relay::Relay;
use tower_claim::LapsePolicy;
use tower_claim_sqlx::{RunTransaction, WorkError};
use tower_idempotency::{IdempotentRun, OnStoreDown, PointRefused, Reconciled, RequestFields};

use super::laws::send;
use super::{Mode, SECOND, Shop, TOGETHER, insert, until};

pub const REPEATABLE_READ: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ";
pub const SERIALIZABLE: &str = "BEGIN ISOLATION LEVEL SERIALIZABLE";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_at_once_one_runs_at_any_level() {
    for begin in ["BEGIN", REPEATABLE_READ, SERIALIZABLE] {
        let shop = Shop::open().await.beginning_with(begin);
        let app = shop.orders(shop.layer_of(Mode::Inside));
        let keys = ["a", "b", "c", "d"];
        for key in keys {
            let answers = join_all((0..16).map(|_| send(&app, key))).await;
            for answer in answers {
                let is_told = answer.status == StatusCode::CREATED
                    || answer.status == StatusCode::CONFLICT && answer.body.contains("in-progress");
                assert!(is_told, "{begin}: {} {}", answer.status, answer.body);
            }
            // All may have come second to each other, at SERIALIZABLE.
            until("one has run", async || {
                send(&app, key).await.status == StatusCode::CREATED
            })
            .await;
        }
        assert_eq!(shop.rows().await, keys, "{begin}");
    }
}

/// A handler whose statement, or whose commit, meets another transaction that came first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_that_came_second_is_told_to_come_again() {
    for mode in TOGETHER {
        let shop = Shop::open().await.beginning_with(REPEATABLE_READ);
        sqlx::query("create table stock (item text primary key, count integer not null)")
            .execute(&shop.pool)
            .await
            .expect("a table");
        let stock = sqlx::query("insert into stock values ('tea', 10)");
        stock.execute(&shop.pool).await.expect("a row");
        let pool = shop.pool.clone();
        let ran = Arc::new(AtomicU32::new(0));
        let take = async move |mut tx: RunTransaction| -> Result<&'static str, WorkError> {
            let left = sqlx::query("select count from stock").execute(&mut *tx);
            left.await?;
            if ran.fetch_add(1, Ordering::Relaxed) == 0 {
                // Another commits behind this one's snapshot.
                let other = sqlx::query("update stock set count = count - 1");
                other.execute(&pool).await?;
            }
            let mine = sqlx::query("update stock set count = count - 1");
            mine.execute(&mut *tx).await?;
            Ok("taken")
        };
        let app = shop.app(shop.layer_of(mode), post(take));
        assert_came_second_and_runs_again(&app, mode).await;
        let left = sqlx::query_scalar("select count from stock");
        assert_eq!(left.fetch_one(&shop.pool).await.ok(), Some(8_i32));
    }
}

async fn assert_came_second_and_runs_again(app: &Router, mode: Mode) {
    let first = send(app, "key").await;
    assert_eq!(
        first.status,
        StatusCode::CONFLICT,
        "{mode:?}: {}",
        first.body
    );
    assert!(first.body.contains("another-transaction"), "{}", first.body);
    let again = send(app, "key").await;
    assert_eq!((again.status, again.replayed), (StatusCode::OK, false));
}

/// Write skew: each reads what the other writes. The server refuses the second only when it ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_came_second_is_told_to_come_again() {
    for mode in TOGETHER {
        let shop = Shop::open().await.beginning_with(SERIALIZABLE);
        let pool = shop.pool.clone();
        let ran = Arc::new(AtomicU32::new(0));
        let count = "select count(*)::integer from orders";
        let row = "insert into orders (key, item) values ('skew', 'tea')";
        let skew = async move |mut tx: RunTransaction| -> Result<&'static str, WorkError> {
            sqlx::query(count).execute(&mut *tx).await?;
            if ran.fetch_add(1, Ordering::Relaxed) == 0 {
                let mut other = pool.begin_with(SERIALIZABLE).await?;
                sqlx::query(count).execute(&mut *other).await?;
                sqlx::query(row).execute(&mut *other).await?;
                sqlx::query(row).execute(&mut *tx).await?;
                other.commit().await?;
            } else {
                sqlx::query(row).execute(&mut *tx).await?;
            }
            Ok("done")
        };
        let app = shop.app(shop.layer_of(mode), post(skew));
        assert_came_second_and_runs_again(&app, mode).await;
        assert_eq!(
            shop.rows().await,
            ["skew", "skew"],
            "of the other, and once"
        );
    }
}

/// idempot-dev/idempot-js #185: the claim arrived, its answer did not. Here it is a statement of a transaction that
/// nobody can commit any more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_05_a_claim_inside_whose_answer_is_lost_leaves_nothing() {
    let shop = Shop::open().await;
    let options = shop.pool.connect_options();
    let server = format!("{}:{}", options.get_host(), options.get_port());
    let mut done = Vec::new();
    // `BEGIN`, the claim is prepared, and is run.
    for nth in 0..3 {
        let relay = Relay::to(server.clone());
        let cut_off = shop.by_port(relay.port()).await;
        // The pool looks whether its connection lives, before it lends it.
        relay.cut_after(nth + 1);
        let key = format!("lost-{nth}");
        let app = cut_off.orders(cut_off.layer_of(Mode::Inside));
        let answer = send(&app, &key).await;
        assert!(!relay.call_off(), "the cut fell into the claim");
        assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(shop.rows().await, done);
        // As soon as the server has seen the end of the connection.
        until("it runs", async || {
            let again = send(&app, &key).await;
            let busy = again.status == StatusCode::CONFLICT;
            assert!(
                busy || again.status == StatusCode::CREATED,
                "{}",
                again.body
            );
            assert!(!again.replayed);
            !busy
        })
        .await;
        done.push(key);
        assert_eq!(shop.rows().await, done);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_that_takes_no_transaction_has_its_answer_kept_all_the_same() {
    let shop = Shop::open().await;
    let ran = Arc::new(AtomicU32::new(0));
    let count = async move || format!("run {}", ran.fetch_add(1, Ordering::Relaxed));
    let app = shop.app(shop.layer_of(Mode::Inside), post(count));
    let first = send(&app, "key").await;
    let again = send(&app, "key").await;
    assert_eq!((first.body.as_str(), first.replayed), ("run 0", false));
    assert_eq!((again.body.as_str(), again.replayed), ("run 0", true));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn there_is_no_point_of_no_return_inside() {
    let shop = Shop::open().await;
    let marks = async |run: IdempotentRun, mut tx: RunTransaction| -> Result<(), PointRefused> {
        insert(&mut tx, "key", "tea").await;
        run.check().expect("held");
        run.point_of_no_return().await
    };
    let app = shop.app(shop.layer_of(Mode::Inside), post(marks));
    for _ in 0..2 {
        let answer = send(&app, "key").await;
        assert_eq!(answer.status, StatusCode::INTERNAL_SERVER_ERROR);
        assert!(answer.body.contains("outside"), "{}", answer.body);
    }
    assert!(shop.rows().await.is_empty());
}

/// The layer's and the handler's transactions are of two drivers: a mistake of the program, which is told.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_of_another_driver_is_not_taken_for_the_layers() {
    let shop = Shop::open().await;
    let takes = async |_tx: tower_claim_postgres::RunTransaction| "taken";
    let layer = shop.layer_of(Mode::Inside).build().expect("good settings");
    let transactions = super::by_tokio_postgres::transactions(&shop);
    let app = Router::new().route("/orders", post(takes).layer(layer));
    let answer = send(&app.with_state(transactions), "key").await;
    assert_eq!(answer.status, StatusCode::INTERNAL_SERVER_ERROR);
    assert!(answer.body.contains("another driver"), "{}", answer.body);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_had_inside_is_refused_when_built() {
    let shop = Shop::open().await;
    let inside = || shop.layer_of(Mode::Inside);
    let never = |_| async { Reconciled::Unknown };
    for (layer, setting) in [
        (
            inside().on_store_down(OnStoreDown::RunUnprotected),
            "on_store_down",
        ),
        (inside().circuit_breaker(5, SECOND), "circuit_breaker"),
        (inside().on_lapse(LapsePolicy::Hold), "claim_inside"),
        (
            inside()
                .derived_from(RequestFields::new().path("/orders/{id}"))
                .key_window(60 * SECOND, SECOND),
            "key_window",
        ),
        // Else refused for another reason, under the same name.
        (
            inside().verify_content_digest().stream_uploads(1 << 30),
            "stream_uploads",
        ),
        (
            inside().reconcile(shop.store.clone(), never),
            "claim_inside",
        ),
    ] {
        let refused = layer.build().expect_err("refused").to_string();
        assert!(refused.contains(setting), "{refused}");
    }
}
