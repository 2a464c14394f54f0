//! Crowds, calls that come late, and what runs beside them.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use system_tests::servers::PgBouncer;
use tower_claim::store::{Admission, Claimed, Finish, Release, Renewed, Watched};
use tower_claim::{ClaimStore, FenceStore, Token};

use super::scene::{
    Ask, SECOND, beat, client, finish, granted, hold, key, nonce, rows, store, tables, until,
};
use super::server;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_storm_over_many_keys_through_four_connections_grants_each_once() {
    let (builder, _) = tables().await;
    let builder = builder.pool_wait(60 * SECOND).call_timeout(60 * SECOND);
    let store = builder.pool_size(4).connect().await.expect("it connects");
    let keys: Vec<_> = (0..40).map(|_| key()).collect();
    let clients = (0..24).map(|client| {
        let (store, keys) = (&store, &keys);
        async move {
            let mut won = Vec::new();
            for n in 0..keys.len() {
                // Each begins elsewhere.
                let key = keys[(n + client * 7) % keys.len()];
                let ask = Ask::new(store, key, 60 * SECOND);
                match store.claim(ask.request()).await.expect("an answer") {
                    Claimed::Granted(grant) => {
                        let owner = ask.owner(grant.token);
                        let done = store.finish(finish(owner, "done")).await;
                        assert_eq!(done.expect("an answer"), Finish::Finished);
                        won.push(key);
                    }
                    Claimed::Busy(_) | Claimed::Done(_) => {}
                    other => panic!("{other:?}"),
                }
            }
            won
        }
    });
    let won: Vec<_> = join_all(clients).await.into_iter().flatten().collect();
    assert_eq!(won.len(), keys.len());
    assert_eq!(HashSet::<_>::from_iter(won).len(), keys.len());
}

/// Purges without a pause change no answer: at worst a beat is told to ask again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_purge_beside_live_traffic_changes_no_answer() {
    let (builder, schema) = tables().await;
    let builder = builder.purge_every(None);
    let store = builder.connect().await.expect("it connects");
    let (made, over) = (AtomicU64::new(0), AtomicBool::new(false));
    let purges = async {
        let mut dropped = 0;
        while !over.load(Ordering::Relaxed) {
            dropped += store.purge_ended(50).await.expect("an answer").dropped;
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        dropped
    };
    let live = hold(&store, key(), 60 * SECOND).await;
    let traffic = async {
        let hands = (0..8).map(|_| async {
            for _ in 0..60 {
                let brief = Ask {
                    not_after: store.now().saturating_add(SECOND / 2),
                    ..Ask::new(&store, key(), SECOND / 100)
                };
                // On a busy machine it may have come too late.
                match store.claim(brief.request()).await.expect("an answer") {
                    Claimed::TooLate => continue,
                    answer => drop(granted(answer)),
                }
                made.fetch_add(1, Ordering::Relaxed);
                let release = store.release(brief.release()).await.expect("an answer");
                assert!(matches!(release, Release::Released | Release::Already));
                let answers = store.renew(&[beat(live)]).await.expect("an answer");
                assert!(
                    matches!(answers[..], [Renewed::Renewed { .. } | Renewed::Unsure]),
                    "{answers:?}"
                );
            }
        });
        join_all(hands).await;
        // A scan hides what may be forgotten: rows are counted.
        let (client, claims) = (client(&server().url()).await, format!("{schema}.claim"));
        until("all but one row is gone", async || {
            rows(&client, &claims).await == 1
        })
        .await;
        over.store(true, Ordering::Relaxed);
    };
    let (dropped, ()) = tokio::join!(purges, traffic);
    assert!(dropped > 0, "nothing was dropped beside the traffic");
    assert_eq!(dropped, made.into_inner(), "each once, and nothing else");
    let done = store.finish(finish(live, "done")).await;
    assert_eq!(done.expect("an answer"), Finish::Finished);
}

/// A claim that was judged in time, and whose commit is slow (a disk, a replica that is waited for). A
/// release past `not_after` must not pass it by: nobody would end that hold before its lease.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_waits_for_a_claim_that_is_slow_to_commit() {
    for fresh in [true, false] {
        let (store, _) = store().await;
        let key = key();
        if !fresh {
            let first = Ask::new(&store, key, SECOND);
            granted(store.claim(first.request()).await.expect("an answer"));
            assert!(store.release(first.release()).await.is_ok());
        }
        let mut slow = client(&server().url()).await;
        let transaction = slow.transaction().await.expect("it begins");
        let ask = Ask {
            not_after: store.now().saturating_add(3 * SECOND),
            ..Ask::new(&store, key, 60 * SECOND)
        };
        let answer = store.claim_in(&transaction, ask.request()).await;
        granted(answer.expect("an answer"));
        until("`not_after` is over", async || store.now() > ask.not_after).await;
        let (answer, ()) = tokio::join!(store.release(ask.release()), async {
            tokio::time::sleep(SECOND / 5).await;
            transaction.commit().await.expect("it commits");
        });
        assert_eq!(answer.expect("an answer"), Release::Released);
        let next = Ask::new(&store, key, SECOND);
        granted(store.claim(next.request()).await.expect("an answer"));
    }
}

