//! The form of the layer that sees the wait for readiness.

use std::fmt;
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http::{Request, Response};
use http_body::Body;
use pin_project_lite::pin_project;
use tower_layer::Layer;
use tower_service::Service;

use crate::future::ResponseFuture;
use crate::tracked::Tracked;
use crate::{Stage, StageBody, StageLayer, StageService};

/// A [`StageLayer`] that sees the wait for the inner service's readiness, as the stage `queued`.
///
/// A tower service is called once it is ready, so what a limit inside makes a request wait comes before an
/// ordinary layer's clock starts: with a limit of one and a handler of 200 ms three callers wait 200, 400
/// and 600 ms, and the layer sees 200 each. This one is always ready, gives the request its row, and waits
/// in the row's time. The price is that it hides the inner service's back-pressure from what is outside
/// (a load shed belongs inside then), and that the inner service must be `Clone`.
///
/// ```
/// use tower_stage::{Board, StageLayer};
///
/// let layer = StageLayer::new(Board::new()).queue_aware();
/// ```
#[derive(Debug, Clone)]
pub struct QueueAwareLayer {
    layer: StageLayer,
}

impl QueueAwareLayer {
    pub(crate) fn new(layer: StageLayer) -> Self {
        Self { layer }
    }
}

impl<S> Layer<S> for QueueAwareLayer {
    type Service = QueueAwareService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        QueueAwareService {
            stage: self.layer.layer(inner),
        }
    }
}

/// Gives every request a row before the inner service is ready. Made by [`QueueAwareLayer`].
#[derive(Debug, Clone)]
pub struct QueueAwareService<S> {
    stage: StageService<S>,
}

impl<S, A, B> Service<Request<A>> for QueueAwareService<S>
where
    S: Service<Request<A>, Response = Response<B>> + Clone,
    B: Body,
{
    type Response = Response<StageBody<B>>;
    type Error = S::Error;
    type Future = QueueAwareFuture<S, A>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<A>) -> Self::Future {
        let tracked = self.stage.track(&mut request);
        QueueAwareFuture {
            state: State::Queued {
                // A clone that nobody else readies: the future brings it to readiness by itself.
                inner: self.stage.inner().clone(),
                request: Some(request),
                tracked,
                marked: false,
            },
        }
    }
}

pin_project! {
    /// The future of a [`QueueAwareService`].
    ///
    /// Dropped while it waits for readiness, it gives up its place, and its row ends as
    /// `cancelled@queued`; afterwards it is as [`ResponseFuture`].
    pub struct QueueAwareFuture<S, A>
    where
        S: Service<Request<A>>,
    {
        #[pin]
        state: State<S, A, S::Future>,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<S, A, F> {
        Queued {
            inner: S,
            request: Option<Request<A>>,
            tracked: Option<Tracked>,
            marked: bool,
        },
        Running { #[pin] future: ResponseFuture<F> },
    }
}

impl<S, A, B> Future for QueueAwareFuture<S, A>
where
    S: Service<Request<A>, Response = Response<B>>,
    B: Body,
{
    type Output = Result<Response<StageBody<B>>, S::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.project().state;
        loop {
            let next = match state.as_mut().project() {
                StateProj::Running { future } => return future.poll(cx),
                StateProj::Queued {
                    inner,
                    request,
                    tracked,
                    marked,
                } => {
                    let ready = match tracked {
                        Some(tracked) => tracked.poll(|| inner.poll_ready(cx)),
                        None => inner.poll_ready(cx),
                    };
                    if ready.is_pending()
                        && !mem::replace(marked, true)
                        && let Some(tracked) = tracked
                    {
                        tracked.mark(Stage::Queued);
                    }
                    if let Err(error) = ready!(ready) {
                        if let Some(mut tracked) = tracked.take() {
                            tracked.failed();
                        }
                        return Poll::Ready(Err(error));
                    }
                    // Taken once: the state changes right after.
                    let Some(request) = request.take() else {
                        return Poll::Pending;
                    };
                    match tracked.take() {
                        Some(mut tracked) => {
                            if *marked {
                                tracked.mark(Stage::Received);
                            }
                            let future = tracked.poll(|| inner.call(request));
                            ResponseFuture::tracked(future, tracked)
                        }
                        None => ResponseFuture::pass(inner.call(request)),
                    }
                }
            };
            state.set(State::Running { future: next });
        }
    }
}

impl<S, A> fmt::Debug for QueueAwareFuture<S, A>
where
    S: Service<Request<A>>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueueAwareFuture").finish_non_exhaustive()
    }
}
