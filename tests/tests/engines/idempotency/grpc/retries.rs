//! The client's layer and tower's `Retry`, over plain HTTP.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use tower::retry::{Policy, Retry};
use tower::{Layer, ServiceExt};
use tower_idempotency::{
    CallError, IdempotencyBuilder, IdempotencyKeyLayer, IdempotencyLayer, LogicalCall,
};

use super::super::on_each_engine;
use super::super::scene::{Engine, PATIENCE, SECOND, Shop, begin, in_time, until};
use super::serve;

on_each_engine!(
    a_call_under_retry_keeps_its_key,
    a_client_comes_back_when_the_server_says,
    a_call_is_not_sent_when_its_key_is_too_old,
);

/// The shop by plain HTTP/1; of each request that came, its key.
async fn http<E: Engine>(
    place: &E,
    shop: &Shop,
    set: impl FnOnce(IdempotencyBuilder) -> IdempotencyBuilder,
) -> (SocketAddr, IdempotencyLayer, Arc<Mutex<Vec<String>>>) {
    let builder = IdempotencyLayer::builder(place.store().await).one_tenant();
    let layer = set(builder).build().expect("good settings");
    let keys: Arc<Mutex<Vec<String>>> = Arc::default();
    let (service, seen) = (shop.under(&layer), Arc::clone(&keys));
    let service = tower::service_fn(move |request: Request<Incoming>| {
        let (service, seen) = (service.clone(), Arc::clone(&seen));
        async move {
            let (parts, body) = request.into_parts();
            let key = parts.headers.get("idempotency-key");
            let key = key.and_then(|key| key.to_str().ok()).unwrap_or_default();
            seen.lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(key.to_owned());
            let body = body.collect().await.expect("a whole body").to_bytes();
            let request = Request::from_parts(parts, Full::new(body));
            let answer = begin(service, request).await.expect("no panic");
            let mut response = Response::new(Full::new(answer.body));
            *response.status_mut() = StatusCode::from_u16(answer.status).expect("a status");
            *response.headers_mut() = answer.headers;
            Ok::<_, Infallible>(response)
        }
    });
    (serve(service, false).await, layer, keys)
}

/// Tries again what may be tried again; after a first failure nothing fails any more.
#[derive(Clone)]
struct Twice(usize);

impl<R, E> Policy<Request<Full<Bytes>>, Response<R>, CallError<E>> for Twice {
    type Future = std::future::Ready<()>;

    fn retry(
        &mut self,
        request: &mut Request<Full<Bytes>>,
        result: &mut Result<Response<R>, CallError<E>>,
    ) -> Option<std::future::Ready<()>> {
        let may_help = match result {
            Ok(response) => response.status().is_server_error(),
            Err(error) => error.is_retryable(),
        };
        self.0 = self.0.checked_sub(usize::from(may_help))?;
        request.headers_mut().remove("x-do");
        may_help.then(|| std::future::ready(()))
    }

    fn clone_request(&mut self, request: &Request<Full<Bytes>>) -> Option<Request<Full<Bytes>>> {
        Some(request.clone())
    }
}

fn order(address: SocketAddr, call: LogicalCall, does: &str) -> Request<Full<Bytes>> {
    let request = Request::post(format!("http://{address}/orders"));
    let request = request.header("x-do", does).extension(call);
    request
        .body(Full::from("one coffee"))
        .expect("a good request")
}

async fn a_call_under_retry_keeps_its_key<E: Engine>() {
    let (place, shop) = (E::place().await, Shop::new());
    let (address, _layer, keys) = http(&place, &shop, |builder| builder).await;
    let client = Client::builder(TokioExecutor::new()).build_http::<Full<Bytes>>();
    let client = Retry::new(Twice(1), IdempotencyKeyLayer::new().layer(client));
    let call = LogicalCall::new();
    for (n, does) in ["status=503", "status=503"].into_iter().enumerate() {
        let asked = client.clone().oneshot(order(address, call.clone(), does));
        let answer = in_time("an answer", asked).await.expect("an answer");
        assert_eq!(answer.status(), 201);
        // The second time the outcome is there.
        assert_eq!(answer.headers().contains_key("idempotent-replayed"), n == 1);
    }
    assert_eq!(shop.effects(), 2, "the failure, and the run");
    let sent = keys.lock().unwrap_or_else(PoisonError::into_inner).clone();
    assert_eq!(sent.len(), 3);
    assert!(
        !sent[0].is_empty() && sent.iter().all(|key| *key == sent[0]),
        "{sent:?}"
    );
    assert_eq!(
        call.key().map(|key| format!("\"{key}\"")),
        Some(sent[0].clone())
    );
}

async fn a_client_comes_back_when_the_server_says<E: Engine>() {
    let (place, shop) = (E::place().await, Shop::new());
    // So that the rest of a lease is soon over.
    let short = |builder: IdempotencyBuilder| builder.lease(3 * SECOND);
    let (address, _one, _) = http(&place, &shop, short).await;
    let (other, layer, keys) = http(&place, &shop, short).await;
    let client = Client::builder(TokioExecutor::new()).build_http::<Full<Bytes>>();
    let first = IdempotencyKeyLayer::new().layer(client.clone());
    let waits = IdempotencyKeyLayer::builder().wait_for_outcome(PATIENCE);
    let waits = waits.build().expect("good settings").layer(client);
    let call = LogicalCall::new();
    let run = tokio::spawn(first.oneshot(order(address, call.clone(), "wait")));
    shop.until_effects(1).await;
    let repeat = tokio::spawn(waits.oneshot(order(other, call, "wait")));
    until("it is told to come again", async || {
        layer.counts().in_progress > 0
    })
    .await;
    shop.let_go();
    let run = in_time("the run", run)
        .await
        .expect("no panic")
        .expect("an answer");
    let repeat = in_time("the repeat", repeat).await.expect("no panic");
    let repeat = repeat.expect("an answer");
    assert_eq!(
        (run.status(), repeat.status()),
        (StatusCode::CREATED, StatusCode::CREATED)
    );
    assert!(repeat.headers().contains_key("idempotent-replayed"));
    assert_eq!(shop.effects(), 1);
    let sent = keys.lock().unwrap_or_else(PoisonError::into_inner).clone();
    assert!(
        sent.len() >= 2 && sent.iter().all(|key| *key == sent[0]),
        "{sent:?}"
    );
}

async fn a_call_is_not_sent_when_its_key_is_too_old<E: Engine>() {
    let (place, shop) = (E::place().await, Shop::new());
    let (address, _layer, keys) = http(&place, &shop, |builder| builder).await;
    let client = Client::builder(TokioExecutor::new()).build_http::<Full<Bytes>>();
    let client = Retry::new(Twice(5), IdempotencyKeyLayer::new().layer(client));
    let day = 24 * 3600 * SECOND;
    let call = LogicalCall::resumed("8e03978e", day).expect("a good key");
    let asked = client.oneshot(order(address, call, ""));
    let refused = in_time("a word", asked).await.expect_err("it is not sent");
    assert!(matches!(refused, CallError::KeyExpired { age } if age >= day));
    assert_eq!(keys.lock().unwrap_or_else(PoisonError::into_inner).len(), 0);
    assert_eq!(shop.effects(), 0);
}
