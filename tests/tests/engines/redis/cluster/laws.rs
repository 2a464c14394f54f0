//! The laws, and what is different where keys lie apart.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use system_tests::servers::Redis;
use tower_claim::store::{
    Beat, ClaimMany, ClaimManyRequest, ClaimedMany, Finish, FinishRequest, MultiKey, Renewed,
    Value, Watched,
};
use tower_claim::{ClaimAdmin, ClaimStore, DynClaimStore, Key, Settings, StoreError, Token};
use tower_claim_redis::RedisStore;
use tower_lease_guard::LeaseGuardLayer;

use super::{Cluster, cluster, connect};
use crate::redis::{ask, fresh, granted, key, nonce, wait};

#[tokio::test]
async fn every_law_holds_on_a_cluster() {
    let cluster = cluster().await;
    // Each store learns the cluster's map: longer steps.
    let time = tower_claim::conformance::Time::Real {
        unit: Duration::from_millis(200),
        tolerance: Duration::from_millis(20),
    };
    let suite = tower_claim::conformance::Suite::new(time);
    let open = async || {
        cluster
            .builder()
            .connect()
            .await
            .expect("the cluster is up")
    };
    let tagged = async || {
        let builder = cluster.builder().hash_tag("one");
        builder.connect().await.expect("the cluster is up")
    };
    let (one, admin, many, guard) = tokio::join!(
        suite.claim_store(&open),
        suite.claim_admin(&open),
        suite.claim_many(&tagged),
        suite.fence_store(&open),
    );
    for report in [one, admin, many, guard] {
        println!("{report}");
        report.assert();
    }
}

#[tokio::test]
async fn several_keys_need_a_tag_and_are_refused_when_built() {
    let cluster = cluster().await;
    let apart = cluster.builder().connect().await.unwrap();
    assert_eq!(apart.capabilities().multi_key, MultiKey::None);
    let layer = LeaseGuardLayer::builder_many(apart.clone(), |_| vec!["a", "b"]).build();
    assert!(layer.is_err(), "a layer over several keys is refused");
    let mut keys: Vec<Key> = (0..5).map(|_| key()).collect();
    keys.sort_unstable();
    let settings = Settings::new(Duration::from_secs(20));
    let request = |store: &RedisStore| ClaimManyRequest {
        keys: &keys,
        nonce: nonce(),
        settings: &settings,
        floor: Token::ZERO,
        not_after: ask(store, key(), &settings).not_after,
    };
    let refused = apart.claim_many(request(&apart)).await;
    assert!(matches!(refused, Err(StoreError::Unsupported(why)) if why.contains("hash_tag")));

    let together = cluster
        .builder()
        .hash_tag("orders")
        .connect()
        .await
        .unwrap();
    assert_eq!(together.capabilities().multi_key, MultiKey::Atomic);
    assert!(
        LeaseGuardLayer::builder_many(together.clone(), |_| vec!["a", "b"])
            .build()
            .is_ok()
    );
    let granted = together.claim_many(request(&together)).await.unwrap();
    assert!(matches!(granted, ClaimedMany::Granted(_)), "{granted:?}");
    let refused = together.claim_many(request(&together)).await.unwrap();
    assert!(matches!(refused, ClaimedMany::Refused { key, .. } if key == keys[0]));
}

#[tokio::test]
async fn holds_all_over_the_cluster_are_renewed_and_scanned_in_order() {
    let store = cluster().await.builder().connect().await.unwrap();
    let mut beats = Vec::new();
    for _ in 0..100 {
        let owner = granted(&store, key()).await;
        beats.push(Beat { owner, progress: 1 });
    }
    // One of them is another's: the answers keep their order.
    beats[42].owner.nonce = nonce();
    let answers = store.renew(&beats).await.unwrap();
    for (n, answer) in answers.iter().enumerate() {
        assert_eq!(
            matches!(answer, Renewed::Renewed { .. }),
            n != 42,
            "{n}: {answer:?}"
        );
    }
    let (mut seen, mut from) = (Vec::new(), None);
    loop {
        let page = store.scan(from, 30).await.unwrap();
        seen.extend(page.records.iter().map(|record| record.key));
        match page.next {
            None => break,
            next => from = next,
        }
    }
    let mut keys: Vec<Key> = beats.iter().map(|beat| beat.owner.key).collect();
    keys.sort_unstable();
    assert_eq!(seen, keys);
}

#[tokio::test]
async fn who_waits_is_woken_from_any_node() {
    let cluster = cluster().await;
    let prefix = fresh();
    let builder = || {
        RedisStore::builder()
            .cluster(cluster.urls())
            .prefix(&prefix)
    };
    let waits = builder()
        .poll_step(Duration::from_secs(60))
        .connect()
        .await
        .unwrap();
    let works = builder().connect().await.unwrap();
    for _ in 0..5 {
        let owner = granted(&works, key()).await;
        let finish = async {
            wait::is_watched(
                &mut cluster_raw(cluster, &works.name_of(&owner.key)).await,
                &works,
                &owner.key,
            )
            .await;
            wait::listens(
                &mut connect(&cluster.nodes[0]).await,
                &format!("{prefix}bell"),
            )
            .await;
            let request = FinishRequest {
                owner,
                value: Value::Tombstone,
                keep: Duration::from_secs(60),
            };
            assert_eq!(works.finish(request).await.unwrap(), Finish::Finished);
        };
        let watch =
            tokio::time::timeout(Duration::from_secs(15), waits.watch(owner.key, owner.token));
        let (seen, ()) = tokio::join!(watch, finish);
        assert!(matches!(seen.expect("woken").unwrap(), Watched::Done(_)));
    }
}

async fn cluster_raw(cluster: &Cluster, name: &str) -> MultiplexedConnection {
    for node in &cluster.nodes {
        let mut raw = connect(node).await;
        let there: Result<i64, _> = redis::cmd("EXISTS").arg(name).query_async(&mut raw).await;
        if there.is_ok() {
            return raw;
        }
    }
    panic!("no node has {name}");
}

#[tokio::test]
async fn a_node_of_a_cluster_is_no_single_server() {
    let cluster = cluster().await;
    let error = RedisStore::connect(cluster.urls().remove(0))
        .await
        .unwrap_err();
    assert!(error.to_string().contains("cluster(urls)"), "{error}");
}

#[tokio::test]
async fn a_connection_to_a_cluster_has_a_cluster_beside_it() {
    let cluster = cluster().await;
    let client = redis::cluster::ClusterClient::new(cluster.urls()).unwrap();
    let connection = client.get_async_connection().await.unwrap();
    let builder = || {
        RedisStore::builder()
            .connection(connection.clone())
            .prefix(fresh())
    };
    let alone = builder()
        .url(cluster.urls().remove(0))
        .connect()
        .await
        .unwrap_err()
        .to_string();
    assert!(alone.contains("cluster(urls)"), "{alone}");
    let store = builder().cluster(cluster.urls()).connect().await.unwrap();
    assert!(store.peek(key()).await.unwrap().is_none());
    assert!(
        store
            .keeper_store()
            .await
            .unwrap()
            .dyn_peek(key())
            .await
            .unwrap()
            .is_none()
    );
    let single = RedisStore::builder().connection(connect(&Redis::start()).await);
    let single = single
        .cluster(cluster.urls())
        .connect()
        .await
        .unwrap_err()
        .to_string();
    assert!(single.contains("`connection`"), "{single}");
}
