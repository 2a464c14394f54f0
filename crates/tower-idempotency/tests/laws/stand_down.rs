//! Of two layers that guard one request, the one inside keeps the answer.

use std::io;

use http::{Request, Response};
use http_body_util::BodyExt;
use tower::Layer;
use tower::util::{BoxCloneSyncService, MapRequest, MapResponse};
use tower_claim::http::{Gate, Mode, Switch};
use tower_idempotency::{IdempotencyBuilder, IdempotencyLayer, RequestBody, ResponseBody};

use crate::support::*;

type Set = fn(IdempotencyBuilder) -> IdempotencyBuilder;

/// A gateway before a service, each with a layer and a store of its own.
fn stacked(app: &App, outer: Set, inner: Set) -> (IdempotencyLayer, IdempotencyLayer, Service) {
    let gateway = App::new();
    let outer = outer(gateway.builder()).build().unwrap();
    let inner = inner(app.builder()).build().unwrap();
    let service = MapRequest::new(app.under(&inner), |request: Request<RequestBody<Body>>| {
        request.map(|body| body.map_err(io::Error::other).boxed_unsync())
    });
    let service = MapResponse::new(service, |response: Response<ResponseBody<Body>>| {
        response.map(|body| body.map_err(io::Error::other).boxed_unsync())
    });
    let service = outer.layer(BoxCloneSyncService::new(service));
    (outer, inner, service)
}

const STAND_DOWN: Set = IdempotencyBuilder::stand_down;
const TELL: Set = IdempotencyBuilder::tell_status;

#[tokio::test(start_paused = true)]
async fn an_answer_that_the_layer_inside_keeps_is_kept_once() {
    let app = App::new();
    let (outer, inner, service) = stacked(&app, STAND_DOWN, TELL);
    let ask = post("/orders").key("8e03978e-40d5-43dd");
    let first = ask.send(&service).await;
    first.assert_fresh(201);
    assert_eq!(first.headers["idempotency-status"], "fresh");
    for _ in 0..2 {
        let again = ask.send(&service).await;
        again.assert_replay_of(&first);
        assert_eq!(again.headers["idempotency-status"], "replayed");
    }
    assert_eq!((outer.counts().kept, outer.counts().replays), (0, 0));
    assert_eq!((inner.counts().kept, inner.counts().replays), (1, 2));
    assert_eq!(app.effects(), 1);
}

#[tokio::test(start_paused = true)]
async fn of_concurrent_requests_one_goes_in_all_the_same() {
    let app = App::new();
    let (_, inner, service) = stacked(&app, STAND_DOWN, TELL);
    let ask = post("/orders")
        .key("8e03978e-40d5-43dd")
        .flags("delay=1000");
    let first = tokio::spawn({
        let (service, ask) = (service.clone(), ask.clone());
        async move { ask.send(&service).await }
    });
    tokio::time::sleep(ms(10)).await;
    ask.send(&service).await.assert_refused(409, "in-progress");
    assert_eq!(inner.counts().in_progress, 0, "it did not get that far");
    first.await.unwrap().assert_fresh(201);
}

#[tokio::test(start_paused = true)]
async fn who_is_not_told_of_a_key_inside_keeps_the_answer() {
    let off: Set = |builder| {
        let gate = Gate::new().switch(Switch::new(Mode::Off));
        builder.tell_status().gate(gate)
    };
    let plain: Set = |builder| builder;
    for (outer, inner) in [(STAND_DOWN, plain), (STAND_DOWN, off), (plain, TELL)] {
        let app = App::new();
        let (outer, _, service) = stacked(&app, outer, inner);
        let ask = post("/orders").key("8e03978e-40d5-43dd");
        let first = ask.send(&service).await;
        ask.send(&service).await.assert_replay_of(&first);
        assert_eq!((outer.counts().kept, outer.counts().replays), (1, 1));
        assert_eq!(app.effects(), 1);
    }
}
