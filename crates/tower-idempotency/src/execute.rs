//! From a request with a key to its answer: read, claim, run detached.

use std::error::Error as StdError;
use std::future::poll_fn;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use http::request::Parts;
use http::{Request, Response};
use http_body::Body;
use tokio::sync::oneshot;
use tower_claim::transaction::TransactionSlot;
use tower_claim::{Code, CutShort, Key, LapsePolicy, Refusal, Renewal};
use tower_service::Service;

use crate::accepts::Accepts;
use crate::admit::Admitted;
use crate::body::{BoxError, RequestBody, ResponseBody};
use crate::entry::Ticket;
use crate::existing::Asked;
use crate::keep::settle;
use crate::open::OpenRun;
use crate::reconcile::{self, LapsedRun};
use crate::reply::{Reply, Status};
use crate::run::IdempotentRun;
use crate::shared::Shared;
use crate::stage::Row;
use crate::unguarded::unguarded;
use crate::upload::{Upload, verify};

/// The inner service of one call.
pub(crate) enum Inner<S> {
    /// Polled ready: it may hold a place under a limit.
    Ready(S),
    /// Not polled.
    Idle(S),
}

impl<S: Clone> Inner<S> {
    /// Gives back what the ready service holds: a request that waits for another's answer must not take
    /// the place that the other may need.
    fn idle(self) -> Self {
        match self {
            Self::Ready(service) => Self::Idle(service.clone()),
            idle => idle,
        }
    }

    /// The service, polled ready: where its place was given back, it is waited for anew.
    async fn ready<Q>(self) -> Result<S, S::Error>
    where
        S: Service<Q>,
    {
        match self {
            Self::Ready(service) => Ok(service),
            Self::Idle(mut service) => {
                poll_fn(|cx| service.poll_ready(cx)).await?;
                Ok(service)
            }
        }
    }

    pub(crate) async fn call<Q>(self, request: Q) -> Result<S::Response, S::Error>
    where
        S: Service<Q>,
    {
        self.ready().await?.call(request).await
    }
}

/// What the caller gets.
pub(crate) type Answer<R, E> = Result<Response<ResponseBody<R>>, E>;

