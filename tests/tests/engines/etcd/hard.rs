//! Troubles of etcd's own: a leader that slept, a full disk, tokens that expire, requests that are too large.

use std::time::{Duration, Instant};

use bytes::Bytes;
use etcd_client::{Client, Permission, PermissionType};
use system_tests::servers::Etcd;
use tower_claim::store::{
    Beat, Claimed, Finish, FinishRequest, Marked, Owner, Release, ReleaseRequest, Renewed, Value,
};
use tower_claim::{ClaimStore, DynClaimStore, LapsePolicy, Settings, StoreError};
use tower_claim_etcd::EtcdStore;

use super::bench::{ask, endpoints, hold, hold_by, key, nonce, prefix, store, store_on, until};
use super::failover::leader;

/// Long enough for an election on a busy machine.
const LEASE: Duration = Duration::from_secs(10);

/// etcd-io/etcd #15247: when a leader wakes up that stood still for longer than a lease, it takes the lease
/// for ended, and has it revoked whatever its successor has kept alive.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_slept_for_longer_than_the_lease_ends_no_renewed_hold() {
    let server = Etcd::with_nodes(3);
    let builder = EtcdStore::builder().endpoints(endpoints(&server));
    let builder = builder.prefix(prefix());
    let builder = builder.call_timeout(Duration::from_secs(2));
    // A cluster that has just begun takes a moment to elect a leader.
    let mut store = None;
    until("a leader", async || {
        store = builder.clone().connect().await.ok();
        store.is_some()
    })
    .await;
    let store = store.expect("connected");
    let mut terms = Settings::new(LEASE);
    // The record's lease is as short as it can be: it must outlive the leader's sleep, too.
    terms.unfinished_keep = Duration::from_secs(1);
    let mut beats = Vec::new();
    for nth in 0..20 {
        terms.on_lapse = [LapsePolicy::TakeOver, LapsePolicy::Hold][nth % 2];
        terms.cooling = Duration::from_secs(u64::from(nth % 3 == 0));
        let owner = hold_by(&store, key(), &terms).await;
        beats.push(Beat { owner, progress: 0 });
    }
    assert_eq!(store.mark(beats[0].owner).await.ok(), Some(Marked::Marked));

    let sleeper = leader(&server).await;
    server.process(sleeper).stop();
    let asleep = Instant::now();
    let mut last = Instant::now();
    let mut woken = None;
    // Awake again, its timers run at once, and it hears of its successor within a heartbeat.
    while woken.is_none_or(|woken: Instant| woken.elapsed() < Duration::from_secs(2)) {
        if woken.is_none() && asleep.elapsed() > LEASE * 3 / 2 {
            server.process(sleeper).go_on();
            woken = Some(Instant::now());
        }
        let sent = Instant::now();
        if let Ok(answers) = store.renew(&beats).await {
            let lost = |answer: &Renewed| matches!(answer, Renewed::Lost(_));
            assert!(!answers.iter().any(lost), "{answers:?}");
            if answers.iter().all(|answer| *answer != Renewed::Unsure) {
                last = sent;
            }
        }
        assert!(last.elapsed() < LEASE, "no beat came through");
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    for beat in &beats {
        let answer = ask(&store, beat.owner.key, nonce(), &terms).await;
        assert!(matches!(answer, Claimed::Busy(_)), "{answer:?}");
    }
}

fn finish(owner: Owner, body: Vec<u8>) -> FinishRequest {
    FinishRequest {
        owner,
        value: Value::Kept(Bytes::from(body)),
        keep: Duration::from_secs(60),
    }
}

fn release(store: &EtcdStore, owner: Owner) -> ReleaseRequest {
    ReleaseRequest {
        key: owner.key,
        nonce: owner.nonce,
        token: Some(owner.token),
        not_after: store.now().saturating_add(Duration::from_secs(5)),
    }
}

