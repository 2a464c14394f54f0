//! The laws of the core.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

mod common;

use std::future::{Future, pending, poll_fn};
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::Poll;
use std::time::Duration;

use common::paused;
use futures_util::FutureExt;
use futures_util::future::join_all;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};
use tower_claim::TokioClock;
use tower_single_flight::{FlightError, Flown, SingleFlight};

type Flights = SingleFlight<u32, u32, &'static str>;

const MS: Duration = Duration::from_millis(1);

fn flights() -> Flights {
    SingleFlight::builder()
        .clock(Arc::new(TokioClock::new()))
        .build()
        .unwrap()
}

/// Counts calls, those running now, and the most that ever ran at once.
#[derive(Clone, Default)]
struct Upstream(Arc<[AtomicUsize; 3]>);

impl Upstream {
    fn calls(&self) -> usize {
        self.0[0].load(SeqCst)
    }

    fn running(&self) -> usize {
        self.0[1].load(SeqCst)
    }

    fn most_at_once(&self) -> usize {
        self.0[2].load(SeqCst)
    }

    fn call<F: Future>(&self, work: F) -> impl Future<Output = F::Output> + use<F> {
        struct Running(Upstream);
        impl Drop for Running {
            fn drop(&mut self) {
                self.0.0[1].fetch_sub(1, SeqCst);
            }
        }
        self.0[0].fetch_add(1, SeqCst);
        let now = self.0[1].fetch_add(1, SeqCst) + 1;
        self.0[2].fetch_max(now, SeqCst);
        let running = Running(self.clone());
        async move {
            let _running = running;
            work.await
        }
    }

    async fn after(
        &self,
        time: Duration,
        result: Result<u32, &'static str>,
    ) -> Result<u32, &'static str> {
        self.call(async move {
            sleep(time).await;
            result
        })
        .await
    }
}

fn call(
    flights: &Flights,
    upstream: &Upstream,
    time: Duration,
    result: Result<u32, &'static str>,
) -> impl Future<Output = Result<u32, FlightError<&'static str>>> + Send + use<> {
    let upstream = upstream.clone();
    flights.run(7, move || async move { upstream.after(time, result).await })
}

fn nothing_is_left(flights: &Flights) {
    assert_eq!((flights.flights(), flights.followers()), (0, 0));
}

/// Polls once.
async fn once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    poll_fn(|cx| Poll::Ready(future.poll_unpin(cx))).await
}

#[test]
fn a_hundred_callers_are_one_call() {
    paused(async {
        let (flights, upstream) = (flights(), Upstream::default());
        let began = Instant::now();
        let callers = (0..100).map(|_| tokio::spawn(call(&flights, &upstream, 20 * MS, Ok(1))));
        for result in join_all(callers).await {
            assert_eq!(result.unwrap().unwrap(), 1);
        }
        assert_eq!((upstream.calls(), began.elapsed()), (1, 20 * MS));
        nothing_is_left(&flights);
    });
}

#[test]
fn a_failure_is_shared_and_not_kept() {
    paused(async {
        let (flights, upstream) = (flights(), Upstream::default());
        let callers = (0..100).map(|_| call(&flights, &upstream, 20 * MS, Err("down")));
        let results = join_all(callers).await;
        let first = results[0].as_ref().unwrap_err().failure().unwrap().clone();
        for result in &results {
            let FlightError::Failed(error) = result.as_ref().unwrap_err() else {
                panic!("{result:?}");
            };
            assert!(Arc::ptr_eq(error, &first), "one value for all");
        }
        assert_eq!(upstream.calls(), 1);
        nothing_is_left(&flights);
        assert_eq!(call(&flights, &upstream, MS, Ok(2)).await.unwrap(), 2);
    });
}

