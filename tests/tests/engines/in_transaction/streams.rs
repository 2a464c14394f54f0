//! Answers of unknown length: collected before their first byte leaves, since that must not be before the commit.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use axum::body::Body;
use axum::http::Request;
use axum::response::Response;
use axum::routing::post;
use bytes::Bytes;
use futures_util::stream;
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use tokio::sync::Semaphore;
use tower::ServiceExt;
use tower_claim_sqlx::RunTransaction;

use super::laws::send;
use super::{SECOND, Shop, TOGETHER, insert, until};

/// A body that makes its frames as it is read: how many it has been asked for, and who lets them through.
#[derive(Clone)]
struct Frames {
    asked: Arc<AtomicU32>,
    door: Arc<Semaphore>,
    frame: Bytes,
    /// Then it is over.
    many: u32,
}

impl Frames {
    fn of(frame: impl Into<Bytes>, many: u32) -> Self {
        Self {
            asked: Arc::default(),
            door: Arc::new(Semaphore::new(0)),
            frame: frame.into(),
            many,
        }
    }

    fn asked(&self) -> u32 {
        self.asked.load(Ordering::Relaxed)
    }

    fn body(&self) -> Body {
        let frames = stream::unfold(self.clone(), async |frames| {
            if frames.asked.fetch_add(1, Ordering::Relaxed) == frames.many {
                return None;
            }
            frames.door.acquire().await.ok()?.forget();
            let frame = Frame::data(frames.frame.clone());
            Some((Ok::<_, std::io::Error>(frame), frames))
        });
        Body::new(StreamBody::new(frames))
    }
}

/// The head of the answer to this request, and its body yet to come.
async fn begin(app: &axum::Router) -> Response {
    let request = Request::post("/orders").header("idempotency-key", "key");
    let request = request.body(Body::from("coffee")).expect("a request");
    let sent = tokio::time::timeout(30 * SECOND, app.clone().oneshot(request)).await;
    sent.expect("a head in time").expect("an answer")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_of_a_stream_leaves_before_the_commit_and_then_all_of_it() {
    for mode in TOGETHER {
        let shop = Shop::open().await;
        let frames = Frames::of("tea ", 3);
        let made = frames.clone();
        let handler = async move |mut tx: RunTransaction| {
            insert(&mut tx, "key", "tea").await;
            made.body()
        };
        let app = shop.app(shop.layer_of(mode), post(handler));
        let asking = tokio::spawn({
            let app = app.clone();
            async move { begin(&app).await }
        });
        for n in 1..=3 {
            until("the next frame is asked for", async || frames.asked() == n).await;
            assert!(!asking.is_finished(), "{mode:?}: its head is out");
            assert!(shop.rows().await.is_empty(), "{mode:?}");
            frames.door.add_permits(1);
        }
        let response = asking.await.expect("no panic");
        assert_eq!(shop.rows().await, ["key"], "{mode:?}: committed first");
        let body = response.into_body().collect().await.expect("a whole body");
        assert_eq!(body.to_bytes(), "tea tea tea ");
        let again = send(&app, "key").await;
        assert!(again.replayed, "{mode:?}");
        assert_eq!(again.body, "tea tea tea ");
        assert_eq!(shop.rows().await, ["key"]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_endless_stream_is_settled_at_the_cap_and_goes_on() {
    const KIB: usize = 1024;
    for mode in TOGETHER {
        let shop = Shop::open().await;
        let frames = Frames::of(vec![b'x'; KIB], u32::MAX);
        frames.door.add_permits(10);
        let made = frames.clone();
        let handler = async move |mut tx: RunTransaction| {
            insert(&mut tx, "key", "tea").await;
            made.body()
        };
        let layer = shop.layer_of(mode).max_response_body(9 * KIB);
        let app = shop.app(layer, post(handler));
        let mut body = begin(&app).await.into_body();
        assert_eq!(shop.rows().await, ["key"], "{mode:?}: committed first");
        frames.door.add_permits(10);
        let mut read = 0;
        while read < 20 * KIB {
            let frame = tokio::time::timeout(30 * SECOND, body.frame()).await;
            let frame = frame.expect("in time").expect("no end").expect("a frame");
            read += frame.data_ref().map_or(0, Bytes::len);
        }
        let again = send(&app, "key").await;
        assert_eq!(again.status.as_u16(), 409, "{mode:?}");
        assert!(again.body.contains("response-not-kept"), "{}", again.body);
        assert_eq!(shop.rows().await, ["key"]);
    }
}