/// A release of nothing leaves nothing.
#[tokio::test]
async fn a_late_release_of_a_key_never_seen_leaves_no_row() {
    let (store, schema) = store().await;
    let late = Ask {
        not_after: tower_claim::store::StoreTime::from_micros(1),
        ..Ask::new(&store, key(), SECOND)
    };
    let answer = store.release(late.release()).await;
    assert_eq!(answer.expect("an answer"), Release::Already);
    let client = client(&server().url()).await;
    assert_eq!(rows(&client, &format!("{schema}.claim")).await, 0);
}

/// A flush forgets what raised a token above the clock; the guard does not, and the owner heals by the floor.
#[tokio::test]
async fn a_token_raised_by_a_floor_falls_over_a_flush_and_heals() {
    let (store, schema) = store().await;
    let key = key();
    let floor = Token::new(1 << 52).expect("a token");
    let high = Ask::new(&store, key, SECOND);
    let mut request = high.request();
    request.floor = floor;
    let raised = granted(store.claim(request).await.expect("an answer")).token;
    assert!(raised > floor);
    let admitted = store.admit("seat", raised, high.nonce).await;
    assert_eq!(admitted.expect("an answer"), Admission::Admitted);
    assert!(store.release(high.release()).await.is_ok());

    // However long it is over, the record of such a token is not forgotten by a purge.
    let client = client(&server().url()).await;
    let aged = format!("update {schema}.claim set not_after = 'epoch', purge_at = 'epoch'");
    client.batch_execute(&aged).await.expect("it is changed");
    assert_eq!(store.purge_ended(10).await.expect("an answer").dropped, 0);
    let flush = format!("truncate {schema}.claim, {schema}.spent");
    client.batch_execute(&flush).await.expect("it is flushed");

    let next = Ask::new(&store, key, SECOND);
    let fallen = granted(store.claim(next.request()).await.expect("an answer")).token;
    assert!(fallen < raised);
    let refused = store.admit("seat", fallen, next.nonce).await;
    assert_eq!(
        refused.expect("an answer"),
        Admission::Stale { high: raised }
    );
    assert!(store.release(next.release()).await.is_ok());
    let mut healed = Ask::new(&store, key, SECOND);
    healed.nonce = nonce();
    let mut request = healed.request();
    request.floor = raised;
    let token = granted(store.claim(request).await.expect("an answer")).token;
    let admitted = store.admit("seat", token, healed.nonce).await;
    assert_eq!(admitted.expect("an answer"), Admission::Admitted);
}

/// Who forgot to say where to listen past a pooler: nothing fails, the poll wakes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn behind_a_pooler_without_an_address_to_listen_at_the_poll_wakes() {
    let (builder, _) = tables().await;
    let pooler = PgBouncer::before(server(), 2);
    let builder = builder.url(&pooler.url()).poll_step(SECOND / 10);
    let store = builder.connect().await.expect("it connects");
    for _ in 0..3 {
        let owner = hold(&store, key(), 60 * SECOND).await;
        let watch = tokio::time::timeout(30 * SECOND, store.watch(owner.key, owner.token));
        let (seen, ()) = tokio::join!(watch, async {
            tokio::time::sleep(SECOND / 5).await;
            assert!(store.finish(finish(owner, "done")).await.is_ok());
        });
        let seen = seen.expect("the poll wakes").expect("an answer");
        assert!(matches!(seen, Watched::Done(_)));
    }
}

/// A future that is dropped at any moment leaves the connection and the key usable.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_dropped_at_any_moment_leaves_the_pool_and_the_key_usable() {
    let (builder, _) = tables().await;
    let store = builder.pool_size(1).connect().await.expect("it connects");
    let key = key();
    for n in 0..60 {
        let ask = Ask {
            not_after: store.now().saturating_add(60 * SECOND),
            ..Ask::new(&store, key, 60 * SECOND)
        };
        let moment = Duration::from_micros(n * 50);
        let _ = tokio::time::timeout(moment, store.claim(ask.request())).await;
        // Whatever became of it, its release by nonce frees the key and refuses what is late.
        assert!(store.release(ask.release()).await.is_ok());
        let late = store.claim(ask.request()).await.expect("an answer");
        assert_eq!(late, Claimed::Ended);
    }
    let next = Ask::new(&store, key, SECOND);
    granted(store.claim(next.request()).await.expect("an answer"));
}
