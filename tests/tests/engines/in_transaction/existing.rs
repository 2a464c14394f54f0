//! A row that is there already: the database's unique index is the last backstop, and its refusal becomes the business
//! answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use axum::Router;
use axum::http::{Response, StatusCode};
use axum::routing::{MethodRouter, post};
use sqlx::PgPool;
use tower_claim::transaction::UniqueViolation;
use tower_idempotency::{ExistingRow, IdempotencyBuilder, IdempotentRun};

use super::laws::{Answer, send};
use super::{Mode, Shop, order_apart};

const INDEX: &str = "one_order_per_item";

/// A shop that takes one order for each item.
async fn shop() -> Shop {
    let shop = Shop::open().await;
    shop.one_order_per_item().await;
    shop
}

/// Tells of the order that is there.
async fn order_of(pool: PgPool, row: ExistingRow) -> Option<Response<bytes::Bytes>> {
    assert_eq!(row.violation().constraint(), INDEX);
    assert_eq!(row.violation().table(), Some("orders"));
    assert!(row.violation().detail().is_some());
    assert_eq!(row.request().uri.path(), "/orders");
    let item = std::str::from_utf8(row.body()?).ok()?.to_owned();
    let id = sqlx::query_scalar("select id from orders where item = $1");
    let id: i32 = id.bind(item).fetch_optional(&pool).await.ok()??;
    let response = Response::builder().status(StatusCode::OK);
    response.body(format!("order {id} is there").into()).ok()
}

/// A layer that asks for the order that is there, and how often it has asked.
fn asking(shop: &Shop, layer: IdempotencyBuilder) -> (IdempotencyBuilder, Arc<AtomicU32>) {
    let asked = Arc::new(AtomicU32::new(0));
    let (count, pool) = (Arc::clone(&asked), shop.pool.clone());
    let layer = layer.on_unique_violation(INDEX, move |row| {
        count.fetch_add(1, Ordering::Relaxed);
        order_of(pool.clone(), row)
    });
    (layer, asked)
}

/// By sqlx.
async fn order_once(
    run: IdempotentRun,
    mut tx: tower_claim_sqlx::RunTransaction,
    item: String,
) -> Result<(StatusCode, String), tower_claim_sqlx::WorkError> {
    let query = sqlx::query_scalar("insert into orders (key, item) values ($1, $2) returning id");
    let key = run.key().as_client_text().unwrap_or_default();
    let id: i32 = query.bind(key).bind(item).fetch_one(&mut *tx).await?;
    Ok((StatusCode::CREATED, format!("order {id}")))
}

/// By tokio-postgres.
async fn order_once_by_tokio(
    run: IdempotentRun,
    tx: tower_claim_postgres::RunTransaction,
    item: String,
) -> Result<(StatusCode, String), tower_claim_postgres::WorkError> {
    let row = "insert into orders (key, item) values ($1, $2) returning id";
    let key = run.key().as_client_text().unwrap_or_default();
    let id: i32 = tx.query_one(row, &[&key, &item]).await?.get(0);
    Ok((StatusCode::CREATED, format!("order {id}")))
}

fn handler(mode: Mode) -> MethodRouter<Shop> {
    match mode {
        Mode::Separate => post(order_apart),
        Mode::Inside | Mode::Outside => post(order_once),
    }
}

