//! Bounded waiting.

use std::future::{Future, poll_fn};
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::task::Poll;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use crate::keeper::Timing;
use crate::{Clock, Moment, StoreError};

/// Runs `work` until `at`; `None` when that passes first. No timer is made for work that is ready at
/// once, as the in-memory store's is.
pub(crate) async fn within<F: Future>(clock: &dyn Clock, at: Moment, work: F) -> Option<F::Output> {
    let mut work = pin!(work);
    let mut timer: Option<BoxFuture<'static, ()>> = None;
    poll_fn(|cx| {
        if let Poll::Ready(out) = work.as_mut().poll(cx) {
            return Poll::Ready(Some(out));
        }
        let timer = timer.get_or_insert_with(|| clock.sleep_until(at));
        timer.as_mut().poll(cx).map(|()| None)
    })
    .await
}

/// A store call with an answer by `at`: one that stays out counts as ambiguous.
pub(crate) async fn answer<T>(
    clock: &dyn Clock,
    at: Moment,
    call: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    within(clock, at, call).await.unwrap_or_else(|| {
        Err(StoreError::ambiguous(
            "no answer within the attempt timeout",
        ))
    })
}

/// A store call by an owner who waits: one attempt timeout in all. It is repeated after an error that
/// may pass, while `until` has not come. The error is ambiguous if that of any copy was: what the last one
/// was told says nothing of those before.
pub(crate) async fn repeat<T, F>(
    clock: &dyn Clock,
    timing: Timing,
    until: Moment,
    call: impl Fn() -> F,
) -> Result<T, StoreError>
where
    F: Future<Output = Result<T, StoreError>>,
{
    let end = clock.now() + timing.attempt;
    let mut pause = timing.attempt / 16;
    let mut in_doubt = false;
    loop {
        match answer(clock, end, call()).await {
            Err(error) if error.is_retryable() => {
                let next = clock.now() + pause;
                if next >= end.min(until) {
                    return Err(if in_doubt && !error.is_ambiguous() {
                        StoreError::ambiguous(error)
                    } else {
                        error
                    });
                }
                in_doubt |= error.is_ambiguous();
                clock.sleep_until(next).await;
                pause *= 2;
            }
            settled => return settled,
        }
    }
}

/// A store call by the keeper, whom nobody waits for: each one has an attempt timeout, repeated until it
/// is answered, refused for good, or `until` has come. A store that panics has not answered: what was left
/// to the keeper would be lost with the panic.
pub(crate) async fn insist<T, F>(
    clock: &dyn Clock,
    timing: Timing,
    until: Moment,
    call: impl Fn() -> F,
) -> Option<T>
where
    F: Future<Output = Result<T, StoreError>>,
{
    let mut pause = timing.attempt / 4;
    loop {
        let call = async { call().await };
        let answered = answer(clock, clock.now() + timing.attempt, call);
        match AssertUnwindSafe(answered).catch_unwind().await {
            Ok(Ok(answer)) => return Some(answer),
            Ok(Err(error)) if !error.is_retryable() => return None,
            Ok(Err(_)) | Err(_) => {}
        }
        let next = clock.now() + pause;
        if next >= until {
            return None;
        }
        clock.sleep_until(next).await;
        pause = (pause * 2).min(timing.attempt.max(timing.lease / 6));
    }
}
