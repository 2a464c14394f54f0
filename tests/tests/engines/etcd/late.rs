//! Copies that arrive late, and claims that meet themselves.

use std::time::Duration;

use etcd_client::{Client, Compare, CompareOp, PutOptions, Txn, TxnOp};
use futures_util::future::join_all;
use system_tests::relay::{Relay, Way};
use tower_claim::store::{
    Beat, ClaimRequest, Claimed, Marked, Release, ReleaseRequest, Renewed, State,
};
use tower_claim::{ClaimStore, Settings, Token};
use tower_claim_etcd::EtcdStore;

use super::bench::{ask, endpoints, hold, key, nonce, prefix, server, store, store_on};

/// What the whole design stands on.
#[tokio::test]
async fn etcd_refuses_a_whole_transaction_whose_lease_is_dead() {
    let mut client = Client::connect(endpoints(server()), None)
        .await
        .expect("etcd");
    let lease = client.lease_grant(60, None).await.expect("granted").id();
    client.lease_revoke(lease).await.expect("revoked");
    let (a, b) = (prefix(), prefix());
    let txn = Txn::new()
        .when([Compare::create_revision(a.clone(), CompareOp::Equal, 0)])
        .and_then([
            TxnOp::put(b.clone(), "b", None),
            TxnOp::put(a.clone(), "a", Some(PutOptions::new().with_lease(lease))),
        ]);
    let error = client.txn(txn).await.expect_err("the lease is dead");
    assert!(error.to_string().contains("lease not found"), "{error}");
    for path in [a, b] {
        let read = client.get(path, None).await.expect("etcd answers");
        assert!(read.kvs().is_empty(), "half of it was applied");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_claims_of_one_client_are_two_owners() {
    let store = store().await;
    let (one, terms) = (key(), Settings::new(Duration::from_secs(10)));
    let answers = join_all((0..2).map(|_| ask(&store, one, nonce(), &terms))).await;
    let granted = answers
        .iter()
        .filter(|answer| matches!(answer, Claimed::Granted(_)));
    assert_eq!(granted.count(), 1, "{answers:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn racing_copies_of_one_claim_are_granted_once() {
    let store = store().await;
    let terms = Settings::new(Duration::from_secs(10));
    for _ in 0..10 {
        let (one, nonce) = (key(), nonce());
        let answers = join_all((0..6).map(|_| ask(&store, one, nonce, &terms))).await;
        let granted = answers
            .iter()
            .filter(|answer| matches!(answer, Claimed::Granted(_)));
        assert_eq!(granted.count(), 1, "{answers:?}");
        let rest = answers
            .iter()
            .filter(|answer| matches!(answer, Claimed::Mine { .. }));
        assert_eq!(rest.count(), 5, "{answers:?}");
    }
}

/// The network stands still at any point of a claim, and goes on after its owner has given up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_that_arrives_after_its_release_holds_nothing() {
    let prefix = prefix();
    let direct = store_on(endpoints(server()), &prefix).await;
    let terms = Settings::new(Duration::from_secs(30));
    let (mut in_doubt, mut denied) = (0, 0);
    let tries = (0..24).map(async |nth| {
        let relay = Relay::to(server().addresses()[0].clone());
        let builder = EtcdStore::builder().endpoints([format!("http://{}", relay.address())]);
        let builder = builder.prefix(&prefix).call_timeout(Duration::from_secs(2));
        let through = builder.connect().await.expect("etcd answers");
        let (one, nonce) = (key(), nonce());
        let not_after = through.now().saturating_add(Duration::from_secs(20));
        let request = ClaimRequest {
            key: one,
            nonce,
            fingerprint: None,
            settings: &terms,
            floor: Token::ZERO,
            not_after,
        };
        let freeze = async {
            tokio::time::sleep(Duration::from_micros(nth * 400)).await;
            relay.set(Way::Freeze);
        };
        let (answer, ()) = tokio::join!(through.claim(request), freeze);
        // Given up: the release takes another way, and is there first.
        let release = ReleaseRequest {
            key: one,
            nonce,
            token: None,
            not_after,
        };
        let released = direct.release(release).await.expect("etcd answers");
        assert!(matches!(released, Release::Released | Release::Already));
        relay.set(Way::Pass);
        // What was held back has come when a new call has.
        let mut calls = 0;
        while through.peek(one).await.is_err() {
            calls += 1;
            assert!(calls < 50, "the way is free again");
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
        let seen = direct.peek(one).await.expect("etcd answers");
        let held = seen
            .as_ref()
            .is_some_and(|record| record.state != State::Free);
        assert!(!held, "{nth}: {answer:?}, {released:?}, then {seen:?}");
        let again = direct.claim(ClaimRequest {
            not_after: direct.now().saturating_add(Duration::from_secs(20)),
            ..request
        });
        let again = again.await.expect("etcd answers");
        assert_eq!(again, Claimed::Ended, "a nonce is granted once");
        hold(&direct, one, Duration::from_secs(10)).await;
        (answer.is_err(), released == Release::Already)
    });
    for (doubt, none) in join_all(tries).await {
        in_doubt += u32::from(doubt);
        denied += u32::from(none);
    }
    assert!(in_doubt > 0, "no claim was caught under way");
    assert!(denied > 0, "every claim had come through");
}

/// The hold lapses between the look and the write: what was decided by the look must not be written.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mark_or_a_beat_that_arrives_after_the_lapse_changes_nothing() {
    let prefix = prefix();
    let direct = store_on(endpoints(server()), &prefix).await;
    let tries = (0..32).map(async |nth| {
        let relay = Relay::to(server().addresses()[0].clone());
        let builder = EtcdStore::builder().endpoints([format!("http://{}", relay.address())]);
        let limit = Duration::from_secs(40);
        let builder = builder.prefix(&prefix).call_timeout(limit);
        let through = builder.connect().await.expect("etcd answers");
        let owner = hold(&direct, key(), Duration::from_secs(6)).await;
        let look = async || {
            let seen = direct.peek(owner.key).await.expect("etcd answers");
            seen.expect("its unfinished keep is a day")
        };
        let trouble = async {
            tokio::time::sleep(Duration::from_micros(nth / 2 * 250)).await;
            relay.set(Way::Freeze);
            // What has passed the relay is applied by now, on a busy machine too.
            tokio::time::sleep(Duration::from_secs(2)).await;
            let before = look().await;
            super::bench::until("the lapse", async || look().await.lapsed).await;
            relay.set(Way::Pass);
            before
        };
        let (beat, before) = if nth % 2 == 0 {
            let (answer, before) = tokio::join!(through.mark(owner), trouble);
            let yes = answer.expect("etcd answers") == Marked::Marked;
            assert_eq!(yes, before.marked, "{nth}: marked after the lapse");
            (false, before)
        } else {
            let beats = [Beat { owner, progress: 7 }];
            let (answers, before) = tokio::join!(through.renew(&beats), trouble);
            let answers = answers.expect("etcd answers");
            let yes = matches!(answers[..], [Renewed::Renewed { .. }]);
            assert_eq!(yes, before.progress == 7, "{nth}: {answers:?}");
            (true, before)
        };
        let after = look().await;
        assert_eq!(after.marked, before.marked, "{nth}");
        assert_eq!(after.progress, before.progress, "{nth}");
        assert!(after.lapsed, "{nth}: it lives again");
        let was_late = !before.marked && before.progress == 0;
        (beat, was_late)
    });
    let all = join_all(tries).await;
    for beat in [false, true] {
        let late = all.iter().filter(|one| **one == (beat, true)).count();
        assert!(late > 0, "every call had come through");
    }
}

/// The nonce is remembered longer than any copy may be under way, though its hold was over at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_nonce_outlives_the_leases_of_its_copies() {
    let prefix = prefix();
    let store = store_on(endpoints(server()), &prefix).await;
    let (one, nonce) = (key(), nonce());
    let terms = Settings::new(Duration::from_secs(20));
    assert!(matches!(
        ask(&store, one, nonce, &terms).await,
        Claimed::Granted(_)
    ));
    let mut client = Client::connect(endpoints(server()), None)
        .await
        .expect("etcd");
    let path = format!("{prefix}/n/{one}/{nonce}");
    let read = client.get(path, None).await.expect("etcd answers");
    let lease = read.kvs().first().expect("the nonce is remembered").lease();
    let left = client
        .lease_time_to_live(lease, None)
        .await
        .expect("it lives");
    // `ask` gives 5 s until its not_after; a copy sent then carries a liveness lease of 20 s.
    assert!(left.granted_ttl() > 25, "{}", left.granted_ttl());
}
