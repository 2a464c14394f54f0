//! Keeps the response of a run, and lets it go.
//!
//! The record is kept *before* the last byte leaves, so that who repeats a request right after its answer
//! is replayed it. A response of known length up to the cap is collected first; one of unknown length
//! streams through while it is kept, and only its end is held back. Over the cap the outcome is kept without
//! its response, as soon as that is known.

mod tape;

use std::any::Any;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;

use bytes::Bytes;
use futures_util::FutureExt;
use http::header::CONTENT_LENGTH;
use http::response::Parts;
use http::{HeaderMap, Response};
use http_body::{Body, Frame};
use http_body_util::BodyExt;
use tokio::sync::oneshot;
use tower_claim::Renewal;
use tower_claim::http::{End as Ended, ResponseEnd};

use crate::body::{Fed, Feed, ResponseBody};
use crate::execute::Answer;
use crate::existing;
use crate::open::{OpenRun, Settled};
use crate::outcome::{Outcome, Verdict};
use crate::record::Head;
use tape::Tape;

/// Settles the run by its response, and sends that.
pub(crate) async fn settle<R, E>(
    open: OpenRun,
    response: Response<R>,
    answer: oneshot::Sender<Answer<R, E>>,
) where
    R: Body<Data = Bytes> + Send + 'static,
    R::Error: Send,
{
    if let Some(reply) = existing::answer(&open, response.extensions()).await {
        let _ = answer.send(Ok(open.responder.respond(reply)));
        return;
    }
    let (mut parts, body) = response.into_parts();
    let verdict = by_head(&open, &parts);
    let length = known_length(&parts, &body);
    open.responder.tell(&mut parts.headers, open.status());
    if verdict == Verdict::Now(Outcome::Release) {
        open.release().await;
        let response = Response::from_parts(parts, ResponseBody::pass(body));
        let _ = answer.send(Ok(response));
        return;
    }
    // A refusal is kept without the rows of the work that it refused.
    if parts.status.as_u16() >= 400 || is_refusal(&parts.headers) {
        open.roll_back().await;
    }
    let head = open.head(&parts);
    let is_too_big = length.is_some_and(|length| length > open.shared.max_response_body as u64);
    if is_too_big || verdict == Verdict::Now(Outcome::Tombstone) {
        // Known before it is sent: kept without its body, which is then sent untouched.
        let settled = open.finish(head.alone()).await;
        let sent = match open.instead(settled).await {
            None => Response::from_parts(parts, ResponseBody::pass(body)),
            Some(reply) => open.responder.respond(reply),
        };
        let _ = answer.send(Ok(sent));
        return;
    }
    let tape = Tape::up_to(open.shared.max_response_body);
    if length.is_some() || open.is_in_transaction() {
        let response = Response::from_parts(parts, body);
        let length = length.unwrap_or(u64::MAX);
        let sent = collect(&open, verdict, head, tape, response, length).await;
        let _ = answer.send(Ok(sent));
    } else {
        let (feed, fed) = ResponseBody::fed();
        let _ = answer.send(Ok(Response::from_parts(parts, fed)));
        stream(&open, verdict, head, tape, Box::pin(body), &feed).await;
    }
}

/// The verdict by the head alone.
fn by_head(open: &OpenRun, head: &Parts) -> Verdict {
    if is_no_outcome(open) {
        return Verdict::Now(Outcome::Release);
    }
    let rules = &open.shared.outcome;
    let verdict = judged(|| rules.judge(head, open.is_grpc(&head.headers)));
    match verdict.unwrap_or(Verdict::Now(Outcome::Tombstone)) {
        Verdict::Now(outcome) => Verdict::Now(past_return(open, outcome)),
        in_trailers => in_trailers,
    }
}

/// What the user's rules say; `None` where one panics. Behind the work that must not free the key: an answer that
/// nobody can judge is sent, and remembered as done.
fn judged<T>(judge: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(judge)).ok()
}

fn at_the_end(verdict: Verdict, open: &OpenRun, trailers: Option<&HeaderMap>) -> Outcome {
    let outcome = match verdict {
        _ if open.upload.get() => Outcome::Release,
        Verdict::Now(outcome) => outcome,
        Verdict::InTrailers => {
            judged(|| open.shared.outcome.judge_grpc(trailers)).unwrap_or(Outcome::Tombstone)
        }
    };
    past_return(open, outcome)
}

