//! The body the inner service gets.

use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use super::check::Check;
use super::response::BoxError;

pin_project! {
    /// The request body behind the layer: the host's own, one that was read for the fingerprint, or one that
    /// streams while it is held against its digest. Trailers survive.
    ///
    /// A layer *inside* that wants the host's own body type, as `axum::middleware::from_fn` does, needs a
    /// `MapRequestLayer` in between (tower's feature `util`):
    ///
    /// ```
    /// use axum::{Router, body::Body, extract::Request, middleware, routing::post};
    /// use tower::{ServiceBuilder, util::MapRequestLayer};
    /// use tower_claim::MemoryStore;
    /// use tower_idempotency::{IdempotencyLayer, RequestBody};
    ///
    /// async fn audit(request: Request, next: middleware::Next) -> axum::response::Response {
    ///     next.run(request).await
    /// }
    ///
    /// # fn app() -> Result<Router, tower_claim::ConfigError> {
    /// let once = IdempotencyLayer::builder(MemoryStore::new()).build()?;
    /// let layers = ServiceBuilder::new()
    ///     .layer(once)
    ///     .layer(MapRequestLayer::new(|request: Request<RequestBody<Body>>| {
    ///         request.map(Body::new)
    ///     }))
    ///     .layer(middleware::from_fn(audit));
    /// let app = Router::new().route("/orders", post(async || "ordered").layer(layers));
    /// # Ok(app) }
    /// # app().map(drop)?;
    /// # Ok::<(), tower_claim::ConfigError>(())
    /// ```
    pub struct RequestBody<B> {
        #[pin]
        inner: Inner<B>,
    }
}

pin_project! {
    #[project = Projected]
    enum Inner<B> {
        Pass {
            #[pin]
            body: B,
        },
        Read {
            whole: Whole,
        },
        Checked {
            body: Pin<Box<B>>,
            check: Box<Check>,
        },
    }
}

impl<B> RequestBody<B> {
    /// The host's own body, untouched.
    pub(crate) fn pass(body: B) -> Self {
        Self {
            inner: Inner::Pass { body },
        }
    }

    /// The host's own body, hashed on its way.
    pub(crate) fn checked(body: Pin<Box<B>>, check: Check) -> Self {
        let check = Box::new(check);
        Self {
            inner: Inner::Checked { body, check },
        }
    }

    pub(crate) fn read(whole: Whole) -> Self {
        Self {
            inner: Inner::Read { whole },
        }
    }
}

impl<B> Body for RequestBody<B>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let own = |frame: Option<Result<_, B::Error>>| frame.map(|frame| frame.map_err(Into::into));
        match self.project().inner.project() {
            Projected::Pass { body } => body.poll_frame(cx).map(own),
            Projected::Read { whole } => Poll::Ready(whole.next().map(Ok)),
            Projected::Checked { body, check } => {
                let frame = check.poll_frame(cx, |cx| body.as_mut().poll_frame(cx).map(own));
                if body.is_end_stream() {
                    check.nothing_comes();
                }
                frame
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.inner {
            Inner::Pass { body } => body.is_end_stream(),
            Inner::Read { whole } => whole.is_over(),
            Inner::Checked { check, .. } => check.is_over(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.inner {
            Inner::Pass { body } => body.size_hint(),
            Inner::Read { whole } => whole.size_hint(),
            Inner::Checked { body, check } => check.size_hint(&body.size_hint()),
        }
    }
}

impl<B> Default for RequestBody<B> {
    fn default() -> Self {
        Self::read(Whole::default())
    }
}

impl<B> fmt::Debug for RequestBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.inner {
            Inner::Pass { .. } => "RequestBody::Pass",
            Inner::Read { .. } => "RequestBody::Read",
            Inner::Checked { .. } => "RequestBody::Checked",
        })
    }
}

/// A whole body in memory.
#[derive(Debug, Clone, Default)]
pub(crate) struct Whole {
    pub(crate) chunks: VecDeque<Bytes>,
    pub(crate) trailers: Option<HeaderMap>,
}

impl Whole {
    pub(crate) fn of(data: Bytes, trailers: Option<HeaderMap>) -> Self {
        let chunks = if data.is_empty() {
            VecDeque::new()
        } else {
            VecDeque::from([data])
        };
        Self { chunks, trailers }
    }

    pub(crate) fn next(&mut self) -> Option<Frame<Bytes>> {
        match self.chunks.pop_front() {
            Some(chunk) => Some(Frame::data(chunk)),
            None => self.trailers.take().map(Frame::trailers),
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.chunks.is_empty() && self.trailers.is_none()
    }

    pub(crate) fn size_hint(&self) -> SizeHint {
        let length = self.chunks.iter().map(|c| c.len() as u64).sum();
        if self.trailers.is_none() {
            return SizeHint::with_exact(length);
        }
        // A host that knows the length says so in the head, and HTTP/1 has no trailers then.
        let mut hint = SizeHint::new();
        hint.set_lower(length);
        hint
    }
}