#[test]
fn a_leader_that_leaves_after_a_join_takes_nothing_along() {
    paused(async {
        let (flights, upstream) = (flights(), Upstream::default());
        let began = Instant::now();
        let leader = tokio::spawn(call(&flights, &upstream, 20 * MS, Ok(1)));
        tokio::task::yield_now().await;
        let others: Vec<_> = (0..99)
            .map(|_| tokio::spawn(call(&flights, &upstream, 20 * MS, Ok(1))))
            .collect();
        sleep(10 * MS).await;
        leader.abort();
        for other in others {
            assert_eq!(other.await.unwrap().unwrap(), 1);
        }
        assert_eq!((upstream.calls(), began.elapsed()), (1, 20 * MS));
        nothing_is_left(&flights);
    });
}

#[test]
fn a_leader_that_leaves_alone_takes_its_call_along() {
    paused(async {
        let (flights, upstream) = (flights(), Upstream::default());
        let mut leader = Box::pin(call(&flights, &upstream, 20 * MS, Ok(1)));
        assert!(once(&mut leader).await.is_pending());
        assert_eq!(upstream.running(), 1);
        drop(leader);
        assert_eq!(upstream.running(), 0);
        nothing_is_left(&flights);
        assert_eq!(call(&flights, &upstream, MS, Ok(2)).await.unwrap(), 2);
    });
}

#[test]
fn a_follower_that_leaves_frees_no_key() {
    paused(async {
        let (flights, upstream) = (flights(), Upstream::default());
        let leader = tokio::spawn(call(&flights, &upstream, 50 * MS, Ok(1)));
        tokio::task::yield_now().await;
        let follower = tokio::spawn(call(&flights, &upstream, 50 * MS, Ok(2)));
        sleep(10 * MS).await;
        follower.abort();
        sleep(10 * MS).await;
        assert_eq!(call(&flights, &upstream, MS, Ok(3)).await.unwrap(), 1);
        assert_eq!(leader.await.unwrap().unwrap(), 1);
        assert_eq!(upstream.calls(), 1);
        nothing_is_left(&flights);
    });
}

#[test]
fn a_call_that_nobody_wants_any_more_is_dropped() {
    paused(async {
        let (flights, upstream) = (flights(), Upstream::default());
        let never = || call(&flights, &upstream, Duration::MAX / 2, Ok(1));
        let (leader, follower) = (tokio::spawn(never()), tokio::spawn(never()));
        sleep(MS).await;
        assert_eq!((flights.followers(), flights.tasks()), (1, 1));
        leader.abort();
        sleep(MS).await;
        assert_eq!(upstream.running(), 1, "the follower still wants it");
        follower.abort();
        sleep(MS).await;
        assert_eq!((upstream.running(), flights.tasks()), (0, 0));
        nothing_is_left(&flights);
    });
}

#[test]
fn a_panic_in_a_joined_call_reaches_all_and_frees_the_key() {
    paused(async {
        let (flights, upstream) = (flights(), Upstream::default());
        let callers = (0..100).map(|_| {
            let upstream = upstream.clone();
            flights.run(7, move || async move {
                upstream
                    .call(async {
                        sleep(20 * MS).await;
                        panic!("in the call")
                    })
                    .await
            })
        });
        for result in join_all(callers).await {
            assert!(matches!(result, Err(FlightError::Panicked)), "{result:?}");
        }
        assert_eq!(upstream.calls(), 1);
        nothing_is_left(&flights);
        assert_eq!(call(&flights, &upstream, MS, Ok(2)).await.unwrap(), 2);
    });
}

#[test]
fn a_panic_nobody_else_waits_for_is_passed_on() {
    paused(async {
        let (flights, upstream) = (flights(), Upstream::default());
        let in_the_future = flights.run(7, || async { panic!("in the future") });
        let in_making_it = flights.run(7, || {
            if true {
                panic!("in making it");
            }
            async { Ok(1) }
        });
        assert!(
            AssertUnwindSafe(in_the_future)
                .catch_unwind()
                .await
                .is_err()
        );
        nothing_is_left(&flights);
        assert!(AssertUnwindSafe(in_making_it).catch_unwind().await.is_err());
        nothing_is_left(&flights);
        assert_eq!(call(&flights, &upstream, MS, Ok(2)).await.unwrap(), 2);
    });
}

