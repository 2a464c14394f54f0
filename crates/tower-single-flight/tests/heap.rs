//! What is left on the heap.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

mod common;

use std::future::{Future, pending};
use std::pin::Pin;
use std::task::{Context, Waker};

use common::*;
use tower_single_flight::SingleFlight;

const KEYS: u64 = 100_000;

fn poll<F: Future>(call: &mut Pin<Box<F>>) {
    assert!(
        call.as_mut()
            .poll(&mut Context::from_waker(Waker::noop()))
            .is_pending()
    );
}

/// Bytes that are still there after the second time: the first fills what is kept on purpose.
fn left_behind(mut run: impl FnMut()) -> i64 {
    run();
    allocation_counter::measure(run).bytes_current
}

#[test]
fn a_hundred_thousand_cancelled_keys_leave_no_byte_behind() {
    let flights: SingleFlight<u64, u64> = SingleFlight::new();
    let all_at_once = || {
        let mut calls: Vec<_> = (0..KEYS)
            .map(|key| Box::pin(flights.run(key, pending)))
            .collect();
        calls.iter_mut().for_each(poll);
    };
    assert_eq!(left_behind(all_at_once), 0);
    let one_by_one = || (0..KEYS).for_each(|key| poll(&mut Box::pin(flights.run(key, pending))));
    assert_eq!(left_behind(one_by_one), 0);
}

#[test]
fn a_key_whose_followers_come_and_go_holds_room_for_those_there_are() {
    real(async {
        let flights: SingleFlight<u64, u64> = SingleFlight::new();
        let mut leader = Box::pin(flights.run(7, pending));
        poll(&mut leader);
        let come_and_go = || (0..KEYS).for_each(|_| poll(&mut Box::pin(flights.run(7, pending))));
        assert_eq!(left_behind(come_and_go), 0);
    });
}

#[test]
fn cancelled_requests_leave_no_byte_behind() {
    real(async {
        let app = App::new(|_, _| ok("x"));
        let cancelled = || {
            for key in 0..KEYS / 10 {
                poll(&mut Box::pin(app.send(get(&format!("/{key}")))));
            }
        };
        assert_eq!(left_behind(cancelled), 0);
    });
}