/// Past the point of no return every answer is an outcome.
fn past_return(open: &OpenRun, outcome: Outcome) -> Outcome {
    match outcome {
        Outcome::Release if open.run.is_marked() => Outcome::Keep,
        outcome => outcome,
    }
}

fn known_length(head: &Parts, body: &impl Body) -> Option<u64> {
    body.size_hint().exact().or_else(|| {
        let length = head.headers.get(CONTENT_LENGTH)?;
        length.to_str().ok()?.parse().ok()
    })
}

/// Of known length: first the body, then the record, then the answer.
async fn collect<R>(
    open: &OpenRun,
    verdict: Verdict,
    head: Head,
    mut tape: Tape,
    response: Response<R>,
    length: u64,
) -> Response<ResponseBody<R>>
where
    R: Body<Data = Bytes>,
{
    let (parts, body) = response.into_parts();
    let announced = ResponseEnd::new(&open.method, parts.status, &parts.headers);
    let mut body = Box::pin(body);
    let end = loop {
        if body.is_end_stream() {
            break End::of(announced, &tape);
        }
        let Some(frame) = before_the_claim_ends(open, next_frame(&mut body)).await else {
            break End::Outlasted;
        };
        match frame {
            None => break End::of(announced, &tape),
            Some(Ok(frame)) => match tape.keep(frame) {
                Ok(_) => {}
                Err(over) => break End::Over(over),
            },
            // All announced bytes are there: a host looks for no more, and never meets what comes after.
            Some(Err(Broken::Error(_))) if tape.bytes() as u64 >= length => break End::Whole,
            Some(Err(broken)) => break End::Broken(broken),
        }
    };
    let (settled, body) = match end {
        End::Whole => {
            let settled = settle_whole(open, verdict, head, &tape).await;
            (settled, ResponseBody::whole(tape.into_whole()))
        }
        End::Short => {
            let settled = give_back(open, false).await;
            let last = tape.trailers.take();
            let last = last.map_or(Fed::Over, |trailers| Fed::Last(Frame::trailers(trailers)));
            let (feed, fed) = tape.into_fed();
            let _ = feed.send(last);
            (settled, fed)
        }
        End::Over(frame) => {
            // It lied about its length: over the cap all the same.
            let settled = finish_alone(open, head).await;
            let (feed, fed) = tape.into_fed();
            let _ = feed.send(Fed::Frame(frame));
            let _ = feed.send(Fed::Rest(body));
            (settled, fed)
        }
        End::Outlasted => {
            let settled = finish_alone(open, head).await;
            let (feed, fed) = tape.into_fed();
            let _ = feed.send(Fed::Rest(body));
            (settled, fed)
        }
        End::Broken(broken) => {
            let settled = give_back(open, broken.is_panic()).await;
            let (feed, fed) = tape.into_fed();
            let _ = feed.send(broken.into_fed());
            (settled, fed)
        }
    };
    match open.instead(settled).await {
        None => Response::from_parts(parts, body),
        Some(reply) => open.responder.respond(reply),
    }
}

/// Of unknown length: each frame goes out as it comes, the end after the record.
///
/// The head is out already: when another run took over meanwhile, the body is cut off. It must not look
/// whole beside the other run's answer.
async fn stream<R>(
    open: &OpenRun,
    verdict: Verdict,
    head: Head,
    mut tape: Tape,
    mut body: Pin<Box<R>>,
    feed: &Feed<R>,
) where
    R: Body<Data = Bytes>,
{
    let (settled, rest) = loop {
        let Some(frame) = before_the_claim_ends(open, next_frame(&mut body)).await else {
            break (finish_alone(open, head).await, vec![Fed::Rest(body)]);
        };
        match frame {
            None => {
                let settled = settle_whole(open, verdict, head, &tape).await;
                break (settled, vec![Fed::Over]);
            }
            Some(Err(broken)) => {
                // Broken off all the same, whatever became of the claim.
                give_back(open, broken.is_panic()).await;
                break (Settled::Stands, vec![broken.into_fed()]);
            }
            Some(Ok(frame)) => match tape.keep(frame) {
                Err(over) => {
                    let settled = finish_alone(open, head).await;
                    break (settled, vec![Fed::Frame(over), Fed::Rest(body)]);
                }
                Ok(frame) if frame.is_trailers() || body.is_end_stream() => {
                    let settled = settle_whole(open, verdict, head, &tape).await;
                    break (settled, vec![Fed::Last(frame)]);
                }
                Ok(frame) => {
                    let _ = feed.send(Fed::Frame(frame));
                }
            },
        }
    };
    let rest = match settled {
        Settled::Stands => rest,
        _ => vec![Fed::Superseded],
    };
    for fed in rest {
        let _ = feed.send(fed);
    }
}

