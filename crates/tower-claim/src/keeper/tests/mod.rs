//! The keeper against a store that follows a script, in paused time.

mod beats;
mod breaker;
mod claims;
mod drops;
mod ends;
mod finishing;
mod hot_key;
mod memory;
mod mishaps;
mod scripted;
mod state;
mod stress;
mod thread;
mod unheard;

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use scripted::{Act, LEASE, Op, Scripted};

use super::*;
use crate::{Namespace, Use};

const MS: Duration = Duration::from_millis(1);

fn key(name: &str) -> Key {
    Key::builder(Use::Lease, &Namespace::default())
        .part(name)
        .build()
}

fn terms() -> Terms {
    Terms::builder(LEASE).build().unwrap()
}

fn keeper(store: &Scripted) -> Keeper {
    Keeper::builder_many(store.clone())
        .clock(store.clock.clone())
        .run_on(RunOn::Task)
        .build()
        .unwrap()
}

async fn claim(keeper: &Keeper, name: &str) -> Claim {
    claim_as(keeper, name, &terms()).await
}

async fn claim_as(keeper: &Keeper, name: &str, terms: &Terms) -> Claim {
    match keeper.claim(key(name), None, terms, Token::ZERO).await {
        Ok(Attempt::Granted(claim)) => claim,
        other => panic!("not granted: {other:?}"),
    }
}

async fn is_busy(keeper: &Keeper, name: &str) -> bool {
    let attempt = keeper.claim(key(name), None, &terms(), Token::ZERO).await;
    matches!(attempt, Ok(Attempt::Busy(_)))
}

/// Polls `work`, and drops it at its `n`th await (1 is the first). `None`: dropped.
async fn until_await<F: Future>(n: usize, work: F) -> Option<F::Output> {
    let mut left = n;
    let mut work = pin!(work);
    std::future::poll_fn(move |cx| match work.as_mut().poll(cx) {
        Poll::Ready(out) => Poll::Ready(Some(out)),
        Poll::Pending => {
            left -= 1;
            if left == 0 {
                Poll::Ready(None)
            } else {
                Poll::Pending
            }
        }
    })
    .await
}

async fn settled(keeper: &Keeper) {
    assert!(
        keeper.drain(LEASE * 4).await,
        "the keeper never came to rest"
    );
}

/// A hold that nobody claimed.
pub(super) fn a_hold() -> Arc<super::hold::Hold> {
    use super::state::HoldState;
    use super::timing::Jitter;
    let (terms, sent) = (terms(), crate::Moment::default());
    let state = HoldState::granted(&terms, terms.timing(), sent, LEASE, Jitter::new(1));
    Arc::new(super::hold::Hold {
        keys: super::hold::Keys::One(key("a")),
        nonce: crate::Nonce::from_bytes([0; 16]),
        token: Token::ZERO,
        fingerprint: None,
        timing: terms.timing(),
        terms,
        attempt: 1,
        took_over: None,
        not_after: crate::store::StoreTime::NEVER,
        state: state.into(),
        changed: tokio::sync::Notify::new(),
    })
}
