//! Answers of unknown length.

use std::pin::Pin;

use bytes::Bytes;
use http_body::Body;

use super::end::next_frame;
use super::pass_on::pass_on;
use super::tape::{Tape, is_empty};
use super::{before_the_claim_ends, finish_alone, give_back, settle_whole};
use crate::body::{Fed, Feed};
use crate::open::{OpenRun, Settled};
use crate::outcome::Verdict;
use crate::record::Head;

/// Of unknown length: each frame goes out as it comes, the end after the record.
///
/// The head is out already: when another run took over meanwhile, the body is cut off. It must not look
/// whole beside the other run's answer.
///
/// A gRPC call whose claim `holds` no longer before its status is there is as a handler that has not answered yet: its
/// end settles it, unless another run has taken over.
pub(super) async fn stream<R>(
    open: &OpenRun,
    verdict: Verdict,
    head: Head,
    mut tape: Tape,
    mut body: Pin<Box<R>>,
    feed: &Feed<R>,
    mut holds: bool,
) where
    R: Body<Data = Bytes>,
{
    let (settled, rest) = loop {
        let next = next_frame(&mut body);
        let frame = if holds {
            before_the_claim_ends(open, next).await
        } else {
            Some(next.await)
        };
        let Some(frame) = frame else {
            if verdict == Verdict::InTrailers {
                holds = false;
                continue;
            }
            break (finish_alone(open, head).await, vec![Fed::Rest(body)]);
        };
        match frame {
            None => {
                let settled = settle_whole(open, verdict, head, Some(&tape), None).await;
                break (settled, vec![Fed::Over]);
            }
            Some(Err(broken)) => {
                // Broken off all the same, whatever became of the claim.
                give_back(open, broken.is_panic()).await;
                break (Settled::Stands, vec![broken.into_fed()]);
            }
            Some(Ok(frame)) => match tape.keep(frame) {
                Err(over) if holds && verdict == Verdict::InTrailers => {
                    let _ = feed.send(Fed::Frame(over));
                    return pass_on(open, head, body, feed).await;
                }
                Err(over) => {
                    let settled = finish_alone(open, head).await;
                    break (settled, vec![Fed::Frame(over), Fed::Rest(body)]);
                }
                Ok(frame) if frame.is_trailers() || body.is_end_stream() => {
                    let trailers = frame.trailers_ref();
                    let settled = settle_whole(open, verdict, head, Some(&tape), trailers).await;
                    break (settled, vec![Fed::Last(frame)]);
                }
                Ok(frame) if is_empty(&frame) => {}
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
