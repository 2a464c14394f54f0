//! The tour of the demo: all of it, and each scene on its own. Its times are judged where it runs alone,
//! which is not here.

use std::process::Output;
use std::time::Duration;

use system_tests::programs::{run, run_within};

const SCENES: [&str; 5] = [
    "send-once",
    "merge",
    "zombie-owner",
    "double-click",
    "stuck",
];

/// Far more than the tour needs on a busy machine.
const LIMIT: Duration = Duration::from_secs(180);

fn tour(options: &[&str]) -> Output {
    let args: Vec<_> = ["tour", "--no-time-gate"]
        .iter()
        .chain(options)
        .copied()
        .collect();
    run_within(LIMIT, "demo", &args)
}

/// It ended well, and said so of exactly these scenes.
#[track_caller]
fn assert_right(tour: &Output, scenes: &[&str]) {
    let said = String::from_utf8_lossy(&tour.stdout);
    let complained = String::from_utf8_lossy(&tour.stderr);
    assert!(
        tour.status.success(),
        "{}\n{said}\n{complained}",
        tour.status
    );
    for scene in SCENES {
        let verdict = format!("  \u{2713} {scene}: ");
        let times = said.matches(&verdict).count();
        assert_eq!(
            times,
            usize::from(scenes.contains(&scene)),
            "{scene}:\n{said}"
        );
    }
    assert_eq!(
        complained, "",
        "a tour that goes well is silent on standard error"
    );
}

#[test]
fn the_whole_tour_ends_rightly() {
    assert_right(&tour(&[]), &SCENES);
}

#[test]
fn an_announcement_goes_out_once_and_the_lock_by_thread_sends_more() {
    assert_right(&tour(&["--scene", "send-once"]), &["send-once"]);
}

#[test]
fn a_hundred_readers_are_one_call_whatever_happens() {
    assert_right(&tour(&["--scene", "merge"]), &["merge"]);
}

#[test]
fn an_owner_that_wakes_after_its_lease_cannot_write() {
    assert_right(&tour(&["--scene", "zombie-owner"]), &["zombie-owner"]);
}

#[test]
fn a_double_click_is_charged_once_and_a_crash_taken_over_once() {
    assert_right(&tour(&["--scene", "double-click"]), &["double-click"]);
}

#[test]
fn the_board_shows_who_is_stuck_and_whom_it_holds_up() {
    assert_right(&tour(&["--scene", "stuck"]), &["stuck"]);
}

/// The scenes in which a store has a part, twice over one store: the second tour meets what the first left.
fn twice_over(store: &str) {
    for scene in ["send-once", "zombie-owner", "double-click"].repeat(2) {
        assert_right(&tour(&["--store", store, "--scene", scene]), &[scene]);
    }
}

#[test]
fn redb_carries_the_tour() {
    let folder = tempfile::tempdir().expect("a folder");
    twice_over(&format!("redb:{}", folder.path().join("claims").display()));
}

#[cfg(feature = "redis")]
#[test]
fn redis_carries_the_tour() {
    twice_over(&system_tests::servers::Redis::start().url());
}

#[cfg(feature = "postgres")]
#[test]
fn postgres_carries_the_tour() {
    twice_over(&system_tests::servers::Postgres::start().url());
}

#[cfg(feature = "etcd")]
#[test]
fn etcd_carries_the_tour() {
    let server = system_tests::servers::Etcd::start();
    twice_over(&format!("etcd://{}", server.addresses()[0]));
}

#[test]
fn what_the_demo_does_not_know_is_answered_with_its_usage() {
    for args in [
        &["nonsense"][..],
        &["tour", "--scene"],
        &["tour", "--scene", "nonsense"],
        &["--listen", "nowhere"],
        &["--listen"],
        &["--store"],
        &["--store", "mysql://u:secret@localhost"],
        &["tour", "--store", "redb:"],
    ] {
        let demo = run("demo", args);
        assert_eq!(demo.status.code(), Some(2), "{args:?}");
        assert!(demo.stdout.is_empty(), "{args:?}");
        let said = String::from_utf8_lossy(&demo.stderr);
        assert!(said.starts_with("usage: demo"), "{args:?}: {said}");
        assert!(!said.contains("secret"), "{said}");
    }
}
