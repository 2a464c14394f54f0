//! A disk that fails: full, without flushes, or dead in the midst of a write.

use super::*;

/// An answer comes, calls work again once the disk does, and no yes is lost.
async fn recovers(fail: fn(&Switch) -> &AtomicBool) {
    let folder = folder();
    let (store, switch) = store_on(RedbStore::builder(), &folder);
    let kept = done(&store, 1).await;
    fail(&switch).store(true, Ordering::SeqCst);
    let (nonce, settings) = (Nonce::draw(&OsEntropy), terms(LapsePolicy::TakeOver));
    let error = claim_as(&store, 2, nonce, &settings).await.unwrap_err();
    assert!(error.is_ambiguous(), "the commit failed: {error:?}");
    for n in 10..13 {
        let error = claim(&store, n).await.unwrap_err();
        assert!(error.is_retryable(), "{error:?}");
    }
    fail(&switch).store(false, Ordering::SeqCst);
    let deadline = std::time::Instant::now() + secs(20);
    let second = loop {
        match claim_as(&store, 2, nonce, &settings).await {
            Ok(answer) => break answer,
            Err(error) => assert!(std::time::Instant::now() < deadline, "{error:?}"),
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    // Granted now, or then: once.
    let ours = matches!(second, Claimed::Granted(_) | Claimed::Mine { .. });
    assert!(ours, "{second:?}");
    let replay = claim(&store, 1).await.unwrap();
    assert!(matches!(replay, Claimed::Done(done) if done.token == kept));
    done(&store, 3).await;
}

#[tokio::test]
async fn a_full_disk_is_doubt_and_calls_work_again_once_there_is_room() {
    recovers(|switch| &switch.full).await;
}

#[tokio::test]
async fn a_failed_flush_is_doubt_and_calls_work_again() {
    recovers(|switch| &switch.no_flush).await;
}

/// Kills by signal leave the page cache; this leaves each prefix of what was written.
#[tokio::test]
async fn a_crash_at_any_write_of_a_new_file_leaves_one_that_opens() {
    let mut finished = 0;
    for writes in 0.. {
        let folder = folder();
        let path = folder.path().join("claims");
        let switch = Arc::new(Switch::default());
        switch.dies_after.store(writes, Ordering::SeqCst);
        let disk = TestDisk {
            path: path.clone(),
            switch: Arc::clone(&switch),
        };
        let mut token = None;
        if let Ok(store) = RedbStore::builder().open_on(Box::new(disk)) {
            let (nonce, settings) = (Nonce::draw(&OsEntropy), terms(LapsePolicy::TakeOver));
            if let Ok(Claimed::Granted(grant)) = claim_as(&store, 1, nonce, &settings).await {
                let owner = Owner {
                    key: key(1),
                    nonce,
                    token: grant.token,
                };
                token = finish(&store, owner).await.ok().map(|_| grant.token);
            }
            store.close().await;
        }
        let store = RedbStore::open(&path).unwrap_or_else(|error| panic!("{writes}: {error:?}"));
        if let Some(token) = token {
            let kept = claim(&store, 1).await.unwrap();
            assert!(
                matches!(&kept, Claimed::Done(done) if done.token == token),
                "{writes}: {kept:?}"
            );
            finished += 1;
        }
        store.close().await;
        if finished > 3 {
            assert!(writes > 10, "only {writes} crashes were tried");
            return;
        }
    }
}

#[tokio::test]
async fn a_file_that_another_process_had_meanwhile_is_let_go_for_good() {
    let folder = folder();
    let (store, switch) = store_on(RedbStore::builder(), &folder);
    done(&store, 1).await;
    switch.full.store(true, Ordering::SeqCst);
    claim(&store, 2).await.unwrap_err();
    // The disk fails here only; the other process is quick.
    let deadline = std::time::Instant::now() + secs(20);
    let path = folder.path().join("claims");
    let other = loop {
        match RedbStore::builder().process([2; 16]).open(&path) {
            Ok(other) => break other,
            Err(error) => assert!(std::time::Instant::now() < deadline, "{error:?}"),
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    };
    other.close().await;
    switch.full.store(false, Ordering::SeqCst);
    while !claim(&store, 3)
        .await
        .unwrap_err()
        .to_string()
        .contains("unavailable")
        || !store.inner.file.is_lost()
    {
        assert!(std::time::Instant::now() < deadline);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let opened = switch.opened.load(Ordering::SeqCst);
    for _ in 0..3 {
        let error = claim(&store, 3).await.unwrap_err();
        assert!(matches!(error, StoreError::Unavailable(_)), "{error:?}");
    }
    assert_eq!(switch.opened.load(Ordering::SeqCst), opened);
    RedbStore::builder().process([2; 16]).open(&path).unwrap();
}
