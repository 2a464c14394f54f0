//! Connecting: a wrong server, a missing user, a client of one's own, TLS, and what the store promises.

use std::io::Write;
use std::time::{Duration, Instant};

use etcd_client::{Client, ConnectOptions, Permission, PermissionType};
use system_tests::servers::Etcd;
use tower_claim::store::{Beat, ClaimManyRequest, KeeperConnection, Renewed};
use tower_claim::{ClaimMany, ClaimStore, DynClaimStore, Settings, StoreError, Token};
use tower_claim_etcd::{ConnectError, EtcdStore};

use super::bench::{endpoints, hold, key, nonce, prefix, server, store};

async fn refusal(endpoint: &str) -> String {
    let builder = EtcdStore::builder().endpoints([endpoint]).prefix(prefix());
    let builder = builder.call_timeout(Duration::from_secs(1));
    builder
        .connect()
        .await
        .expect_err("no such store")
        .to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_missing_or_another_is_one_clear_line() {
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let silent = format!("http://{}", nobody.local_addr().expect("bound"));
    let began = Instant::now();
    let text = refusal(&silent).await;
    assert!(text.contains("does not answer"), "{text}");
    assert!(began.elapsed() < Duration::from_secs(30));
    drop(nobody);
    let text = refusal(&silent).await;
    assert!(text.contains("does not answer"), "{text}");
    assert!(!text.contains('\n'), "{text}");

    // A web server: it speaks HTTP, and no gRPC.
    let web = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = format!("http://{}", web.local_addr().expect("bound"));
    std::thread::spawn(move || {
        while let Ok((mut tcp, _)) = web.accept() {
            let _ = tcp.write_all(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n");
        }
    });
    let text = refusal(&address).await;
    assert!(text.contains("does not answer"), "{text}");

    for (endpoint, says) in [("", "no endpoint"), ("http://a b", "http://host:2379")] {
        let error = EtcdStore::connect(endpoint).await.expect_err("no endpoint");
        assert!(matches!(error, ConnectError::Config(_)), "{error:?}");
        assert!(error.to_string().contains(says), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn users_need_a_password_and_the_prefix() {
    let server = Etcd::start();
    let mut root = Client::connect(endpoints(&server), None)
        .await
        .expect("etcd");
    root.user_add("root", "secret", None).await.expect("added");
    root.role_add("root").await.expect("added");
    root.user_grant_role("root", "root").await.expect("granted");
    root.user_add("shop", "open", None).await.expect("added");
    root.role_add("shop").await.expect("added");
    root.user_grant_role("shop", "shop").await.expect("granted");
    let all = Permission::new(PermissionType::Readwrite, "shop/").with_prefix();
    root.role_grant_permission("shop", all)
        .await
        .expect("granted");
    root.auth_enable().await.expect("enabled");

    let builder = || EtcdStore::builder().endpoints(endpoints(&server));
    let error = builder().connect().await.expect_err("a user is missing");
    assert!(error.to_string().contains("`user`"), "{error}");
    let error = builder()
        .user("shop", "wrong")
        .connect()
        .await
        .expect_err("wrong");
    assert!(
        error.to_string().contains("wrong user or password"),
        "{error}"
    );
    let error = builder()
        .user("shop", "open")
        .prefix("other")
        .connect()
        .await;
    let error = error.expect_err("another prefix");
    assert!(
        error
            .to_string()
            .contains("read and write on the store's prefix"),
        "{error}"
    );

    let store = builder()
        .user("shop", "open")
        .prefix("shop/claims")
        .connect()
        .await
        .expect("in");
    let owner = hold(&store, key(), Duration::from_secs(10)).await;
    let keeper = store.keeper_store().await.expect("in as well");
    let renewed = keeper
        .dyn_renew(&[Beat { owner, progress: 0 }])
        .await
        .expect("renewed");
    assert!(matches!(renewed[..], [Renewed::Renewed { .. }]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_of_ones_own_serves_all_but_the_keeper() {
    let options = ConnectOptions::new();
    let client = Client::connect(endpoints(server()), Some(options))
        .await
        .expect("etcd");
    let builder = || EtcdStore::builder().client(client.clone()).prefix(prefix());
    let shared = builder().connect().await.expect("etcd answers");
    assert_eq!(shared.capabilities().keeper, KeeperConnection::Shared);
    let own = builder()
        .endpoints(endpoints(server()))
        .connect()
        .await
        .expect("etcd answers");
    assert_eq!(own.capabilities().keeper, KeeperConnection::Own);
    for store in [shared, own] {
        let owner = hold(&store, key(), Duration::from_secs(10)).await;
        let keeper = store.keeper_store().await.expect("a keeper's store");
        let seen = keeper.dyn_peek(owner.key).await.expect("etcd answers");
        assert_eq!(seen.map(|record| record.token), Some(owner.token));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_docs_promise_what_the_code_does() {
    let docs = include_str!("../../../../crates/tower-claim-etcd/docs/store.md");
    let table = store().await.capabilities().to_string();
    assert!(docs.contains(&table), "the docs lack this table:\n{table}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_keys_than_a_transaction_takes_are_refused() {
    let store = store().await;
    let mut terms = Settings::new(Duration::from_secs(10));
    (terms.cooling, terms.min_hold) = (Duration::from_secs(1), Duration::from_secs(1));
    let mut keys: Vec<_> = (0..17).map(|_| key()).collect();
    keys.sort_unstable();
    let request = ClaimManyRequest {
        keys: &keys,
        nonce: nonce(),
        settings: &terms,
        // Above every revision: one more write for each key.
        floor: Token::new(1 << 40).expect("below 2^53"),
        not_after: store.now().saturating_add(Duration::from_secs(5)),
    };
    let error = store.claim_many(request).await.expect_err("too many");
    assert!(matches!(error, StoreError::Unsupported(_)), "{error:?}");
    let granted = store
        .claim_many(ClaimManyRequest {
            keys: &keys[..16],
            ..request
        })
        .await;
    granted.expect("16 keys, each with all that a key may have");
}
