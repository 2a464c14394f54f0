//! The keeper on a thread of its own, in real time.

use std::time::Instant;

use super::*;
use crate::SystemClock;

/// Waits for a condition, with a deadline far above what it needs.
fn soon(what: &str, mut seen: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(20);
    while !seen() {
        assert!(Instant::now() < until, "never: {what}");
        std::thread::sleep(MS);
    }
}

/// Of which a third is long for a busy machine.
const LONG: Duration = Duration::from_secs(5);

fn long(renewal: Renewal) -> Terms {
    let terms = Terms::builder(LONG).renewal(renewal);
    terms.build().unwrap()
}

fn scripted() -> Scripted {
    let mut store = Scripted::new();
    store.lease = LONG;
    store
}

fn on_thread(store: &Scripted) -> Keeper {
    Keeper::builder(store.clone())
        .clock(Arc::new(SystemClock))
        .build()
        .unwrap()
}

#[tokio::test]
async fn a_hold_survives_a_blocked_runtime() {
    let store = scripted();
    let keeper = on_thread(&store);
    let claim = claim_as(&keeper, "a", &long(Renewal::Always)).await;
    std::thread::sleep(LONG + MS * 500);
    assert_eq!(claim.check(), Ok(()));
    assert!(store.is_held(key("a")));
    claim.release().await.unwrap();
    assert!(!store.is_held(key("a")));
}

#[tokio::test]
async fn a_busy_job_keeps_its_hold_while_it_tells_progress_and_no_longer() {
    let store = scripted();
    let keeper = on_thread(&store);
    let moving = long(Renewal::Progress { stall_after: LONG });
    let busy = claim_as(&keeper, "a", &moving).await;
    let silent = claim_as(&keeper, "b", &moving).await;
    let until = Instant::now() + LONG * 5 / 2;
    let mut rounds = 0;
    while Instant::now() < until {
        // Blocks the only thread of this runtime.
        std::thread::sleep(LONG / 100);
        rounds += 1;
        busy.progress(rounds);
    }
    assert_eq!(busy.check(), Ok(()));
    assert_eq!(silent.check(), Err(Loss::Stalled));
}

#[tokio::test]
async fn the_thread_starts_with_the_first_claim_and_ends_with_the_last_handle() {
    let store = scripted();
    let keeper = on_thread(&store);
    let desk = keeper.inner.desk.clone();
    assert!(!desk.is_staffed(), "a keeper never used costs no thread");
    let claim = claim_as(&keeper, "a", &long(Renewal::Always)).await;
    assert!(desk.is_staffed());
    drop(keeper);
    std::thread::sleep(50 * MS);
    assert!(desk.is_staffed(), "a claim lives");
    drop(claim);
    soon("released", || !store.is_held(key("a")));
    soon("ended", || !desk.is_staffed());
}

#[test]
fn claims_may_be_dropped_outside_of_any_runtime() {
    let store = Scripted::new();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let keeper = on_thread(&store);
    let claim = runtime.block_on(claim(&keeper, "a"));
    drop(runtime);
    drop(claim);
    soon("released", || !store.is_held(key("a")));
}

#[test]
fn a_task_keeper_is_refused_outside_of_a_runtime() {
    let store = std::thread::spawn(|| {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        let _entered = runtime.enter();
        Scripted::new()
    });
    let error = Keeper::builder(store.join().unwrap())
        .run_on(RunOn::Task)
        .build()
        .unwrap_err();
    assert_eq!(error.setting(), "run_on");
}
