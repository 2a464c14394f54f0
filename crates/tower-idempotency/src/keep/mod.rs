//! Keeps the response of a run, and lets it go.
//!
//! The record is kept *before* the last byte leaves, so that who repeats a request right after its answer
//! is replayed it. A response of known length up to the cap is collected first; one of unknown length
//! streams through while it is kept, and only its end is held back. Over the cap the outcome is kept without
//! its response, as soon as that is known: by the head, but for gRPC, whose [end](pass_on) tells.

mod end;
mod judge;
mod pass_on;
mod stream;
mod tape;
mod unguarded;

use std::future::Future;

use bytes::Bytes;
use http::header::CONTENT_LENGTH;
use http::response::Parts;
use http::{HeaderMap, Response};
use http_body::Body;
use tokio::sync::oneshot;
use tower_claim::Renewal;
use tower_claim::http::ResponseEnd;

use crate::body::{Fed, ResponseBody};
use crate::execute::Answer;
use crate::existing::{self, Made};
use crate::open::{OpenRun, Settled};
use crate::outcome::{Outcome, Verdict};
use crate::record::Head;
use crate::reply::Status;
use crate::run::IdempotentRun;
use end::{Broken, End, next_frame};
use judge::{is_no_outcome, is_refusal, takes_back_its_word};
use pass_on::pass_on;
use stream::stream;
use tape::Tape;

pub(crate) use judge::{at_the_end, by_head, refuses};
pub(crate) use unguarded::end_unguarded;

/// Settles the run by its response, and sends that.
pub(crate) async fn settle<R, E>(
    open: OpenRun,
    response: Response<R>,
    answer: oneshot::Sender<Answer<R, E>>,
) where
    R: Body<Data = Bytes> + Send + 'static,
    R::Error: Send,
{
    let (mut parts, body) = response.into_parts();
    open.shared
        .order
        .look_at_answer(&parts, &open.shared.counters);
    if !is_no_outcome(&open)
        && let Some(made) = existing::answer(&open, &parts).await
    {
        let sent = match made {
            Made::Kept(reply) => open.responder.respond(reply),
            Made::NotKept(made) => {
                let mut response = made.into_response();
                open.responder.tell(response.headers_mut(), open.status());
                response
            }
        };
        let _ = answer.send(Ok(sent));
        return;
    }
    if takes_back_its_word(&open, &parts) {
        open.release().await;
        let _ = answer.send(Ok(open.responder.respond(open.shared.unknown())));
        return;
    }
    if open.shared.stands_down && Status::is_kept_inside(&parts.headers) && !open.run.is_marked() {
        // Kept once is enough: a repeat is let through to the one that has it.
        open.release().await;
        let response = Response::from_parts(parts, ResponseBody::pass(body));
        let _ = answer.send(Ok(response));
        return;
    }
    let verdict = by_head(&open, &parts);
    let length = known_length(&parts, &body);
    open.responder.tell(&mut parts.headers, open.status());
    if verdict == Verdict::Now(Outcome::Release) {
        open.release().await;
        let response = Response::from_parts(parts, ResponseBody::pass(body));
        let _ = answer.send(Ok(response));
        return;
    }
    // A refusal is kept without the rows of the work that it refused. What is kept back the end of the run finds again,
    // so nothing may go out before.
    let is_kept_back = refuses(&parts) && open.roll_back().await.is_err();
    let head = open.head(&parts);
    let is_too_big = length.is_some_and(|length| length > open.shared.max_response_body as u64);
    if is_too_big && verdict == Verdict::InTrailers {
        let (feed, fed) = ResponseBody::fed();
        let _ = answer.send(Ok(Response::from_parts(parts, fed)));
        pass_on(&open, head, Box::pin(body), &feed).await;
        return;
    }
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
    if length.is_some() || is_kept_back || open.is_in_transaction() {
        let response = Response::from_parts(parts, body);
        let length = length.unwrap_or(u64::MAX);
        collect(&open, verdict, head, tape, response, length, answer).await;
    } else {
        let (feed, fed) = ResponseBody::fed();
        let _ = answer.send(Ok(Response::from_parts(parts, fed)));
        stream(&open, verdict, head, tape, Box::pin(body), &feed, true).await;
    }
}

