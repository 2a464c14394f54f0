//! The same handlers, behind a layer that does not guard them: switched off, looking on, or without its store.

use axum::Router;
use axum::body::Body;
use axum::http::{Request, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use tower::ServiceExt;
use tower_claim::http::{Gate, Mode as Position, Switch};
use tower_claim::testing::{Fault, FaultStore};
use tower_claim_sqlx::RunTransaction;
use tower_idempotency::{IdempotencyLayer, IdempotentRun, OnStoreDown};

use super::by_tokio_postgres::switched as switched_other;
use super::laws::send;
use super::{Mode, Shop, TOGETHER, insert, order};

const UNGUARDED: [Position; 2] = [Position::Off, Position::Observe];

/// The number of records in the store.
async fn records(shop: &Shop) -> i64 {
    let count = sqlx::query_scalar("select count(*) from claim");
    count.fetch_one(&shop.pool).await.expect("a table")
}

/// A route whose layer can be switched.
fn switched(shop: &Shop, mode: Mode, switch: &Switch) -> Router {
    let gate = Gate::new().switch(switch.clone());
    shop.orders(shop.layer_of(mode).gate(gate))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn switched_off_each_order_is_written_and_on_again_once() {
    for mode in TOGETHER {
        for position in UNGUARDED {
            let shop = Shop::open().await;
            let switch = Switch::new(position);
            let app = switched(&shop, mode, &switch);
            for _ in 0..2 {
                let answer = send(&app, "a").await;
                assert_eq!(
                    (answer.status, answer.replayed),
                    (StatusCode::CREATED, false)
                );
            }
            assert_eq!(shop.rows().await, ["a", "a"], "{mode:?} {position:?}");
            assert_eq!(records(&shop).await, 0, "{mode:?} {position:?}");

            switch.set(Position::On);
            let first = send(&app, "a").await;
            assert_eq!((first.status, first.replayed), (StatusCode::CREATED, false));
            let again = send(&app, "a").await;
            assert!(again.replayed && again.body == first.body);
            assert_eq!(shop.rows().await, ["a", "a", "a"]);
        }
    }
}

/// A statement of the handler's that failed, and it went on: a commit would roll back, and say nothing.
async fn fails_and_goes_on(mut tx: RunTransaction) -> StatusCode {
    insert(&mut tx, "key", "tea").await;
    let failed = sqlx::query("select 1 / 0").execute(&mut *tx).await;
    failed.expect_err("divided by zero");
    StatusCode::CREATED
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_refused_fails_or_breaks_off_leaves_no_row() {
    for position in UNGUARDED {
        for status in [StatusCode::CONFLICT, StatusCode::INTERNAL_SERVER_ERROR] {
            let shop = Shop::open().await;
            let handler = async move |mut tx: RunTransaction| {
                insert(&mut tx, "key", "tea").await;
                status
            };
            let gate = Gate::new().switch(Switch::new(position));
            let app = shop.app(shop.layer().gate(gate), post(handler));
            assert_eq!(send(&app, "key").await.status, status);
            assert!(shop.rows().await.is_empty(), "{status} {position:?}");
        }
        let shop = Shop::open().await;
        let gate = Gate::new().switch(Switch::new(position));
        let app = shop.app(shop.layer().gate(gate), post(fails_and_goes_on));
        let answer = send(&app, "key").await;
        assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
        assert!(answer.body.contains("nothing was done"), "{}", answer.body);
        assert!(shop.rows().await.is_empty(), "{position:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn over_tokio_postgres_it_is_the_same() {
    let fails_and_goes_on = |tx: tower_claim_postgres::RunTransaction| async move {
        tx.execute("select 1 / 0", &[]).await.expect_err("by zero");
        StatusCode::CREATED.into_response()
    };
    let says = |status: StatusCode| {
        move |_: tower_claim_postgres::RunTransaction| async move { status.into_response() }
    };
    for mode in TOGETHER {
        for position in UNGUARDED {
            let shop = Shop::open().await;
            let created = switched_other(&shop, mode, position, says(StatusCode::CREATED));
            for _ in 0..2 {
                assert_eq!(send(&created, "key").await.status, StatusCode::CREATED);
            }
            assert_eq!(shop.rows().await, ["key", "key"], "{mode:?} {position:?}");
            for status in [StatusCode::CONFLICT, StatusCode::BAD_GATEWAY] {
                let app = switched_other(&shop, mode, position, says(status));
                assert_eq!(send(&app, "key").await.status, status);
            }
            let app = switched_other(&shop, mode, position, fails_and_goes_on);
            let answer = send(&app, "key").await;
            assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
            assert_eq!(shop.rows().await, ["key", "key"], "{mode:?} {position:?}");
            assert_eq!(records(&shop).await, 0, "{mode:?} {position:?}");
        }
    }
}

/// The claims' store is down, and the orders' database is not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn told_to_go_on_without_its_store_it_writes_each_order() {
    let shop = Shop::open().await;
    let store = FaultStore::new(shop.store.clone());
    let layer = IdempotencyLayer::builder(store.clone()).one_tenant();
    let app = shop.orders(layer.on_store_down(OnStoreDown::RunUnprotected));
    store.faults().set(Fault::Down);
    for _ in 0..2 {
        assert_eq!(send(&app, "a").await.status, StatusCode::CREATED);
    }
    assert_eq!(shop.rows().await, ["a", "a"]);
    store.faults().set(Fault::Ok);
    assert_eq!(send(&app, "a").await.status, StatusCode::CREATED);
    assert!(send(&app, "a").await.replayed);
    assert_eq!(shop.rows().await, ["a", "a", "a"]);
}

/// Nobody would end a transaction of the layer's: the handler begins its own.
async fn with_or_without(
    shop: axum::extract::State<Shop>,
    run: Option<IdempotentRun>,
    tx: Option<RunTransaction>,
) -> Response {
    let Some(mut tx) = tx else {
        assert!(run.is_none());
        let query = sqlx::query("insert into orders (key, item) values ('none', 'tea')");
        query.execute(&shop.pool).await.expect("a row");
        return StatusCode::CREATED.into_response();
    };
    insert(&mut tx, "some", "tea").await;
    StatusCode::CREATED.into_response()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_key_a_handler_that_can_do_without_runs_and_another_is_refused() {
    for position in [Position::On, Position::Off, Position::Observe] {
        let shop = Shop::open().await;
        let gate = || Gate::new().switch(Switch::new(position));
        let lax = shop.app(shop.layer().gate(gate()), post(with_or_without));
        let strict = shop.app(shop.layer().gate(gate()), post(order));
        for (app, status) in [(lax.clone(), 201), (strict, 400)] {
            let request = Request::post("/orders").body(Body::from("tea"));
            let answer = app.oneshot(request.expect("a request")).await;
            assert_eq!(answer.expect("an answer").status(), status, "{position:?}");
        }
        assert_eq!(send(&lax, "key").await.status, StatusCode::CREATED);
        assert_eq!(shop.rows().await, ["none", "some"], "{position:?}");
    }
}
