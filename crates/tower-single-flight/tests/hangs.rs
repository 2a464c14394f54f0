//! What could hold a caller up for ever: wakers that are dropped or come too late, and locks.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

mod common;

use std::future::{Future, pending, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};

use common::*;
use tokio::sync::oneshot;
use tokio::task::yield_now;
use tokio::time::{sleep, timeout};
use tower_claim::TokioClock;
use tower_single_flight::{FlightError, SingleFlight};

type Flights = SingleFlight<u32, u32, &'static str>;
type Boxed = Pin<Box<dyn Future<Output = Result<u32, FlightError<&'static str>>> + Send>>;

fn flights() -> Flights {
    SingleFlight::builder()
        .clock(Arc::new(TokioClock::new()))
        .build()
        .unwrap()
}

fn poll(call: &mut Boxed, waker: &Waker) {
    assert!(
        call.as_mut()
            .poll(&mut Context::from_waker(waker))
            .is_pending()
    );
}

/// The waker of a task that lives as long as its wakers, as small executors have them.
struct Owner(#[expect(dead_code, reason = "dropped with it")] Mutex<Boxed>);

impl Wake for Owner {
    fn wake(self: Arc<Self>) {}
}

#[test]
fn a_waker_that_takes_a_caller_along_is_dropped_outside_the_lock() {
    for who in ["leader", "follower", "follower leaves"] {
        on_a_thread(move || {
            paused(async move {
                let flights = flights();
                let call = || -> Boxed { Box::pin(flights.run(7, pending)) };
                let (mut leader, mut follower, mut owned) = (call(), call(), call());
                poll(&mut leader, Waker::noop());
                poll(&mut follower, Waker::noop());
                poll(&mut owned, Waker::noop());
                let moved = match who {
                    "leader" => &mut leader,
                    _ => &mut follower,
                };
                let owner = Waker::from(Arc::new(Owner(Mutex::new(owned))));
                poll(moved, &owner);
                drop(owner);
                // The last of that task goes, and with it a follower of this very flight.
                match who {
                    "follower leaves" => drop(follower),
                    _ => poll(moved, Waker::noop()),
                }
                assert!(flights.followers() <= 1);
            });
        });
    }
}

/// Wakes are counted, so that a caller that is polled again by chance does not hide one that was lost.
#[derive(Default)]
struct Bell(AtomicUsize);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

#[test]
fn a_leader_whose_call_became_a_task_is_woken_at_its_end() {
    for alone in [false, true] {
        paused(async move {
            let flights = flights();
            let (tell, told) = oneshot::channel();
            let mut leader: Boxed = Box::pin(flights.run(7, || async { Ok(told.await.unwrap()) }));
            let mut follower: Boxed = Box::pin(flights.run(7, pending));
            let bells = [(); 2].map(|()| Arc::new(Bell::default()));
            let [at_leader, at_follower] = bells.clone().map(Waker::from);
            poll(&mut leader, &at_leader);
            poll(&mut follower, &at_follower);
            yield_now().await;
            let mut follower = Some(follower);
            if alone {
                follower = None;
            }
            tell.send(1).unwrap();
            for _ in 0..10 {
                yield_now().await;
            }
            assert_eq!(bells[0].0.load(SeqCst), 1, "the leader");
            assert_eq!(bells[1].0.load(SeqCst), usize::from(!alone), "the follower");
            assert_eq!(leader.await.unwrap(), 1);
            if let Some(follower) = follower {
                assert_eq!(follower.await.unwrap(), 1);
            }
        });
    }
}

/// A caller that moved to another task is woken there.
#[test]
fn the_last_waker_is_the_one_that_is_woken() {
    paused(async {
        let flights = flights();
        let (tell, told) = oneshot::channel();
        let mut leader: Boxed = Box::pin(flights.run(7, || async { Ok(told.await.unwrap()) }));
        let mut follower: Boxed = Box::pin(flights.run(7, pending));
        for caller in [&mut leader, &mut follower] {
            poll(caller, Waker::noop());
        }
        let bells = [(); 2].map(|()| Arc::new(Bell::default()));
        for (caller, bell) in [&mut leader, &mut follower].into_iter().zip(&bells) {
            poll(caller, &Waker::from(bell.clone()));
        }
        tell.send(1).unwrap();
        for _ in 0..10 {
            yield_now().await;
        }
        assert_eq!(bells.map(|bell| bell.0.load(SeqCst)), [1, 1]);
    });
}

/// Who comes while the old call is being dropped waits for that: never two at the same time.
#[test]
fn the_next_call_begins_when_the_old_one_is_gone() {
    struct Slow {
        flights: Flights,
        dropped: Arc<AtomicBool>,
        late: Arc<Mutex<Option<Boxed>>>,
        bell: Arc<Bell>,
    }
    impl Drop for Slow {
        fn drop(&mut self) {
            let dropped = Arc::clone(&self.dropped);
            let mut late: Boxed = Box::pin(self.flights.run(7, move || {
                assert!(dropped.load(SeqCst), "the old call is still there");
                async { Ok(2) }
            }));
            poll(&mut late, &Waker::from(Arc::clone(&self.bell)));
            *self.late.lock().unwrap() = Some(late);
            self.dropped.store(true, SeqCst);
        }
    }
    for joined in [false, true] {
        paused(async move {
            let flights = flights();
            let late = Arc::<Mutex<Option<Boxed>>>::default();
            let bell = Arc::<Bell>::default();
            let slow = Slow {
                flights: flights.clone(),
                dropped: Arc::default(),
                late: Arc::clone(&late),
                bell: Arc::clone(&bell),
            };
            let mut leader: Boxed = Box::pin(flights.run(7, move || async move {
                let _slow = slow;
                pending().await
            }));
            poll(&mut leader, Waker::noop());
            if joined {
                let mut follower: Boxed = Box::pin(flights.run(7, pending));
                poll(&mut follower, Waker::noop());
                yield_now().await;
            }
            drop(leader);
            yield_now().await;
            let late = late.lock().unwrap().take().expect("it was dropped");
            assert_eq!(bell.0.load(SeqCst), 1, "woken when the key is free");
            assert_eq!(late.await.unwrap(), 2);
            assert_eq!(flights.flights(), 0);
        });
    }
}

/// The timer of a follower whose runtime has none panics; its seat must not stay taken.
#[test]
fn a_follower_that_panics_leaves_its_seat() {
    let timeless = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let flights = flights();
    let mut leader: Boxed = Box::pin(flights.run(7, pending));
    poll(&mut leader, Waker::noop());
    let mut follower: Boxed = Box::pin(flights.run(7, pending));
    let polled = timeless.block_on(async {
        let polled = tokio::spawn(poll_fn(move |cx| follower.as_mut().poll(cx)));
        polled.await
    });
    assert!(polled.unwrap_err().is_panic());
    assert_eq!(flights.followers(), 0);
}

/// A task that never ran when its runtime went.
#[test]
fn a_task_that_was_never_polled_tells_its_end() {
    paused(async {
        let flights = flights();
        let mut leader: Boxed = Box::pin(flights.run(7, pending));
        poll(&mut leader, Waker::noop());
        let other = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let mut follower: Boxed = Box::pin(flights.run(7, pending));
        {
            let _entered = other.enter();
            poll(&mut follower, Waker::noop());
        }
        other.shutdown_background();
        let told = timeout(MS, leader).await.expect("told at once");
        assert!(matches!(told, Err(FlightError::ShuttingDown)));
        assert_eq!((flights.flights(), flights.tasks()), (0, 0));
    });
}

#[test]
fn a_hundred_followers_that_leave_one_by_one_end_the_call() {
    paused(async {
        let flights = flights();
        let ended = Arc::new(());
        let alive = Arc::clone(&ended);
        let mut callers: Vec<Boxed> = vec![Box::pin(flights.run(7, move || async move {
            let _alive = alive;
            pending().await
        }))];
        callers.extend((0..100).map(|_| -> Boxed { Box::pin(flights.run(7, pending)) }));
        for caller in &mut callers {
            poll(caller, Waker::noop());
        }
        while callers.pop().is_some() {
            sleep(MS).await;
            assert_eq!(
                Arc::strong_count(&ended),
                1 + usize::from(!callers.is_empty())
            );
        }
        assert_eq!((flights.flights(), flights.tasks()), (0, 0));
    });
}
