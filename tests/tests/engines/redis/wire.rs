//! What goes over the wire comes back as it went: any byte, either protocol, and nobody else's.

use std::time::Duration;

use bytes::Bytes;
use system_tests::servers::Redis;
use tower_claim::conformance::{Suite, Time};
use tower_claim::store::{Admission, Claimed, Finish, FinishRequest, Value};
use tower_claim::{ClaimAdmin, ClaimStore, FenceStore, Settings, Token};
use tower_claim_redis::RedisStore;

use super::{builder, claim, fresh, granted, granted_for, key, nonce, server, store};

#[tokio::test]
async fn a_value_comes_back_byte_by_byte() {
    let store = store().await;
    let every_byte: Vec<u8> = (0..=u8::MAX).collect();
    let values = [
        Value::Tombstone,
        Value::Kept(Bytes::new()),
        Value::Kept(Bytes::from(every_byte.repeat(4096))),
    ];
    for value in values {
        let owner = granted(&store, key()).await;
        let request = FinishRequest {
            owner,
            value: value.clone(),
            keep: Duration::from_secs(60),
        };
        assert_eq!(store.finish(request).await.unwrap(), Finish::Finished);
        let Claimed::Done(done) = claim(&store, owner.key).await else {
            panic!("it is done");
        };
        assert!(done.value == value, "another value came back");
    }
}

#[tokio::test]
async fn odd_names_are_names_as_all_others() {
    let store = store().await;
    for odd in [
        "",
        "\0",
        "é\u{202e}\u{10ffff}",
        "a\r\nb{c}*",
        &"x".repeat(1000),
    ] {
        let mut settings = Settings::new(Duration::from_secs(20));
        settings.label = odd.into();
        let owner = granted_for(&store, key(), &settings).await;
        let view = store.peek(owner.key).await.unwrap().unwrap();
        assert_eq!(&*view.label, odd);
        let token = Token::new(7).unwrap();
        let admitted = store.admit(odd, token, nonce()).await.unwrap();
        assert_eq!(admitted, Admission::Admitted);
        assert_eq!(store.high_water(odd).await.unwrap(), token);
    }
}

#[tokio::test]
async fn every_law_holds_over_resp3() {
    let redis = Redis::start();
    let url = redis.url() + "?protocol=resp3";
    let open = async || {
        let store = RedisStore::builder().url(&url).prefix(fresh());
        store.connect().await.expect("the server speaks it")
    };
    let suite = Suite::new(Time::Real {
        unit: Duration::from_millis(100),
        tolerance: Duration::from_millis(20),
    });
    let (one, many, admin, guard) = tokio::join!(
        suite.claim_store(open),
        suite.claim_many(open),
        suite.claim_admin(open),
        suite.fence_store(open),
    );
    for report in [one, many, admin, guard] {
        report.assert();
    }
}

#[tokio::test]
async fn stores_with_two_prefixes_never_meet() {
    let prefix = fresh();
    let with = async |prefix: &str| {
        let store = RedisStore::builder().url(server().url()).prefix(prefix);
        store.connect().await.unwrap()
    };
    // One begins as the other does; the third is full of what a pattern would read.
    let (longer, odd) = (format!("{prefix}a"), format!("{prefix}[*?\\^]"));
    let stores = [&prefix, &longer, &odd].map(String::as_str);
    let key = key();
    let mut tokens = Vec::new();
    for prefix in stores {
        let store = with(prefix).await;
        tokens.push(granted(&store, key).await.token);
        store
            .raise_floor("ledger", Token::new(tokens.len() as u64).unwrap())
            .await
            .unwrap();
    }
    for (n, prefix) in stores.into_iter().enumerate() {
        let store = with(prefix).await;
        let page = store.scan(None, 100).await.unwrap();
        let seen: Vec<_> = page
            .records
            .iter()
            .map(|view| (view.key, view.token))
            .collect();
        assert_eq!(seen, [(key, tokens[n])], "{prefix}");
        let mark = store.high_water("ledger").await.unwrap();
        assert_eq!(mark.get(), n as u64 + 1);
    }
}

#[tokio::test]
async fn a_tag_is_part_of_every_name() {
    let tagged = builder().hash_tag("orders").connect().await.unwrap();
    let owner = granted(&tagged, key()).await;
    assert!(tagged.name_of(&owner.key).contains("{orders}:"));
    let page = tagged.scan(None, 100).await.unwrap();
    assert_eq!(page.records.len(), 1);
}
