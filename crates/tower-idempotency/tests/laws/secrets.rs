//! What is secret in a kept response.

use std::io;

use bytes::Bytes;
use futures_util::stream;
use http::{HeaderMap, Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use tower::Layer;
use tower::util::BoxCloneSyncService;
use tower_claim::ClaimAdmin;
use tower_idempotency::{IdempotencyBuilder, RequestBody};

use crate::grpc::{call, calls, status};
use crate::support::*;

/// All bytes that the store keeps of its only done record.
async fn at_rest(app: &App) -> Bytes {
    use tower_claim::ClaimStore;
    use tower_claim::store::{Value, Watched};
    let store = app.store.inner();
    let record = store.scan(None, 9).await.unwrap().records.remove(0);
    match store.watch(record.key, record.token).await.unwrap() {
        Watched::Done(done) => match done.value {
            Value::Kept(bytes) => bytes,
            _ => Bytes::new(),
        },
        other => panic!("{other:?}"),
    }
}

fn holds(bytes: &Bytes, text: &str) -> bool {
    bytes
        .windows(text.len())
        .any(|part| part == text.as_bytes())
}

fn without_numbers(response: Response<Bytes>) -> Response<Bytes> {
    let mut response = response.map(|_| Bytes::from_static(b"{\"n\":\"redacted\"}"));
    response.headers_mut().remove("etag");
    response
}

#[tokio::test(start_paused = true)]
async fn what_is_secret_is_taken_out_before_it_is_kept() {
    for flags in ["", "size=20&chunks=4&nolen"] {
        let app = App::new();
        let service = app.under(&app.builder().redact(without_numbers).build().unwrap());
        let ask = post("/orders").key("k").flags(flags);
        let first = ask.send(&service).await;
        assert!(first.headers.contains_key("etag"), "sent as it is");
        assert!(!first.text().contains("redacted"));
        let replay = ask.send(&service).await;
        assert!(replay.is_replay() && !replay.headers.contains_key("etag"));
        assert_eq!(replay.text(), "{\"n\":\"redacted\"}");
        assert_eq!(replay.headers["location"], "/orders/1");
        assert!(replay.headers.contains_key("idempotency-first-seen"));
        let kept = at_rest(&app).await;
        assert!(holds(&kept, "redacted") && !holds(&kept, "etag"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_redaction_that_panics_keeps_nothing_and_frees_nothing() {
    let app = App::new();
    let layer = app.builder().redact(|_| panic!("told to")).build().unwrap();
    let service = app.under(&layer);
    let ask = post("/orders").key("k");
    ask.send(&service).await.assert_fresh(201);
    ask.send(&service)
        .await
        .assert_refused(409, "response-not-kept");
    assert_eq!((app.effects(), layer.counts().tombstones), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_tombstones_head_is_redacted_too() {
    let app = App::new();
    let layer = app.builder().max_response_body(1).redact(without_numbers);
    let service = app.under(&layer.build().unwrap());
    post("/orders")
        .key("k")
        .send(&service)
        .await
        .assert_fresh(201);
    let kept = at_rest(&app).await;
    assert!(holds(&kept, "location") && !holds(&kept, "etag"));
}

fn without_secret(mut trailers: HeaderMap) -> HeaderMap {
    assert!(!trailers.contains_key("grpc-status"), "it stays");
    trailers.remove("x-secret-bin");
    trailers
}

/// Behind the message of a call there may be secrets, too.
#[tokio::test(start_paused = true)]
async fn of_trailers_nothing_is_kept_that_nobody_has_looked_at() {
    type Set = fn(IdempotencyBuilder) -> IdempotencyBuilder;
    let settings: [(&str, Set, usize); 4] = [
        ("neither", |b| b, 3),
        ("redact", |b| b.redact(without_numbers), 1),
        ("trailers", |b| b.redact_trailers(without_secret), 2),
        (
            "both",
            |b| b.redact(without_numbers).redact_trailers(without_secret),
            2,
        ),
    ];
    for (what, set, left) in settings {
        let app = App::new();
        let layer = set(app.builder());
        let handler = tower::service_fn(|_: Request<RequestBody<Body>>| {
            let mut trailers = HeaderMap::new();
            for (name, value) in [
                ("grpc-status", "0"),
                ("x-sum", "7"),
                ("x-secret-bin", "c2VjcmV0"),
            ] {
                trailers.insert(name, value.parse().unwrap());
            }
            let frames = [
                Ok(Frame::data(Bytes::from_static(b"message"))),
                Ok::<_, io::Error>(Frame::trailers(trailers)),
            ];
            let body = StreamBody::new(stream::iter(frames)).boxed_unsync();
            let response = Response::builder().header("content-type", "application/grpc");
            std::future::ready(Ok(response.body(body).unwrap()))
        });
        let service = layer
            .build()
            .unwrap()
            .layer(BoxCloneSyncService::new(handler));
        let trailers = |answer: Answer| answer.trailers.unwrap();
        let first = trailers(call().send(&service).await);
        assert_eq!(first["x-secret-bin"], "c2VjcmV0", "{what}: sent as it is");
        let again = call().send(&service).await;
        assert!(again.is_replay(), "{what}");
        let again = trailers(again);
        assert_eq!(
            (again.len(), &again["grpc-status"]),
            (left, &first["grpc-status"]),
            "{what}"
        );
        assert_eq!(holds(&at_rest(&app).await, "c2VjcmV0"), what == "neither");
    }
}

#[tokio::test(start_paused = true)]
async fn a_redaction_of_trailers_that_panics_keeps_nothing_and_frees_nothing() {
    let app = App::new();
    let layer = app.builder().redact_trailers(|_| panic!("told to"));
    let layer = layer.build().unwrap();
    let service = calls("0").under(&layer);
    call().send(&service).await.assert_fresh(200);
    let told = call().send(&service).await;
    assert_eq!(status(&told), "9", "its response was not kept");
    assert_eq!(layer.counts().tombstones, 1);
}

#[cfg(feature = "aead")]
mod sealed {
    use tower_idempotency::KeyRing;

    use super::*;

    fn sealing(app: &App, ring: KeyRing) -> Service {
        app.under(&app.builder().seal_with(ring).build().unwrap())
    }

    fn a() -> KeyRing {
        KeyRing::new("a", [1; 32])
    }

    #[tokio::test(start_paused = true)]
    async fn a_sealed_response_is_replayed_and_not_to_be_read_in_the_store() {
        for flags in ["", "size=20&chunks=4&nolen", "commit&status=500"] {
            let app = App::new();
            let service = sealing(&app, a());
            let ask = post("/orders").key("k").flags(flags);
            let first = ask.send(&service).await;
            let replay = ask.send(&service).await;
            replay.assert_replay_of(&first);
            assert_eq!(replay.headers["location"], "/orders/1");
            assert!(replay.headers.contains_key("idempotency-first-seen"));
            let kept = at_rest(&app).await;
            for part in ["location", "orders", "caf", first.text()] {
                assert!(!holds(&kept, part), "{part}");
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn keys_are_rotated() {
        let app = App::new();
        let ask = post("/orders").key("k");
        let first = ask.send(&sealing(&app, a())).await;
        let next = KeyRing::new("b", [2; 32]).older("a", [1; 32]);
        ask.send(&sealing(&app, next))
            .await
            .assert_replay_of(&first);
        assert_eq!(app.effects(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn what_does_not_open_is_never_replayed_and_never_run_again() {
        for (ring, says) in [
            (Some(KeyRing::new("b", [2; 32])), "not in the key ring"),
            (Some(KeyRing::new("a", [2; 32])), "does not open"),
            (None, "has no keys"),
        ] {
            let app = App::new();
            let ask = post("/orders").key("k");
            ask.send(&sealing(&app, a())).await.assert_fresh(201);
            let other = match ring {
                Some(ring) => sealing(&app, ring),
                None => app.service(),
            };
            let refused = ask.send(&other).await;
            refused.assert_refused(503, "store-unavailable");
            assert!(refused.text().contains(says), "{}", refused.text());
            assert!(refused.text().contains("record-unreadable"));
            assert_eq!(app.effects(), 1);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_kept_before_there_were_keys_is_replayed_when_told_to() {
        let app = App::new();
        let ask = post("/orders").key("k");
        let first = ask.send(&app.service()).await;
        let refused = ask.send(&sealing(&app, a())).await;
        refused.assert_refused(503, "store-unavailable");
        assert!(refused.text().contains("not sealed"));
        let trusting = sealing(&app, a().accept_unsealed());
        ask.send(&trusting).await.assert_replay_of(&first);
    }

    #[tokio::test(start_paused = true)]
    async fn an_operators_answer_is_redacted_and_sealed_like_any_other() {
        let app = App::new();
        let layer = app
            .builder()
            .seal_with(a())
            .redact(without_numbers)
            .build()
            .unwrap();
        let service = app.under(&layer);
        let ask = post("/orders").key("k");
        ask.clone().flags("commit&panic").send(&service).await;
        let operator = layer.operator(app.store.inner().clone());
        let unknown = operator.unknown(None).await.unwrap().outcomes.remove(0);
        let response = Response::builder()
            .header("etag", "\"v1\"")
            .body("n: 1".into());
        operator
            .resolve_with(&unknown, response.unwrap())
            .await
            .unwrap();
        let replay = ask.send(&service).await;
        assert_eq!(replay.text(), "{\"n\":\"redacted\"}");
        assert!(replay.is_replay() && !holds(&at_rest(&app).await, "redacted"));
    }

    #[test]
    fn a_bad_ring_is_refused() {
        let bad = tower_idempotency::IdempotencyLayer::builder(tower_claim::MemoryStore::new())
            .seal_with(KeyRing::new("", [1; 32]))
            .build();
        assert_eq!(bad.unwrap_err().setting(), "seal_with");
    }
}

#[tokio::test(start_paused = true)]
async fn under_a_secret_a_fingerprint_still_tells_repeats_and_cannot_be_made_without_it() {
    let app = App::new();
    let under = |secret| app.under(&app.builder().fingerprint_secret(secret).build().unwrap());
    let (service, same) = (under([7; 32]), under([7; 32]));
    let ask = post("/orders").key("k");
    ask.send(&service).await.assert_fresh(201);
    assert!(ask.send(&same).await.is_replay());
    let other = post("/orders").key("k").body("another");
    other.send(&service).await.assert_refused(422, "key-reused");
    // What is at rest is made neither without a secret nor with another one.
    let plain = app.under(&app.builder().build().unwrap());
    for stranger in [plain, under([8; 32])] {
        ask.send(&stranger).await.assert_refused(422, "key-reused");
    }
    assert_eq!(app.effects(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_secret_of_zeros_is_none() {
    let error = App::new().builder().fingerprint_secret([0; 32]).build();
    assert!(error.unwrap_err().to_string().contains("32 random bytes"));
}
