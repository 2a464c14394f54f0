//! What a call costs: trips on the wire, and what it writes.

use std::cell::Cell;

use futures_util::future::join_all;
use system_tests::relay::Relay;
use system_tests::servers::Postgres;
use tokio_postgres::Client;
use tower_claim::store::{Claimed, Finish, Marked, Owner, Release, Renewed};
use tower_claim::{ClaimStore, Key, StoreError};
use tower_claim_postgres::PostgresStore;

use super::scene::{Ask, SECOND, beat, client, finish, granted, hold, key, store, tables, until};
use super::server;

struct Wire {
    relay: Relay,
    store: PostgresStore,
}

impl Wire {
    async fn trips<T>(&self, call: impl Future<Output = Result<T, StoreError>>) -> (T, usize) {
        let before = self.relay.requests();
        let answer = call.await.expect("an answer");
        (answer, self.relay.requests() - before)
    }
}

async fn wire(prepared: bool) -> Wire {
    let (builder, _) = tables().await;
    let relay = Relay::to(format!("127.0.0.1:{}", server().port()));
    let url = format!("postgres://postgres@{}/postgres", relay.address());
    let builder = builder.url(&url).pool_size(1).listen(false);
    let builder = builder.prepared_statements(prepared).purge_every(None);
    let store = builder.connect().await.expect("it connects");
    Wire { relay, store }
}

async fn every_call_is_one_trip(wire: &Wire) {
    let Wire { store, .. } = wire;
    let ask = Ask::new(store, key(), 60 * SECOND);
    let (answer, trips) = wire.trips(store.claim(ask.request())).await;
    let owner = ask.owner(granted(answer).token);
    assert_eq!(trips, 1, "a free key");

    let other = Ask::new(store, ask.key, 60 * SECOND);
    let (answer, trips) = wire.trips(store.claim(other.request())).await;
    assert!(matches!(answer, Claimed::Busy(_)));
    assert_eq!(trips, 1, "a busy key");

    let (answer, trips) = wire.trips(store.mark(owner)).await;
    assert_eq!((answer, trips), (Marked::Marked, 1));

    let (answer, trips) = wire.trips(store.finish(finish(owner, "done"))).await;
    assert_eq!((answer, trips), (Finish::Finished, 1));

    let (answer, trips) = wire.trips(store.claim(other.request())).await;
    assert!(matches!(answer, Claimed::Done(_)));
    assert_eq!(trips, 1, "a replay");

    let lapsing = Ask::new(store, key(), SECOND / 50);
    granted(store.claim(lapsing.request()).await.expect("an answer"));
    tokio::time::sleep(SECOND / 20).await;
    let taker = Ask::new(store, lapsing.key, 60 * SECOND);
    let (answer, trips) = wire.trips(store.claim(taker.request())).await;
    assert!(granted(answer).took_over.is_some());
    assert_eq!(trips, 1, "a takeover");

    let (answer, trips) = wire.trips(store.release(taker.release())).await;
    assert_eq!((answer, trips), (Release::Released, 1));
}

#[tokio::test]
async fn every_call_is_one_trip_without_prepared_statements() {
    let wire = wire(false).await;
    every_call_is_one_trip(&wire).await;
    let store = &wire.store;
    let mut beats = Vec::new();
    for _ in 0..50 {
        beats.push(beat(hold(store, key(), 60 * SECOND).await));
    }
    let (answers, trips) = wire.trips(store.renew(&beats)).await;
    let renewed = |answer: &Renewed| matches!(answer, Renewed::Renewed { .. });
    assert!(answers.len() == 50 && answers.iter().all(renewed));
    assert_eq!(trips, 1, "fifty beats");
}

#[tokio::test]
async fn prepared_statements_cost_one_more_trip_the_first_time_only() {
    let wire = wire(true).await;
    // Prepares each statement once.
    let ask = Ask::new(&wire.store, key(), 60 * SECOND);
    let (answer, trips) = wire.trips(wire.store.claim(ask.request())).await;
    let owner = ask.owner(granted(answer).token);
    assert!(trips > 1);
    assert_eq!(wire.store.mark(owner).await.ok(), Some(Marked::Marked));
    assert!(wire.store.renew(&[beat(owner)]).await.is_ok());
    assert!(wire.store.finish(finish(owner, "done")).await.is_ok());
    assert!(wire.store.release(ask.release()).await.is_ok());
    every_call_is_one_trip(&wire).await;
}

