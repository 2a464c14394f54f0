//! A drain, and what a call takes along when it becomes a task.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

mod common;

use std::cell::Cell;
use std::future::Future;
use std::sync::Arc;

use common::*;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, join_all, pending};
use tokio::time::{Instant, sleep};
use tower_claim::{Carry, TokioClock};
use tower_single_flight::{FlightError, SingleFlight};

type Flights = SingleFlight<u32, u32, &'static str>;

fn flights() -> Flights {
    SingleFlight::builder()
        .clock(Arc::new(TokioClock::new()))
        .build()
        .unwrap()
}

fn call(
    flights: &Flights,
    value: u32,
) -> impl Future<Output = Result<u32, FlightError<&'static str>>> + Send + use<> {
    flights.run(7, move || async move {
        sleep(20 * MS).await;
        Ok(value)
    })
}

#[test]
fn a_drain_waits_for_tasks_and_no_longer_than_told() {
    paused(async {
        let flights = flights();
        assert!(self::flights().drain(MS).await, "nothing to wait for");
        let callers = [1, 2].map(|n| tokio::spawn(call(&flights, n)));
        sleep(MS).await;
        assert!(!flights.drain(10 * MS).await);
        assert_eq!(flights.tasks(), 1);
        let began = Instant::now();
        assert!(flights.drain(60_000 * MS).await);
        assert_eq!(began.elapsed(), 9 * MS);
        for caller in join_all(callers).await {
            assert_eq!(caller.unwrap().unwrap(), 1);
        }
    });
}

#[test]
fn nothing_that_begins_after_a_drain_becomes_a_task() {
    paused(async {
        let flights = flights();
        // In the air, and joined by nobody.
        let inline = tokio::spawn(call(&flights, 1));
        tokio::task::yield_now().await;
        assert!(flights.drain(MS).await);
        let late: Vec<_> = (2..5).map(|n| tokio::spawn(call(&flights, n))).collect();
        sleep(MS).await;
        assert_eq!((flights.tasks(), flights.followers()), (0, 0));
        assert_eq!(inline.await.unwrap().unwrap(), 1);
        for (n, caller) in (2..5).zip(late) {
            assert_eq!(caller.await.unwrap().unwrap(), n, "each its own");
        }
        assert_eq!(flights.flights(), 0);
        assert_eq!(
            (flights.counts().leaders, flights.counts().followers),
            (4, 0)
        );
    });
}

/// A joiner whose place was counted, but whose task is not spawned yet, is waited for.
#[test]
fn a_drain_sees_who_joined_during_the_leaders_poll() {
    paused(async {
        let flights = flights();
        let inner = flights.clone();
        let mut follower = None;
        let late = std::sync::Mutex::new(&mut follower);
        let drain = Cell::new(None);
        // `SingleFlight` wants a call that is `'static`: the joining is done in the making of it.
        let leader = flights.run(7, || {
            let mut joined = Box::pin(call(&inner, 2));
            assert!((&mut joined).now_or_never().is_none());
            **late.lock().unwrap() = Some(joined);
            async {
                sleep(20 * MS).await;
                Ok(1)
            }
        });
        let mut leader = Box::pin(leader);
        assert!((&mut leader).now_or_never().is_none());
        drain.set(Some(tokio::spawn({
            let flights = flights.clone();
            async move { flights.drain(1_000 * MS).await }
        })));
        drop(leader);
        assert_eq!(follower.unwrap().await.unwrap(), 1);
        assert!(drain.take().unwrap().await.unwrap());
    });
}

#[test]
fn requests_after_a_drain_go_alone() {
    paused(async {
        let app = App::new(|_, n| ok(format!("{n}")));
        let early = [app.spawn(get("/x")), app.spawn(get("/x"))];
        sleep(MS).await;
        assert!(!app.layer.drain(5 * MS).await);
        let answers = app.at_once(3, get("/x")).await;
        assert!(answers.iter().all(|a| a.status == 200));
        assert_eq!(app.calls(), 4);
        assert!(app.layer.drain(60_000 * MS).await);
        for caller in early {
            assert_eq!(caller.await.unwrap().body, "1");
        }
    });
}

tokio::task_local! {
    static USER: u32;
    static SECRET: u32;
}

struct User;

impl Carry for User {
    fn carry(&self, work: BoxFuture<'static, ()>) -> BoxFuture<'static, ()> {
        match USER.try_with(|user| *user) {
            Ok(user) => Box::pin(USER.scope(user, work)),
            Err(_) => work,
        }
    }
}

fn seen() -> (Option<u32>, Option<u32>) {
    let user = USER.try_with(|user| *user).ok();
    (user, SECRET.try_with(|secret| *secret).ok())
}

#[test]
fn a_promoted_call_sees_what_its_leader_carries_and_nothing_of_who_joined() {
    paused(async {
        for carried in [true, false] {
            let mut builder = SingleFlight::<u32, _>::builder().clock(Arc::new(TokioClock::new()));
            if carried {
                builder = builder.carry(User);
            }
            let flights = builder.build().unwrap();
            let caller = |user| {
                let flights = flights.clone();
                let call = async move {
                    let look = || async {
                        sleep(20 * MS).await;
                        Ok(seen())
                    };
                    flights.run(7, look).await.unwrap()
                };
                tokio::spawn(USER.scope(user, SECRET.scope(user, call)))
            };
            let leader = caller(1);
            tokio::task::yield_now().await;
            let follower = caller(2);
            sleep(MS).await;
            assert_eq!(flights.tasks(), 1);
            let expected = (carried.then_some(1), None);
            assert_eq!(leader.await.unwrap(), expected);
            assert_eq!(follower.await.unwrap(), expected);
        }
    });
}

struct Loses;

impl Carry for Loses {
    fn carry(&self, _: BoxFuture<'static, ()>) -> BoxFuture<'static, ()> {
        Box::pin(sleep(20 * MS))
    }
}

#[test]
fn a_carry_that_loses_the_call_is_told_to_all() {
    paused(async {
        let flights = SingleFlight::<u32, u32>::builder()
            .clock(Arc::new(TokioClock::new()))
            .carry(Loses)
            .build()
            .unwrap();
        let callers = [(); 2].map(|()| tokio::spawn(flights.run(7, pending)));
        for caller in join_all(callers).await {
            assert!(matches!(caller.unwrap(), Err(FlightError::Panicked)));
        }
        assert_eq!(flights.flights(), 0);
    });
}