/// Somebody joins while the leader is inside the very poll that ends the flight.
#[test]
fn who_joins_during_the_last_poll_gets_its_end() {
    paused(async {
        for end in ["ready", "failed", "panic", "panic in making it"] {
            let (flights, upstream) = (flights(), Upstream::default());
            let (inner, count) = (flights.clone(), upstream.clone());
            let follower = Arc::new(std::sync::Mutex::new(None));
            let seat = Arc::clone(&follower);
            let join = move || {
                let mut late = Box::pin(call(&inner, &count, MS, Ok(9)));
                assert!((&mut late).now_or_never().is_none());
                *seat.lock().unwrap() = Some(late);
            };
            let leader = flights.run(7, move || {
                if end == "panic in making it" {
                    join();
                    panic!("in making it");
                }
                async move {
                    join();
                    match end {
                        "ready" => Ok(1),
                        "failed" => Err("down"),
                        _ => panic!("in the last poll"),
                    }
                }
            });
            let led = AssertUnwindSafe(leader).catch_unwind().await;
            let follower = follower.lock().unwrap().take().unwrap();
            let followed = timeout(MS, follower).await.expect("woken at once");
            match end {
                "ready" => assert_eq!((led.unwrap().unwrap(), followed.unwrap()), (1, 1)),
                "failed" => assert!(matches!(followed, Err(FlightError::Failed(_)))),
                _ => {
                    assert!(led.is_err());
                    assert!(matches!(followed, Err(FlightError::Panicked)));
                }
            }
            assert_eq!(upstream.calls(), 0);
            nothing_is_left(&flights);
        }
    });
}

/// As above, with an output that must be made shareable, and a leader that is gone before it is.
#[test]
fn an_output_that_is_being_made_shareable_survives_its_leader() {
    paused(async {
        let flights: SingleFlight<u32, u32, &'static str, String> =
            SingleFlight::builder_sharing(|text: String| async move {
                sleep(10 * MS).await;
                text.parse().unwrap()
            })
            .clock(Arc::new(TokioClock::new()))
            .build()
            .unwrap();
        let inner = flights.clone();
        let follower = Arc::new(std::sync::Mutex::new(None));
        let seat = Arc::clone(&follower);
        let mut leader = Box::pin(flights.fly(7, move || async move {
            let mut late = Box::pin(inner.fly(7, pending));
            assert!((&mut late).now_or_never().is_none());
            *seat.lock().unwrap() = Some(late);
            Ok("12".to_owned())
        }));
        assert!(once(&mut leader).await.is_pending());
        drop(leader);
        let follower = follower.lock().unwrap().take().unwrap();
        assert_eq!(follower.await.unwrap(), Flown::Shared(12));
        assert_eq!(flights.flights(), 0);
    });
}

#[test]
fn a_leader_that_is_left_alone_keeps_its_own_output() {
    paused(async {
        let flights: SingleFlight<u32, u32, &'static str, String> =
            SingleFlight::builder_sharing(|_| async { panic!("nobody to share with") })
                .clock(Arc::new(TokioClock::new()))
                .build()
                .unwrap();
        let output = || async {
            sleep(20 * MS).await;
            Ok("own".to_owned())
        };
        let alone = flights.fly(7, output).await;
        assert_eq!(alone.unwrap(), Flown::Alone("own".to_owned()));

        let leader = tokio::spawn(flights.fly(7, output));
        tokio::task::yield_now().await;
        let follower = tokio::spawn(flights.fly(7, output));
        sleep(10 * MS).await;
        assert_eq!(flights.tasks(), 1);
        follower.abort();
        let kept = leader.await.unwrap().unwrap();
        assert_eq!(kept, Flown::Alone("own".to_owned()));
        assert_eq!(flights.flights(), 0);
    });
}

