//! A handler that runs without a claim, behind a layer that would have guarded it: switched off, told to look on, or
//! without its store. It is the same handler, so it finds what it is written for: a run, and a place for its transaction.

use std::error::Error as StdError;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{Either, select};
use http::request::Parts;
use http::{Method, Request, Response};
use http_body::Body;
use tokio::sync::Semaphore;
use tower_claim::http::BusinessKey;
use tower_claim::transaction::{CommitError, NotLent, TransactionSlot};
use tower_claim::{Clock, Code, Key, Loss, Moment, Nonce, Refusal, Token, Use};
use tower_service::Service;

use crate::body::{BoxError, RequestBody, ResponseBody, UploadFate};
use crate::execute::{Answer, Inner};
use crate::keep::end_unguarded;
use crate::reply::Status;
use crate::run::IdempotentRun;
use crate::shared::Shared;
use crate::telemetry::RunName;
use crate::transaction::{came_second, ended};

/// What is known of the key of a request that no claim protects.
pub(crate) type Named = Option<(Key, BusinessKey)>;

/// What stands in for a claim. Nobody takes over from such a run; it is given the time that a guarded one has.
#[derive(Debug, Clone)]
pub(crate) struct Unheld {
    until: Moment,
    clock: Arc<dyn Clock>,
    /// Closed when the run is over.
    over: Arc<Semaphore>,
}

impl Unheld {
    fn begin(shared: &Shared) -> Self {
        let clock = Arc::clone(shared.keeper.clock());
        Self {
            until: clock.now() + shared.terms.max_hold(),
            clock,
            over: Arc::new(Semaphore::new(0)),
        }
    }

    pub(crate) fn check(&self) -> Result<(), Loss> {
        if self.over.is_closed() {
            Err(Loss::Ended)
        } else if self.clock.now() >= self.until {
            Err(Loss::Expired)
        } else {
            Ok(())
        }
    }

    pub(crate) fn remaining(&self) -> Duration {
        match self.over.is_closed() {
            true => Duration::ZERO,
            false => self.until.saturating_since(self.clock.now()),
        }
    }

    pub(crate) async fn lost(self) -> Loss {
        let late = self.clock.sleep_until(self.until);
        let over = Box::pin(self.over.acquire());
        match select(over, late).await {
            Either::Left(_) => Loss::Ended,
            Either::Right(_) => Loss::Expired,
        }
    }

    pub(crate) fn end(&self) {
        self.over.close();
    }
}

/// What a handler without a claim is given, and what becomes of it. Dropped, it is rolled back.
pub(crate) struct Unguarded {
    pub(crate) shared: Arc<Shared>,
    pub(crate) method: Method,
    /// Whether the upload turned out not to be what its head says.
    pub(crate) upload: UploadFate,
    pub(crate) run: IdempotentRun,
    name: RunName,
    transaction: TransactionSlot,
}

impl Unguarded {
    /// Lays out for the handler what it is written for. `None` where another layer around has done so: that is the run to
    /// work in, since a transaction of this layer's would be committed before its.
    fn lay_out(
        shared: &Arc<Shared>,
        parts: &mut Parts,
        named: Named,
        upload: UploadFate,
    ) -> Option<Self> {
        let layer = shared.entry.layer;
        let outer = parts.extensions.get::<IdempotentRun>();
        if outer.is_some_and(|run| run.of(layer).is_none()) {
            return None;
        }
        let named = named.or_else(|| drawn(shared))?;
        let name = RunName {
            key: named.0,
            token: Token::ZERO,
        };
        let unheld = Unheld::begin(shared);
        let run = IdempotentRun::unguarded(named, unheld, layer, outer.cloned());
        let transaction = TransactionSlot::new();
        parts.extensions.insert(run.clone());
        parts.extensions.insert(transaction.clone());
        Some(Self {
            shared: Arc::clone(shared),
            method: parts.method.clone(),
            upload,
            run,
            name,
            transaction,
        })
    }

