//! A disk that answers late.

use futures_util::future::join_all;

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
    assert_eq!(store.peek(key(1)).await.unwrap(), None);
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
    let left = tokio::time::timeout(Duration::from_millis(500), calls).await;
    assert!(left.is_err(), "answered before it is on the disk");
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

/// Finishes a key with 4 MiB: the file grows.
async fn large(store: &RedbStore, n: u32) {
    let (nonce, settings) = (Nonce::draw(&OsEntropy), terms(LapsePolicy::TakeOver));
    let token = granted(claim_as(store, n, nonce, &settings).await).token;
    let owner = Owner {
        key: key(n),
        nonce,
        token,
    };
    let value = Value::Kept(vec![7; 4 << 20].into());
    let keep = KEEP;
    let finish = store.finish(FinishRequest { owner, value, keep }).await;
    assert_eq!(finish.unwrap(), Finish::Finished);
}

/// redb flushes under its own lock when it makes the file longer.
#[tokio::test]
async fn a_disk_that_hangs_while_the_file_grows_stops_no_runtime() {
    let folder = folder();
    let builder = RedbStore::builder().call_timeout(Duration::from_millis(50));
    let (store, switch) = store_on(builder, &folder);
    let (nonce, settings) = (Nonce::draw(&OsEntropy), terms(LapsePolicy::TakeOver));
    let token = granted(claim_as(&store, 1, nonce, &settings).await).token;
    let owner = Owner {
        key: key(1),
        nonce,
        token,
    };
    let (began, hung) = (std::time::Instant::now(), Hang::begin(&switch));
    let heals = std::thread::spawn(move || {
        std::thread::sleep(secs(5));
        drop(hung);
    });
    let value = Value::Kept(vec![7; 4 << 20].into());
    let keep = KEEP;
    let finish = store.finish(FinishRequest { owner, value, keep }).await;
    assert!(finish.unwrap_err().is_ambiguous());
    for n in 0..40 {
        if let Err(error) = store.peek(key(n)).await {
            assert!(matches!(error, StoreError::Unavailable(_)), "{error:?}");
        }
    }
    assert!(began.elapsed() < secs(4), "the runtime stood still");
    heals.join().unwrap();
}
