//! A process that is killed (SIGKILL) between its claim and its reply.

use std::process::Stdio;

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;
use tower_claim::store::Claimed;
use tower_claim::{ClaimStore, Key};
use tower_claim_postgres::PostgresStore;

use super::scene::{Ask, SECOND, client, granted, hold, kept, key, tables, until};
use super::server;

const URL: &str = "CRASH_URL";
const SCHEMA: &str = "CRASH_SCHEMA";
const KEY: &str = "CRASH_KEY";
const POINT: &str = "CRASH_POINT";

/// Where the worker dies.
const POINTS: [&str; 5] = ["claimed", "begun", "written", "finished", "committed"];

/// "Claim outside, finish inside": no row without a result, no result without a row, and the key is free
/// again after its lease.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_killed_at_any_point_leaves_row_and_result_or_neither() {
    let each = POINTS.map(async |point| {
        let (builder, schema) = tables().await;
        let store = builder.connect().await.expect("it connects");
        let watcher = client(&server().url()).await;
        let table = format!("create table {schema}.orders (id int)");
        watcher.batch_execute(&table).await.expect("a table");
        let key = key();
        let mut child = Command::new(std::env::current_exe().expect("this program has a file"))
            .args(["postgres::crash::the_process_to_be_killed", "--exact"])
            .args(["--ignored", "--nocapture"])
            .env(URL, server().url())
            .env(SCHEMA, &schema)
            .env(KEY, key.to_string())
            .env(POINT, point)
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("it starts again");
        let mut lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        let stands = async {
            while let Ok(Some(line)) = lines.next_line().await {
                if line.ends_with(&format!("stands: {point}")) {
                    return;
                }
            }
            panic!("the other process ended before it was killed");
        };
        let limit = tokio::time::timeout(30 * SECOND, stands);
        limit.await.expect("it comes to the point");
        child.kill().await.expect("SIGKILL");

        // The server rolls back what was open.
        let sessions = "select count(*) from pg_stat_activity where application_name = $1";
        until("its sessions end", async || {
            let row = watcher.query_one(sessions, &[&schema]).await;
            row.expect("a count").get::<_, i64>(0) == 0
        })
        .await;
        let count = format!("select count(*) from {schema}.orders");
        let row = watcher.query_one(&count, &[]).await.expect("a count");
        let done = point == "committed";
        assert_eq!(row.get::<_, i64>(0), i64::from(done), "{point}");
        until("the key is answered", async || {
            let next = Ask::new(&store, key, SECOND);
            match store.claim(next.request()).await.expect("an answer") {
                Claimed::Busy(busy) => {
                    assert!(busy.expires_in <= SECOND && !done, "{point}: {busy:?}");
                    false
                }
                Claimed::Done(_) => done,
                answer => {
                    let grant = granted(answer);
                    assert!(!done && grant.took_over.is_some(), "{point}: run twice");
                    true
                }
            }
        })
        .await;
    });
    futures_util::future::join_all(each).await;
}

#[tokio::test]
#[ignore = "the other process of a test"]
async fn the_process_to_be_killed() {
    let told = |name: &str| std::env::var(name).ok();
    let (Some(url), Some(schema)) = (told(URL), told(SCHEMA)) else {
        return; // asked for by hand
    };
    let key: Key = told(KEY).and_then(|key| key.parse().ok()).expect("a key");
    let point = told(POINT).expect("a point");
    let url = format!("{url}?application_name={schema}");
    let builder = PostgresStore::builder().url(&url).schema(&schema);
    let store = builder.connect().await.expect("it connects");
    let mut session = client(&url).await;
    let stand = async |here: &str| {
        if here == point {
            println!("stands: {here}");
            std::future::pending::<()>().await;
        }
    };
    let owner = hold(&store, key, SECOND).await;
    stand("claimed").await;
    let transaction = session.transaction().await.expect("it begins");
    stand("begun").await;
    let insert = format!("insert into {schema}.orders values (1)");
    transaction.execute(&insert, &[]).await.expect("a row");
    stand("written").await;
    let answer = store
        .finish_in(&transaction, owner, kept("done"), 60 * SECOND)
        .await;
    answer.expect("it is finished");
    stand("finished").await;
    transaction.commit().await.expect("it commits");
    stand("committed").await;
}
