//! redb: its server is the owner's process.

use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use system_tests::servers::Leash;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;
use tower_claim::store::{Event, Promise, Value};
use tower_claim::{
    Attempt, Claim, Clock, DynClaimStore, Key, LapsePolicy, Moment, Namespace, SystemClock, Terms,
    Token, Use,
};
use tower_claim_redb::RedbStore;

use super::engines::redb::One;
use super::scene::{ANSWER, Guard, Party, high_floor, named, unheard, within};
use super::{Engine, Guarded, guards};
use crate::suite::key;

const FILE: &str = "HOSTILE_FILE";

fn known(part: &str) -> Key {
    Key::builder(Use::Lease, &Namespace::default())
        .part(part)
        .build()
}

fn opened(path: &Path, clock: &Wall) -> RedbStore {
    let store = RedbStore::builder().clock(Arc::new(clock.clone()));
    store.open(path).expect("a file of claims")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_blocked_runtime_costs_no_lease() {
    super::processes::blocked_runtime::<One>(One::connect).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn when_everything_has_ended_nothing_is_kept_and_tokens_still_rise() {
    super::retention::nothing_is_kept::<One>().await;
}

/// The owner's process is killed in mid-lease, and the file opened anew: the hold has ended with its owner, who
/// cannot come back; the result is there, and so are the guard's marks. What nobody may take over is unknown.
#[tokio::test(flavor = "multi_thread")]
async fn a_killed_owner_leaves_a_key_that_is_claimable_at_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("claims.redb");
    let mut child = Command::new(std::env::current_exe().expect("this program has a file"))
        .args(["hostile::embedded::the_process_to_be_killed", "--exact"])
        .args(["--ignored", "--nocapture"])
        .env(FILE, &path)
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("it starts again");
    let _leash = child.id().map(Leash::on);
    let says = BufReader::new(child.stdout.take().expect("it is piped"));
    let said = async {
        let mut lines = says.lines();
        while let Ok(Some(line)) = lines.next_line().await {
            if let Some((_, token)) = line.split_once("held: ") {
                return token.parse().ok().and_then(Token::new).expect("a token");
            }
        }
        panic!("the other process ended")
    };
    let token = within(ANSWER * 2, "the other's grant", said).await;
    child.kill().await.expect("it runs");

    let rival = Party::at::<One>(path.display().to_string()).await;
    // Far sooner than the lease.
    let next = rival.take(known("work"), &unheard(), ANSWER).await;
    let forgot = rival
        .has_forgotten(known("result"), &unheard(), &Value::Kept("once".into()))
        .await;
    let seen = [
        (Promise::RisingTokens, next.token() <= token),
        (Promise::OneOwner, false),
        (Promise::OneResult, forgot),
        (Promise::ClaimableAgain, false),
    ];
    named(&rival.store, Event::Restart, &seen);
    for work in ["held for good", "past its return"] {
        let asked = rival.try_take(known(work), &unheard()).await;
        assert!(
            matches!(asked, Ok(Attempt::Unknown(_))),
            "{work}: {asked:?}"
        );
    }
    let guard = One::guard(path.display().to_string()).await;
    assert!(guards::stand(&*guard).await, "the marks are gone");
    drop(next);
    drop(guard);
    One::close(&path).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "the other process of a test"]
async fn the_process_to_be_killed() {
    let Ok(path) = std::env::var(FILE) else {
        return; // asked for by hand
    };
    guards::mark(&*One::guard(path.clone()).await).await;
    let owner = Party::at::<One>(path).await;
    let terms = unheard();
    let hold = Terms::builder(terms.lease()).on_lapse(LapsePolicy::Hold);
    let hold = hold.build().expect("a lease long enough");
    let _for_good = owner.take(known("held for good"), &hold, ANSWER).await;
    let marked = owner.take(known("past its return"), &terms, ANSWER).await;
    let clear = marked.point_of_no_return().await;
    clear.expect("a clear yes");
    owner
        .finish(known("result"), &terms, Value::Kept("once".into()))
        .await;
    let held = owner.take_above(known("work"), &terms, high_floor()).await;
    println!("held: {}", held.token().get());
    std::future::pending::<()>().await;
}

/// Another file in its place, while an owner believes.
#[tokio::test(flavor = "multi_thread")]
async fn a_wiped_file_gives_no_stale_owner_a_write() {
    let engine = One::start().await;
    let path = engine.address();
    let owner = Party::at::<One>(path.clone()).await;
    let (work, result, terms, guard) = (key(), key(), unheard(), Guard::default());
    owner.finish(result, &terms, Value::Tombstone).await;
    let held = owner.take_above(work, &terms, high_floor()).await;
    assert!(guard.write_as(&held).await);

    One::close(Path::new(&path)).await;
    std::fs::remove_file(&path).expect("it is ours");
    weakens_what_a_flush_names(path, (work, held), result, &guard).await;
}

/// An old copy of the file in its place, with a hold that is over and without a result that was answered.
#[tokio::test(flavor = "multi_thread")]
async fn an_old_copy_of_the_file_gives_no_stale_owner_a_write() {
    let engine = One::start().await;
    let path = engine.address();
    let old = format!("{path}.old");
    let party = Party::at::<One>(path.clone()).await;
    let (work, result, terms, guard) = (key(), key(), unheard(), Guard::default());
    let before = party.take(work, &terms, ANSWER).await;
    assert!(guard.write_as(&before).await);
    before.release().await.expect("it is answered");
    One::close(Path::new(&path)).await;
    std::fs::copy(&path, &old).expect("it is ours");

    let owner = Party::at::<One>(path.clone()).await;
    owner.finish(result, &terms, Value::Tombstone).await;
    let held = owner.take_above(work, &terms, high_floor()).await;
    assert!(guard.write_as(&held).await);
    One::close(Path::new(&path)).await;
    std::fs::rename(&old, &path).expect("it is ours");

    weakens_what_a_flush_names(path, (work, held), result, &guard).await;
}

/// The file forgot the hold of a work and a result: what that weakened is what a flush is said to weaken.
async fn weakens_what_a_flush_names(
    path: String,
    (work, held): (Key, Claim),
    result: Key,
    guard: &Guard,
) {
    let (rival, terms) = (Party::at::<One>(path).await, unheard());
    let next = rival.take(work, &terms, ANSWER).await;
    let believed = held.check().is_ok();
    let forgot = rival.has_forgotten(result, &terms, &Value::Tombstone).await;
    let (_, fell) = guard.pass_to(next, &held, &rival.keeper).await;
    let seen = [
        (Promise::RisingTokens, fell),
        (Promise::OneOwner, believed),
        (Promise::OneResult, forgot),
        (Promise::ClaimableAgain, false),
    ];
    named(&rival.store, Event::Flush, &seen);
}

/// This machine's clock, but for the wall's, which is off.
#[derive(Debug, Clone, Default)]
struct Wall(Arc<AtomicI64>);

impl Clock for Wall {
    fn now(&self) -> Moment {
        SystemClock.now()
    }

    fn unix_time(&self) -> Duration {
        let off = Duration::from_secs(self.0.load(Ordering::Relaxed).unsigned_abs());
        if self.0.load(Ordering::Relaxed) < 0 {
            SystemClock.unix_time().saturating_sub(off)
        } else {
            SystemClock.unix_time() + off
        }
    }

    fn sleep_until(&self, at: Moment) -> BoxFuture<'static, ()> {
        SystemClock.sleep_until(at)
    }
}

