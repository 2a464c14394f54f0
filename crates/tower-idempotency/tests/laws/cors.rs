//! Preflights and exposed headers, through a real CORS layer, over a real socket.

use std::net::SocketAddr;

use axum::Router;
use axum::routing::post;
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderName, Method, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use tower::ServiceBuilder;
use tower_claim::MemoryStore;
use tower_http::cors::CorsLayer;
use tower_idempotency::{IdempotencyLayer, KeyLookup, RequestFields};

const ORIGIN: &str = "https://shop.example";

async fn serve(once: &IdempotencyLayer) -> SocketAddr {
    let mut allow = once.cors_allow_headers();
    allow.push(CONTENT_TYPE);
    let cors = CorsLayer::new()
        .allow_origin(http::HeaderValue::from_static(ORIGIN))
        .allow_methods([Method::POST])
        .allow_headers(allow)
        .expose_headers(once.cors_expose_headers());
    let layers = ServiceBuilder::new().layer(cors).layer(once.clone());
    let router = Router::new().route("/orders", post(async || "ordered").layer(layers.clone()));
    let router = router.route("/unguarded", post(async || "done"));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await });
    at
}

async fn send(at: SocketAddr, request: http::request::Builder) -> Response<Bytes> {
    let mut request = request
        .header("origin", ORIGIN)
        .body(Full::<Bytes>::default())
        .unwrap();
    *request.uri_mut() = format!("http://{at}{}", request.uri()).parse().unwrap();
    let client = Client::builder(TokioExecutor::new()).build_http();
    let (parts, body) = client.request(request).await.unwrap().into_parts();
    Response::from_parts(parts, body.collect().await.unwrap().to_bytes())
}

/// What a browser asks before it sends these headers.
async fn preflight(at: SocketAddr, headers: &str) -> bool {
    let ask = Request::options("/orders")
        .header("access-control-request-method", "POST")
        .header("access-control-request-headers", headers)
        // No browser sends it with a preflight; no record may come of it.
        .header("idempotency-key", "k");
    let answer = send(at, ask).await;
    assert!(!answer.headers().contains_key("idempotent-replayed"));
    let list = |name: &str| {
        let values = answer.headers().get_all(name).iter();
        let names: Vec<_> = values
            .flat_map(|v| v.to_str().unwrap().split(','))
            .map(|n| n.trim().to_ascii_lowercase())
            .collect();
        names
    };
    let allowed = list("access-control-allow-headers");
    answer.status().is_success()
        && headers
            .split(',')
            .all(|name| allowed.contains(&name.trim().to_ascii_lowercase()))
}

fn exposed(answer: &Response<Bytes>) -> Vec<String> {
    let lists = answer
        .headers()
        .get_all("access-control-expose-headers")
        .iter();
    lists
        .flat_map(|list| list.to_str().unwrap().split(','))
        .map(|name| name.trim().to_owned())
        .collect()
}

/// Case 30 of the published reports: jointakahe/takahe #618, NousResearch/hermes-agent #3530, elizaOS/eliza #8252.
#[tokio::test]
async fn a_preflight_lets_the_key_through_and_a_script_sees_the_markers() {
    let store = MemoryStore::new();
    let once = IdempotencyLayer::builder(store.clone())
        .policy_at("/policy")
        .build()
        .unwrap();
    let at = serve(&once).await;
    assert!(preflight(at, "idempotency-key, content-type").await);
    assert!(!preflight(at, "x-other").await, "a list, not everything");
    assert_eq!(store.stats().records, 0, "a preflight makes no record");

    let order = || Request::post("/orders").header("idempotency-key", "8e03978e");
    let first = send(at, order()).await;
    let replay = send(at, order()).await;
    assert_eq!(replay.headers()["idempotent-replayed"], "true");
    let refused = send(at, order().uri("/orders?another")).await;
    assert_eq!(refused.status(), 422);
    for answer in [&first, &replay, &refused] {
        assert_eq!(answer.headers()["access-control-allow-origin"], ORIGIN);
        let exposed = exposed(answer);
        for marker in [
            "idempotent-replayed",
            "idempotency-first-seen",
            "retry-after",
            "link",
        ] {
            assert!(
                exposed.iter().any(|name| name == marker),
                "{marker} in {exposed:?}"
            );
        }
    }
    assert_eq!(once.counts().runs, 1);

    // Other methods and other routes take no notice of the key.
    for method in [Method::GET, Method::HEAD] {
        let ask = order().method(method);
        assert!(
            !send(at, ask)
                .await
                .headers()
                .contains_key("idempotent-replayed")
        );
    }
    for _ in 0..2 {
        let done = send(at, order().uri("/unguarded")).await;
        assert!(!done.headers().contains_key("idempotent-replayed"));
    }
    assert_eq!((once.counts().runs, store.stats().records), (1, 1));
}

#[tokio::test]
async fn a_script_may_ask_what_became_of_its_key_and_how_long_it_waited() {
    let names = |names: Vec<HeaderName>| -> Vec<String> {
        names.iter().map(|name| name.as_str().to_owned()).collect()
    };
    let builder = || IdempotencyLayer::builder(MemoryStore::new());
    let lookup = KeyLookup::new(&builder().build().unwrap());
    let allow = names(lookup.cors_allow_headers());
    assert_eq!(allow, ["idempotency-key", "prefer"]);
    let expose = names(lookup.cors_expose_headers());
    assert_eq!(expose, ["preference-applied", "retry-after"]);

    let fields = RequestFields::new().header(HeaderName::from_static("x-room"));
    let fields = builder().derived_from(fields).one_tenant();
    let layer = fields.policy_at("/policy").build().unwrap();
    let lookup = KeyLookup::new(&layer);
    assert_eq!(names(lookup.cors_allow_headers()), ["prefer", "x-room"]);
    let expose = names(lookup.cors_expose_headers());
    assert_eq!(expose, ["preference-applied", "retry-after", "link"]);
    let by_path = KeyLookup::builder(&builder().build().unwrap()).key_in_path();
    let by_path = by_path.build().unwrap();
    assert_eq!(names(by_path.cors_allow_headers()), ["prefer"]);
}

#[tokio::test]
async fn the_lists_follow_the_configuration() {
    let names = |names: Vec<HeaderName>| -> Vec<String> {
        names.iter().map(|name| name.as_str().to_owned()).collect()
    };
    let plain = IdempotencyLayer::new(MemoryStore::new());
    assert_eq!(names(plain.cors_allow_headers()), ["idempotency-key"]);
    assert_eq!(
        names(plain.cors_expose_headers()),
        [
            "idempotent-replayed",
            "idempotency-first-seen",
            "retry-after"
        ]
    );
    let full = IdempotencyLayer::builder(MemoryStore::new())
        .header(HeaderName::from_static("x-key"))
        .verify_content_digest()
        .tell_status()
        .policy_at("/policy");
    let full = full.build().unwrap();
    assert_eq!(
        names(full.cors_allow_headers()),
        ["content-digest", "x-key"]
    );
    assert_eq!(
        names(full.cors_expose_headers())[3..],
        ["idempotency-status", "link"]
    );
    let number = HeaderName::from_static("x-order-number");
    let derived = IdempotencyLayer::builder(MemoryStore::new())
        .derived_from(RequestFields::new().header(number.clone()))
        .fingerprint_fields(RequestFields::new().header(number))
        .one_tenant();
    let derived = derived.build().unwrap();
    assert_eq!(names(derived.cors_allow_headers()), ["x-order-number"]);
}
