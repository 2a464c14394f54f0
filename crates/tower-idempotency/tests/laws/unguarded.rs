//! A handler behind a layer that does not guard it: what it is written for is there.

use std::io;
use std::sync::{Arc, Mutex};

use futures_util::stream;
use http::{HeaderMap, Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use tower::util::BoxCloneSyncService;
use tower::{Layer, ServiceExt};
use tower_claim::http::{Gate, Mode, Switch};
use tower_claim::testing::{Fault, Operation};
use tower_claim::transaction::TransactionSlot;
use tower_claim::{Loss, Token};
use tower_idempotency::{
    IdempotencyBuilder, IdempotencyLayer, IdempotentRun, OnStoreDown, RequestBody, RequestFields,
};

use crate::rolled_back::Rows;
use crate::support::*;

type Ends = Arc<Mutex<Vec<&'static str>>>;

fn switched(builder: IdempotencyBuilder, mode: Mode) -> IdempotencyBuilder {
    builder.gate(Gate::new().switch(Switch::new(mode)))
}

/// The ways to run a request with a key without a claim.
fn ways(app: &App) -> [(&'static str, IdempotencyLayer); 4] {
    let down = app.builder().on_store_down(OnStoreDown::RunUnprotected);
    let left_out = app.builder().gate(Gate::new().when(|_| false));
    [
        ("off", switched(app.builder(), Mode::Off)),
        ("observe", switched(app.builder(), Mode::Observe)),
        ("left out", left_out),
        ("store down", down),
    ]
    .map(|(way, builder)| (way, builder.build().unwrap()))
}

/// Keeps what the handler was given.
fn keeping(layer: &IdempotencyLayer) -> (Service, Arc<Mutex<Vec<IdempotentRun>>>) {
    let runs = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&runs);
    let handler = tower::service_fn(move |request: Request<RequestBody<Body>>| {
        let kept = Arc::clone(&kept);
        async move {
            let run = request.extensions().get::<IdempotentRun>().unwrap().clone();
            run.check().map_err(io::Error::other)?;
            run.progress(1);
            run.point_of_no_return().await.map_err(io::Error::other)?;
            assert!(run.remaining() > ms(0) && run.took_over().is_none());
            kept.lock().unwrap().push(run);
            Ok::<_, io::Error>(Response::new(body_of("done")))
        }
    });
    (layer.layer(BoxCloneSyncService::new(handler)), runs)
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_is_not_guarded_finds_a_run_all_the_same() {
    let app = App::new();
    let (service, runs) = keeping(&app.builder().build().unwrap());
    let ask = post("/orders").key("k").header("x-tenant", "t1");
    ask.send(&service).await.assert_fresh(200);
    let guarded = runs.lock().unwrap().remove(0);
    assert!(guarded.is_guarded());

    for (way, layer) in ways(&app) {
        let faults = app.store.faults();
        faults.set_for(Operation::Claim, Fault::Down);
        let records = app.records();
        let (service, runs) = keeping(&layer);
        for _ in 0..2 {
            ask.send(&service).await.assert_fresh(200);
        }
        let runs = runs.lock().unwrap().split_off(0);
        for run in &runs {
            assert!(!run.is_guarded(), "{way}");
            assert_eq!(run.key(), guarded.key(), "{way}");
            assert_eq!((run.token(), run.attempt()), (Token::ZERO, 1));
            assert_eq!(run.downstream_key("pay"), guarded.downstream_key("pay"));
            assert_eq!(run.check(), Err(Loss::Ended), "{way}: it is over");
            assert_eq!(run.lost().await, Loss::Ended);
            assert!(run.remaining().is_zero());
            assert!(run.point_of_no_return().await.is_err());
        }
        assert_eq!(runs.len(), 2, "{way}");
        assert_eq!(app.records(), records, "{way}");
    }
}

/// Nobody reads it, since nobody is to be refused for it.
#[tokio::test(start_paused = true)]
async fn a_key_that_is_not_looked_at_is_one_that_nobody_else_has() {
    let app = App::new();
    for mode in [Mode::Off, Mode::Observe] {
        let fields = RequestFields::new().json("/item");
        let by_body = app.builder().derived_from(fields);
        let malformed = post("/orders").key("a,b");
        let in_body = post("/orders").body(r#"{"item":"tea"}"#);
        for (builder, ask) in [(app.builder(), malformed), (by_body, in_body)] {
            let layer = switched(builder, mode).build().unwrap();
            let (service, runs) = keeping(&layer);
            for _ in 0..2 {
                ask.send(&service).await.assert_fresh(200);
            }
            let runs = runs.lock().unwrap();
            assert_ne!(runs[0].key(), runs[1].key());
            assert_ne!(runs[0].downstream_key("pay"), runs[1].downstream_key("pay"));
        }
    }
}

/// Nobody would end its transaction.
#[tokio::test(start_paused = true)]
async fn a_request_without_a_key_or_of_another_method_has_no_run() {
    let app = App::new();
    for (_, layer) in ways(&app) {
        let service = layer.layer(BoxCloneSyncService::new(tower::service_fn(
            async |request: Request<RequestBody<Body>>| {
                assert!(request.extensions().get::<IdempotentRun>().is_none());
                assert!(request.extensions().get::<TransactionSlot>().is_none());
                Ok::<_, io::Error>(Response::new(body_of("done")))
            },
        )));
        post("/orders").send(&service).await.assert_fresh(200);
        let get = post("/orders").key("k").method(http::Method::GET);
        get.send(&service).await.assert_fresh(200);
    }
}

/// Writes in a transaction, and answers as the header says.
fn writing(app: &App, ends: &Ends) -> Handler {
    let (store, ends) = (Arc::clone(app.store.inner()), Arc::clone(ends));
    BoxCloneSyncService::new(tower::service_fn(
        move |request: Request<RequestBody<Body>>| {
            let (store, ends) = (Arc::clone(&store), Arc::clone(&ends));
            async move {
                let slot = request.extensions().get::<TransactionSlot>().unwrap();
                let lent = slot.lend(Rows { store, ends }).unwrap();
                let said = request.headers()["x-say"].to_str().unwrap().to_owned();
                let response = Response::builder();
                let grpc = || Response::builder().header("content-type", "application/grpc");
                let with_status = |status: &str| {
                    let mut trailers = HeaderMap::new();
                    trailers.insert("grpc-status", status.parse().unwrap());
                    let frames = [Ok(Frame::data("x".into())), Ok(Frame::trailers(trailers))];
                    StreamBody::new(stream::iter(frames)).boxed_unsync()
                };
                let broken = [
                    Ok(Frame::data("x".into())),
                    Err(io::Error::other("told to")),
                ];
                let response = match said.as_str() {
                    "error" => return Err(io::Error::other("told to")),
                    "hang" => std::future::pending().await,
                    "keep" => {
                        tokio::spawn(async move {
                            let _kept = lent;
                            std::future::pending::<()>().await;
                        });
                        return Ok(Response::new(body_of("kept")));
                    }
                    "grpc ok" => grpc().body(with_status("0")),
                    "grpc refused" => grpc().body(with_status("9")),
                    "broken" => response.body(StreamBody::new(stream::iter(broken)).boxed_unsync()),
                    "short" => response.header("content-length", "9").body(body_of("x")),
                    status => response.status(status).body(body_of("x")),
                };
                drop(lent);
                Ok(response.unwrap())
            }
        },
    ))
}

#[tokio::test(start_paused = true)]
async fn its_transaction_is_committed_by_a_good_answer_and_rolled_back_by_any_other() {
    let app = App::new();
    for (way, layer) in ways(&app) {
        app.store.faults().set_for(Operation::Claim, Fault::Down);
        let ends = Ends::default();
        let service = layer.layer(writing(&app, &ends));
        for (says, end) in [
            ("201", "committed alone"),
            ("303", "committed alone"),
            ("grpc ok", "committed alone"),
            ("404", "rolled back"),
            ("500", "rolled back"),
            ("grpc refused", "rolled back"),
            ("broken", "rolled back"),
            ("short", "rolled back"),
            ("error", "rolled back"),
        ] {
            let request = post("/orders").key("k").header("x-say", says).request();
            if let Ok(response) = service.clone().oneshot(request).await {
                let answer = read(response).await;
                assert_eq!(answer.body.is_err(), says == "broken", "{way}: {says}");
            }
            assert_eq!(ends.lock().unwrap().split_off(0), [end], "{way}: {says}");
        }
        let kept = post("/orders").key("k").header("x-say", "keep");
        let kept = kept.send(&service).await;
        kept.assert_refused(503, "store-unavailable");
        assert!(ends.lock().unwrap().is_empty(), "{way}");
    }
}

/// It is dropped then, as without the layer, and its transaction with it.
#[tokio::test(start_paused = true)]
async fn a_caller_that_hangs_up_takes_an_unguarded_handler_along() {
    let app = App::new();
    let layer = switched(app.builder(), Mode::Off).build().unwrap();
    let ends = Ends::default();
    let service = layer.layer(writing(&app, &ends));
    let before = Arc::strong_count(&ends);
    let hangs = post("/orders").key("k").header("x-say", "hang").request();
    let call = service.oneshot(hangs);
    assert!(tokio::time::timeout(ms(100), call).await.is_err());
    assert_eq!(Arc::strong_count(&ends), before - 1, "the service is gone");
    assert!(ends.lock().unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn within_the_run_of_another_layer_it_works_in_that() {
    let app = App::new();
    let ends = Ends::default();
    let outer = app.builder().build().unwrap();
    for mode in [Mode::Off, Mode::Observe] {
        let builder = switched(app.builder(), mode).namespace("inner");
        let inner = builder.build().unwrap().layer(writing(&app, &ends));
        let both = outer.layer(BoxCloneSyncService::new(tower::service_fn(
            move |request: Request<RequestBody<Body>>| {
                let inner = inner.clone();
                async move {
                    assert!(
                        request
                            .extensions()
                            .get::<IdempotentRun>()
                            .unwrap()
                            .is_guarded()
                    );
                    let response = inner.oneshot(request.map(as_body)).await?;
                    Ok::<_, io::Error>(response.map(as_body))
                }
            },
        )));
        let key = format!("k-{mode:?}");
        let ask = post("/orders").key(&key).header("x-say", "201");
        let first = ask.send(&both).await;
        first.assert_fresh(201);
        ask.send(&both).await.assert_replay_of(&first);
        assert_eq!(ends.lock().unwrap().split_off(0), ["committed"]);
    }
}

#[tokio::test(start_paused = true)]
async fn one_layer_value_met_twice_looks_on_once() {
    let app = App::new();
    let layer = switched(app.builder(), Mode::Observe).build().unwrap();
    let inner = app.under(&layer);
    let twice = layer.layer(BoxCloneSyncService::new(tower::service_fn(
        move |request: Request<RequestBody<Body>>| {
            let inner = inner.clone();
            async move {
                let response = inner.oneshot(request.map(as_body)).await?;
                Ok::<_, io::Error>(response.map(as_body))
            }
        },
    )));
    post("/orders")
        .key("k")
        .send(&twice)
        .await
        .assert_fresh(201);
    assert_eq!(layer.counts().observed, 1);
}

fn status(answer: &Answer) -> Option<&str> {
    answer.headers.get("idempotency-status")?.to_str().ok()
}

/// Else its sender believes that a repeat is recognised.
#[tokio::test(start_paused = true)]
async fn a_key_that_is_not_looked_at_is_answered_so_where_answers_tell() {
    let app = App::new();
    let of_routes = Gate::new().routes(["/refunds"]);
    let left_out = Gate::new().when(|_| false);
    let observes = Gate::new().switch(Switch::new(Mode::Observe));
    let off = Gate::new().switch(Switch::new(Mode::Off));
    for gate in [of_routes, left_out, observes, off] {
        let told = app.builder().gate(gate.clone()).tell_status();
        let told = app.under(&told.build().unwrap());
        let silent = app.under(&app.builder().gate(gate).build().unwrap());
        for (key, says) in [
            (Some("k"), Some("ignored")),
            (Some("a,b"), Some("ignored")),
            (None, None),
        ] {
            let ask = key.map_or_else(|| post("/orders"), |key| post("/orders").key(key));
            assert_eq!(status(&ask.send(&told).await), says, "{key:?}");
            assert_eq!(status(&ask.send(&silent).await), None);
        }
    }
    let told = app.builder().tell_status().build().unwrap();
    let get = post("/orders").key("k").method(http::Method::GET);
    assert_eq!(status(&get.send(&app.under(&told)).await), Some("ignored"));
}

#[tokio::test(start_paused = true)]
async fn what_a_layer_inside_says_of_the_key_stays() {
    let app = App::new();
    let inner = app.builder().tell_status().build().unwrap();
    let inner = app.under(&inner);
    for gate in [
        Gate::new().routes(["/refunds"]),
        Gate::new().switch(Switch::new(Mode::Off)),
    ] {
        let outer = app.builder().namespace("outer").gate(gate).tell_status();
        let inner = inner.clone();
        let both = outer.build().unwrap();
        let both = both.layer(BoxCloneSyncService::new(tower::service_fn(
            move |request: Request<RequestBody<Body>>| {
                let inner = inner.clone();
                async move {
                    let response = inner.oneshot(request.map(as_body)).await?;
                    Ok::<_, io::Error>(response.map(as_body))
                }
            },
        )));
        let answer = post("/orders").key("k").send(&both).await;
        assert_ne!(status(&answer), Some("ignored"));
        assert_eq!(
            status(&post("/orders").key("k").send(&both).await),
            Some("replayed")
        );
    }
}