/// Oxide RFD 609: a future that was polled once and then left alone must hold up nobody.
#[test]
fn an_unpolled_caller_blocks_nobody() {
    paused(async {
        for result in [Ok(1), Err("down")] {
            let (flights, upstream) = (flights(), Upstream::default());
            let mut leader = Box::pin(call(&flights, &upstream, 20 * MS, result));
            assert!(once(&mut leader).await.is_pending());
            let mut idle = Box::pin(call(&flights, &upstream, 20 * MS, result));
            assert!(once(&mut idle).await.is_pending());
            let active = timeout(21 * MS, call(&flights, &upstream, 20 * MS, result)).await;
            assert_eq!(active.expect("in time").ok(), result.ok());
            // The key is free although neither was polled again, and both still get their result.
            nothing_is_left(&flights);
            assert_eq!(leader.await.ok(), result.ok());
            assert_eq!(idle.await.ok(), result.ok());
            assert_eq!(upstream.calls(), 1);
        }
    });
}

#[test]
fn waiting_followers_learn_at_once_that_the_flight_is_too_old() {
    paused(async {
        let clock = Arc::new(TokioClock::new());
        let flights: Flights = SingleFlight::builder()
            .clock(clock)
            .flight_age(100 * MS)
            .build()
            .unwrap();
        let upstream = Upstream::default();
        let began = Instant::now();
        let leader = tokio::spawn(call(&flights, &upstream, 150 * MS, Ok(1)));
        sleep(90 * MS).await;
        let late = call(&flights, &upstream, 150 * MS, Ok(2)).await;
        assert!(matches!(late, Err(FlightError::FlightAged)));
        assert_eq!(began.elapsed(), 100 * MS);
        // A newcomer starts anew, and the leader still gets what it asked for.
        let newcomer = tokio::spawn(call(&flights, &upstream, 100 * MS, Ok(3)));
        assert_eq!(leader.await.unwrap().unwrap(), 1);
        assert_eq!(newcomer.await.unwrap().unwrap(), 3);
        assert_eq!(upstream.calls(), 2);
        nothing_is_left(&flights);
    });
}

#[test]
fn a_newcomer_never_joins_a_flight_that_is_too_old() {
    paused(async {
        let (flights, upstream) = (flights(), Upstream::default());
        let first = tokio::spawn(call(&flights, &upstream, 60_000 * MS, Ok(1)));
        sleep(30_000 * MS).await;
        assert_eq!(call(&flights, &upstream, MS, Ok(2)).await.unwrap(), 2);
        assert_eq!(first.await.unwrap().unwrap(), 1);
        nothing_is_left(&flights);
    });
}

/// souin #849: an upstream that never answers kept one key dead for hours.
#[test]
fn a_dead_upstream_is_tried_again_and_leaks_no_waiter() {
    paused(async {
        let flights: Flights = SingleFlight::builder()
            .clock(Arc::new(TokioClock::new()))
            .flight_age(1_000 * MS)
            .build()
            .unwrap();
        let upstream = Upstream::default();
        let mut probes = Vec::new();
        for _ in 0..100 {
            let probe = call(&flights, &upstream, Duration::MAX / 2, Ok(1));
            probes.push(tokio::spawn(timeout(200 * MS, probe)));
            assert!(flights.followers() <= 3);
            sleep(100 * MS).await;
        }
        for probe in probes {
            let answer = probe.await.unwrap();
            assert!(matches!(answer, Err(_) | Ok(Err(FlightError::FlightAged))));
        }
        sleep(MS).await;
        assert!((9..=51).contains(&upstream.calls()), "{}", upstream.calls());
        assert_eq!(upstream.running(), 0);
        nothing_is_left(&flights);
    });
}

