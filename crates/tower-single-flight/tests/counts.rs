//! What the layer counts, and that it merges nothing where it only observes.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

mod common;

use common::*;
use tokio::time::sleep;
use tower_claim::http::{Gate, Mode, Switch};
use tower_single_flight::Counts;

fn observing() -> Gate {
    Gate::new().switch(Switch::new(Mode::Observe))
}

/// `Counts` cannot be built outside of its crate.
fn counts(set: impl FnOnce(&mut Counts)) -> Counts {
    let mut counts = Counts::default();
    set(&mut counts);
    counts
}

#[test]
fn leaders_and_followers_and_what_passed_are_counted() {
    paused(async {
        let app = App::new(|_, _| ok("x"));
        app.at_once(5, get("/x")).await;
        app.send(get("/y")).await;
        app.at_once(3, with_header("range", "bytes=0-9")).await;
        let expected = counts(|c| (c.leaders, c.followers, c.bypassed) = (2, 4, 3));
        assert_eq!(app.layer.counts(), expected);
        assert!(format!("{:?}", app.layer).contains("followers: 4"));
    });
}

#[test]
fn unshareable_answers_and_who_went_alone_are_counted() {
    paused(async {
        let layer = builder().go_alone_limit(3).build().unwrap();
        let app = App::with(layer, |_, _| answer_with("set-cookie", "s=1"));
        app.at_once(5, get("/x")).await;
        let expected = counts(|c| {
            (c.leaders, c.followers) = (1, 4);
            (c.unshareable, c.alone, c.overloaded) = (1, 3, 1);
        });
        assert_eq!(app.layer.counts(), expected);
    });
}

#[test]
fn waits_without_an_answer_are_counted() {
    paused(async {
        let layer = builder()
            .flight_age(1_000 * MS)
            .flight_wait(100 * MS)
            .max_waiters(2)
            .build()
            .unwrap();
        let app = App::with(layer, |_, _| ok("x")).slow(5_000 * MS);
        let leader = app.spawn(get("/x"));
        sleep(MS).await;
        // One leads, one gives up, one finds no seat.
        app.at_once(3, get("/x")).await;
        let expected = counts(|c| {
            (c.leaders, c.followers) = (2, 2);
            (c.waited_out, c.overloaded) = (2, 1);
        });
        assert_eq!(app.layer.counts(), expected);
        leader.await.unwrap();

        let layer = builder().flight_age(10 * MS).build().unwrap();
        let app = App::with(layer, |_, _| ok("x"));
        app.at_once(2, get("/x")).await;
        let expected = counts(|c| (c.leaders, c.followers, c.aged) = (1, 1, 1));
        assert_eq!(app.layer.counts(), expected);
    });
}

#[test]
fn observe_mode_counts_what_it_would_merge_and_merges_nothing() {
    paused(async {
        let app = App::with(builder().gate(observing()).build().unwrap(), |_, n| {
            ok(format!("{n}"))
        });
        let mut bodies: Vec<_> = app.at_once(5, get("/x")).await;
        bodies.sort_by(|a, b| a.body.cmp(&b.body));
        let bodies: Vec<_> = bodies.iter().map(|a| a.body.as_str()).collect();
        assert_eq!(bodies, ["1", "2", "3", "4", "5"]);
        // The key is free again, and others are never joined: not an older one, no one else's.
        app.send(get("/x")).await;
        tokio::join!(
            app.send(get("/y")),
            app.send(get("/z")),
            app.send(with_header("authorization", "Bearer x")),
        );
        tokio::join!(
            app.send(get("/x")),
            app.send(with_header("pragma", "no-cache"))
        );
        let expected = counts(|c| (c.observed, c.observed_followers, c.bypassed) = (10, 4, 1));
        assert_eq!(app.layer.counts(), expected);
        assert_eq!(app.calls(), 11);
        assert_eq!((app.layer.flights(), app.layer.followers()), (0, 0));
    });
}

#[test]
fn observe_mode_tells_what_could_not_have_been_shared() {
    paused(async {
        let layer = builder().gate(observing()).build().unwrap();
        let app = App::with(layer, |_, _| answer_with("set-cookie", "s=1"));
        let answers = app.at_once(4, get("/x")).await;
        assert!(answers.iter().all(|a| a.headers.contains_key("set-cookie")));
        let expected = counts(|c| {
            (c.observed, c.observed_followers) = (4, 3);
            c.observed_unshareable = 3;
        });
        assert_eq!(app.layer.counts(), expected);
    });
}

#[test]
fn a_would_be_leader_that_hangs_up_frees_its_key() {
    paused(async {
        let app = App::with(builder().gate(observing()).build().unwrap(), |_, _| ok("x"));
        let leader = app.spawn(get("/x"));
        sleep(MS).await;
        leader.abort();
        let _ = leader.await;
        app.send(get("/x")).await;
        let expected = counts(|c| c.observed = 2);
        assert_eq!(app.layer.counts(), expected);
    });
}
