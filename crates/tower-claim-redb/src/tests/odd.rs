//! Odd settings, odd values, callers that leave, clocks that step.

use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::future::{BoxFuture, join_all};
use tower_claim::{Clock, FenceStore, Keeper, Moment, SystemClock, Terms};

use super::*;

const UNIT: Duration = Duration::from_millis(1);

#[test]
fn settings_that_cannot_be_are_refused_with_their_range() {
    let folder = folder();
    let path = folder.path().join("claims");
    let builder = RedbStore::builder;
    for (builder, says) in [
        (builder().queue(0), "1 to 1,048,576"),
        (builder().queue(usize::MAX), "1 to 1,048,576"),
        (builder().call_timeout(Duration::ZERO), "at least 1 ms"),
        (builder().poll(Duration::ZERO), "at least 1 ms"),
        (builder().guard_marks(0), "at least 1"),
    ] {
        let error = builder.open(&path).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
        assert!(!path.exists(), "a file was made");
    }
}

#[tokio::test]
async fn the_least_and_the_most_of_each_setting_work() {
    let folder = folder();
    let least = RedbStore::builder().queue(1).cache(0).poll(UNIT);
    let most = RedbStore::builder()
        .queue(1 << 20)
        .call_timeout(Duration::MAX);
    for (name, builder) in [("least", least), ("most", most.poll(Duration::MAX))] {
        let store = builder.open(folder.path().join(name)).unwrap();
        let token = granted(claim(&store, 1).await).token;
        let wait = tokio::time::timeout(20 * UNIT, store.watch(key(1), token));
        assert!(wait.await.is_err(), "{name}: the hold goes on");
        done(&store, 2).await;
    }
}

#[tokio::test]
async fn values_of_every_byte_come_back_as_they_were() {
    let folder = folder();
    let path = folder.path().join("claims");
    let bytes = |len: usize| (0..len).map(|n| (n ^ n >> 8) as u8).collect::<Vec<u8>>();
    let label = "\0 ж 🦀 \u{202e}\u{fffd}";
    let mut settings = terms(LapsePolicy::TakeOver);
    settings.label = label.into();
    for reopened in [false, true] {
        let store = RedbStore::open(&path).unwrap();
        for (n, len) in [(0, 0), (1, 1), (2, 256), (3, 1 << 20)] {
            let value = Value::Kept(bytes(len).into());
            if !reopened {
                let nonce = Nonce::draw(&OsEntropy);
                let token = granted(claim_as(&store, n, nonce, &settings).await).token;
                let owner = Owner {
                    key: key(n),
                    nonce,
                    token,
                };
                let busy = claim(&store, n).await.unwrap();
                assert!(matches!(busy, Claimed::Busy(busy) if &*busy.label == label));
                let request = FinishRequest {
                    owner,
                    value: value.clone(),
                    keep: Duration::MAX,
                };
                assert_eq!(store.finish(request).await.unwrap(), Finish::Finished);
            }
            match claim(&store, n).await.unwrap() {
                Claimed::Done(done) => assert!(done.value == value, "{len} bytes"),
                other => panic!("{len} bytes: {other:?}"),
            }
        }
        let guard = store.fence_store();
        let (nonce, long) = (Nonce::from_bytes([7; 16]), label.repeat(10_000));
        for resource in ["", label, &long] {
            let token = Token::new(1 << 40).unwrap();
            let admitted = guard.admit(resource, token, nonce).await.unwrap();
            assert_eq!(admitted, tower_claim::store::Admission::Admitted);
        }
        store.close().await;
    }
}

