//! What a handler, or a hook, says of its work decides what becomes of the rows: and only that.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use axum::Extension;
use axum::http::{Response, StatusCode};
use axum::routing::post;
use sqlx::Acquire;
use tower_claim::transaction::{Conflict, UniqueViolation};
use tower_claim_sqlx::{RunTransaction, WorkError};
use tower_idempotency::{IdempotencyBuilder, IdempotentRun, NoEffect};

use super::laws::send;
use super::{Shop, TOGETHER};

const INDEX: &str = "one_order_per_item";

/// A shop with an order of coffee, which is the only one it takes.
async fn shop_with_coffee() -> Shop {
    let shop = Shop::open().await;
    shop.one_order_per_item().await;
    let there = sqlx::query("insert into orders (key, item) values ('other', 'coffee')");
    there.execute(&shop.pool).await.expect("a row");
    shop
}

/// A hook that answers with this status, and how often it was asked.
fn asking(
    layer: IdempotencyBuilder,
    status: Option<StatusCode>,
) -> (IdempotencyBuilder, Arc<AtomicU32>) {
    let asked = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&asked);
    let layer = layer.on_unique_violation(INDEX, move |_| {
        count.fetch_add(1, Ordering::Relaxed);
        async move {
            let response = Response::builder().status(status?);
            response.body("of the hook".into()).ok()
        }
    });
    (layer, asked)
}

/// Orders coffee, which is refused.
async fn violate(tx: &mut RunTransaction) -> UniqueViolation {
    let mut savepoint = tx.begin().await.expect("a savepoint");
    let row = sqlx::query("insert into orders (key, item) values ('key', 'coffee')");
    let refused = row.execute(&mut *savepoint).await.expect_err("it is there");
    savepoint.rollback().await.expect("rolled back");
    match WorkError::from(refused).conflict() {
        Conflict::UniqueViolation(violation) => violation,
        other => panic!("{other:?}"),
    }
}

/// By a savepoint: the order of coffee is there, so it orders tea, and tells of both.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_that_recovered_has_its_rows_committed_whatever_a_hook_would_say() {
    for mode in TOGETHER {
        for hook in [None, Some(StatusCode::OK)] {
            let shop = shop_with_coffee().await;
            let (layer, asked) = asking(shop.layer_of(mode), hook);
            let recover = async |mut tx: RunTransaction| {
                let violation = violate(&mut tx).await;
                let row = sqlx::query("insert into orders (key, item) values ('key', 'tea')");
                row.execute(&mut *tx).await.expect("a row");
                (StatusCode::CREATED, Extension(violation), "tea instead")
            };
            let app = shop.app(layer, post(recover));
            for replayed in [false, true] {
                let answer = send(&app, "key").await;
                assert_eq!(answer.status, StatusCode::CREATED, "{}", answer.body);
                assert_eq!(
                    (answer.body.as_str(), answer.replayed),
                    ("tea instead", replayed)
                );
            }
            assert_eq!(shop.rows().await, ["other", "key"], "{mode:?}");
            assert_eq!(asked.load(Ordering::Relaxed), 0);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_hook_is_asked_where_the_handler_says_that_nothing_was_done() {
    for mode in TOGETHER {
        let shop = shop_with_coffee().await;
        let (layer, asked) = asking(shop.layer_of(mode), Some(StatusCode::OK));
        let refuse = async |mut tx: RunTransaction| {
            let violation = violate(&mut tx).await;
            let said = (Extension(violation), Extension(NoEffect));
            (StatusCode::BAD_REQUEST, said, "come again")
        };
        let app = shop.app(layer, post(refuse));
        for _ in 0..2 {
            let answer = send(&app, "key").await;
            assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{}", answer.body);
            assert!(!answer.replayed);
        }
        assert_eq!(asked.load(Ordering::Relaxed), 0);
    }
}

/// Its lookup failed, say. Kept, that would be the answer for a day.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_of_a_hook_that_is_no_outcome_is_told_and_not_kept() {
    for mode in TOGETHER {
        let shop = shop_with_coffee().await;
        let fails = Some(StatusCode::SERVICE_UNAVAILABLE);
        let (layer, asked) = asking(shop.layer_of(mode), fails);
        let order = async |mut tx: RunTransaction| -> Result<(), WorkError> {
            let row = sqlx::query("insert into orders (key, item) values ('key', 'coffee')");
            row.execute(&mut *tx).await?;
            Ok(())
        };
        let app = shop.app(layer, post(order));
        for _ in 0..2 {
            let answer = send(&app, "key").await;
            assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE, "{mode:?}");
            assert_eq!(
                (answer.body.as_str(), answer.replayed),
                ("of the hook", false)
            );
        }
        assert_eq!(asked.load(Ordering::Relaxed), 2, "the repeat ran: {mode:?}");
    }
}

/// "Nothing was done, and a repeat runs": past the point of no return neither is true.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_that_came_second_past_its_mark_leaves_the_outcome_unknown() {
    let shop = Shop::open().await;
    let ran = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&ran);
    let pay = async move |run: IdempotentRun, mut tx: RunTransaction| -> Result<(), WorkError> {
        count.fetch_add(1, Ordering::Relaxed);
        run.point_of_no_return().await.expect("marked");
        let late =
            sqlx::query("do $$ begin raise exception 'late' using errcode = '40001'; end $$");
        late.execute(&mut *tx).await?;
        Ok(())
    };
    let app = shop.app(shop.layer(), post(pay));
    for _ in 0..2 {
        let answer = send(&app, "key").await;
        assert!(answer.body.contains("outcome-unknown"), "{}", answer.body);
        assert!(!answer.body.contains("nothing was done"), "{}", answer.body);
        assert!(!answer.replayed);
    }
    assert_eq!(ran.load(Ordering::Relaxed), 1, "nobody runs again");
}
