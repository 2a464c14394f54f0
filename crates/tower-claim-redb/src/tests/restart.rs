//! What time and holds are worth when the file is opened again.

use proptest::prelude::*;
use tower_claim::store::{Beat, LostReason};
use tower_claim::store::{Renewed, StoreTime};

use super::*;
use crate::meta::Runs;
use crate::time::Seen;

const SECOND: u64 = 1_000_000;

fn seen(unix: u64, since_boot: u64, boot: u8) -> Seen {
    Seen {
        time: StoreTime::from_micros(1000 * SECOND),
        unix: unix * SECOND,
        highest_unix_ms: unix * 1000,
        since_boot: since_boot * SECOND,
        boot: [boot; 16],
    }
}

#[track_caller]
fn resumes_after(last: Seen, now: Seen, seconds: u64) {
    let passed = last.resume(&now).saturating_since(last.time);
    assert_eq!(passed, secs(seconds).max(Duration::from_micros(1)));
}

#[test]
fn within_one_boot_no_step_of_the_wall_clock_counts() {
    resumes_after(seen(5000, 100, 7), seen(5000 + 3600, 130, 7), 30);
    resumes_after(seen(5000, 100, 7), seen(10, 130, 7), 30);
}

#[test]
fn over_a_reboot_the_wall_clock_counts_and_never_backwards() {
    resumes_after(seen(5000, 100, 7), seen(5040, 2, 8), 40);
    resumes_after(seen(5000, 100, 7), seen(4000, 200, 8), 0);
    // A system that names no boot.
    resumes_after(seen(5000, 100, 0), seen(5040, 2000, 0), 40);
}

proptest! {
    #[test]
    fn the_files_time_never_goes_back(last in any::<(u64, u64, u8)>(), now in any::<(u64, u64, u8)>()) {
        let of = |(unix, since_boot, boot): (u64, u64, u8)| Seen {
            unix,
            since_boot,
            boot: [boot % 2; 16],
            ..seen(0, 0, 0)
        };
        prop_assert!(of(last).resume(&of(now)) > of(last).time);
    }

    #[test]
    fn a_hold_ends_when_the_next_process_begins(gaps in prop::collection::vec(1..9_u64, 1..40), then in 0..200_u64) {
        let at = StoreTime::from_micros;
        let (mut runs, mut now, mut begins) = (Runs::default(), 0, Vec::new());
        for (n, gap) in gaps.into_iter().enumerate() {
            now += gap;
            prop_assert!(runs.enter([n as u8 + 1; 16], at(now)));
            prop_assert!(!runs.enter([n as u8 + 1; 16], at(now + 1)), "the same process again");
            begins.push(at(now));
        }
        let next = begins.into_iter().find(|begin| *begin > at(then));
        prop_assert_eq!(runs.ended(at(then)), next);
    }
}

/// A store in another process than the one before: opened `after` the last was closed.
async fn next_process(
    store: RedbStore,
    clock: &ManualClock,
    after: Duration,
    path: &std::path::Path,
    process: u8,
) -> RedbStore {
    store.close().await;
    clock.advance(after);
    by_hand(clock).process([process; 16]).open(path).unwrap()
}

#[tokio::test]
async fn a_hold_of_a_dead_process_lapses_when_the_next_one_begins_and_cools() {
    let (folder, clock) = (folder(), ManualClock::new());
    let path = folder.path().join("claims");
    let store = by_hand(&clock).open(&path).unwrap();
    let (nonce, settings) = (Nonce::draw(&OsEntropy), terms(LapsePolicy::TakeOver));
    let first = granted(claim_as(&store, 1, nonce, &settings).await);
    let store = next_process(store, &clock, secs(1), &path, 2).await;

    let owner = Owner {
        key: key(1),
        nonce,
        token: first.token,
    };
    let beat = Beat { owner, progress: 1 };
    let lost = store.renew(&[beat]).await.unwrap();
    assert_eq!(lost, [Renewed::Lost(LostReason::Lapsed)]);
    let cooling = claim(&store, 1).await.unwrap();
    assert!(
        matches!(cooling, Claimed::Cooling(c) if c.remaining == secs(3)),
        "lapsed just now"
    );

    // A third process does not make it lapse again: cooling goes on.
    let store = next_process(store, &clock, secs(2), &path, 3).await;
    let cooling = claim(&store, 1).await.unwrap();
    assert!(
        matches!(cooling, Claimed::Cooling(ref c) if c.remaining <= secs(1)),
        "{cooling:?}"
    );
    clock.advance(secs(1));
    let second = granted(claim(&store, 1).await);
    assert!(second.token > first.token);
    assert_eq!(second.took_over.unwrap().token, first.token);
}