/// Whoever leaves blocks nobody, and the queue is empty in the end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_that_leave_at_any_time_leave_nothing_behind() {
    let folder = folder();
    let store = RedbStore::builder().queue(64);
    let store = store.open(folder.path().join("claims")).unwrap();
    let callers = (0..64_u64).map(|caller| {
        let store = store.clone();
        tokio::spawn(async move {
            for round in 0..20 {
                let patience = Duration::from_micros((caller * 7919 + round * 104_729) % 3000);
                let call = claim(&store, (caller % 8) as u32);
                let _ = tokio::time::timeout(patience, call).await;
            }
        })
    });
    for caller in join_all(callers.collect::<Vec<_>>()).await {
        caller.unwrap();
    }
    done(&store, 100).await;
    // The last handle goes while calls are under way: each of them is answered.
    let calls: Vec<_> = (200..232)
        .map(|n| {
            let store = store.clone();
            tokio::spawn(async move { claim(&store, n).await })
        })
        .collect();
    drop(store);
    for claimed in join_all(calls).await {
        granted(claimed.unwrap());
    }
    // And then the file is free.
    let deadline = std::time::Instant::now() + secs(20);
    while let Err(error) = RedbStore::open(folder.path().join("claims")) {
        assert!(std::time::Instant::now() < deadline, "{error:?}");
        tokio::time::sleep(UNIT).await;
    }
}

#[test]
fn a_runtime_that_is_gone_takes_no_answer_from_another() {
    let folder = folder();
    let store = RedbStore::open(folder.path().join("claims")).unwrap();
    for n in 0..50 {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        for call in 0..8 {
            let store = store.clone();
            runtime.spawn(async move { claim(&store, 10 * n + call).await });
        }
        runtime.shutdown_background();
    }
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(done(&store, 10_000));
}

/// The machine's clock with a wall clock of its own.
#[derive(Debug)]
struct Stepped(AtomicU64);

impl Clock for Stepped {
    fn now(&self) -> Moment {
        SystemClock.now()
    }
    fn unix_time(&self) -> Duration {
        secs(self.0.load(Ordering::SeqCst))
    }
    fn sleep_until(&self, at: Moment) -> BoxFuture<'static, ()> {
        SystemClock.sleep_until(at)
    }
}

#[tokio::test]
async fn a_wall_clock_set_back_a_day_ends_no_hold_and_no_token_falls() {
    let folder = folder();
    let wall = Arc::new(Stepped(AtomicU64::new(2_000_000_000)));
    let store = RedbStore::builder().clock(wall.clone());
    let store = store.open(folder.path().join("claims")).unwrap();
    let kept = done(&store, 1).await;
    let held = granted(claim(&store, 2).await).token;
    wall.0.fetch_sub(86_400, Ordering::SeqCst);
    assert!(matches!(claim(&store, 2).await.unwrap(), Claimed::Busy(_)));
    let done = claim(&store, 1).await.unwrap();
    assert!(matches!(&done, Claimed::Done(done) if done.token == kept && done.keep_left <= KEEP));
    let next = granted(claim(&store, 3).await).token;
    assert!(
        next.get() / 1024 >= held.get() / 1024,
        "{next} after {held}"
    );
}

#[tokio::test]
async fn a_keeper_holds_a_claim_for_an_hour() {
    let (folder, clock) = (folder(), ManualClock::new());
    let path = folder.path().join("claims");
    let store = by_hand(&clock).open(&path).unwrap();
    let keeper = Keeper::builder(store.clone()).clock(Arc::new(clock.clone()));
    let keeper = keeper.build().unwrap();
    let terms = Terms::builder(secs(120))
        .max_hold(secs(7200))
        .build()
        .unwrap();
    let held = keeper
        .claim(key(1), None, &terms, Token::ZERO)
        .await
        .unwrap();
    let tower_claim::Attempt::Granted(held) = held else {
        panic!("not granted: {held:?}");
    };
    for _ in 0..3600 {
        clock.advance(secs(1));
        // A beat is due each 40 seconds. While it is under way, time nearly stands.
        let deadline = std::time::Instant::now() + secs(20);
        while held.remaining() < secs(60) {
            assert!(std::time::Instant::now() < deadline, "no beat");
            clock.advance(UNIT);
            tokio::time::sleep(UNIT).await;
        }
        held.check().unwrap();
    }
    let finished = held.finish(Value::Tombstone, KEEP).await.unwrap();
    assert_eq!(finished, Finish::Finished);
    assert!(matches!(claim(&store, 1).await.unwrap(), Claimed::Done(_)));
}
