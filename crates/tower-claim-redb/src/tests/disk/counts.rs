//! What each call asks of the disk.

use futures_util::StreamExt;
use futures_util::future::join;
use futures_util::stream::FuturesUnordered;

use super::*;

#[tokio::test]
async fn what_changes_nothing_reads_only() {
    let folder = folder();
    let (store, switch) = store_on(RedbStore::builder(), &folder);
    done(&store, 1).await;
    let (nonce, settings) = (Nonce::draw(&OsEntropy), terms(LapsePolicy::TakeOver));
    // A copy carries the `not_after` of the first.
    let request = ClaimRequest {
        key: key(2),
        nonce,
        fingerprint: None,
        settings: &settings,
        floor: Token::ZERO,
        not_after: store.now().saturating_add(secs(60)),
    };
    let token = granted(store.claim(request).await).token;
    let guard = store.fence_store();
    let admitted = |token, nonce| {
        let guard = guard.clone();
        async move {
            tower_claim::FenceStore::admit(&guard, "r", token, nonce)
                .await
                .unwrap()
        }
    };
    let _ = admitted(token, nonce).await;

    let before = switch.flushes.load(Ordering::SeqCst);
    assert!(matches!(claim(&store, 1).await.unwrap(), Claimed::Done(_)));
    assert!(matches!(claim(&store, 2).await.unwrap(), Claimed::Busy(_)));
    let mine = store.claim(request).await.unwrap();
    assert!(matches!(mine, Claimed::Mine { .. }), "{mine:?}");
    store.peek(key(1)).await.unwrap();
    let _ = admitted(token, nonce).await;
    let stale = admitted(Token::new(1).unwrap(), nonce).await;
    assert!(matches!(stale, tower_claim::store::Admission::Stale { .. }));
    assert_eq!(
        switch.flushes.load(Ordering::SeqCst),
        before,
        "the disk was asked"
    );

    granted(claim(&store, 3).await);
    assert!(
        switch.flushes.load(Ordering::SeqCst) > before,
        "a grant is on the disk"
    );
}

#[tokio::test]
async fn calls_that_wait_for_the_disk_go_together() {
    const WAITING: u32 = 200;
    let folder = folder();
    let builder = RedbStore::builder()
        .queue(WAITING as usize)
        .call_timeout(secs(60));
    let (store, switch) = store_on(builder, &folder);
    let flushes = || switch.flushes.load(Ordering::SeqCst);
    granted(claim(&store, 0).await);
    let before = flushes();
    granted(claim(&store, 1).await);
    let one = flushes() - before;

    let hung = Hang::begin(&switch);
    let first = async { granted(claim(&store, 2).await) };
    let rest = async {
        while !switch.hung.load(Ordering::SeqCst) {
            tokio::task::yield_now().await;
        }
        let before = flushes();
        // One more than may wait: when it is refused, all the others do.
        let mut calls: FuturesUnordered<_> =
            (100..=100 + WAITING).map(|n| claim(&store, n)).collect();
        let refused = calls.next().await.unwrap().unwrap_err();
        assert!(!refused.is_ambiguous(), "{refused:?}");
        drop(hung);
        while let Some(claimed) = calls.next().await {
            granted(claimed);
        }
        flushes() - before
    };
    let (_, spent) = join(first, rest).await;
    // The one before, those that waited, and once more where the file grew.
    assert!(
        spent <= 3 * one,
        "{spent} flushes for {WAITING} waiting claims, {one} for one"
    );
}
