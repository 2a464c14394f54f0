//! Several threads at once.

use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use super::*;

#[test]
fn of_24_racers_one_is_granted_the_key() {
    let store = MemoryStore::new();
    let settings = Settings::new(secs(60));
    let start = Barrier::new(24);
    for round in 0..50 {
        let grants: usize = thread::scope(|scope| {
            let racers: Vec<_> = (0..24)
                .map(|racer| {
                    let (store, settings, start) = (&store, &settings, &start);
                    scope.spawn(move || {
                        start.wait();
                        match claim(store, round, 100 * round + racer, settings) {
                            Ok(Claimed::Granted(_)) => 1,
                            Ok(Claimed::Busy(_)) => 0,
                            other => panic!("{other:?}"),
                        }
                    })
                })
                .collect();
            racers.into_iter().map(|racer| racer.join().unwrap()).sum()
        });
        assert_eq!(grants, 1);
    }
}

#[test]
fn tokens_of_a_contended_key_strictly_rise() {
    let store = MemoryStore::new();
    let settings = Settings::new(secs(60));
    // Written by the holder alone, checked against the one before.
    let last = AtomicU64::new(0);
    let grants = AtomicU64::new(0);
    thread::scope(|scope| {
        for racer in 0..4u64 {
            let (store, settings, last, grants) = (&store, &settings, &last, &grants);
            scope.spawn(move || {
                for n in 0..2000 {
                    let n = racer * 10_000 + n;
                    if let Ok(Claimed::Granted(grant)) = claim(store, 1, n, settings) {
                        let before = last.swap(grant.token.get(), Ordering::SeqCst);
                        assert!(before < grant.token.get());
                        grants.fetch_add(1, Ordering::SeqCst);
                        assert_eq!(release(store, 1, n), Release::Released);
                    }
                }
            });
        }
    });
    assert!(grants.into_inner() > 100);
}

#[test]
fn claims_of_crossing_keys_never_wait_for_each_other() {
    let store = MemoryStore::builder().shards(4).build().unwrap();
    let settings = Settings::new(secs(60));
    let held: Vec<AtomicU64> = (0..6).map(|_| AtomicU64::new(0)).collect();
    thread::scope(|scope| {
        for racer in 1..5u64 {
            let (store, settings, held) = (&store, &settings, &held);
            scope.spawn(move || {
                for n in 0..2000u64 {
                    let mut mine = [n % 6, (n / 6 + racer) % 6, (n / 7 + 1) % 6].to_vec();
                    mine.sort_by_key(|k| key(*k));
                    mine.dedup();
                    let keys: Vec<Key> = mine.iter().map(|k| key(*k)).collect();
                    let nonce = nonce(racer * 10_000 + n);
                    let claimed = now(store.claim_many(ClaimManyRequest {
                        keys: &keys,
                        nonce,
                        settings,
                        floor: Token::ZERO,
                        not_after: store.now().saturating_add(secs(1)),
                    }));
                    let Ok(ClaimedMany::Granted(grant)) = claimed else {
                        continue;
                    };
                    for k in &mine {
                        let before = held[*k as usize].swap(racer, Ordering::SeqCst);
                        assert_eq!(before, 0, "two hold key {k}");
                    }
                    for k in &mine {
                        held[*k as usize].store(0, Ordering::SeqCst);
                    }
                    let releases: Vec<ReleaseRequest> = keys
                        .iter()
                        .map(|key| ReleaseRequest {
                            key: *key,
                            nonce,
                            token: Some(grant.token),
                            not_after: store.now().saturating_add(secs(1)),
                        })
                        .collect();
                    let released = now(store.release_many(&releases)).unwrap();
                    assert!(released.iter().all(|one| *one == Release::Released));
                }
            });
        }
    });
}

/// The end of a hold races with the first poll of its watch, again and again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_wake_up_is_lost_in_a_race() {
    let store = MemoryStore::new();
    let settings = Settings::new(secs(3600));
    for round in 0..3000 {
        let token = granted(claim(&store, round, round, &settings));
        let watchers: Vec<_> = (0..3)
            .map(|_| {
                let store = store.clone();
                tokio::spawn(async move { store.watch(key(round), token).await })
            })
            .collect();
        let ends = store.clone();
        let end = tokio::spawn(async move {
            if round % 2 == 0 {
                release(&ends, round, round);
            } else {
                let _ = finish(&ends, round, round, token, Bytes::new(), secs(60));
            }
        });
        for watcher in watchers {
            let watched = tokio::time::timeout(secs(20), watcher).await;
            let watched = watched.expect("a lost wake-up").unwrap().unwrap();
            assert!(matches!(watched, Watched::Ended | Watched::Done(_)));
        }
        end.await.unwrap();
    }
    assert_eq!(store.stats().watched, 0);
}
