//! What the server's settings take from the promises, seen as the store connects.

use system_tests::servers::Postgres;
use tower_claim::ClaimStore;
use tower_claim::store::{Event, Promise};
use tower_claim_postgres::{Names, PostgresStore};

use super::roles::as_role;
use super::scene::{client, tables, until};
use super::server;

fn forgets(store: &PostgresStore, event: Event) -> bool {
    store.capabilities().weakened.may(event, Promise::OneResult)
}

#[tokio::test]
async fn a_server_that_may_lose_a_commit_in_a_crash_may_forget() {
    let (builder, _, _) = as_role(&["synchronous_commit = off"]).await;
    let store = builder.connect().await.expect("it connects");
    assert!(forgets(&store, Event::Restart) && store.capabilities().may_forget());
    let careless = Postgres::with(&["fsync=off"]);
    let builder = PostgresStore::builder().url(&careless.url());
    builder.migrate().await.expect("it migrates");
    let store = builder.connect().await.expect("it connects");
    assert!(forgets(&store, Event::Restart) && store.capabilities().may_forget());
}

/// Any of them: with the spent nonces alone gone, one may be granted twice.
#[tokio::test]
async fn tables_that_do_not_outlive_a_crash_may_forget() {
    let (builder, schema) = tables().await;
    let owner = client(&server().url()).await;
    for table in ["claim", "spent", "fence"] {
        let store = builder.clone().connect().await.expect("it connects");
        assert_eq!(store.capabilities(), PostgresStore::CAPABILITIES);
        assert!(!store.capabilities().may_forget());
        let set = async |how: &str| {
            let set = format!("alter table {schema}.{table} set {how}");
            owner.batch_execute(&set).await.expect("it is changed");
        };
        set("unlogged").await;
        let store = builder.clone().connect().await.expect("it connects");
        assert!(forgets(&store, Event::Restart), "{table}");
        assert!(store.capabilities().may_forget(), "{table}");
        set("logged").await;
    }
}

/// Nobody must say that there are replicas: the server shows them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_does_not_wait_for_its_replicas_may_forget() {
    let primary = Postgres::start();
    let builder = PostgresStore::builder().url(&primary.url());
    builder.migrate().await.expect("it migrates");
    let open = async || builder.clone().connect().await.expect("it connects");
    assert!(!open().await.capabilities().may_forget(), "no replica yet");

    // A role without any right to look at others' sessions sees them, too.
    let role = "create role app login";
    let grants = Names::default().grants("app");
    primary.sql(&format!("{role}; {grants}"));
    let port = primary.port();
    let app = format!("postgres://app@127.0.0.1:{port}/postgres");
    let copying = tokio::task::spawn_blocking(move || Postgres::replica_of(port));
    let _replica = copying.await.expect("the primary can be copied");
    until("the replica streams", async || {
        primary.sql("select count(*) from pg_stat_replication where state = 'streaming'") == "1"
    })
    .await;
    for url in [primary.url(), app] {
        let builder = builder.clone().url(&url);
        let store = builder.clone().connect().await.expect("it connects");
        assert!(forgets(&store, Event::Failover) && store.capabilities().may_forget());
        // Its user knows better.
        let readers = builder.asynchronous_failover(false).connect().await;
        assert!(!readers.expect("it connects").capabilities().may_forget());
    }
    primary.sql("alter system set synchronous_standby_names = '*'");
    primary.sql("select pg_reload_conf()");
    until("it waits for its replica", async || {
        !open().await.capabilities().may_forget()
    })
    .await;
    primary.sql("alter role postgres set synchronous_commit = local");
    assert!(forgets(&open().await, Event::Failover));
}
