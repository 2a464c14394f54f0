//! What hooks and operators answer to a call: a client of tonic's understands it.

use std::error::Error;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use tonic::transport::Channel;
use tonic::{Code, Status};
use tower::{Service, ServiceExt};
use tower_claim::store::Resolved;
use tower_claim::transaction::UniqueViolation;
use tower_claim::{LapsePolicy, Renewal};
use tower_idempotency::{IdempotencyBuilder, Operator, Reconciled, UnknownOutcome};

use super::super::on_each_engine;
use super::super::scene::{Engine, SECOND, Shop, in_time, until};
use super::{CALL, Call, LONG, ORDER, Server, Taken, framed, is_replay};

on_each_engine!(
    a_hooks_message_reaches_a_client_with_its_end_behind_it,
    a_hook_without_a_message_is_an_end_alone,
);

/// What a hook says.
type Says = fn() -> Response<Bytes>;

fn answer(status: &str, body: Bytes) -> Response<Bytes> {
    let response = Response::builder()
        .header("content-type", "application/grpc")
        .header("grpc-status", status)
        .header("grpc-message", "from%20a%20hook")
        .header("x-order", "7");
    response.body(body).expect("a good response")
}

fn call(key: &'static str, does: &'static str) -> Call {
    Call {
        key: Some(key),
        does,
        ..CALL
    }
}

/// A call's answer as it comes: its head, its data, and how many frames of trailers.
struct Raw {
    head: Response<()>,
    data: Vec<u8>,
    trailers: Vec<http::HeaderMap>,
}

async fn raw(mut channel: Channel, call: Call) -> Raw {
    let (metadata, extensions, message) = call.request().into_parts();
    drop(extensions);
    let mut request = Request::post(format!("http://shop{ORDER}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(tonic::body::Body::new(Full::from(framed(&message))))
        .expect("a good request");
    request.headers_mut().extend(metadata.into_headers());
    let answer = async {
        let ready = channel.ready().await.expect("it is there");
        let response = ready.call(request).await.expect("an answer");
        let (head, mut body) = response.into_parts();
        let (mut data, mut trailers) = (Vec::new(), Vec::new());
        while let Some(frame) = body.frame().await {
            match frame.expect("a whole one").into_data() {
                Ok(some) => data.extend_from_slice(&some),
                Err(frame) => trailers.extend(frame.into_trailers()),
            }
        }
        Raw {
            head: Response::from_parts(head, ()),
            data,
            trailers,
        }
    };
    in_time("an answer", answer).await
}

/// The only outcome that is unknown, once there is one.
async fn lost(operator: &Operator) -> UnknownOutcome {
    let find = async || {
        let page = operator.unknown(None).await.expect("a page");
        page.outcomes.into_iter().next()
    };
    until("a run is lost", async || find().await.is_some()).await;
    find().await.expect("it stays")
}

/// Keys of which a hook, or an operator, tells the outcome, and a server that asks them.
async fn told_by<E: Engine>(
    place: &E,
    shop: &Shop,
    says: Says,
) -> (Server, [(&'static str, &'static str); 4]) {
    let holds = |builder: IdempotencyBuilder| {
        let builder = builder.trust_forgetful_store().lease(2 * SECOND);
        builder.on_lapse(LapsePolicy::Hold).renewal(Renewal::Off)
    };
    let crashing = Server::start(place, shop, holds).await;
    let store = place.store().await;
    let operator = crashing.layer.operator(store.clone());
    // Runs of which nothing is heard again.
    let begun = shop.effects();
    tokio::spawn(call("resolved", "wait").over(crashing.channel().await));
    shop.until_effects(begun + 1).await;
    let resolved = operator.resolve_with(&lost(&operator).await, says()).await;
    let resolved = resolved.expect("an answer");
    assert!(
        matches!(resolved, Resolved::Resolved { .. }),
        "{resolved:?}"
    );
    tokio::spawn(call("reconciled", "wait").over(crashing.channel().await));
    shop.until_effects(begun + 2).await;
    lost(&operator).await;

    let asks = |builder: IdempotencyBuilder| {
        let builder = builder.trust_forgetful_store().lease(2 * SECOND);
        let builder = builder
            .reconcile(store, move |_| async move { Reconciled::Done(says()) })
            .max_response_body(LONG)
            .on_not_kept(move |_| async move { Some(says()) })
            .on_unique_violation("one_order", move |_| async move { Some(says()) });
        builder.unique_violation_by(|answer| {
            let why = answer.extensions.get::<Status>()?.source()?;
            why.is::<Taken>().then(|| UniqueViolation::new("one_order"))
        })
    };
    let server = Server::start(place, shop, asks).await;
    let first = call("rendered", "long").over(server.channel().await).await;
    assert!(first.expect("OK").get_ref().len() > LONG);
    let told = [
        ("resolved", ""),
        ("reconciled", ""),
        ("rendered", ""),
        ("existing", "taken"),
    ];
    (server, told)
}

async fn a_hooks_message_reaches_a_client_with_its_end_behind_it<E: Engine>() {
    let (place, shop) = (E::place().await, Shop::new());
    let says = || answer("0", framed(b"order 7"));
    let (server, told) = told_by(&place, &shop, says).await;
    for (key, does) in told {
        // What the hook says, and what is replayed.
        for _ in 0..2 {
            let answer = call(key, does).over(server.channel().await).await;
            let answer = answer.unwrap_or_else(|status| panic!("{key}: {status}"));
            assert_eq!(answer.get_ref(), "order 7", "{key}");
            let metadata = answer.metadata();
            assert!(is_replay(metadata), "{key}");
            assert_eq!(metadata.get("x-order").expect("metadata"), "7", "{key}");
        }
        let raw = raw(server.channel().await, call(key, does)).await;
        assert_eq!(raw.data, framed(b"order 7"), "{key}");
        assert!(!raw.head.headers().contains_key("grpc-status"), "{key}");
        let trailers: Vec<_> = raw.trailers.iter().map(|t| &t["grpc-status"]).collect();
        assert_eq!(trailers, ["0"], "{key}");
    }
}

async fn a_hook_without_a_message_is_an_end_alone<E: Engine>() {
    let (place, shop) = (E::place().await, Shop::new());
    let (server, told) = told_by(&place, &shop, || answer("5", Bytes::new())).await;
    for (key, does) in told {
        for _ in 0..2 {
            let status = call(key, does).over(server.channel().await).await;
            let status = status.expect_err("not found");
            let said = (status.code(), status.message());
            assert_eq!(said, (Code::NotFound, "from a hook"), "{key}");
            assert!(is_replay(status.metadata()), "{key}");
        }
        let raw = raw(server.channel().await, call(key, does)).await;
        assert_eq!(raw.head.headers()["grpc-status"], "5", "{key}");
        assert!(raw.data.is_empty() && raw.trailers.is_empty(), "{key}");
    }
}
