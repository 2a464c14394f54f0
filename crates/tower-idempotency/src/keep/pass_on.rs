//! Answers that are not kept, and tell only by their end what they are worth: gRPC's.
//!
//! Over the cap, the outcome of another answer is known by its head. Here it may yet be `UNAVAILABLE`, which must not be
//! remembered as done. So what was read, and what comes, goes on to the caller, at the caller's speed, and only the end
//! waits for the store. In a transaction, too: without its end a call of gRPC is no answer, and what it stands for is not
//! committed before that.

use std::pin::Pin;

use bytes::Bytes;
use http::HeaderMap;
use http_body::Body;
use tokio::sync::oneshot;

use super::end::next_frame;
use super::{before_the_claim_ends, finish_alone, give_back, is_going_on, settle_whole};
use crate::body::{Ended, Fed, Feed, Held, Holder};
use crate::open::{OpenRun, Settled};
use crate::outcome::Verdict;
use crate::record::Head;

/// Lets the rest of a body go, and settles the run by its end.
pub(super) async fn pass_on<R>(open: &OpenRun, head: Head, body: Pin<Box<R>>, feed: &Feed<R>)
where
    R: Body<Data = Bytes>,
{
    let run = open.run.clone();
    let renewal = open.shared.terms.renewal();
    let (held, holder) = Held::new(body, move || is_going_on(&run, renewal));
    let Holder { ended, stands } = holder;
    // Where the caller is gone, it comes back at once.
    let _ = feed.send(Fed::Held(held));
    let settled = match before_the_claim_ends(open, end_of(open, ended)).await {
        // Perhaps because the caller reads slowly. The work is done, as far as anybody knows.
        None => finish_alone(open, head).await,
        Some(Ok(trailers)) => {
            settle_whole(open, Verdict::InTrailers, head, None, trailers.as_ref()).await
        }
        Some(Err(panicked)) => give_back(open, panicked).await,
    };
    let _ = stands.send(settled == Settled::Stands);
}

/// The trailers; an error where it broke off, by a panic or not.
async fn end_of<R>(
    open: &OpenRun,
    ended: oneshot::Receiver<Ended<R>>,
) -> Result<Option<HeaderMap>, bool>
where
    R: Body<Data = Bytes>,
{
    let mut body = match ended.await {
        Ok(Ended::Whole(trailers)) => return Ok(trailers),
        Ok(Ended::Left(body)) => body,
        Ok(Ended::Broken) | Err(_) => return Err(false),
    };
    // A started handler runs to its end, whoever listens.
    loop {
        match next_frame(&mut body).await {
            None => return Ok(None),
            Some(Err(broken)) => return Err(broken.is_panic()),
            Some(Ok(frame)) => {
                if let Ok(trailers) = frame.into_trailers() {
                    return Ok(Some(trailers));
                }
                is_going_on(&open.run, open.shared.terms.renewal());
            }
        }
    }
}
