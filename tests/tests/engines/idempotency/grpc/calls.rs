//! Unary calls, streams, and calls over a channel.

use bytes::{BufMut, Bytes};
use http::uri::PathAndQuery;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use tonic::Code;
use tonic::transport::Channel;
use tower::{Layer, Service, ServiceExt};
use tower_claim::http::Gate;
use tower_idempotency::{IdempotencyBuilder, IdempotencyKeyLayer, LogicalCall, OnBusy};

use super::super::on_each_engine;
use super::super::scene::{Engine, PATIENCE, Shop, in_time, until};
use super::{CALL, Call, ORDER, Plain, Server, WATCH, is_replay, two};

on_each_engine!(
    a_unary_call_is_replayed_by_another_process_with_its_status,
    refusals_are_trailers_only,
    a_call_that_streams_is_left_alone_outside_the_gate,
    a_call_over_a_channel_keeps_its_key_over_retries,
);

async fn a_unary_call_is_replayed_by_another_process_with_its_status<E: Engine>() {
    let (place, shop) = (E::place().await, Shop::new());
    let [one, other] = two(&place, &shop).await;
    let call = |key| Call {
        key: Some(key),
        ..CALL
    };
    let first = call("k").over(one.clone()).await.expect("OK");
    assert!(!is_replay(first.metadata()));
    let again = call("k").over(other.clone()).await.expect("OK");
    assert!(is_replay(again.metadata()));
    assert_eq!(again.get_ref(), first.get_ref());
    let nth = |answer: &tonic::Response<Bytes>| answer.metadata().get("x-order").cloned();
    assert!(nth(&first).is_some() && nth(&again) == nth(&first));

    // An outcome is an outcome, also where it is an error of the work.
    let refuse = || Call {
        does: "refuse",
        ..call("refused")
    };
    let first = refuse().over(one.clone()).await.expect_err("refused");
    let again = refuse().over(other.clone()).await.expect_err("refused");
    assert_eq!(first.code(), Code::FailedPrecondition);
    assert_eq!(
        (again.code(), again.message()),
        (first.code(), first.message())
    );
    assert!(is_replay(again.metadata()) && !is_replay(first.metadata()));
    assert_eq!(shop.effects(), 2);

    // What may be tried again is.
    let fail = || Call {
        does: "fail",
        ..call("failed")
    };
    for _ in 0..2 {
        let failed = fail().over(one.clone()).await.expect_err("it fails");
        assert_eq!(failed.code(), Code::Unavailable);
    }
    // Without a key, nothing is kept.
    for _ in 0..2 {
        assert!(!is_replay(
            CALL.over(one.clone()).await.expect("OK").metadata()
        ));
    }
    assert_eq!(shop.effects(), 6);
}

