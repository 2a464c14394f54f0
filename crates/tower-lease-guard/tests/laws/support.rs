//! What the tests of this crate share.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use http_body_util::{BodyExt, Full};
use tower::Service;

/// Panics when it is called without having been polled ready; a clone is not ready.
#[derive(Debug)]
pub struct MustBeReady<S> {
    inner: S,
    ready: bool,
}

impl<S> MustBeReady<S> {
    pub fn new(inner: S) -> Self {
        Self {
            inner,
            ready: false,
        }
    }
}

impl<S: Clone> Clone for MustBeReady<S> {
    fn clone(&self) -> Self {
        Self::new(self.inner.clone())
    }
}

impl<S: Service<R>, R> Service<R> for MustBeReady<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.ready = true;
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: R) -> S::Future {
        assert!(std::mem::take(&mut self.ready), "called an unready clone");
        self.inner.call(request)
    }
}

/// A log that several tasks write to.
#[derive(Debug, Clone, Default)]
pub struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    pub fn add(&self, line: impl Into<String>) {
        self.0.lock().unwrap().push(line.into());
    }

    pub fn lines(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

/// Writes into a log when it is dropped.
#[derive(Debug)]
pub struct OnDrop(pub Log, pub &'static str);

impl Drop for OnDrop {
    fn drop(&mut self) {
        self.0.add(self.1);
    }
}

pub type TestBody = http_body_util::combinators::UnsyncBoxBody<Bytes, Infallible>;

/// A body of known length.
pub fn full(text: impl Into<Bytes>) -> TestBody {
    Full::new(text.into()).boxed_unsync()
}

/// A body that gives these frames and then, when `ends`, its end; otherwise it stays open.
pub struct Frames {
    pub frames: Vec<&'static str>,
    pub ends: bool,
    #[expect(dead_code, reason = "it tells when the body is gone")]
    pub guard: Option<OnDrop>,
}

impl Body for Frames {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if !self.frames.is_empty() {
            let data = self.frames.remove(0);
            return Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(data.as_bytes())))));
        }
        if self.ends {
            Poll::Ready(None)
        } else {
            Poll::Pending
        }
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}

/// The whole body as text.
pub async fn text<B>(body: B) -> String
where
    B: Body<Data = Bytes>,
    B::Error: std::fmt::Debug,
{
    let bytes = body.collect().await.unwrap().to_bytes();
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Code and reason of a refusal.
pub async fn refusal<B>(response: Response<B>) -> (u16, String)
where
    B: Body<Data = Bytes>,
    B::Error: std::fmt::Debug,
{
    let status = response.status().as_u16();
    let text = text(response.into_body()).await;
    let member = |name: &str| {
        let at = text.find(&format!("\"{name}\":\""))? + name.len() + 4;
        text[at..].split('"').next().map(str::to_owned)
    };
    let code = member("code").unwrap_or_else(|| format!("no refusal: {text}"));
    match member("reason") {
        Some(reason) => (status, format!("{code}/{reason}")),
        None => (status, code),
    }
}

pub fn request(path: &str) -> Request<()> {
    Request::builder().method("PUT").uri(path).body(()).unwrap()
}

/// Polls a future once.
pub async fn once<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
    futures_util::future::poll_immediate(future).await
}

/// Drops `make()` after 0, 1, 2, … polls until it ends by itself; answers how many polls it took.
pub async fn dropped_at_every_await<F, M, C>(mut make: M, mut check: C) -> usize
where
    F: Future,
    M: FnMut() -> F,
    C: FnMut(usize) -> BoxFuture<'static, ()>,
{
    for polls in 0.. {
        let mut future = Box::pin(make());
        let mut ended = false;
        for _ in 0..polls {
            // Everything else goes on between two polls, and time too.
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
            if once(&mut future).await.is_some() {
                ended = true;
                break;
            }
        }
        drop(future);
        check(polls).await;
        if ended {
            return polls;
        }
    }
    unreachable!()
}