#[test]
fn followers_that_waited_too_long_never_start_a_herd() {
    paused(async {
        for extra in [0, 1, 3] {
            let flights: Flights = SingleFlight::builder()
                .clock(Arc::new(TokioClock::new()))
                .flight_wait(50 * MS)
                .extra_leaders(extra)
                .build()
                .unwrap();
            let upstream = Upstream::default();
            let first = tokio::spawn(call(&flights, &upstream, 10_000 * MS, Ok(1)));
            tokio::task::yield_now().await;
            let others = (0..100).map(|_| call(&flights, &upstream, 10 * MS, Ok(2)));
            let others = join_all(others).await;
            let served = others.iter().filter(|r| matches!(r, Ok(2))).count();
            let refused = others
                .iter()
                .filter(|r| matches!(r, Err(FlightError::WaitTimeout)))
                .count();
            // One takes the old flight's place in the table; the rest of that wave find it taken.
            assert_eq!(
                (served, refused),
                ((extra as usize).min(1), 100 - (extra as usize).min(1))
            );
            assert_eq!(upstream.calls(), 1 + (extra as usize).min(1));
            assert_eq!(
                first.await.unwrap().unwrap(),
                1,
                "its own wait has no limit"
            );
            nothing_is_left(&flights);
        }
    });
}

#[test]
fn the_leaders_elected_for_a_key_are_counted_over_its_whole_line() {
    paused(async {
        let flights: Flights = SingleFlight::builder()
            .clock(Arc::new(TokioClock::new()))
            .flight_age(10_000 * MS)
            .flight_wait(50 * MS)
            .extra_leaders(2)
            .build()
            .unwrap();
        let upstream = Upstream::default();
        let mut callers = Vec::new();
        for _ in 0..100 {
            callers.push(tokio::spawn(call(&flights, &upstream, 9_000 * MS, Ok(1))));
            sleep(10 * MS).await;
        }
        assert_eq!(upstream.calls(), 3, "one, and two elected");
        join_all(callers).await;
        nothing_is_left(&flights);
    });
}

#[test]
fn one_follower_too_many_is_refused_at_once() {
    paused(async {
        let flights: Flights = SingleFlight::builder()
            .clock(Arc::new(TokioClock::new()))
            .max_waiters(2)
            .build()
            .unwrap();
        let upstream = Upstream::default();
        let mut callers: Vec<_> = (0..4)
            .map(|_| Box::pin(call(&flights, &upstream, 20 * MS, Ok(1))))
            .collect();
        for caller in &mut callers[..3] {
            assert!(once(caller).await.is_pending());
        }
        let refused = once(&mut callers[3]).await;
        assert!(matches!(refused, Poll::Ready(Err(FlightError::Overloaded))));
        assert_eq!(callers.swap_remove(0).await.unwrap(), 1);
        nothing_is_left(&flights);
    });
}

#[test]
fn a_fresh_call_joins_nothing_that_began_earlier() {
    paused(async {
        let (flights, upstream) = (flights(), Upstream::default());
        let old = tokio::spawn(call(&flights, &upstream, 20 * MS, Ok(1)));
        tokio::task::yield_now().await;
        let u = upstream.clone();
        let fresh = tokio::spawn(
            flights.fly_fresh(7, move || async move { u.after(20 * MS, Ok(2)).await }),
        );
        tokio::task::yield_now().await;
        let joined = tokio::spawn(call(&flights, &upstream, 20 * MS, Ok(3)));
        assert_eq!(old.await.unwrap().unwrap(), 1);
        assert_eq!(fresh.await.unwrap().unwrap().into_inner(), 2);
        assert_eq!(joined.await.unwrap().unwrap(), 2);
        assert_eq!(upstream.calls(), 2);
        nothing_is_left(&flights);
    });
}

/// golang/go #31420: the end of an old flight must not take the entry of a newer one.
#[test]
fn an_old_flight_frees_only_its_own_entry() {
    paused(async {
        let (flights, upstream) = (flights(), Upstream::default());
        let old = tokio::spawn(call(&flights, &upstream, 20 * MS, Ok(1)));
        tokio::task::yield_now().await;
        let u = upstream.clone();
        let new = tokio::spawn(
            flights.fly_fresh(7, move || async move { u.after(50 * MS, Ok(2)).await }),
        );
        assert_eq!(old.await.unwrap().unwrap(), 1);
        assert_eq!(call(&flights, &upstream, MS, Ok(3)).await.unwrap(), 2);
        new.await.unwrap().unwrap();
        assert_eq!(upstream.calls(), 2);
    });
}

