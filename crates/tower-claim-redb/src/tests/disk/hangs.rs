//! A disk that answers late.

use std::pin::pin;
use std::sync::mpsc;

use futures_util::future::{Either, join_all, select};

use super::*;

#[tokio::test]
async fn a_disk_that_hangs_is_doubt_after_the_call_timeout_and_a_full_queue_refuses() {
    let folder = folder();
    let builder = RedbStore::builder()
        .queue(2)
        .call_timeout(Duration::from_millis(500));
    let (store, switch) = store_on(builder, &folder);
    // Room enough: while the file grows, reads wait as well.
    large(&store, 0).await;
    let hung = Hang::begin(&switch);
    let error = claim(&store, 1).await.unwrap_err();
    assert!(error.is_ambiguous(), "{error:?}");
    // One is in the writer's hands; two wait; the next is refused at once.
    let all = join_all((2..5).map(|n| claim(&store, n))).await;
    let refused = all.iter().filter(
        |answer| matches!(answer, Err(error @ StoreError::Unavailable(_)) if !error.is_ambiguous()),
    );
    assert_eq!(refused.count(), 1, "{all:?}");
    // Reads go on, and see nothing that is not on the disk.
    assert_eq!(patiently(|| store.peek(key(1))).await, None);
    drop(hung);
}

#[tokio::test]
async fn a_call_that_is_dropped_on_its_way_to_the_disk_is_applied_and_blocks_nobody() {
    let folder = folder();
    let (store, switch) = store_on(RedbStore::builder(), &folder);
    // Room enough: while the file grows, reads wait as well, and a call is not sent.
    large(&store, 0).await;
    let hung = Hang::begin(&switch);
    let calls = join_all((1..50).map(|n| claim(&store, n)));
    let on_their_way = async {
        while !switch.hung.load(Ordering::SeqCst) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        tokio::time::sleep(Duration::from_millis(300)).await;
    };
    let mut calls = Box::pin(calls);
    let early = matches!(
        select(&mut calls, pin!(on_their_way)).await,
        Either::Left(_)
    );
    assert!(!early, "answered before it is on the disk");
    drop(calls);
    drop(hung);
    done(&store, 100).await;
    let mut applied = 0;
    for n in 1..50 {
        match claim(&store, n).await.unwrap() {
            Claimed::Busy(_) => applied += 1,
            // It had not been sent yet.
            Claimed::Granted(_) => {}
            other => panic!("{n}: {other:?}"),
        }
    }
    assert!(applied > 0);
}

/// The answer of a disk that is well, where the machine is busy for longer than a call may take.
async fn patiently<T, F: Future<Output = Result<T, StoreError>>>(call: impl Fn() -> F) -> T {
    let until = std::time::Instant::now() + secs(30);
    loop {
        match call().await {
            Ok(answer) => return answer,
            Err(error) => assert!(std::time::Instant::now() < until, "{error:?}"),
        }
    }
}

async fn owner(store: &RedbStore, n: u32) -> Owner {
    let (nonce, settings) = (Nonce::draw(&OsEntropy), terms(LapsePolicy::TakeOver));
    let token = match patiently(|| claim_as(store, n, nonce, &settings)).await {
        Claimed::Granted(grant) => grant.token,
        Claimed::Mine { token, .. } => token,
        other => panic!("not granted: {other:?}"),
    };
    let key = key(n);
    Owner { key, nonce, token }
}

/// 4 MiB for a key.
fn a_large_result_of(owner: Owner) -> FinishRequest {
    FinishRequest {
        owner,
        value: Value::Kept(vec![7; 4 << 20].into()),
        keep: KEEP,
    }
}

/// Finishes a key with much: the file grows.
async fn large(store: &RedbStore, n: u32) {
    let owner = owner(store, n).await;
    let finish = patiently(|| store.finish(a_large_result_of(owner))).await;
    assert_eq!(finish, Finish::Finished);
}

/// redb flushes under its own lock when it makes the file longer.
#[tokio::test]
async fn a_disk_that_hangs_while_the_file_grows_stops_no_runtime() {
    let folder = folder();
    let builder = RedbStore::builder().call_timeout(Duration::from_millis(50));
    let (store, switch) = store_on(builder, &folder);
    let owner = owner(&store, 1).await;
    let hung = Hang::begin(&switch);
    let (over, is_over) = mpsc::channel();
    // Where the runtime stands still, nobody tells.
    let heals = std::thread::spawn(move || {
        let told = is_over.recv_timeout(secs(60));
        drop(hung);
        told
    });
    let finish = store.finish(a_large_result_of(owner)).await;
    assert!(finish.unwrap_err().is_ambiguous());
    for n in 0..40 {
        if let Err(error) = store.peek(key(n)).await {
            assert!(matches!(error, StoreError::Unavailable(_)), "{error:?}");
        }
    }
    let _ = over.send(());
    let told = heals.join().unwrap();
    assert!(
        told.is_ok(),
        "the runtime stood still until the disk was well"
    );
}
