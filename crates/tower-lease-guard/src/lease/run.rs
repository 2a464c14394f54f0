//! One leased call from claim to head. Its rules:
//!
//! - The lease is never released while the work may still run: whatever ends the call, the inner future is
//!   dropped first.
//! - The work is dropped at the stop point, before the lease can lapse.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::{Either, select};
use http::{Request, Response};
use http_body::Body;
use tower_claim::Loss;
use tower_claim::http::{ResponseEnd, is_grpc, record_original_uri};
use tower_service::Service;

use super::acquire::{Wanted, acquire, shutting_down};
use super::body::LeaseBody;
use super::handle::{Lease, LeaseLost};
use super::held::{Held, go_on_under};
use super::layer::Shared;
use crate::BoxError;
use crate::report::{self, Board};

/// Resolves at the loss of a lease. Begun with the lease and handed on to the body: polled by both.
pub(super) type Lost = Pin<Box<dyn Future<Output = Loss> + Send>>;

pub(super) struct Call<S, B> {
    pub(super) shared: Arc<Shared>,
    /// Has been polled ready.
    pub(super) ready: S,
    pub(super) request: Request<B>,
    pub(super) wanted: Wanted,
    /// False when the layer only observes.
    pub(super) enforce: bool,
}

pub(super) async fn run<S, B, R>(call: Call<S, B>) -> Result<Response<LeaseBody<R>>, S::Error>
where
    S: Service<Request<B>, Response = Response<R>>,
    R: Body<Data = Bytes>,
    R::Error: Into<BoxError>,
{
    let Call {
        shared,
        mut ready,
        mut request,
        wanted,
        enforce,
    } = call;
    let grpc = is_grpc(request.headers());
    let method = request.method().clone();
    let board = Board::of(request.extensions());
    let wait = shared.wait.filter(|_| enforce);

    let granted = match shared.live.begin() {
        None => Err(shutting_down()),
        Some(live) => acquire(&shared, &wanted, wait, &board)
            .await
            .map(|claim| (claim, live)),
    };
    let (claim, live) = match granted {
        Ok(granted) => granted,
        Err(refusal) if enforce => {
            board.refused("lease", &refusal);
            return Ok(shared.refused(&refusal, grpc));
        }
        Err(refusal) => {
            report::would_refuse("lease", &refusal);
            return Ok(ready.call(request).await?.map(LeaseBody::pass));
        }
    };

    let outer = request.extensions_mut().remove::<Lease>();
    let lease = Lease::new(claim, live, shared.id, wanted.resources, outer);
    report::granted(&lease);
    let mut lost: Lost = if enforce {
        Box::pin(lease.lost_claim())
    } else {
        Box::pin(std::future::pending())
    };
    let held = Held::under(&lease);
    record_original_uri(&mut request);
    go_on_under(&lease, request.extensions_mut());

    // An async block: the body of `call` runs inside the scope too.
    let work = held.clone().scope(async move { ready.call(request).await });
    let response = match until_lost(work, &mut lost).await {
        Ok(Ok(response)) => response,
        Ok(Err(error)) => {
            lease.end().await;
            return Err(error);
        }
        Err(loss) => {
            let refusal = LeaseLost::new(loss).refusal();
            report::lost(&lease, loss);
            board.refused("lease", &refusal);
            return Ok(shared.refused(&refusal, grpc));
        }
    };
    lease.touch();

    let (head, body) = response.into_parts();
    // A body of no bytes may still have trailers: it is polled.
    let exact = body.size_hint().exact().filter(|bytes| *bytes > 0);
    let end = ResponseEnd::new(&method, head.status, &head.headers).announcing(exact);
    let body = if end.over(body.is_end_stream()).is_some() {
        // Nothing of the body goes out any more, so the head is the last frame. Over HTTP/2 hyper polls the
        // body of such a response all the same: what is in it would go on without the lease.
        let body = LeaseBody::unread(body);
        lease.end().await;
        body
    } else {
        LeaseBody::leased(body, lease, lost, held, end)
    };
    Ok(Response::from_parts(head, body))
}

/// Runs the work until it ends or the lease is lost; then it has been dropped. The loss is looked at first:
/// past the stop point nothing of the work is polled.
async fn until_lost<F: Future>(work: F, lost: &mut Lost) -> Result<F::Output, Loss> {
    let work = pin!(work);
    match select(lost.as_mut(), work).await {
        Either::Left((loss, _)) => Err(loss),
        // Work that blocked its thread past the stop point could not be dropped in time; its answer would
        // begin under a lease that another may have by now.
        Either::Right((output, _)) => match lost.as_mut().now_or_never() {
            Some(loss) => Err(loss),
            None => Ok(output),
        },
    }
}