/// One intent under two keys: the second is told of the first's row, at once and when it repeats.
async fn is_told_of_the_row(shop: &Shop, app: &Router, asked: &AtomicU32) {
    let first = send(app, "first").await;
    assert_eq!((first.status, first.replayed), (StatusCode::CREATED, false));
    let told = format!("{} is there", first.body);
    for _ in 0..2 {
        let second = send(app, "second").await;
        assert_eq!(second.status, StatusCode::OK, "{}", second.body);
        assert!(second.replayed, "this request did not bring it about");
        assert_eq!(second.body, told);
    }
    assert_eq!(asked.load(Ordering::Relaxed), 1, "the answer is kept");
    assert_eq!(send(app, "first").await.body, first.body);
    assert_eq!(shop.rows().await, ["first"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_row_that_is_there_is_the_answer_and_is_replayed() {
    for mode in Mode::ALL {
        let shop = shop().await;
        let (layer, asked) = asking(&shop, shop.layer_of(mode));
        let app = shop.app(layer, handler(mode));
        is_told_of_the_row(&shop, &app, &asked).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn and_over_tokio_postgres() {
    for mode in super::TOGETHER {
        let shop = shop().await;
        let transactions = super::by_tokio_postgres::transactions(&shop);
        let layer = match mode {
            Mode::Inside => shop.layer().claim_inside(transactions.clone()),
            _ => shop.layer(),
        };
        let (layer, asked) = asking(&shop, layer);
        let layer = layer.build().expect("good settings");
        let app = Router::new().route("/orders", post(order_once_by_tokio).layer(layer));
        is_told_of_the_row(&shop, &app.with_state(transactions), &asked).await;
    }
}

/// The row was committed after this transaction's snapshot: the hook sees it all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_behind_the_snapshot_is_seen() {
    for mode in super::TOGETHER {
        let shop = shop().await;
        let shop = shop.beginning_with("BEGIN ISOLATION LEVEL REPEATABLE READ");
        let (layer, asked) = asking(&shop, shop.layer_of(mode));
        let pool = shop.pool.clone();
        let late = async move |run: IdempotentRun,
                               mut tx: tower_claim_sqlx::RunTransaction,
                               item: String| {
            let look = sqlx::query("select count(*) from orders");
            look.execute(&mut *tx).await?;
            let other = sqlx::query("insert into orders (key, item) values ('other', $1)");
            other.bind(&item).execute(&pool).await?;
            order_once(run, tx, item).await
        };
        let app = shop.app(layer, post(late));
        let answer = send(&app, "key").await;
        assert_eq!(answer.status, StatusCode::OK, "{mode:?}: {}", answer.body);
        assert!(answer.body.ends_with("is there"), "{}", answer.body);
        assert_eq!(asked.load(Ordering::Relaxed), 1);
        assert_eq!(shop.rows().await, ["other"]);
    }
}

/// Sends the same twice, where the row is there: what both are answered.
async fn refused_twice(shop: &Shop, mode: Mode, layer: IdempotencyBuilder) -> [Answer; 2] {
    let there = sqlx::query("insert into orders (key, item) values ('other', 'coffee')");
    there.execute(&shop.pool).await.expect("a row");
    let app = shop.app(layer, handler(mode));
    [send(&app, "key").await, send(&app, "key").await]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_constraint_without_a_hook_leaves_the_handlers_own_error() {
    for mode in Mode::ALL {
        let shop = shop().await;
        let other = |_| async { panic!("of another index") };
        let layer = shop.layer_of(mode).on_unique_violation("another", other);
        for answer in refused_twice(&shop, mode, layer).await {
            assert_eq!(answer.status, StatusCode::INTERNAL_SERVER_ERROR);
            assert!(!answer.replayed, "a 500 is not kept");
        }
        assert_eq!(shop.rows().await, ["other"]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hook_that_does_not_know_or_panics_leaves_the_handlers_own_error() {
    for mode in Mode::ALL {
        for panics in [false, true] {
            let shop = shop().await;
            let asked = Arc::new(AtomicU32::new(0));
            let count = Arc::clone(&asked);
            let layer = shop.layer_of(mode).on_unique_violation(INDEX, move |_| {
                count.fetch_add(1, Ordering::Relaxed);
                async move {
                    assert!(!panics, "the hook panics");
                    None
                }
            });
            for answer in refused_twice(&shop, mode, layer).await {
                assert_eq!(answer.status, StatusCode::INTERNAL_SERVER_ERROR);
                assert!(!answer.replayed);
            }
            assert_eq!(asked.load(Ordering::Relaxed), 2, "the repeat ran");
        }
    }
}

/// A handler with errors of its own, and no axum of ours.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_violation_in_the_extensions_is_enough() {
    let shop = shop().await;
    let says = async |_tx: tower_claim_sqlx::RunTransaction| {
        let violation = UniqueViolation::new("one_of_mine");
        (StatusCode::BAD_GATEWAY, axum::Extension(violation), "mine")
    };
    let layer = shop
        .layer()
        .on_unique_violation("one_of_mine", |row| async move {
            assert_eq!(row.violation().table(), None);
            Some(Response::new("known".into()))
        });
    let app = shop.app(layer, post(says));
    let answer = send(&app, "key").await;
    assert_eq!(
        (answer.status, answer.body.as_str()),
        (StatusCode::OK, "known")
    );
}

/// Which of two is meant, nobody knows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_hook_for_one_constraint_is_refused_when_built() {
    let shop = Shop::open().await;
    let knows_nothing = |_| async { None };
    let one = shop.layer().on_unique_violation(INDEX, knows_nothing);
    let two = one.on_unique_violation("another", knows_nothing);
    let refused = two.on_unique_violation(INDEX, knows_nothing).build();
    let refused = refused.expect_err("refused").to_string();
    assert!(
        refused.contains("on_unique_violation") && refused.contains(INDEX),
        "{refused}"
    );
}