/// The result is, where etcd does not take it: the outcome never is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_result_that_etcd_does_not_take_is_kept_as_a_tombstone() {
    let store = store().await;
    let terms = Settings::new(Duration::from_secs(20));
    // Beyond the 1.5 MiB of a request, and beyond what its gRPC server reads.
    for len in [(3 << 19) - 100, 2 << 20, 8 << 20] {
        let owner = hold(&store, key(), Duration::from_secs(20)).await;
        let finished = store.finish(finish(owner, vec![7; len])).await;
        assert_eq!(finished.ok(), Some(Finish::Finished), "{len} bytes");
        match ask(&store, owner.key, nonce(), &terms).await {
            Claimed::Done(done) => assert_eq!(done.value, Value::Tombstone, "{len} bytes"),
            other => panic!("{len} bytes: {other:?}"),
        }
    }
    let every: Vec<u8> = (0..=u8::MAX).cycle().take(1 << 20).collect();
    for body in [Vec::new(), every] {
        let owner = hold(&store, key(), Duration::from_secs(20)).await;
        let finished = store.finish(finish(owner, body.clone())).await;
        assert_eq!(finished.ok(), Some(Finish::Finished));
        match ask(&store, owner.key, nonce(), &terms).await {
            Claimed::Done(done) => assert!(done.value == Value::Kept(Bytes::from(body))),
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_etcd_says_so_and_lets_holds_end() {
    let server = Etcd::with_settings(["--quota-backend-bytes", "4194304"]);
    let store = store_on(endpoints(&server), &prefix()).await;
    let lease = Duration::from_secs(30);
    let (held, ended) = (
        hold(&store, key(), lease).await,
        hold(&store, key(), lease).await,
    );
    let mut client = Client::connect(endpoints(&server), None)
        .await
        .expect("etcd");
    let mut nth = 0;
    until("out of space", async || {
        nth += 1;
        client
            .put(format!("ballast-{nth}"), vec![7; 1 << 20], None)
            .await
            .is_err()
    })
    .await;

    let full = |what: &str, error: Option<StoreError>| {
        assert!(matches!(error, Some(StoreError::Full)), "{what}: {error:?}");
    };
    let terms = Settings::new(lease);
    let request = tower_claim::store::ClaimRequest {
        key: key(),
        nonce: nonce(),
        fingerprint: None,
        settings: &terms,
        floor: tower_claim::Token::ZERO,
        not_after: store.now().saturating_add(Duration::from_secs(5)),
    };
    full("claim", store.claim(request).await.err());
    full("mark", store.mark(held).await.err());
    full("finish", store.finish(finish(held, vec![7])).await.err());
    full(
        "renew",
        store
            .renew(&[Beat {
                owner: held,
                progress: 0,
            }])
            .await
            .err(),
    );
    let busy = ask(&store, held.key, nonce(), &terms).await;
    assert!(
        matches!(busy, Claimed::Busy(_)),
        "reads are answered: {busy:?}"
    );
    let released = store.release(release(&store, ended)).await;
    assert_eq!(
        released.ok(),
        Some(Release::Released),
        "what gives room back is taken"
    );
}

/// By default after five minutes: a store lives longer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_users_token_that_expires_is_drawn_anew() {
    let server = Etcd::with_settings(["--auth-token-ttl", "1"]);
    let mut root = Client::connect(endpoints(&server), None)
        .await
        .expect("etcd");
    root.user_add("root", "secret", None).await.expect("added");
    root.role_add("root").await.expect("added");
    root.user_grant_role("root", "root").await.expect("granted");
    root.role_add("shop").await.expect("added");
    root.user_add("shop", "open", None).await.expect("added");
    root.user_grant_role("shop", "shop").await.expect("granted");
    let all = Permission::new(PermissionType::Readwrite, "shop/").with_prefix();
    root.role_grant_permission("shop", all)
        .await
        .expect("granted");
    root.auth_enable().await.expect("enabled");

    let builder = EtcdStore::builder().endpoints(endpoints(&server));
    let builder = builder.user("shop", "open").prefix("shop/claims");
    let store = builder.connect().await.expect("in");
    let keeper = store.keeper_store().await.expect("in as well");
    let owner = hold(&store, key(), Duration::from_secs(30)).await;
    let watched = hold(&store, key(), Duration::from_secs(30)).await;
    let watching = store.watch(watched.key, watched.token);
    let work = async {
        // The token's life, and etcd's next look.
        tokio::time::sleep(Duration::from_secs(3)).await;
        let renewed = keeper
            .dyn_renew(&[Beat { owner, progress: 0 }])
            .await
            .expect("renewed");
        assert!(
            matches!(renewed[..], [Renewed::Renewed { .. }]),
            "{renewed:?}"
        );
        assert_eq!(store.mark(owner).await.ok(), Some(Marked::Marked));
        hold(&store, key(), Duration::from_secs(30)).await;
        let released = store.release(release(&store, watched)).await;
        assert_eq!(released.ok(), Some(Release::Released));
    };
    let (watched, ()) = tokio::join!(watching, work);
    watched.expect("the watcher is told");
}
