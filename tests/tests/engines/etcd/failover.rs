//! A cluster whose leader dies, or stands still, in the middle of everything.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use etcd_client::Client;
use system_tests::servers::Etcd;
use tower_claim::store::{
    Beat, Claimed, Finish, FinishRequest, Owner, Release, ReleaseRequest, Renewed, Value,
};
use tower_claim::{ClaimStore, Settings, StoreError};
use tower_claim_etcd::EtcdStore;

use super::bench::{ask, endpoints, hold, key, nonce, prefix, store_on, until};

/// The node that leads.
pub async fn leader(server: &Etcd) -> usize {
    for _ in 0..100 {
        for (nth, endpoint) in endpoints(server).into_iter().enumerate() {
            let asked = async {
                let mut client = Client::connect([endpoint], None).await.ok()?;
                let status = client.status().await.ok()?;
                let member = status.header().map(|header| header.member_id());
                Some(status.leader() != 0 && member == Some(status.leader()))
            };
            let asked = tokio::time::timeout(Duration::from_millis(500), asked).await;
            if let Ok(Some(true)) = asked {
                return nth;
            }
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("no leader");
}

/// As a keeper does: until it is answered, or the lease would have ended.
pub async fn renewed(store: &EtcdStore, owner: Owner, lease: Duration) -> Renewed {
    let end = Instant::now() + lease;
    loop {
        match store.renew(&[Beat { owner, progress: 0 }]).await {
            Ok(answers) if answers != [Renewed::Unsure] => return answers[0].clone(),
            Ok(_) => {}
            Err(error) => assert!(error.is_retryable(), "{error:?}"),
        }
        assert!(
            Instant::now() < end,
            "no beat came through within the lease"
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Repeats what was not answered.
pub async fn persist<T, F: Future<Output = Result<T, StoreError>>>(call: impl Fn() -> F) -> T {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        match call().await {
            Ok(answer) => return answer,
            Err(error) => assert!(error.is_retryable() && Instant::now() < end, "{error:?}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hold_outlives_the_death_of_the_leader() {
    let mut server = Etcd::with_nodes(3);
    let store = store_on(endpoints(&server), &prefix()).await;
    // Long enough for an election on a busy machine.
    let lease = Duration::from_secs(20);
    let (held, ended) = (
        hold(&store, key(), lease).await,
        hold(&store, key(), lease).await,
    );
    let finished = hold(&store, key(), lease).await;

    let first = leader(&server).await;
    server.kill(first);
    // At the moment of the failover: a release and a finish, repeated until they are answered.
    let give_back = ReleaseRequest {
        key: ended.key,
        nonce: ended.nonce,
        token: Some(ended.token),
        not_after: store.now().saturating_add(Duration::from_secs(60)),
    };
    let result = FinishRequest {
        owner: finished,
        value: Value::Kept(Bytes::from_static(b"result")),
        keep: Duration::from_secs(60),
    };
    let (beat, release, finish) = tokio::join!(
        renewed(&store, held, lease),
        persist(|| store.release(give_back)),
        persist(|| store.finish(result.clone())),
    );
    assert!(matches!(beat, Renewed::Renewed { .. }), "{beat:?}");
    assert!(matches!(release, Release::Released | Release::Already));
    assert_eq!(finish, Finish::Finished);

    let terms = Settings::new(lease);
    assert!(matches!(
        ask(&store, held.key, nonce(), &terms).await,
        Claimed::Busy(_)
    ));
    assert!(matches!(
        ask(&store, finished.key, nonce(), &terms).await,
        Claimed::Done(_)
    ));
    let next = hold(&store, ended.key, lease).await;
    assert!(next.token > ended.token, "tokens rise over a failover");

    // And once more, with the first one back.
    server.run(first);
    let second = leader(&server).await;
    server.kill(second);
    let beat = renewed(&store, held, lease).await;
    assert!(matches!(beat, Renewed::Renewed { .. }), "{beat:?}");
    // Nobody renews it any more: it lapses, and its next owner's token is higher.
    until("the lapse", async || {
        matches!(persist(|| claim(&store, held, &terms)).await, Claimed::Granted(grant) if grant.token > held.token)
    })
    .await;
}

pub async fn claim(
    store: &EtcdStore,
    owner: Owner,
    settings: &Settings,
) -> Result<Claimed, StoreError> {
    let request = tower_claim::store::ClaimRequest {
        key: owner.key,
        nonce: nonce(),
        fingerprint: None,
        settings,
        floor: tower_claim::Token::ZERO,
        not_after: store.now().saturating_add(Duration::from_secs(5)),
    };
    store.claim(request).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_racing_claims_one_is_granted_while_leaders_die() {
    let mut server = Etcd::with_nodes(3);
    let store = store_on(endpoints(&server), &prefix()).await;
    let (one, over, grants) = (key(), AtomicBool::new(false), AtomicUsize::new(0));
    let terms = Settings::new(Duration::from_secs(2));
    let claimer = async || {
        let mut tokens = Vec::new();
        while !over.load(Ordering::Relaxed) {
            let nonce = nonce();
            let not_after = store.now().saturating_add(Duration::from_secs(30));
            let request = tower_claim::store::ClaimRequest {
                key: one,
                nonce,
                fingerprint: None,
                settings: &terms,
                floor: tower_claim::Token::ZERO,
                not_after,
            };
            match persist(|| store.claim(request)).await {
                Claimed::Granted(grant) => tokens.push(grant.token),
                Claimed::Mine { token, .. } => tokens.push(token),
                _ => {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    continue;
                }
            }
            grants.fetch_add(1, Ordering::Relaxed);
            let release = ReleaseRequest {
                key: one,
                nonce,
                token: None,
                not_after,
            };
            persist(|| store.release(release)).await;
        }
        tokens
    };
    let three_more = async || {
        let before = grants.load(Ordering::Relaxed);
        until("more grants", async || {
            grants.load(Ordering::Relaxed) >= before + 3
        })
        .await;
    };
    let trouble = async {
        for _ in 0..2 {
            three_more().await;
            let leader = leader(&server).await;
            server.kill(leader);
            tokio::time::sleep(Duration::from_millis(1500)).await;
            server.run(leader);
        }
        three_more().await;
        over.store(true, Ordering::Relaxed);
    };
    let (a, b, c, ()) = tokio::join!(claimer(), claimer(), claimer(), trouble);
    for tokens in [&a, &b, &c] {
        assert!(
            tokens.windows(2).all(|pair| pair[0] < pair[1]),
            "{tokens:?}"
        );
    }
    let mut all = [a, b, c].concat();
    let granted = all.len();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), granted, "one token was granted twice");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_majority_calls_fail_in_time() {
    let mut server = Etcd::with_nodes(3);
    let builder = EtcdStore::builder()
        .endpoints(endpoints(&server))
        .prefix(prefix());
    let store = builder.clone().connect().await.expect("etcd answers");
    let owner = hold(&store, key(), Duration::from_secs(300)).await;
    let hasty = builder.call_timeout(Duration::from_secs(2)).connect().await;
    let hasty = hasty.expect("etcd answers");
    server.kill(0);
    server.kill(1);
    let mark = tokio::time::timeout(Duration::from_secs(30), hasty.mark(owner));
    let mark = mark.await.expect("it waits for ever");
    let error = mark.expect_err("no majority");
    assert!(error.is_retryable(), "{error:?}");
    server.run(0);
    server.run(1);
    let marked = persist(|| store.mark(owner)).await;
    assert_eq!(marked, tower_claim::store::Marked::Marked);
}
