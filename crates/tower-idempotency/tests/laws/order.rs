//! Layers on the wrong side are told of.

use std::io;

use http::{Request, Response};
use tower::util::BoxCloneSyncService;
use tower::{Layer, ServiceBuilder};
use tower_claim::{Code, MemoryStore};
use tower_http::auth::AsyncRequireAuthorizationLayer;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::compression::CompressionLayer;
use tower_http::cors::CorsLayer;
use tower_idempotency::{IdempotencyLayer, Misorder, RequestBody};
use tower_stage::{Board, StageLayer};

use crate::support::*;

/// Answers with this header and status; its type tells nothing.
fn answering(status: u16, header: Option<(&'static str, &'static str)>) -> Handler {
    BoxCloneSyncService::new(tower::service_fn(
        move |_: Request<RequestBody<Body>>| async move {
            let mut response = Response::builder().status(status);
            if let Some((name, value)) = header {
                response = response.header(name, value);
            }
            Ok::<_, io::Error>(response.body(body_of("ok")).unwrap())
        },
    ))
}

/// What a layer finds out by a request that is answered like this.
async fn found_by(
    ask: Ask,
    status: u16,
    header: Option<(&'static str, &'static str)>,
) -> Vec<Misorder> {
    let layer = App::new().builder().build().unwrap();
    let service = layer.layer(answering(status, header));
    for key in ["a", "b"] {
        ask.clone().key(key).send(&service).await;
    }
    let found = layer.misorders();
    assert_eq!(layer.counts().misorders, found.len() as u64, "each once");
    found
}

#[tokio::test(start_paused = true)]
async fn an_answer_shows_what_stands_inside() {
    for (status, header, misorder) in [
        (
            401,
            ("www-authenticate", "Bearer"),
            Misorder::AuthenticationInside,
        ),
        (
            407,
            ("proxy-authenticate", "Basic"),
            Misorder::AuthenticationInside,
        ),
        (
            200,
            ("content-encoding", "gzip"),
            Misorder::CompressionInside,
        ),
        (
            200,
            ("access-control-allow-origin", "*"),
            Misorder::CorsInside,
        ),
    ] {
        let found = found_by(post("/orders"), status, Some(header)).await;
        assert_eq!(found, [misorder], "{header:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_shows_nothing_is_told_of_by_nobody() {
    assert_eq!(found_by(post("/orders"), 201, None).await, []);
    // A handler's own: a wrong one-time code.
    assert_eq!(found_by(post("/orders"), 401, None).await, []);
    // Credentials, and a scope that looks at them or not.
    let asked = post("/orders").header("authorization", "Bearer a");
    assert_eq!(found_by(asked, 201, None).await, []);
    // A layer of this family says who it is.
    let layer = App::new().builder().build().unwrap();
    let refusing = tower::service_fn(|_: Request<RequestBody<Body>>| async {
        let refusal = Response::builder()
            .status(407)
            .extension(Code::StoreUnavailable);
        Ok::<_, io::Error>(refusal.body(body_of("")).unwrap())
    });
    let service = layer.layer(BoxCloneSyncService::new(refusing));
    post("/orders").key("k").send(&service).await;
    assert_eq!(layer.misorders(), []);
}

#[tokio::test(start_paused = true)]
async fn credentials_without_a_scope_are_told_of() {
    for credentials in ["authorization", "cookie"] {
        let ask = post("/orders").key("k").header(credentials, "a");
        let told = |builder: tower_idempotency::IdempotencyBuilder| {
            let layer = builder.build().unwrap();
            let (service, ask) = (layer.layer(answering(201, None)), ask.clone());
            async move {
                ask.send(&service).await.assert_fresh(201);
                layer.misorders()
            }
        };
        let plain = || IdempotencyLayer::builder(MemoryStore::new());
        assert_eq!(told(plain()).await, [Misorder::NoScope]);
        assert_eq!(told(plain().one_tenant()).await, []);
    }
}

/// By the types of the services, before any request.
#[tokio::test]
async fn real_layers_inside_are_told_of_at_start_up_and_outside_they_are_not() {
    let handler = || {
        tower::service_fn(async |_: Request<RequestBody<Body>>| {
            Ok::<_, io::Error>(Response::new(body_of("ok")))
        })
    };
    let layer = || IdempotencyLayer::new(MemoryStore::new());
    macro_rules! assert_told {
        ($other:expr, $misorder:ident) => {
            let inside = layer();
            let _service = inside.layer($other.layer(handler()));
            assert_eq!(inside.misorders(), [Misorder::$misorder]);
            let outside = layer();
            let _service = $other.layer(outside.layer(handler()));
            assert_eq!(outside.misorders(), []);
        };
    }
    assert_told!(CompressionLayer::new(), CompressionInside);
    assert_told!(CorsLayer::permissive(), CorsInside);
    assert_told!(CatchPanicLayer::new(), CatchPanicInside);
    assert_told!(StageLayer::new(Board::new()), StageInside);
    assert_told!(
        AsyncRequireAuthorizationLayer::new(|request: Request<RequestBody<Body>>| async {
            Ok::<_, Response<Body>>(request)
        }),
        AuthenticationInside
    );
    // Through a stack, and one of each.
    let several = layer();
    let stack = ServiceBuilder::new()
        .layer(several.clone())
        .layer(CorsLayer::permissive())
        .layer(CompressionLayer::new());
    let _service = stack.service(handler());
    let found = several.misorders();
    assert_eq!(
        found,
        [Misorder::CompressionInside, Misorder::CorsInside],
        "{found:?}"
    );
}

/// In the log once, with the mend.
#[cfg(feature = "tracing")]
#[tokio::test]
async fn a_misorder_is_warned_of_once() {
    let log = Log::default();
    let _listening = log.listen();
    let layer = IdempotencyLayer::new(MemoryStore::new());
    for _route in 0..3 {
        let _service = layer.layer(CorsLayer::permissive().layer(answering(201, None)));
    }
    let told = log.one("the layer for CORS stands inside");
    assert_eq!(told.level, "WARN");
    let mend = "put the layer for CORS outside of IdempotencyLayer";
    assert_eq!(told.field("mend"), mend);
}