#[test]
fn without_a_runtime_one_can_lead_and_a_follower_is_told() {
    let flights: Flights = SingleFlight::new();
    let mut lead = pin!(flights.run(7, || async {
        poll_fn(|cx| {
            cx.waker().wake_by_ref();
            Poll::<()>::Pending
        })
        .await;
        Ok(1)
    }));
    assert!(lead.as_mut().now_or_never().is_none());
    let follow = flights.run(7, || async { Ok(2) });
    assert!(matches!(
        follow.now_or_never(),
        Some(Err(FlightError::NoRuntime))
    ));
    assert_eq!(
        flights
            .run(8, || async { Ok(3) })
            .now_or_never()
            .unwrap()
            .unwrap(),
        3
    );
}

#[test]
fn a_runtime_that_is_shut_down_lets_nobody_hang() {
    let runtime = || {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap()
    };
    let (first, second) = (runtime(), runtime());
    let flights: Flights = SingleFlight::new();
    let mut leader = Box::pin(flights.run(7, pending));
    first.block_on(async { assert!(once(&mut leader).await.is_pending()) });
    let mut follower = Box::pin(flights.run(7, pending));
    second.block_on(async { assert!(once(&mut follower).await.is_pending()) });
    drop(second);
    first.block_on(async {
        for caller in [leader, follower] {
            let told = timeout(Duration::from_secs(4), caller).await;
            let told = told.expect("told before its own patience ends");
            assert!(matches!(told, Err(FlightError::ShuttingDown)));
        }
    });
    nothing_is_left(&flights);
}

/// Drops the leader, or a follower, after each number of polls, with and without another follower.
#[test]
fn a_caller_dropped_at_any_poll_leaves_nothing_behind() {
    paused(async {
        for polls in 0..6 {
            for drop_the_leader in [true, false] {
                let (flights, upstream) = (flights(), Upstream::default());
                let step = Arc::new(Notify::new());
                let caller = || {
                    let (upstream, step) = (upstream.clone(), Arc::clone(&step));
                    Box::pin(flights.run(7, move || async move {
                        let work = async move {
                            for _ in 0..3 {
                                step.notified().await;
                            }
                            Ok(1)
                        };
                        upstream.call(work).await
                    }))
                };
                let (mut leader, mut follower) = (caller(), caller());
                assert!(once(&mut leader).await.is_pending());
                for _ in 0..polls {
                    step.notify_one();
                    let dropped_one = if drop_the_leader {
                        &mut leader
                    } else {
                        &mut follower
                    };
                    if once(dropped_one).await.is_ready() {
                        break;
                    }
                    tokio::task::yield_now().await;
                }
                let rest = if drop_the_leader {
                    drop(leader);
                    follower
                } else {
                    drop(follower);
                    leader
                };
                step.notify_one();
                let feed = async {
                    loop {
                        step.notify_one();
                        tokio::task::yield_now().await;
                    }
                };
                let value = tokio::select! { value = rest => value, () = feed => unreachable!() };
                // A leader that was polled to its end has nobody to share with.
                if let Ok(value) = value {
                    assert_eq!(value, 1);
                }
                assert_eq!((upstream.running(), upstream.most_at_once()), (0, 1));
                nothing_is_left(&flights);
            }
        }
    });
}

#[test]
fn futures_and_errors_are_send_and_plain() {
    fn send<T: Send>(_: &T) {}
    let flights: Flights = SingleFlight::new();
    send(&flights.run(1, || async { Ok(1) }));
    let error: FlightError<std::io::Error> =
        FlightError::Failed(Arc::new(std::io::Error::other("x")));
    assert!(std::error::Error::source(&error).is_some());
    assert!(error.is_retryable());
    assert_eq!(format!("{error:?}"), "Failed(..)");
    assert!(format!("{flights:?}").contains("flights: 0"));
}