const HOUR: i64 = 3600;

/// While the file is open its wall clock decides nothing. Over a reboot (a clock handed in is taken for one) it
/// alone tells how long the machine was off.
#[tokio::test(flavor = "multi_thread")]
async fn a_moved_wall_clock_weakens_only_what_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("claims.redb");
    let (wall, terms, guard) = (Wall::default(), unheard(), Guard::default());
    let (work, result) = (key(), key());
    let (mut forgot, mut fell, mut refused) = (false, false, false);
    let mut store = opened(&path, &wall);
    let first = Party::with(Arc::new(store.clone()));
    first.finish(result, &terms, Value::Tombstone).await;
    let (mut last, mut before) = (Token::ZERO, 0);
    for moved in [-HOUR, -2 * HOUR, 0, HOUR] {
        let party = Party::with(Arc::new(store.clone()));
        let held = party.take(work, &terms, ANSWER).await;
        wall.0.store(moved, Ordering::Relaxed);
        let asked = party.try_take(work, &terms).await;
        assert!(matches!(asked, Ok(Attempt::Busy(_))), "{asked:?}");
        assert_eq!(held.check(), Ok(()));
        wall.0.store(before, Ordering::Relaxed);
        held.release().await.expect("it is answered");
        store.close().await;

        wall.0.store(moved, Ordering::Relaxed);
        before = moved;
        store = opened(&path, &wall);
        let party = Party::with(Arc::new(store.clone()));
        let next = party.take(work, &terms, ANSWER).await;
        fell |= next.token() <= last;
        refused |= !guard.write_as(&next).await;
        last = next.token();
        next.release().await.expect("it is answered");
        forgot |= party.has_forgotten(result, &terms, &Value::Tombstone).await;
    }
    let seen = [
        (Promise::RisingTokens, fell || refused),
        // There is one process, and it holds nothing when it begins.
        (Promise::OneOwner, false),
        (Promise::OneResult, forgot),
        (Promise::ClaimableAgain, false),
    ];
    let store: Arc<dyn DynClaimStore> = Arc::new(store);
    named(&store, Event::MovedClock, &seen);
}