#[tokio::test]
async fn what_a_dead_process_held_for_good_is_unknown_for_its_unfinished_keep() {
    let (folder, clock) = (folder(), ManualClock::new());
    let path = folder.path().join("claims");
    let store = by_hand(&clock).open(&path).unwrap();
    granted(claim_under(&store, 1, &terms(LapsePolicy::Hold)).await);
    let store = next_process(store, &clock, secs(1), &path, 2).await;
    let unknown = claim(&store, 1).await.unwrap();
    assert!(matches!(unknown, Claimed::Unknown(_)), "{unknown:?}");
    clock.advance(secs(99));
    let unknown = claim(&store, 1).await.unwrap();
    assert!(
        matches!(unknown, Claimed::Unknown(_)),
        "counted from the restart"
    );
    clock.advance(secs(1) + Duration::from_micros(2));
    granted(claim(&store, 1).await);
}

#[tokio::test]
async fn a_hold_outlives_a_reopening_by_its_own_process() {
    let (folder, clock) = (folder(), ManualClock::new());
    let path = folder.path().join("claims");
    let store = by_hand(&clock).open(&path).unwrap();
    let (nonce, settings) = (Nonce::draw(&OsEntropy), terms(LapsePolicy::TakeOver));
    let token = granted(claim_as(&store, 1, nonce, &settings).await).token;
    store.close().await;
    let store = by_hand(&clock).open(&path).unwrap();
    let busy = claim(&store, 1).await.unwrap();
    assert!(matches!(busy, Claimed::Busy(_)), "{busy:?}");
    let key = key(1);
    let finished = finish(&store, Owner { key, nonce, token }).await;
    assert_eq!(finished.unwrap(), Finish::Finished);
}

#[tokio::test]
async fn a_finished_result_counts_its_keep_over_restarts() {
    let (folder, clock) = (folder(), ManualClock::new());
    let path = folder.path().join("claims");
    let store = by_hand(&clock).open(&path).unwrap();
    done(&store, 1).await;
    let store = next_process(store, &clock, secs(3000), &path, 2).await;
    let kept = claim(&store, 1).await.unwrap();
    assert!(
        matches!(&kept, Claimed::Done(done) if done.keep_left <= secs(600)),
        "{kept:?}"
    );
    let store = next_process(store, &clock, secs(601), &path, 3).await;
    granted(claim(&store, 1).await);
}

#[tokio::test]
async fn tokens_rise_over_a_restart_with_the_wall_clock_set_back_and_the_record_gone() {
    let (folder, clock) = (folder(), ManualClock::new());
    let path = folder.path().join("claims");
    let store = by_hand(&clock).open(&path).unwrap();
    clock.jump_unix_ahead(secs(7200));
    let nonce = Nonce::draw(&OsEntropy);
    let mut settings = Settings::new(secs(1));
    settings.unfinished_keep = secs(1);
    let first = granted(claim_as(&store, 1, nonce, &settings).await).token;
    // Past its `not_after` as well.
    clock.advance(secs(70));
    // Another write, which cleans up.
    granted(claim(&store, 2).await);
    assert_eq!(store.peek(key(1)).await.unwrap(), None);
    store.close().await;
    // A clock of an earlier hour.
    let back = ManualClock::new();
    let store = by_hand(&back).process([2; 16]).open(&path).unwrap();
    let second = granted(claim(&store, 1).await).token;
    assert!(second > first, "{second} after {first}");
}
