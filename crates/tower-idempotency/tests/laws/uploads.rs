//! Uploads that stream to the handler while they are hashed.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use futures_util::stream;
use http::{Request, Response};
use http_body::Frame;
use http_body_util::channel::Channel;
use http_body_util::{BodyExt, StreamBody};
use tower::Layer;
use tower::util::BoxCloneSyncService;
use tower_claim::transaction::UniqueViolation;
use tower_claim::{LapsePolicy, Renewal};
use tower_idempotency::{IdempotencyBuilder, Reconciled, RequestBody, UploadError};

use crate::support::*;

const HONEST: &str = "{\"hello\": \"world\"}\n";
/// Of that (RFC 9530, appendix A).
const DIGEST: &str = "sha-256=:RK/0qy18MlBSVnWgjwz6lZEWjP/lF5HF9bvEF8FabDg=:";
/// Of nothing.
const OTHER: &str = "sha-256=:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=:";

fn ask(digest: &str, body: &'static str) -> Ask {
    post("/orders")
        .key("8e03978e-40d5-43dd")
        .header("content-digest", digest)
        .body(body)
}

fn streaming(app: &App) -> IdempotencyBuilder {
    app.builder().verify_content_digest().stream_uploads(64)
}

fn frames(frames: &[&'static str]) -> Body {
    let frames: Vec<_> = frames
        .iter()
        .map(|f| Ok(Frame::data((*f).into())))
        .collect();
    StreamBody::new(stream::iter(frames)).boxed_unsync()
}

#[tokio::test(start_paused = true)]
async fn the_head_alone_tells_repeats_while_the_first_upload_still_comes() {
    let app = App::new();
    let service = app.under(&streaming(&app).build().unwrap());
    let (mut upload, body) = Channel::<Bytes, io::Error>::new(2);
    let first = ask(DIGEST, "").no_body().with(body.boxed_unsync());
    let others = async {
        upload.send_data("{\"hello\":".into()).await.unwrap();
        tokio::time::sleep(ms(10)).await;
        let repeat = ask(DIGEST, HONEST).send(&service).await;
        repeat.assert_refused(409, "in-progress");
        let reuse = ask(OTHER, "").send(&service).await;
        reuse.assert_refused(422, "key-reused");
        upload.send_data(" \"world\"}\n".into()).await.unwrap();
        drop(upload);
    };
    let (first, ()) = tokio::join!(send(&service, first), others);
    first.assert_fresh(201);
    assert!(first.text().contains("\"read\":19"), "{}", first.text());

    ask(DIGEST, HONEST)
        .send(&service)
        .await
        .assert_replay_of(&first);
    // Without the header it is read first, and is the same payload.
    let plain = post("/orders").key("8e03978e-40d5-43dd").body(HONEST);
    plain.send(&service).await.assert_replay_of(&first);
    ask(OTHER, "")
        .send(&service)
        .await
        .assert_refused(422, "key-reused");
    // Nobody is given an answer for a body that is not what it says.
    let lie = ask(DIGEST, "{}").send(&service).await;
    lie.assert_refused(400, "body-broken");
    assert_eq!(app.effects(), 1);
}

#[tokio::test(start_paused = true)]
async fn what_a_handler_answers_to_a_failed_upload_is_no_outcome() {
    let app = App::new();
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&runs);
    let handler = tower::service_fn(move |request: Request<RequestBody<Body>>| {
        let runs = Arc::clone(&counted);
        async move {
            runs.fetch_add(1, Ordering::SeqCst);
            let (parts, body) = request.into_parts();
            let (status, text) = match body.collect().await {
                Ok(whole) => (201, whole.to_bytes()),
                Err(error) => {
                    if parts.headers.contains_key("x-commit") {
                        let run = parts.extensions.get::<tower_idempotency::IdempotentRun>();
                        run.unwrap()
                            .point_of_no_return()
                            .await
                            .map_err(io::Error::other)?;
                    }
                    let kind = error.downcast_ref::<UploadError>();
                    (400, format!("{kind:?}").into())
                }
            };
            let response = Response::builder().status(status);
            Ok::<_, io::Error>(response.body(body_of(text)).unwrap())
        }
    });
    let layer = streaming(&app).build().unwrap();
    let service = layer.layer(BoxCloneSyncService::new(handler));

    let reset = [
        Ok(Frame::data("{".into())),
        Err(io::Error::other("connection reset")),
    ];
    let long = [HONEST; 4];
    let failing = [
        (frames(&["{}"]), "Some(NotItsDigest)"),
        (frames(&long), "Some(TooLarge)"),
        (StreamBody::new(stream::iter(reset)).boxed_unsync(), "None"),
    ];
    for (i, (body, why)) in failing.into_iter().enumerate() {
        let answer = send(&service, ask(DIGEST, "").no_body().with(body)).await;
        assert_eq!((answer.status.as_u16(), answer.text()), (400, why));
        assert_eq!(runs.load(Ordering::SeqCst), i + 1);
    }
    let honest = ask(DIGEST, "")
        .no_body()
        .with(frames(&["{\"hello\": ", "\"world\"}\n"]));
    let first = send(&service, honest).await;
    assert_eq!(first.assert_fresh(201).text(), HONEST);
    ask(DIGEST, HONEST)
        .send(&service)
        .await
        .assert_replay_of(&first);
    assert_eq!(runs.load(Ordering::SeqCst), 4);

    // Past the point of no return every answer is kept, this one too.
    let marked = ask(DIGEST, "{}").header("x-commit", "1");
    let mut request = marked.request();
    let other = "another-key-of-ada".parse().unwrap();
    request.headers_mut().insert("idempotency-key", other);
    assert_eq!(send(&service, request).await.status, 400);
    let mut again = ask(DIGEST, HONEST).request();
    let other = "another-key-of-ada".parse().unwrap();
    again.headers_mut().insert("idempotency-key", other);
    let again = send(&service, again).await;
    assert!(again.is_replay() && again.status == 400, "{again:?}");
}