    /// Whether the handler took a transaction: then nothing of its answer may go out before the commit.
    pub(crate) fn is_in_transaction(&self) -> bool {
        self.transaction.is_free() == Err(NotLent::Second)
    }

    /// The handler's work counts.
    ///
    /// # Errors
    ///
    /// What its caller is told instead of the answer: the work is not there, or nobody knows.
    pub(crate) async fn commit(&self) -> Result<(), Refusal> {
        let meter = &self.shared.counters.meter;
        let transaction = match self.transaction.take() {
            Ok(None) => return Ok(()),
            Ok(Some(transaction)) => transaction,
            Err(why) => {
                meter.transaction_left_behind(self.name, &why);
                return Err(nothing_done());
            }
        };
        match self.shared.in_time(transaction.commit()).await {
            Some(Ok(())) => Ok(()),
            Some(Err(CommitError::CameSecond(error))) => {
                meter.not_committed(self.name, &*error);
                Err(came_second())
            }
            Some(Err(CommitError::RolledBack(error))) => {
                meter.not_committed(self.name, &*error);
                Err(nothing_done())
            }
            Some(Err(CommitError::Ended)) => {
                meter.not_committed(self.name, &CommitError::Ended);
                Err(ended())
            }
            // No record tells.
            Some(Err(_)) | None => Err(Refusal::new(Code::OutcomeUnknown)),
        }
    }

    pub(crate) async fn roll_back(&self) {
        if let Ok(Some(transaction)) = self.transaction.take() {
            // Where the server does not answer, the drop closes the connection: it rolls back by itself.
            self.shared.in_time(transaction.roll_back()).await;
        }
    }
}

impl Drop for Unguarded {
    fn drop(&mut self) {
        // A clone of the slot that the handler left behind must not keep the transaction open.
        let _ = self.transaction.take();
        self.run.end();
    }
}

fn nothing_done() -> Refusal {
    Refusal::new(Code::StoreUnavailable)
        .with_detail("nothing was done: the transaction of this request was not committed")
}

/// A key that no other request has, where nobody has looked at the request's own: it is in a body that is not read, or
/// it is malformed. A repeat gets another one: it runs again.
fn drawn(shared: &Shared) -> Named {
    let name = Nonce::draw(&*shared.entropy).to_string();
    let business_key = BusinessKey::named(name).ok()?;
    let key = Key::builder(Use::Idempotency, &shared.entry.namespace).part("unguarded");
    Some((business_key.add_to(key).build(), business_key))
}

/// Runs the handler without a claim. It is dropped with its caller, as without the layer.
pub(crate) async fn unguarded<S, B, R>(
    shared: Arc<Shared>,
    inner: Inner<S>,
    mut parts: Parts,
    (body, upload): (RequestBody<B>, UploadFate),
    named: Named,
    status: Status,
) -> Answer<R, S::Error>
where
    S: Service<Request<RequestBody<B>>, Response = Response<R>> + Clone,
    B: Body<Data = Bytes>,
    B::Error: Into<Box<dyn StdError + Send + Sync>>,
    R: Body<Data = Bytes>,
    R::Error: Into<BoxError>,
{
    let responder = shared.responder(&parts);
    let open = Unguarded::lay_out(&shared, &mut parts, named, upload);
    let called = inner.call(Request::from_parts(parts, body)).await;
    let mut response = match called {
        Ok(response) => response,
        Err(error) => {
            if let Some(open) = &open {
                open.roll_back().await;
            }
            return Err(error);
        }
    };
    responder.tell(response.headers_mut(), status);
    let Some(open) = open else {
        return Ok(response.map(ResponseBody::pass));
    };
    Ok(match end_unguarded(&open, response).await {
        Ok(response) => response,
        Err(refusal) => responder.respond(shared.refused(refusal)),
    })
}