/// The next frame; `None` when the claim ends before it comes, after `max_hold` at the latest. The handler has
/// answered, so its work is done: before another may run it again, it is kept as done, and the rest of the
/// response goes on alone.
async fn before_the_claim_ends<T>(open: &OpenRun, frame: impl Future<Output = T>) -> Option<T> {
    let frame = tokio::select! {
        biased;
        frame = frame => frame,
        // Made when the frame is not there at once.
        _ = async { open.run.lost().await } => return None,
    };
    if let Renewal::Progress { .. } = open.shared.terms.renewal() {
        open.run.touch();
    }
    Some(frame)
}

/// The response is there, to its end.
async fn settle_whole(open: &OpenRun, verdict: Verdict, head: Head, tape: &Tape) -> Settled {
    let trailers = tape.trailers.as_ref();
    // However much of it is kept.
    if trailers.is_some_and(is_refusal) {
        open.roll_back().await;
    }
    match at_the_end(verdict, open, trailers) {
        Outcome::Keep => {
            let rules = &open.shared.headers;
            let record = head.with_body(tape.chunks.iter(), trailers, rules);
            open.finish(record).await
        }
        Outcome::Tombstone => open.finish(head.alone()).await,
        Outcome::Release => open.release().await,
    }
}

/// The response goes on, and is not kept.
async fn finish_alone(open: &OpenRun, head: Head) -> Settled {
    if is_no_outcome(open) {
        open.release().await
    } else {
        open.finish(head.alone()).await
    }
}

/// Whatever the handler answers: the upload turned out not to be what its head says. What was not read of it by now
/// is not looked at.
fn is_no_outcome(open: &OpenRun) -> bool {
    open.upload.get() && !open.run.is_marked()
}

/// As gRPC says it: in the head where there is no body, else in the trailers.
fn is_refusal(headers: &HeaderMap) -> bool {
    headers
        .get("grpc-status")
        .is_some_and(|status| status != "0")
}

/// How the reading of a body ended.
enum End<E> {
    Whole,
    /// Before the bytes that its head announced: the host breaks the connection there, so nobody has the answer.
    Short,
    /// With this frame it is over the cap.
    Over(Frame<Bytes>),
    /// It lasts longer than the claim can be held.
    Outlasted,
    Broken(Broken<E>),
}

impl<E> End<E> {
    /// Of a body that is over.
    fn of(mut announced: ResponseEnd, tape: &Tape) -> Self {
        announced.data(tape.bytes() as u64);
        match announced.dropped(true) {
            Ended::Short => Self::Short,
            _ => Self::Whole,
        }
    }
}

/// The body broke off: that is no outcome.
enum Broken<E> {
    Error(E),
    Panic(Box<dyn Any + Send>),
}

async fn give_back(open: &OpenRun, panicked: bool) -> Settled {
    if panicked {
        open.panicked().await
    } else {
        open.release().await
    }
}

impl<E> Broken<E> {
    fn is_panic(&self) -> bool {
        matches!(self, Self::Panic(_))
    }

    fn into_fed<R: Body<Error = E>>(self) -> Fed<R> {
        match self {
            Self::Error(error) => Fed::Failed(error),
            Self::Panic(payload) => Fed::Panicked(payload),
        }
    }
}

async fn next_frame<R>(body: &mut Pin<Box<R>>) -> Option<Result<Frame<Bytes>, Broken<R::Error>>>
where
    R: Body<Data = Bytes>,
{
    let frame = AssertUnwindSafe(body.frame()).catch_unwind().await;
    match frame {
        Ok(frame) => frame.map(|frame| frame.map_err(Broken::Error)),
        Err(payload) => Some(Err(Broken::Panic(payload))),
    }
}
