//! The same for handlers of tonic's, which take their transaction from the extensions of their request, and answer by a
//! message or a status.

use std::convert::Infallible;
use std::error::Error;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response};
use hyper::body::Incoming;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};
use tower::{Layer, ServiceExt};
use tower_claim::transaction::Conflict;
use tower_claim_sqlx::WorkError;
use tower_idempotency::{
    ExistingRow, IdempotencyBuilder, IdempotentRun, NoEffect, Outcome, RequestBody,
};

use super::{Mode, Shop, TOGETHER};
use crate::idempotency::grpc::{CALL, Call, Plain, framed, is_replay, serve};

const INDEX: &str = "one_order_per_item";

/// What the database refused, told along with the status.
fn failed(error: sqlx::Error) -> Status {
    let mut status = Status::internal("the order was not written");
    status.set_source(Arc::new(WorkError::from(error)));
    status
}

/// The handler that a user writes.
async fn order(
    shop: &Shop,
    request: tonic::Request<Bytes>,
) -> Result<tonic::Response<Bytes>, Status> {
    let item = std::str::from_utf8(request.get_ref()).unwrap_or_default();
    if item.is_empty() {
        let mut status = Status::invalid_argument("an order of nothing");
        status.set_source(Arc::new(NoEffect));
        return Err(status);
    }
    let run = request.extensions().get::<IdempotentRun>();
    let key = run.and_then(|run| run.key().as_client_text());
    let begun = shop.transactions.begin(request.extensions()).await;
    let mut tx = begun.map_err(|error| Status::from_error(error.into()))?;
    let row = sqlx::query_scalar("insert into orders (key, item) values ($1, $2) returning id");
    let row = row
        .bind(key.unwrap_or_default())
        .bind(item)
        .fetch_one(&mut *tx);
    let id: i32 = row.await.map_err(failed)?;
    let does = request.metadata().get("x-do");
    if does.is_some_and(|does| does == "refuse") {
        return Err(Status::failed_precondition(format!(
            "order {id} came to nothing"
        )));
    }
    Ok(tonic::Response::new(Bytes::from(format!("order {id}"))))
}

/// Tells of the order that is there, as a message.
async fn order_of(pool: sqlx::PgPool, row: ExistingRow) -> Option<Response<Bytes>> {
    let item = row.body()?.slice(5..);
    let item = std::str::from_utf8(&item).ok()?;
    let id = sqlx::query_scalar("select id from orders where item = $1");
    let id: i32 = id.bind(item).fetch_optional(&pool).await.ok()??;
    let message = format!("order {id} is there");
    let response = Response::builder().header("content-type", "application/grpc");
    response.body(framed(message.as_bytes())).ok()
}

/// The layer as a user of tonic's builds it.
fn layer(shop: &Shop, mode: Mode) -> IdempotencyBuilder {
    let pool = shop.pool.clone();
    shop.layer_of(mode)
        .on_unique_violation(INDEX, move |row| order_of(pool.clone(), row))
        .unique_violation_by(|answer| {
            let why = answer.extensions.get::<Status>()?.source()?;
            match why.downcast_ref::<WorkError>()?.conflict() {
                Conflict::UniqueViolation(violation) => Some(violation),
                _ => None,
            }
        })
        .outcome_if(|answer| {
            let why = answer.extensions.get::<Status>()?.source()?;
            why.is::<NoEffect>().then_some(Outcome::Release)
        })
}

/// A server of the shop's, and a channel to it.
async fn server(shop: &Shop, mode: Mode) -> Channel {
    let layer = layer(shop, mode).build().expect("good settings");
    let shop = shop.clone();
    let guarded = layer.layer(tower::service_fn(
        move |request: Request<RequestBody<Incoming>>| {
            let shop = shop.clone();
            async move {
                let order = tower::service_fn(|request| order(&shop, request));
                let mut server = tonic::server::Grpc::new(Plain);
                Ok::<_, Infallible>(server.unary(order, request).await)
            }
        },
    ));
    let service = tower::service_fn(move |request| guarded.clone().oneshot(request));
    let address = serve(service, true).await;
    let endpoint = Endpoint::from_shared(format!("http://{address}")).expect("an address");
    endpoint.connect().await.expect("it listens")
}

async fn shop() -> Shop {
    let shop = Shop::open().await;
    shop.one_order_per_item().await;
    shop
}

fn ask(key: &'static str, body: &'static str, does: &'static str) -> Call {
    Call {
        key: Some(key),
        body,
        does,
        ..CALL
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_that_is_there_is_the_answer_to_a_call_and_is_replayed() {
    for mode in TOGETHER {
        let shop = shop().await;
        let channel = server(&shop, mode).await;
        let first = ask("first", "coffee", "").over(channel.clone()).await;
        let first = first.expect("OK");
        assert!(!is_replay(first.metadata()), "{mode:?}");
        let told = [first.get_ref(), &b" is there"[..]].concat();
        for _ in 0..2 {
            let second = ask("second", "coffee", "").over(channel.clone()).await;
            let second = second.unwrap_or_else(|status| panic!("{mode:?}: {status:?}"));
            assert_eq!(second.get_ref(), &told, "{mode:?}");
            assert!(is_replay(second.metadata()), "not by this call");
        }
        let again = ask("first", "coffee", "").over(channel).await.expect("OK");
        assert_eq!(again.get_ref(), first.get_ref());
        assert_eq!(shop.rows().await, ["first"], "{mode:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_ends_in_a_status_leaves_no_row() {
    for mode in TOGETHER {
        let shop = shop().await;
        let channel = server(&shop, mode).await;
        for n in 0..2 {
            let refused = ask("key", "coffee", "refuse").over(channel.clone()).await;
            let refused = refused.expect_err("refused");
            assert_eq!(refused.code(), Code::FailedPrecondition, "{mode:?}");
            assert_eq!(is_replay(refused.metadata()), n == 1, "{mode:?}");
        }
        assert!(shop.rows().await.is_empty(), "{mode:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_turned_away_before_any_effect_may_come_again_corrected() {
    for mode in TOGETHER {
        let shop = shop().await;
        let channel = server(&shop, mode).await;
        let turned_away = ask("key", "", "").over(channel.clone()).await;
        let turned_away = turned_away.expect_err("turned away");
        assert_eq!(turned_away.code(), Code::InvalidArgument, "{mode:?}");
        let corrected = ask("key", "coffee", "").over(channel).await;
        let corrected = corrected.unwrap_or_else(|status| panic!("{mode:?}: {status:?}"));
        assert!(!is_replay(corrected.metadata()), "{mode:?}");
        assert_eq!(shop.rows().await, ["key"], "{mode:?}");
    }
}
