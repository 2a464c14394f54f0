//! What each call asks of the disk.

use futures_util::future::join_all;

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
        not_after: store.now().saturating_add(secs(2)),
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
    let folder = folder();
    let (store, switch) = store_on(RedbStore::builder(), &folder);
    granted(claim(&store, 0).await);
    let one = switch.flushes.load(Ordering::SeqCst);
    granted(claim(&store, 1).await);
    let one = switch.flushes.load(Ordering::SeqCst) - one;
    let before = switch.flushes.load(Ordering::SeqCst);
    for claimed in join_all((100..300).map(|n| claim(&store, n))).await {
        granted(claimed);
    }
    let spent = switch.flushes.load(Ordering::SeqCst) - before;
    assert!(
        spent <= 10 * one,
        "{spent} flushes for 200 claims, {one} for one"
    );
}
