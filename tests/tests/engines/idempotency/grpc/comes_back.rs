//! The client's layer around a channel: it comes back to a call that is going, with a body that cannot be cloned.

use http::{Request, Response};
use tower::Layer;
use tower_idempotency::{CallError, IdempotencyBuilder, IdempotencyKeyLayer, LogicalCall};

use super::super::on_each_engine;
use super::super::scene::{Engine, PATIENCE, SECOND, Shop, in_time, until};
use super::{CALL, Call, Server, is_replay};

on_each_engine!(
    a_call_over_a_channel_comes_back_when_the_server_says,
    a_call_too_long_to_be_read_first_is_sent_once,
);

/// The client's layer around a tonic channel, whose body can neither be cloned nor looked at.
fn comes_back(
    channel: tonic::transport::Channel,
    at_most: usize,
) -> impl tower::Service<
    Request<tonic::body::Body>,
    Response = Response<tonic::body::Body>,
    Error = CallError<tonic::transport::Error>,
    Future: Send,
> + use<> {
    let keys = IdempotencyKeyLayer::builder();
    let keys = keys.wait_for_outcome_read(PATIENCE, at_most, tonic::body::Body::new);
    keys.build().expect("good settings").layer(channel)
}

async fn a_call_over_a_channel_comes_back_when_the_server_says<E: Engine>() {
    let (place, shop) = (E::place().await, Shop::new());
    // So that the rest of a lease is soon over.
    let short = |builder: IdempotencyBuilder| builder.lease(3 * SECOND);
    let one = Server::start(&place, &shop, short).await;
    let other = Server::start(&place, &shop, short).await;
    let call = LogicalCall::new();
    let attempt = || Call {
        call: Some(call.clone()),
        does: "wait",
        ..CALL
    };
    let run = tokio::spawn(attempt().over(comes_back(one.channel().await, 1000)));
    shop.until_effects(1).await;
    let repeat = tokio::spawn(attempt().over(comes_back(other.channel().await, 1000)));
    until("it is told to come again", async || {
        other.layer.counts().in_progress > 0
    })
    .await;
    shop.let_go();
    let run = in_time("the run", run).await.expect("no panic");
    let run = run.expect("OK");
    let repeat = in_time("the repeat", repeat).await.expect("no panic");
    let repeat = repeat.expect("OK");
    assert!(is_replay(repeat.metadata()) && !is_replay(run.metadata()));
    assert_eq!(repeat.get_ref(), run.get_ref());
    assert_eq!(shop.effects(), 1);
    let sent = [one.keys(), other.keys()].concat();
    assert!(
        sent.len() >= 3 && sent[0].is_some() && sent.iter().all(|key| *key == sent[0]),
        "{sent:?}"
    );
}

async fn a_call_too_long_to_be_read_first_is_sent_once<E: Engine>() {
    let (place, shop) = (E::place().await, Shop::new());
    let server = Server::start(&place, &shop, |builder| builder).await;
    let call = LogicalCall::new();
    let attempt = || Call {
        call: Some(call.clone()),
        does: "wait",
        ..CALL
    };
    // Five bytes before the message; it has ten.
    let run = tokio::spawn(attempt().over(comes_back(server.channel().await, 15)));
    shop.until_effects(1).await;
    let repeat = attempt().over(comes_back(server.channel().await, 14)).await;
    let refused = repeat.expect_err("the first run goes on");
    assert_eq!(refused.code(), tonic::Code::Aborted);
    assert!(refused.metadata().contains_key("retry-after"));
    assert_eq!(server.keys().len(), 2);
    shop.let_go();
    let run = in_time("the run", run).await.expect("no panic");
    assert!(!is_replay(run.expect("OK").metadata()));
    assert_eq!(shop.effects(), 1);
}
