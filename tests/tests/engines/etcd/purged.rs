//! What an operator has purged is gone from etcd's keys.

use std::time::Duration;

use etcd_client::{Client, GetOptions};
use tower_claim::store::{ClaimRequest, Claimed, Finish, FinishRequest, Owner, Purged, Value};
use tower_claim::{ClaimAdmin, ClaimStore, Fingerprint, Settings, Token};

use super::bench::{endpoints, key, nonce, prefix, server, store_on};

const PRINT: [u8; 32] = *b"a digest of what somebody wanted";

/// The names of all keys under the prefix, and all that lies there.
async fn all(client: &mut Client, prefix: &str) -> (Vec<String>, Vec<u8>) {
    let options = GetOptions::new().with_prefix();
    let read = client.get(format!("{prefix}/"), Some(options)).await;
    let read = read.expect("etcd answers");
    let name = |kv: &etcd_client::KeyValue| kv.key_str().expect("a text").to_owned();
    let names = read.kvs().iter().map(name).collect();
    let values = read.kvs().iter().flat_map(|kv| kv.value().to_vec());
    (names, values.collect())
}

fn tells(bytes: &[u8], what: &[u8]) -> bool {
    bytes.windows(what.len()).any(|window| window == what)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_purge_leaves_nothing_of_the_result_in_etcd() {
    let prefix = prefix();
    let store = store_on(endpoints(server()), &prefix).await;
    let client = Client::connect(endpoints(server()), None).await;
    let mut client = client.expect("etcd");
    let (key, nonce) = (key(), nonce());
    let request = ClaimRequest {
        key,
        nonce,
        fingerprint: Some(Fingerprint::from_bytes(PRINT)),
        settings: &Settings::new(Duration::from_secs(60)),
        floor: Token::ZERO,
        not_after: store.now().saturating_add(Duration::from_secs(60)),
    };
    let Ok(Claimed::Granted(grant)) = store.claim(request).await else {
        panic!("a free key");
    };
    let token = grant.token;
    let finish = FinishRequest {
        owner: Owner { key, nonce, token },
        value: Value::Kept("Ada Lovelace".into()),
        keep: Duration::from_secs(60),
    };
    let finished = store.finish(finish).await;
    assert_eq!(finished.ok(), Some(Finish::Finished));
    let (_, before) = all(&mut client, &prefix).await;
    assert!(tells(&before, b"Ada") && tells(&before, &PRINT));

    let purged = store.purge(key, token).await;
    assert!(matches!(purged, Ok(Purged::Purged { .. })), "{purged:?}");
    let (names, after) = all(&mut client, &prefix).await;
    assert!(
        !tells(&after, b"Ada") && !tells(&after, &PRINT),
        "{names:?}"
    );
    // Who freed it, and the nonce that a late copy of the claim meets.
    let kept = [
        format!("{prefix}/k/{key}/r"),
        format!("{prefix}/n/{key}/{nonce}"),
    ];
    assert_eq!(names, kept);
}
