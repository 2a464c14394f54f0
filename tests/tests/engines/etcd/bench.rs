//! One server for all tests that disturb nobody, and what they ask of it.

use std::sync::OnceLock;
use std::time::Duration;

use system_tests::servers::Etcd;
use tower_claim::store::{ClaimRequest, Claimed, Owner};
use tower_claim::{ClaimStore, Entropy, Key, Nonce, OsEntropy, Settings, Token};
use tower_claim_etcd::EtcdStore;

pub fn server() -> &'static Etcd {
    static SERVER: OnceLock<Etcd> = OnceLock::new();
    SERVER.get_or_init(Etcd::start)
}

pub fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    OsEntropy.fill(&mut bytes);
    bytes
}

pub fn key() -> Key {
    Key::from_bytes(random())
}

pub fn nonce() -> Nonce {
    Nonce::draw(&OsEntropy)
}

pub fn prefix() -> String {
    format!("test-{}", nonce())
}

pub fn endpoints(server: &Etcd) -> Vec<String> {
    let addresses = server.addresses();
    addresses
        .iter()
        .map(|address| format!("http://{address}"))
        .collect()
}

/// A store on the common server, under a prefix of its own.
pub async fn store() -> EtcdStore {
    store_on(endpoints(server()), &prefix()).await
}

pub async fn store_on(endpoints: Vec<String>, prefix: &str) -> EtcdStore {
    let builder = EtcdStore::builder().endpoints(endpoints).prefix(prefix);
    let builder = builder.call_timeout(Duration::from_secs(5));
    builder.connect().await.expect("etcd answers")
}

pub async fn ask(store: &impl ClaimStore, key: Key, nonce: Nonce, settings: &Settings) -> Claimed {
    let request = ClaimRequest {
        key,
        nonce,
        fingerprint: None,
        settings,
        floor: Token::ZERO,
        not_after: store.now().saturating_add(Duration::from_secs(5)),
    };
    store.claim(request).await.expect("etcd answers")
}

pub async fn hold(store: &impl ClaimStore, key: Key, lease: Duration) -> Owner {
    hold_by(store, key, &Settings::new(lease)).await
}

pub async fn hold_by(store: &impl ClaimStore, key: Key, settings: &Settings) -> Owner {
    let nonce = nonce();
    match ask(store, key, nonce, settings).await {
        Claimed::Granted(grant) => Owner {
            key,
            nonce,
            token: grant.token,
        },
        other => panic!("a free key was not granted: {other:?}"),
    }
}

/// Waits until it is so, for a minute and a half at most.
pub async fn until(what: &str, mut so: impl AsyncFnMut() -> bool) {
    let end = tokio::time::Instant::now() + Duration::from_secs(90);
    while !so().await {
        assert!(tokio::time::Instant::now() < end, "never: {what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