/// Where the log ends, and what the tables have seen.
async fn written(client: &Client, schema: &str) -> (i64, i64) {
    let row = client
        .query_one(
            "select (select pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint, \
             (select sum(n_tup_ins + n_tup_upd + n_tup_del)::bigint \
              from pg_stat_user_tables where schemaname = $1)",
            &[&schema],
        )
        .await
        .expect("statistics");
    (row.get(0), row.get(1))
}

/// Ends the store, and waits until its sessions have: only then are their statistics told for sure.
async fn ended(store: PostgresStore, client: &Client) {
    drop(store);
    let others = "select count(*) from pg_stat_activity \
        where backend_type = 'client backend' and pid <> pg_backend_pid()";
    until("its sessions end", async || {
        let row = client.query_one(others, &[]).await;
        row.expect("a count").get::<_, i64>(0) == 0
    })
    .await;
}

/// On a server of its own, whose log nobody else writes to.
#[tokio::test]
async fn a_replay_writes_nothing_and_locks_nothing() {
    let server = Postgres::with(&["autovacuum=off"]);
    let schema = "tower_claim";
    let builder = PostgresStore::builder()
        .url(&server.url())
        .purge_every(None);
    builder.migrate().await.expect("it migrates");
    let mut client = client(&server.url()).await;
    let store = builder.clone().connect().await.expect("it connects");
    let done = Ask::new(&store, key(), 60 * SECOND);
    let owner = done.owner(granted(store.claim(done.request()).await.expect("an answer")).token);
    assert!(store.finish(finish(owner, "done")).await.is_ok());
    let busy = hold(&store, key(), 60 * SECOND).await;
    ended(store, &client).await;

    // The hint bits are set.
    let store = builder.clone().connect().await.expect("it connects");
    for ask in [owner.key, busy.key] {
        let ask = Ask::new(&store, ask, SECOND);
        store.claim(ask.request()).await.expect("an answer");
    }
    client
        .batch_execute("checkpoint")
        .await
        .expect("it flushes");
    let before = Cell::new(written(&client, schema).await);
    until("the log is quiet", async || {
        tokio::time::sleep(SECOND / 10).await;
        let now = written(&client, schema).await;
        // The background writer tells of running transactions now and then.
        now.0 - before.replace(now).0 < 1_000
    })
    .await;
    let before = before.get();
    let replays = (0..200).map(|n| {
        let ask = Ask::new(
            &store,
            if n % 2 == 0 { owner.key } else { busy.key },
            SECOND,
        );
        let store = &store;
        async move {
            let answer = store.claim(ask.request()).await.expect("an answer");
            assert!(matches!(answer, Claimed::Done(_) | Claimed::Busy(_)));
        }
    });
    join_all(replays).await;
    // And the very claims, repeated.
    store.claim(done.request()).await.expect("an answer");
    ended(store, &client).await;
    let after = written(&client, schema).await;
    assert_eq!(after.1, before.1, "a replay wrote to a table");
    assert!(
        after.0 - before.0 < 1_000,
        "200 replays wrote {} bytes of log",
        after.0 - before.0
    );

    let store = builder.connect().await.expect("it connects");
    let transaction = client.transaction().await.expect("it begins");
    let ask = Ask::new(&store, owner.key, SECOND);
    let answer = store.claim_in(&transaction, ask.request()).await;
    assert!(matches!(answer, Ok(Claimed::Done(_))));
    let xid = transaction
        .query_one("select txid_current_if_assigned()", &[])
        .await
        .expect("an answer");
    assert_eq!(xid.get::<_, Option<i64>>(0), None, "a replay has no xid");
}

/// Renewals, marks and ends change nothing that an index knows.
#[tokio::test]
async fn renewals_marks_and_ends_stay_within_their_page() {
    let (store, schema) = store().await;
    for _ in 0..3 {
        let owner = hold(&store, key(), 60 * SECOND).await;
        for _ in 0..20 {
            assert!(store.renew(&[beat(owner)]).await.is_ok());
        }
        assert!(store.mark(owner).await.is_ok());
        assert!(store.finish(finish(owner, "done")).await.is_ok());
    }
    let client = client(&server().url()).await;
    until("the statistics are told", async || {
        let row = client
            .query_one(
                "select n_tup_upd, n_tup_hot_upd from pg_stat_user_tables \
                 where schemaname = $1 and relname = 'claim'",
                &[&schema],
            )
            .await
            .expect("statistics");
        let (all, hot): (i64, i64) = (row.get(0), row.get(1));
        assert!(all - hot <= 2, "{hot} of {all} updates were heap-only");
        all >= 66
    })
    .await;
}

