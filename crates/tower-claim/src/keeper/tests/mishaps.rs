//! What is not meant to happen: the keeper's connection cannot be made, the store or the clock panics.

use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::future::BoxFuture;

use super::*;
use crate::Moment;

#[tokio::test(start_paused = true)]
async fn a_connection_that_cannot_be_made_is_tried_again() {
    for act in [Act::Unavailable, Act::LoseCall, Act::Panic] {
        let store = Scripted::new();
        store.next(Op::Connect, [act.clone(), act.clone()]);
        let keeper = keeper(&store);
        let claim = claim(&keeper, "a").await;
        tokio::time::sleep(LEASE * 2).await;
        assert_eq!(claim.check(), Ok(()), "{act:?}");
        assert_eq!(store.sent(Op::Connect).len(), 3, "{act:?}: made once");
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_connection_the_deadline_is_kept_and_the_keeper_comes_to_rest() {
    for act in [Act::Unavailable, Act::LoseCall, Act::Panic] {
        let store = Scripted::new();
        store.always(Op::Connect, act.clone());
        let keeper = keeper(&store);
        let held = claim(&keeper, "a").await;
        let stop = held.remaining();
        let begun = tokio::time::Instant::now();
        assert_eq!(held.lost().await, Loss::StoreUnreachable, "{act:?}");
        assert!(begun.elapsed() <= stop + MS, "{act:?}");

        // Left to the keeper: a release, and a claim without an answer.
        drop(claim(&keeper, "b").await);
        store.next(Op::Claim, [Act::LoseCall]);
        let terms = terms();
        let _ = until_await(1, keeper.claim(key("c"), None, &terms, Token::ZERO)).await;
        settled(&keeper).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_panics_loses_no_release_and_no_finish() {
    let store = Scripted::new();
    let keeper = keeper(&store);
    store.next(Op::Release, [Act::Panic, Act::Panic]);
    drop(claim(&keeper, "a").await);
    settled(&keeper).await;
    assert!(!store.is_held(key("a")));
    assert_eq!(store.sent(Op::Release).len(), 3);

    store.next(Op::Finish, [Act::LoseCall, Act::Panic]);
    let held = claim(&keeper, "b").await;
    let value = crate::store::Value::Tombstone;
    let _ = until_await(1, held.finish(value.clone(), LEASE * 10)).await;
    settled(&keeper).await;
    assert_eq!(store.value(key("b")), Some(value));
}

#[tokio::test(start_paused = true)]
async fn the_last_release_of_a_claim_in_doubt_is_sent_after_its_not_after() {
    let store = Scripted::new();
    let keeper = keeper(&store);
    store.next(Op::Claim, [Act::LoseCall]);
    let terms = terms();
    let _ = until_await(1, keeper.claim(key("a"), None, &terms, Token::ZERO)).await;
    settled(&keeper).await;
    let releases = store.sent(Op::Release);
    let [at_once, at_last] = &releases[..] else {
        panic!("{releases:?}");
    };
    let not_after = Duration::from_micros(store.limits()[0].as_micros());
    assert!(at_once.at < not_after && at_last.at > not_after);
}

/// A clock that is read by the keeper's thread this often, and panics then, at its last two reads.
#[derive(Debug, Default)]
struct Broken {
    reads: AtomicUsize,
}

impl Clock for Broken {
    fn now(&self) -> Moment {
        let on_keeper = std::thread::current().name() == Some("tower-claim-keeper");
        let panics = on_keeper && self.reads.fetch_sub(1, Ordering::SeqCst).wrapping_sub(1) < 2;
        assert!(!panics, "scripted");
        crate::SystemClock.now()
    }
    fn unix_time(&self) -> Duration {
        crate::SystemClock.unix_time()
    }
    fn sleep_until(&self, at: Moment) -> BoxFuture<'static, ()> {
        crate::SystemClock.sleep_until(at)
    }
}

#[tokio::test]
async fn a_clock_that_panics_costs_no_hold() {
    let clock = Arc::new(Broken::default());
    clock.reads.store(usize::MAX / 2, Ordering::SeqCst);
    let mut store = Scripted::new();
    // A third of it is long for a busy machine.
    store.lease = LEASE * 3;
    let terms = Terms::builder(store.lease).build().unwrap();
    let keeper = Keeper::builder(store).clock(clock.clone()).build().unwrap();
    let held = claim_as(&keeper, "a", &terms).await;
    // In the worker's loop, and in a beat under way.
    for reads in 2..=7 {
        clock.reads.store(reads, Ordering::SeqCst);
        let panicked = || clock.reads.load(Ordering::SeqCst) > reads;
        let mut left = held.remaining();
        // The next beat after it is answered: then there is more left than before.
        while !panicked() || held.remaining() <= left {
            left = held.remaining();
            assert_eq!(held.check(), Ok(()), "{reads} reads");
            tokio::time::sleep(MS * 5).await;
        }
    }
}