fn known_length(head: &Parts, body: &impl Body) -> Option<u64> {
    body.size_hint().exact().or_else(|| {
        let length = head.headers.get(CONTENT_LENGTH)?;
        length.to_str().ok()?.parse().ok()
    })
}

/// Of known length: first the body, then the record, then the answer.
async fn collect<R, E>(
    open: &OpenRun,
    verdict: Verdict,
    head: Head,
    mut tape: Tape,
    response: Response<R>,
    length: u64,
    answer: oneshot::Sender<Answer<R, E>>,
) where
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
    let end = match end {
        End::Over(frame) if verdict == Verdict::InTrailers => {
            let (feed, fed) = tape.into_fed();
            let _ = answer.send(Ok(Response::from_parts(parts, fed)));
            let _ = feed.send(Fed::Frame(frame));
            return pass_on(open, head, body, &feed).await;
        }
        End::Outlasted if verdict == Verdict::InTrailers => {
            let (feed, fed) = tape.to_fed();
            let _ = answer.send(Ok(Response::from_parts(parts, fed)));
            return stream(open, verdict, head, tape, body, &feed, false).await;
        }
        end => end,
    };
    let settled = match &end {
        End::Whole => {
            let trailers = tape.trailers.as_ref();
            settle_whole(open, verdict, head, Some(&tape), trailers).await
        }
        End::Short => give_back(open, false).await,
        End::Broken(broken) => give_back(open, broken.is_panic()).await,
        // Over the cap, whatever it said of its length.
        End::Over(_) | End::Outlasted => finish_alone(open, head).await,
    };
    let body = end.into_body(tape, body);
    let sent = match open.instead(settled).await {
        None => Response::from_parts(parts, body),
        Some(reply) => open.responder.respond(reply),
    };
    let _ = answer.send(Ok(sent));
}

/// The next frame; `None` when the claim ends before it comes, after `max_hold` at the latest. The handler has
/// answered, so its work is done: before another may run it again, it is kept as done, and the rest of the
/// response goes on alone.
async fn before_the_claim_ends<T>(open: &OpenRun, frame: impl Future<Output = T>) -> Option<T> {
    let frame = before_its_end(&open.run, frame).await?;
    is_going_on(&open.run, open.shared.terms.renewal());
    Some(frame)
}

async fn before_its_end<T>(run: &IdempotentRun, frame: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        biased;
        frame = frame => Some(frame),
        // Made when the frame is not there at once.
        _ = async { run.lost().await } => None,
    }
}

/// A frame is a sign of life, where the claim needs one.
fn is_going_on(run: &IdempotentRun, renewal: Renewal) {
    if let Renewal::Progress { .. } = renewal {
        run.touch();
    }
}

/// The response is there, to its end; what was kept of it, if it is to be.
async fn settle_whole(
    open: &OpenRun,
    verdict: Verdict,
    head: Head,
    tape: Option<&Tape>,
    trailers: Option<&HeaderMap>,
) -> Settled {
    // However much of it is kept.
    if trailers.is_some_and(is_refusal) {
        let _ = open.roll_back().await;
    }
    match (at_the_end(verdict, open, trailers), tape) {
        (Outcome::Keep, Some(tape)) => {
            let rules = &open.shared.headers;
            let record = head.with_body(tape.chunks.iter(), trailers, rules);
            open.finish(record).await
        }
        (Outcome::Keep | Outcome::Tombstone, _) => open.finish(head.alone()).await,
        (Outcome::Release, _) => open.release().await,
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

async fn give_back(open: &OpenRun, panicked: bool) -> Settled {
    if panicked {
        open.panicked().await
    } else {
        open.release().await
    }
}