/// A server that counts the statements of the role `app`, and a store of that role.
struct Counted {
    server: Postgres,
    store: PostgresStore,
}

impl Counted {
    async fn start() -> Self {
        let server = Postgres::with(&[
            "shared_preload_libraries=pg_stat_statements",
            "pg_stat_statements.track_utility=on",
        ]);
        server.sql("create extension pg_stat_statements; create role app login");
        PostgresStore::migrate(&server.url())
            .await
            .expect("it migrates");
        server.sql(&tower_claim_postgres::Names::default().grants("app"));
        let url = format!("postgres://app@127.0.0.1:{}/postgres", server.port());
        let builder = PostgresStore::builder().url(&url).purge_every(None);
        // A claim that waits for another transaction waits for half of it.
        let builder = builder.listen(false).call_timeout(40 * SECOND);
        let store = builder.connect().await.expect("it connects");
        Self { server, store }
    }

    fn statements(&self) -> i64 {
        let count = "select coalesce(sum(calls), 0) from pg_stat_statements s \
            join pg_roles r on r.oid = s.userid where rolname = 'app' and toplevel";
        self.server.sql(count).parse().expect("a number")
    }

    async fn lapsed(&self) -> Owner {
        let owner = hold(&self.store, key(), SECOND / 50).await;
        until("it lapses", async || {
            let view = self.store.peek(owner.key).await.expect("an answer");
            view.is_some_and(|view| view.lapsed)
        })
        .await;
        owner
    }

    /// Claims a key while another's claim of it is being committed.
    async fn lose(&self, key: Key) {
        let winner = PostgresStore::builder().url(&self.server.url());
        let winner = winner.connect().await.expect("it connects");
        let mut client = client(&self.server.url()).await;
        let transaction = client.transaction().await.expect("it begins");
        let first = Ask::new(&winner, key, 60 * SECOND);
        let answer = winner.claim_in(&transaction, first.request()).await;
        let token = granted(answer.expect("an answer")).token;
        let second = Ask::new(&self.store, key, 60 * SECOND);
        let commit = async {
            let waits = "select count(*) from pg_stat_activity where usename = 'app' and wait_event_type = 'Lock'";
            until("it waits", async || self.server.sql(waits) == "1").await;
            transaction.commit().await.expect("it commits");
        };
        let (answer, ()) = tokio::join!(self.store.claim(second.request()), commit);
        assert!(
            matches!(&answer, Ok(Claimed::Busy(busy)) if busy.token == token),
            "{answer:?}"
        );
    }
}

/// The server counts, too: one statement for each call, and none beside them.
#[tokio::test]
async fn the_server_counts_one_statement_for_each_call() {
    let counted = Counted::start().await;
    let store = &counted.store;
    let ask = Ask::new(store, key(), 60 * SECOND);
    let other = Ask::new(store, ask.key, 60 * SECOND);
    let count = || counted.statements();
    let before = count();
    let owner = ask.owner(granted(store.claim(ask.request()).await.expect("an answer")).token);
    assert_eq!(count() - before, 1, "a free key");
    store.claim(other.request()).await.expect("an answer");
    assert_eq!(count() - before, 2, "a busy key");
    store.renew(&[beat(owner)]).await.expect("an answer");
    assert_eq!(store.mark(owner).await.ok(), Some(Marked::Marked));
    let done = store.finish(finish(owner, "done")).await;
    assert_eq!(done.ok(), Some(Finish::Finished));
    assert_eq!(count() - before, 5, "a beat, a mark, a finish");
    store.claim(other.request()).await.expect("an answer");
    assert_eq!(count() - before, 6, "a replay");

    let lapsed = counted.lapsed().await;
    let before = count();
    let taker = Ask::new(store, lapsed.key, 60 * SECOND);
    let answer = store.claim(taker.request()).await.expect("an answer");
    assert!(granted(answer).took_over.is_some());
    assert_eq!(count() - before, 1, "a takeover");

    let contested = [("free", key()), ("lapsed", counted.lapsed().await.key)];
    for (what, key) in contested {
        let before = count();
        counted.lose(key).await;
        assert_eq!(count() - before, 1, "a race for a {what} key, lost");
    }
}
