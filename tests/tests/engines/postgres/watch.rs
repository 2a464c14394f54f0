//! Waiting: woken by a notification, or by the poll where none comes.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use tokio_postgres::Client;
use tower_claim::store::{KeeperConnection, Watched};
use tower_claim::{ClaimAdmin, ClaimStore};

use super::scene::{SECOND, beat, client, finish, hold, key, tables, until};
use super::server;

const NO_POLL: Duration = Duration::from_secs(60);

/// Whether the session of this name listens.
async fn listens(client: &Client, name: &str) -> bool {
    let sessions = "select count(*) from pg_stat_activity \
        where application_name = $1 and query like 'LISTEN%' and state = 'idle'";
    let row = client.query_one(sessions, &[&name]).await;
    row.expect("a count").get::<_, i64>(0) == 1
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_notification_wakes_who_waits_long_before_the_poll() {
    let (builder, schema) = tables().await;
    let builder = builder.poll_step(NO_POLL);
    let name = format!("listener-{}", key().prefix());
    let url = format!("{}?application_name={name}", server().url());
    let waiter = builder.clone().listen_url(&url).connect().await;
    let waiter = waiter.expect("it connects");
    let worker = builder.connect().await.expect("it connects");
    let client = client(&server().url()).await;
    let watched = format!("select watched from {schema}.claim where key = $1");
    for way in ["finish", "release", "break"] {
        let owner = hold(&worker, key(), 300 * SECOND).await;
        let begin = Instant::now();
        let all = join_all((0..50).map(|_| waiter.watch(owner.key, owner.token)));
        let end = async {
            until("the watch is announced", async || {
                let key = owner.key.as_bytes().as_slice();
                let row = client.query_one(&watched, &[&key]).await;
                row.expect("a row").get(0)
            })
            .await;
            // Listening begins with the first watch.
            until("it listens", async || listens(&client, &name).await).await;
            match way {
                "finish" => drop(worker.finish(finish(owner, "done")).await.expect("done")),
                "release" => drop(
                    worker
                        .release(tower_claim::store::ReleaseRequest {
                            key: owner.key,
                            nonce: owner.nonce,
                            token: Some(owner.token),
                            not_after: worker.now(),
                        })
                        .await
                        .expect("released"),
                ),
                _ => drop(
                    worker
                        .break_claim(owner.key, owner.token)
                        .await
                        .expect("broken"),
                ),
            }
        };
        let (seen, ()) = tokio::join!(all, end);
        assert!(begin.elapsed() < NO_POLL / 2, "{way}: the poll woke it");
        for watched in seen {
            let watched = watched.expect("an answer");
            assert_eq!(matches!(watched, Watched::Done(_)), way == "finish");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_listener_the_poll_wakes() {
    let (builder, _) = tables().await;
    let builder = builder.listen(false).poll_step(SECOND / 20);
    let store = builder.connect().await.expect("it connects");
    let owner = hold(&store, key(), 60 * SECOND).await;
    let watch = tokio::time::timeout(30 * SECOND, store.watch(owner.key, owner.token));
    let (seen, ()) = tokio::join!(watch, async {
        assert!(store.finish(finish(owner, "done")).await.is_ok());
    });
    let seen = seen.expect("long before the lease ends");
    assert!(matches!(seen.expect("an answer"), Watched::Done(_)));
}

/// A listener whose session is ended listens anew, and what was missed meanwhile is looked for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listener_that_was_cut_listens_again() {
    let (builder, _) = tables().await;
    let name = format!("listener-{}", key().prefix());
    let url = format!("{}?application_name={name}", server().url());
    let builder = builder.listen_url(&url).poll_step(NO_POLL);
    let store = builder.connect().await.expect("it connects");
    let client = client(&server().url()).await;
    let listens = async || listens(&client, &name).await;
    let owner = hold(&store, key(), 60 * SECOND).await;
    let cut = async {
        until("it listens", listens).await;
        let end = "select pg_terminate_backend(pid, 5000) from pg_stat_activity where application_name = $1";
        client.query(end, &[&name]).await.expect("it ends");
        assert!(store.finish(finish(owner, "done")).await.is_ok());
    };
    let begin = Instant::now();
    let (seen, ()) = tokio::join!(store.watch(owner.key, owner.token), cut);
    assert!(matches!(seen.expect("an answer"), Watched::Done(_)));
    assert!(begin.elapsed() < NO_POLL / 2, "the poll woke it");
    // The session ends with the store.
    drop(store);
    until("nobody listens", async || !listens().await).await;
}

/// The runtime that made the store is blocked; a keeper's beats go on.
#[test]
fn a_keepers_store_has_connections_of_its_own() {
    let runtime = || {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime")
    };
    let users = runtime();
    let (store, owner) = users.block_on(async {
        let (builder, _) = tables().await;
        let store = builder.connect().await.expect("it connects");
        assert_eq!(store.capabilities().keeper, KeeperConnection::Own);
        let owner = hold(&store, key(), 60 * SECOND).await;
        (store, owner)
    });
    // Nobody drives the user's runtime now.
    runtime().block_on(async {
        let keeper = store.keeper_store().await.expect("it connects");
        let beats = keeper.dyn_renew(&[beat(owner)]).await.expect("an answer");
        assert!(matches!(
            beats[..],
            [tower_claim::store::Renewed::Renewed { .. }]
        ));
    });
}

#[tokio::test]
async fn a_users_pool_without_a_url_shares_its_connections_with_the_keeper() {
    let (builder, schema) = tables().await;
    let config = server().url().parse().expect("a URL");
    let manager = deadpool_postgres::Manager::new(config, tokio_postgres::NoTls);
    let pool = deadpool_postgres::Pool::builder(manager)
        .max_size(2)
        .build()
        .expect("a pool");
    let of_pool = tower_claim_postgres::PostgresStore::builder()
        .pool(pool.clone())
        .schema(&schema);
    let store = of_pool.connect().await.expect("it connects");
    assert_eq!(store.capabilities().keeper, KeeperConnection::Shared);
    let owner = hold(&store, key(), 60 * SECOND).await;
    let keeper = store.keeper_store().await.expect("a store");
    assert!(keeper.dyn_renew(&[beat(owner)]).await.is_ok());
    let store = builder.pool(pool).connect().await.expect("it connects");
    assert_eq!(store.capabilities().keeper, KeeperConnection::Own);
}