/// The whole way of a request with a key.
pub(crate) async fn guarded<S, B, R>(
    shared: Arc<Shared>,
    inner: Inner<S>,
    mut parts: Parts,
    body: B,
    ticket: Ticket,
) -> Answer<R, S::Error>
where
    S: Service<Request<RequestBody<B>>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn StdError + Send + Sync>>,
    R: Body<Data = Bytes> + Send + 'static,
    R::Error: Into<BoxError> + Send + 'static,
{
    shared.order.look_at_request(&parts, &shared.counters);
    let responder = shared.responder(&parts);
    let row = Row::of(&parts.extensions);
    let meter = &shared.counters.meter;
    let refuse = |refusal: Refusal, key: Option<Key>| {
        row.rejected();
        meter.answered(key, refusal.code().name());
        Ok(responder.respond(refusal))
    };
    // What has no key passes also at shutdown; here its body tells.
    if shared.detached.is_closed() && matches!(ticket, Ticket::Keyed(_)) {
        return refuse(shared.refused(Refusal::new(Code::ShuttingDown)), None);
    }

    let upload = match Upload::of(&shared, &parts, body, &ticket).await {
        Ok(upload) => upload,
        Err(refusal) => return refuse(shared.refused(refusal), None),
    };
    let entry = match ticket {
        Ticket::Keyed(entry) => entry,
        Ticket::ByBody(scoped) => {
            match shared
                .entry
                .read_body(&scoped, &parts, upload.bytes(), shared.clock())
            {
                Ok(Some(entry)) => entry,
                Ok(None) => {
                    let request = Request::from_parts(parts, upload.into_body(&shared));
                    let response = inner.call(request).await;
                    return response.map(|response| response.map(ResponseBody::pass));
                }
                Err(refusal) => return refuse(shared.refused(refusal), None),
            }
        }
    };
    let key = Some(entry.key);
    let print = match upload.print(&shared, &parts) {
        Ok(print) => print,
        Err(refusal) => return refuse(shared.refused(refusal), key),
    };
    let entry = match shared.in_its_window(entry, print).await {
        Ok(entry) => entry,
        Err(reply) => {
            row.rejected();
            meter.answered(key, reply.status());
            return Ok(responder.respond(reply));
        }
    };
    let key = Some(entry.key);

    let mut inner = Some(inner);
    let mut waiting = None;
    let mut asking = Some(row.asks_the_store("claim"));
    let transaction = TransactionSlot::over(shared.engine);
    let work = (entry.key, entry.tenant);
    let before_wait = || {
        inner = inner.take().map(Inner::idle);
        asking = None;
        waiting = Some(row.waits_for(entry.key));
    };
    let bytes = upload.bytes().len();
    let admitted = shared
        .admit(work, print, bytes, &transaction, before_wait)
        .await;
    drop((asking, waiting));
    let (hold, place, way, seat) = match admitted {
        Admitted::Run(hold, place, way, seat) => (hold, place, way, seat),
        Admitted::RunUnprotected => {
            let Some(inner) = inner else {
                return refuse(shared.refused(Refusal::new(Code::StoreUnavailable)), key);
            };
            row.runs();
            shared.counters.unprotected.add();
            shared.counters.meter.unprotected(entry.key);
            let fate = upload.fate();
            let body = (upload.into_body(&shared), fate);
            let named = Some((entry.key, entry.business_key));
            // Boxed: who waits holds room for all that may come of it.
            let run = unguarded(shared, inner, parts, body, named, Status::Unprotected);
            return Box::pin(run).await;
        }
        Admitted::Answer(reply) => {
            let reply = match reply {
                Reply::Refuse(_) => reply,
                // No answer for a body that nobody has looked at.
                known => match upload.verified(&shared).await {
                    Ok(digest) => {
                        let reply = shared.of_its_upload(known, digest);
                        let accepts = Accepts::of(&parts.headers);
                        shared.tell(reply, &accepts, Some(parts)).await
                    }
                    Err(refusal) => shared.refused(refusal).into(),
                },
            };
            if let Reply::Refuse(_) | Reply::NotKept(_) = reply {
                row.rejected();
            }
            meter.answered(key, reply.status());
            return Ok(responder.respond(reply));
        }
    };
    let permit = Arc::clone(&shared.in_flight).try_acquire_owned();
    let (Some(inner), Ok(permit)) = (inner, permit) else {
        if hold.attempt() > 1 && !way.asks() {
            // As for a run that took over: who comes next must know of the one that crashed.
            hold.abandon();
        } else {
            hold.release().await;
        }
        return refuse(shared.refused(Refusal::new(Code::Overloaded)), key);
    };

    row.runs();
    let began = hold.took_over().map_or(Duration::ZERO, |run| run.since);
    let began = shared.clock().unix_time().saturating_sub(began);
    let first_seen = way.first_seen.map_or(began, |first| first.min(began));
    let stay = hold.stay();
    let outer = parts.extensions.get::<IdempotentRun>().cloned();
    let run = IdempotentRun::new(
        (entry.key, entry.business_key),
        hold,
        shared.entry.layer,
        outer,
        way,
    );
    parts.extensions.insert(run.clone());
    parts.extensions.insert(transaction.clone());
    let lapsed = way.before().map(|before| LapsedRun {
        run: run.clone(),
        parts: parts.clone(),
        body: upload.shared_bytes(),
        before,
    });
    let fate = upload.fate();
    let asked = Asked::of(&shared, &parts, || upload.shared_bytes());
    let method = parts.method.clone();
    let accepts = Accepts::of(&parts.headers);
    let request = Request::from_parts(parts, upload.into_body(&shared));
    let (answer, answered) = oneshot::channel();
    let open = OpenRun {
        shared: Arc::clone(&shared),
        key: way.key,
        print,
        run,
        method,
        transaction,
        stay,
        asked,
        accepts,
        upload: fate,
        responder: responder.clone(),
        row: row.clone(),
        first_seen,
        begun: false,
        seat,
        _run: shared.running.begin(),
        _permit: permit,
    };
    // Boxed: the future is large, and is moved several times on its way into its task.
    let execution = Box::pin(execute(open, lapsed, inner, request, answer));
    let running = place.spawn(row.clone().scope(execution));
    // The answer comes before the end of the task where the response streams.
    if let Ok(answer) = answered.await {
        return answer;
    }
    // The task is gone without a word: a callback of the user's panicked, or its runtime shuts down.
    let why = running.await.err().unwrap_or(CutShort::ShutDown);
    if why == CutShort::Panicked {
        row.panicked();
    }
    Ok(responder.respond(shared.refused(why.into())))
}