#[tokio::test(start_paused = true)]
async fn an_honest_length_over_the_limit_is_refused_before_the_upload() {
    let app = App::new();
    let layer = app.builder().verify_content_digest().stream_uploads(4);
    let service = app.under(&layer.build().unwrap());
    let answer = ask(DIGEST, HONEST).send(&service).await;
    answer.assert_refused(413, "body-too-large");
    assert_eq!((app.effects(), app.store.faults().calls().total()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn what_needs_the_whole_body_does_not_go_with_streaming() {
    let app = App::new();
    let refused = |builder: IdempotencyBuilder| builder.build().unwrap_err().setting();
    let by_fields = app.builder().stream_uploads(64);
    let amount = tower_idempotency::RequestFields::new().form("amount");
    assert_eq!(
        refused(by_fields.fingerprint_fields(amount)),
        "stream_uploads"
    );
    assert_eq!(refused(streaming(&app).multipart_parts()), "stream_uploads");
    let fields = tower_idempotency::RequestFields::new().form("to");
    assert_eq!(
        refused(streaming(&app).derived_from(fields)),
        "stream_uploads"
    );
}

/// What the hook knows is the answer to the payload that was announced, as a replay is.
#[tokio::test(start_paused = true)]
async fn nobody_is_told_what_a_lapsed_run_came_to_for_a_body_that_is_not_what_it_says() {
    let app = App::new();
    let builder = || streaming(&app).lease(ms(200));
    let crashing = builder().renewal(Renewal::Off).on_lapse(LapsePolicy::Hold);
    let crashing = app.under(&crashing.build().unwrap());
    let slow = ask(DIGEST, HONEST).flags("delay=100000000");
    tokio::spawn(async move { slow.send(&crashing).await });
    tokio::time::sleep(ms(300)).await;

    let knows = builder().reconcile(app.store.inner().clone(), async |_| {
        Reconciled::Done(Response::new("booked".into()))
    });
    let service = app.under(&knows.build().unwrap());
    let lie = ask(DIGEST, "{}").send(&service).await;
    lie.assert_refused(400, "body-broken");
    let honest = ask(DIGEST, HONEST).send(&service).await;
    assert_eq!(honest.text(), "booked");
    assert_eq!(app.effects(), 1);
}

/// The answer had begun, and is too long to be kept: the key is not bound to a payload that never came.
#[tokio::test(start_paused = true)]
async fn an_upload_that_fails_under_a_long_answer_is_no_outcome() {
    let app = App::new();
    let layer = streaming(&app).max_response_body(10).build().unwrap();
    let handler = tower::service_fn(async |request: Request<RequestBody<Body>>| {
        let upload = request.into_body();
        let begun = stream::once(async { Ok::<_, io::Error>(Frame::data("got ".into())) });
        let rest = stream::once(async {
            let _ = upload.collect().await;
            Ok(Frame::data("all of what there was".into()))
        });
        let body = StreamBody::new(stream::StreamExt::chain(begun, rest));
        Ok::<_, io::Error>(Response::new(body.boxed_unsync()))
    });
    let service = layer.layer(BoxCloneSyncService::new(handler));
    let lie = ask(DIGEST, "").no_body().with(frames(&["{}"]));
    send(&service, lie).await.assert_fresh(200);
    ask(DIGEST, HONEST).send(&service).await.assert_fresh(200);
    let again = ask(DIGEST, HONEST).send(&service).await;
    again.assert_refused(409, "response-not-kept");
    assert_eq!(layer.counts().runs, 2);
}

#[tokio::test(start_paused = true)]
async fn an_upload_that_failed_is_not_answered_by_a_row_that_is_there_already() {
    let app = App::new();
    let hook = async |_| Some(Response::new("of the row that is there".into()));
    let layer = streaming(&app).on_unique_violation("orders_key", hook);
    let layer = layer.build().unwrap();
    let handler = tower::service_fn(async |request: Request<RequestBody<Body>>| {
        let read = request.into_body().collect().await;
        let mut response = Response::new(body_of(format!("{}", read.is_ok())));
        *response.status_mut() = http::StatusCode::CONFLICT;
        let refused = UniqueViolation::new("orders_key");
        response.extensions_mut().insert(refused);
        Ok::<_, io::Error>(response)
    });
    let service = layer.layer(BoxCloneSyncService::new(handler));
    let lie = ask(DIGEST, "").no_body().with(frames(&["{}"]));
    assert_eq!(send(&service, lie).await.text(), "false");
    let honest = ask(DIGEST, HONEST).send(&service).await;
    assert_eq!(honest.text(), "of the row that is there");
    assert_eq!(layer.counts().runs, 2);
}