/// The head of a call's answer, and whether anything follows it.
async fn head(mut channel: Channel, call: Call) -> (Response<()>, bool) {
    let (metadata, extensions, message) = call.request().into_parts();
    drop(extensions);
    let mut frame = vec![0];
    frame.put_u32(u32::try_from(message.len()).expect("a short message"));
    frame.extend_from_slice(&message);
    let mut request = Request::post(format!("http://shop{ORDER}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(tonic::body::Body::new(Full::from(frame)))
        .expect("a good request");
    request.headers_mut().extend(metadata.into_headers());
    let answer = async {
        let ready = channel.ready().await.expect("it is there");
        let response = ready.call(request).await.expect("an answer");
        let (head, body) = response.into_parts();
        let body = body.collect().await.expect("a whole one");
        let follows = body.trailers().is_some() || !body.to_bytes().is_empty();
        (Response::from_parts(head, ()), follows)
    };
    in_time("an answer", answer).await
}

async fn refusals_are_trailers_only<E: Engine>() {
    let (place, shop) = (E::place().await, Shop::new());
    let strict = |builder: IdempotencyBuilder| builder.require_key();
    let one = Server::start(&place, &shop, strict).await.channel().await;
    let other = Server::start(&place, &shop, strict).await.channel().await;
    let held = || Call {
        key: Some("k"),
        does: "wait",
        ..CALL
    };
    let first = tokio::spawn(held().over(one));
    shop.until_effects(1).await;
    let other_payload = || Call {
        body: "two coffees",
        ..held()
    };
    for (call, status, code) in [
        (held(), "10", "in-progress"),
        (other_payload(), "9", "key-reused"),
        (CALL, "3", "key-missing"),
    ] {
        let (head, follows) = head(other.clone(), call).await;
        assert_eq!(head.status(), StatusCode::OK, "{code}");
        assert_eq!(head.headers()["content-type"], "application/grpc", "{code}");
        assert_eq!(head.headers()["grpc-status"], status, "{code}");
        assert!(!follows, "{code}");
        let comes_back = head.headers().contains_key("retry-after");
        assert_eq!(comes_back, code == "in-progress", "{code}");
    }
    // And what a client of tonic's makes of one.
    let refused = other_payload().over(other).await.expect_err("refused");
    assert_eq!(refused.code(), Code::FailedPrecondition);
    shop.let_go();
    first.await.expect("no panic").expect("OK");
    assert_eq!(shop.effects(), 1);
}

async fn a_call_that_streams_is_left_alone_outside_the_gate<E: Engine>() {
    let (place, shop) = (E::place().await, Shop::new());
    let server = Server::start(&place, &shop, |builder| {
        builder.gate(Gate::new().when(|parts| parts.uri.path() == ORDER))
    })
    .await;
    let channel = server.channel().await;
    for n in 1..=2 {
        let call = async {
            let mut client = tonic::client::Grpc::new(channel.clone());
            client.ready().await.expect("it is there");
            let request = Call {
                key: Some("k"),
                ..CALL
            };
            let path = PathAndQuery::from_static(WATCH);
            let stream = client.server_streaming(request.request(), path, Plain);
            let mut stream = stream.await.expect("OK").into_inner();
            // The first message comes while the call goes on.
            let first = stream.message().await.expect("OK");
            assert_eq!(first, Some(Bytes::from(format!("order {n}"))));
            shop.let_go();
            assert_eq!(stream.message().await.expect("OK"), Some("end".into()));
            assert_eq!(stream.message().await.expect("OK"), None);
        };
        in_time("the stream", call).await;
    }
    assert_eq!((server.layer.counts().runs, shop.effects()), (0, 2));
    let order = || Call {
        key: Some("k"),
        ..CALL
    };
    order().over(channel.clone()).await.expect("OK");
    let again = order().over(channel).await.expect("OK");
    assert!(is_replay(again.metadata()));
}

async fn a_call_over_a_channel_keeps_its_key_over_retries<E: Engine>() {
    let (place, shop) = (E::place().await, Shop::new());
    let waits = |builder: IdempotencyBuilder| builder.on_busy(OnBusy::Wait(PATIENCE * 2));
    let one = Server::start(&place, &shop, waits).await;
    let other = Server::start(&place, &shop, waits).await;
    let keys = IdempotencyKeyLayer::new();
    let (first, second) = (
        keys.layer(one.channel().await),
        keys.layer(other.channel().await),
    );
    let call = LogicalCall::new();
    let attempt = || Call {
        call: Some(call.clone()),
        does: "wait",
        ..CALL
    };
    // The first answer never comes: its caller is gone.
    let lost = tokio::spawn(attempt().over(first));
    shop.until_effects(1).await;
    lost.abort();
    let again = tokio::spawn(attempt().over(second.clone()));
    until("the repeat waits", async || other.layer.waiting() == 1).await;
    shop.let_go();
    let again = again.await.expect("no panic").expect("OK");
    assert!(is_replay(again.metadata()));
    assert_eq!(shop.effects(), 1);
    let sent = [one.keys(), other.keys()].concat();
    assert!(
        sent[0].is_some() && sent.iter().all(|key| *key == sent[0]),
        "{sent:?}"
    );

    // Another call has another key.
    CALL.over(second.clone()).await.expect("OK");
    CALL.over(second).await.expect("OK");
    let (sent, two) = (sent[0].clone(), other.keys());
    assert!(two[1].is_some() && two[1] != two[2] && !two[1..].contains(&sent));
    assert_eq!(shop.effects(), 3);
}