/// Runs the handler to its end, whoever listens.
async fn execute<S, B, R>(
    mut open: OpenRun,
    lapsed: Option<LapsedRun>,
    inner: Inner<S>,
    request: Request<RequestBody<B>>,
    answer: oneshot::Sender<Answer<R, S::Error>>,
) where
    S: Service<Request<RequestBody<B>>, Response = Response<R>> + Clone,
    B: Body<Data = Bytes>,
    B::Error: Into<Box<dyn StdError + Send + Sync>>,
    R: Body<Data = Bytes> + Send + 'static,
    R::Error: Into<BoxError> + Send + 'static,
{
    let instead = match lapsed {
        Some(lapsed) => reconcile::ask(&open, lapsed).await,
        None => None,
    };
    if let Some(reply) = instead {
        return answer_instead(&open, reply, request, answer).await;
    }
    let called = match ready_in_time(&open, inner).await {
        Some(Ok(Ok(mut service))) => {
            open.begins();
            // The call itself may panic, too, not only its future: hence the async block.
            let called = async move { service.call(request).await };
            AssertUnwindSafe(called).catch_unwind().await
        }
        Some(Ok(Err(error))) => Ok(Err(error)),
        Some(Err(panic)) => Err(panic),
        None => {
            open.release().await;
            // First: what of another's answer may be told can depend on what the body turns out to be.
            let reply = match verify(request.into_body()).await {
                Ok(()) => open.after_loss().await,
                Err(refusal) => open.shared.refused(refusal).into(),
            };
            let _ = answer.send(Ok(open.responder.respond(reply)));
            return;
        }
    };
    match called {
        Ok(Ok(response)) => settle(open, response, answer).await,
        Ok(Err(error)) => {
            open.release().await;
            let _ = answer.send(Err(error));
        }
        Err(_panic) => {
            open.panicked().await;
            let refusal = Refusal::new(Code::HandlerPanicked);
            let _ = answer.send(Ok(open.responder.respond(refusal)));
        }
    }
}

/// The service inside, when it has a place for this run; `None` where the claim ended before: another may have run
/// meanwhile, or run now.
async fn ready_in_time<S, Q>(
    open: &OpenRun,
    inner: Inner<S>,
) -> Option<std::thread::Result<Result<S, S::Error>>>
where
    S: Service<Q> + Clone,
{
    let ready = AssertUnwindSafe(inner.ready()).catch_unwind();
    let ready = tokio::select! {
        biased;
        ready = ready => ready,
        // Made when there is no place at once.
        _ = async { open.run.lost().await } => return None,
        () = lapses_unseen(&open.shared) => return None,
    };
    // Between two looks at the clock, too: a paused process wakes up right here.
    open.run.check().is_ok().then_some(ready)
}

/// Where nobody may take over, its owner is not told of a lapse: it may work on. But a run that has not begun must not
/// leave an unknown outcome. Renewed, it stands as long as it is waited for; else half a lease is waited.
async fn lapses_unseen(shared: &Shared) {
    let (terms, clock) = (&shared.terms, shared.clock());
    if terms.renewal() != Renewal::Off || terms.settings().on_lapse != LapsePolicy::Hold {
        return std::future::pending().await;
    }
    clock.sleep_until(clock.now() + terms.lease() / 2).await;
}

/// Nothing runs: what is told of the work by what others know.
async fn answer_instead<B, R, E>(
    open: &OpenRun,
    reply: Reply,
    request: Request<RequestBody<B>>,
    answer: oneshot::Sender<Answer<R, E>>,
) where
    B: Body<Data = Bytes>,
    B::Error: Into<Box<dyn StdError + Send + Sync>>,
    R: Body<Data = Bytes>,
{
    let reply = match reply {
        Reply::Refuse(_) => reply,
        // No answer for a body that nobody has looked at.
        known => match verify(request.into_body()).await {
            Ok(()) => known,
            Err(refusal) => open.shared.refused(refusal).into(),
        },
    };
    let _ = answer.send(Ok(open.responder.respond(reply)));
}
