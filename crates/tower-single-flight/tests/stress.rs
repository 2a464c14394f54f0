//! Many threads, one key, callers that leave at random: no hang, never two calls at once, nothing left.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

mod common;

use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::Poll;
use std::time::Duration;

use common::{real, threaded};
use tower_single_flight::{FlightError, SingleFlight};

const CALLERS: usize = 40_000;

/// Pending this many times, waking itself.
fn turns(mut left: u32) -> impl Future<Output = ()> {
    poll_fn(move |cx| {
        if left == 0 {
            return Poll::Ready(());
        }
        left -= 1;
        cx.waker().wake_by_ref();
        Poll::Pending
    })
}

struct Running(Arc<[AtomicUsize; 3]>);

impl Running {
    fn one_more(count: &Arc<[AtomicUsize; 3]>) -> Self {
        count[0].fetch_add(1, SeqCst);
        let now = count[1].fetch_add(1, SeqCst) + 1;
        count[2].fetch_max(now, SeqCst);
        Self(Arc::clone(count))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0[1].fetch_sub(1, SeqCst);
    }
}

#[test]
fn racing_callers_that_leave_at_random_never_hang_and_never_overlap() {
    threaded(async {
        let flights: SingleFlight<u32, u32, &'static str> = SingleFlight::new();
        let counts: Vec<_> = (0..3)
            .map(|_| Arc::new([const { AtomicUsize::new(0) }; 3]))
            .collect();
        let mut callers = Vec::with_capacity(CALLERS);
        let mut random = 0x9E37_79B9_u32;
        for n in 0..CALLERS {
            random ^= random << 13;
            random ^= random >> 17;
            random ^= random << 5;
            let key = random % 3;
            let (work, patience, end) = ((random >> 4) % 5, (random >> 8) % 8, (random >> 12) % 16);
            let count = Arc::clone(&counts[key as usize]);
            let call = flights.run(key, move || async move {
                let _running = Running::one_more(&count);
                turns(work).await;
                match end {
                    0 => Err("failed"),
                    _ => Ok(key),
                }
            });
            callers.push(tokio::spawn(async move {
                // About a third leave early, after a random number of polls.
                let leaves = patience < 3;
                tokio::select! {
                    biased;
                    result = call => Some(result),
                    () = turns(patience), if leaves => None,
                }
            }));
            if n % 64 == 0 {
                tokio::task::yield_now().await;
            }
        }
        let mut served = 0;
        for caller in callers {
            let ended = tokio::time::timeout(Duration::from_secs(60), caller).await;
            match ended.expect("no hang").unwrap() {
                Some(Ok(_)) => served += 1,
                Some(Err(FlightError::Failed(_))) | None => {}
                Some(Err(other)) => panic!("{other}"),
            }
        }
        let calls: usize = counts.iter().map(|c| c[0].load(SeqCst)).sum();
        let most = counts.iter().map(|c| c[2].load(SeqCst)).max().unwrap();
        println!("{CALLERS} callers, {served} served by {calls} calls");
        assert!(served > CALLERS / 4 && calls < CALLERS);
        assert_eq!(most, 1, "never two calls of one key at once");
        let _ = flights.drain(Duration::from_secs(10)).await;
        assert_eq!(
            (flights.flights(), flights.followers(), flights.tasks()),
            (0, 0, 0)
        );
    });
}

#[test]
fn a_hundred_thousand_cancelled_keys_leave_nothing() {
    real(async {
        let flights: SingleFlight<u64, u64> = SingleFlight::new();
        let ended = Arc::new(());
        let mut held = Vec::new();
        for key in 0..100_000 {
            let alive = Arc::clone(&ended);
            let mut call = Box::pin(flights.run(key, move || async move {
                let _alive = alive;
                std::future::pending().await
            }));
            poll_fn(|cx| Poll::Ready(call.as_mut().poll(cx).is_pending())).await;
            held.push(call);
        }
        assert_eq!(flights.flights(), 100_000);
        drop(held);
        assert_eq!(flights.flights(), 0);
        assert_eq!(Arc::strong_count(&ended), 1);
    });
}
