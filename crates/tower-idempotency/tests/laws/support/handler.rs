//! A handler that counts its effects and then misbehaves on command.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use tower_idempotency::{IdempotentRun, NoEffect, RequestBody};

use super::{Body, body_of, ms};

/// Reads the body, counts one effect, does what the header `x-do` says.
pub(super) async fn misbehave(
    request: Request<RequestBody<Body>>,
    effects: Arc<AtomicU64>,
) -> Result<Response<Body>, io::Error> {
    let (parts, body) = request.into_parts();
    let flags = parts.headers.get("x-do").map(|v| v.to_str().unwrap());
    let flags = flags.unwrap_or_default().to_owned();
    let flag = |name: &str| {
        flags.split('&').find_map(|f| {
            let (n, v) = f.split_once('=').unwrap_or((f, ""));
            (n == name).then(|| v.to_owned())
        })
    };
    let number = |name: &str| flag(name).map(|v| v.parse::<u64>().unwrap());
    let status = |s: u64| StatusCode::from_u16(u16::try_from(s).unwrap()).unwrap();

    let read = body.collect().await.map_err(io::Error::other)?.to_bytes();
    if let Some(code) = number("reject") {
        let response = Response::builder().status(status(code)).extension(NoEffect);
        return Ok(response.body(body_of("rejected")).unwrap());
    }
    let n = effects.fetch_add(1, Ordering::SeqCst) + 1;
    if flag("commit").is_some() {
        let run = parts.extensions.get::<IdempotentRun>().unwrap();
        run.point_of_no_return().await.map_err(io::Error::other)?;
    }
    #[cfg(feature = "stage")]
    if flag("mark").is_some() {
        tower_stage::mark(tower_stage::Stage::Persisted);
    }
    if let Some(delay) = number("delay") {
        tokio::time::sleep(ms(delay)).await;
    }
    if flag("panic").is_some() {
        panic!("told to");
    }
    if flag("error").is_some() {
        return Err(io::Error::other("told to"));
    }
    let code = number("status").unwrap_or(201);
    let body = if code == 204 {
        body_of("")
    } else {
        match number("size") {
            None => body_of(format!("{{\"n\":{n},\"read\":{}}}", read.len())),
            Some(size) => pieces(
                usize::try_from(size).unwrap(),
                number("chunks").unwrap_or(1),
                number("chunk_delay").map(ms),
                number("body_error"),
                flag("body_panic").is_some(),
                match (flag("nolen"), flag("ends")) {
                    (None, _) => Tells::Length,
                    (Some(_), Some(_)) => Tells::End,
                    (Some(_), None) => Tells::Nothing,
                },
            ),
        }
    };
    let mut response = Response::builder()
        .status(status(code))
        .header("location", format!("/orders/{n}"))
        .header("etag", "\"v1\"")
        .header("link", "</a>; rel=a")
        .header("set-cookie", "a=1")
        .header("link", "</b>; rel=b")
        .header("set-cookie", "b=2")
        .header("traceparent", "00-0-0-01")
        .header("x-name", HeaderValue::from_bytes(b"caf\xE9").unwrap())
        .body(body)
        .unwrap();
    response.extensions_mut().insert(Extension(n));
    Ok(response)
}

/// Survives on the first response.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Extension(pub(crate) u64);

fn pieces(
    size: usize,
    chunks: u64,
    pause: Option<Duration>,
    error_at: Option<u64>,
    panics: bool,
    tells: Tells,
) -> Body {
    let chunks = usize::try_from(chunks).unwrap();
    let frames = async_stream(chunks, move |i| async move {
        if i > 0
            && let Some(pause) = pause
        {
            tokio::time::sleep(pause).await;
        }
        if error_at == Some(i as u64) {
            return Err(io::Error::other("the body broke off"));
        }
        assert!(!(panics && i == 1), "told to");
        let len = if i + 1 == chunks {
            size - (chunks - 1) * (size / chunks)
        } else {
            size / chunks
        };
        Ok(Frame::data(Bytes::from(vec![b'x'; len])))
    });
    Telling {
        body: StreamBody::new(frames).boxed_unsync(),
        left: size as u64,
        tells,
    }
    .boxed_unsync()
}

fn async_stream<F, Fut>(
    n: usize,
    frame: F,
) -> impl futures_util::Stream<Item = Result<Frame<Bytes>, io::Error>> + Send
where
    F: Fn(usize) -> Fut + Send + Copy + 'static,
    Fut: Future<Output = Result<Frame<Bytes>, io::Error>> + Send,
{
    futures_util::stream::unfold(0, move |i| async move {
        if i == n {
            return None;
        }
        Some((frame(i).await, i + 1))
    })
}

/// What a body tells beside its frames.
#[derive(Clone, Copy, PartialEq)]
enum Tells {
    Nothing,
    /// That its last frame was the last.
    End,
    /// That, and how long it is.
    Length,
}

struct Telling {
    body: Body,
    left: u64,
    tells: Tells,
}

impl http_body::Body for Telling {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        if let Poll::Ready(Some(Ok(frame))) = &frame {
            let read = frame.data_ref().map_or(0, |d| d.len() as u64);
            self.left = self.left.saturating_sub(read);
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0 && self.tells != Tells::Nothing
    }

    fn size_hint(&self) -> http_body::SizeHint {
        match self.tells {
            Tells::Length => http_body::SizeHint::with_exact(self.left),
            Tells::End | Tells::Nothing => http_body::SizeHint::new(),
        }
    }
}
