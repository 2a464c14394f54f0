//! `--store`: what is said where there is no store, and how soon.

use std::net::TcpListener;
use std::process::Output;
use std::time::Duration;

use system_tests::programs::{run, run_within};
#[cfg(feature = "postgres")]
use system_tests::servers::Postgres;
#[cfg(feature = "redis")]
use system_tests::servers::Redis;

/// A few seconds, and the start of a process on a busy machine.
const SOON: Duration = Duration::from_secs(15);

fn lab(store: &str) -> Output {
    run_within(SOON, "lab", &["--store", store])
}

/// It ended with 1 and one line with all of these words.
#[track_caller]
pub(super) fn assert_one_line(end: &Output, words: &[&str]) {
    let said = String::from_utf8_lossy(&end.stderr);
    assert_eq!(end.status.code(), Some(1), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(end.stdout.is_empty(), "it printed to standard output");
    for word in words {
        assert!(said.contains(word), "no {word:?} in {said}");
    }
}

/// An address that nobody listens at.
fn nobody() -> String {
    let socket = TcpListener::bind("127.0.0.1:0").expect("a free port");
    socket.local_addr().expect("it is bound").to_string()
}

#[test]
fn a_store_that_cannot_be_reached_is_one_line() {
    let (nobody, folder) = (nobody(), tempfile::tempdir().expect("a folder"));
    let folder = folder.path().display();
    for store in [
        format!("redis://{nobody}/0"),
        format!("redis+unix:{folder}/socket"),
        format!("postgres://postgres@{nobody}/postgres"),
        format!("redb:{folder}/missing/claims"),
        #[cfg(feature = "etcd")]
        format!("etcd://{nobody}"),
    ] {
        let scheme = store.split(':').next().expect("a scheme");
        assert_one_line(&lab(&store), &["cannot open its store", scheme]);
    }
}

#[test]
fn a_listener_that_says_nothing_is_given_up() {
    let silent = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let silent = silent.local_addr().expect("it is bound");
    for store in [
        format!("redis://{silent}/0"),
        format!("postgres://postgres@{silent}/postgres"),
        #[cfg(feature = "etcd")]
        format!("etcd://{silent}"),
    ] {
        assert_one_line(&lab(&store), &["cannot open its store"]);
    }
}

#[test]
fn a_store_of_another_kind_is_named_for_what_it_is_not() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("letter");
    std::fs::write(&file, "Dear store,\n".repeat(1000)).expect("a file");
    assert_one_line(&lab(&format!("redb:{}", file.display())), &["cannot open"]);
    let letter = std::fs::read_to_string(&file).expect("it is there");
    assert!(letter.starts_with("Dear store,"), "it was written to");
}

#[cfg(all(feature = "redis", feature = "postgres"))]
#[test]
fn redis_is_no_postgres_and_the_other_way_round() {
    let (redis, postgres) = (Redis::start(), Postgres::start());
    let store = format!("redis://127.0.0.1:{}/0", postgres.port());
    assert_one_line(&lab(&store), &["cannot open its store", "redis"]);
    let store = format!("postgres://postgres@{}/postgres", redis.address());
    assert_one_line(&lab(&store), &["cannot open its store", "postgres"]);
}

#[cfg(feature = "redis")]
#[test]
fn redis_with_a_password_wants_the_right_one() {
    let redis = Redis::with(&["--save", "", "--requirepass", "right"]);
    let address = redis.address();
    for store in [
        format!("redis://{address}/0"),
        format!("redis://:wrong@{address}/0"),
    ] {
        let end = lab(&store);
        assert_one_line(&end, &["cannot open its store", "password", &address]);
        assert!(!String::from_utf8_lossy(&end.stderr).contains("wrong"));
    }
    let right = format!("redis://:right@{address}/0");
    drop(system_tests::programs::Lab::start(&["--store", &right]));
}

#[cfg(feature = "postgres")]
async fn sql(url: &str, statements: &str) {
    let connected = tokio_postgres::connect(url, tokio_postgres::NoTls).await;
    let (client, connection) = connected.expect("it answers");
    tokio::spawn(connection);
    client.batch_execute(statements).await.expect("it runs");
}

#[cfg(feature = "postgres")]
#[tokio::test]
async fn postgres_with_a_password_wants_the_right_one() {
    let mut postgres = Postgres::start();
    sql(&postgres.url(), "ALTER ROLE postgres PASSWORD 'right'").await;
    postgres.kill();
    let rules = postgres.folder().join("data/pg_hba.conf");
    std::fs::write(rules, "host all all 127.0.0.1/32 scram-sha-256\n").expect("it is ours");
    postgres.run();
    let at = format!("127.0.0.1:{}/postgres", postgres.port());
    for user in ["postgres:wrong", "postgres"] {
        let end = lab(&format!("postgres://{user}@{at}"));
        assert_one_line(&end, &["cannot open its store", "password", &at]);
        assert!(!String::from_utf8_lossy(&end.stderr).contains("wrong"));
    }
    let right = format!("postgres://postgres:right@{at}");
    drop(system_tests::programs::Lab::start(&["--store", &right]));
}

#[cfg(feature = "postgres")]
#[tokio::test]
async fn a_schema_of_the_future_or_of_a_stranger_is_refused() {
    let postgres = Postgres::start();
    let url = postgres.url();
    drop(system_tests::programs::Lab::start(&["--store", &url]));
    sql(&url, "UPDATE tower_claim.meta SET format = 999").await;
    assert_one_line(&lab(&url), &["cannot open its store", "999"]);

    let foreign = "DROP SCHEMA tower_claim CASCADE; CREATE SCHEMA tower_claim;
                   CREATE TABLE tower_claim.meta (who text)";
    sql(&url, foreign).await;
    assert_one_line(
        &lab(&url),
        &["cannot open its store", "meta is no table of"],
    );
}

#[test]
fn a_wrong_address_is_refused_with_usage_and_without_its_password() {
    for store in [
        "mysql://u:secret@localhost",
        "redis://:secret@localhost:port/0",
        "postgres://u:secret@localhost:port/x",
        "redb:",
        "memory",
        #[cfg(not(feature = "etcd"))]
        "etcd://u:secret@localhost:1",
    ] {
        let end = run("lab", &["--store", store]);
        assert_eq!(end.status.code(), Some(2), "{store}");
        let said = String::from_utf8_lossy(&end.stderr);
        assert!(said.contains("Usage") && said.contains("--store"), "{said}");
        assert!(!said.contains("secret"), "{said}");
    }
}

#[cfg(not(feature = "etcd"))]
#[test]
fn without_etcd_it_says_what_to_build() {
    let end = run("lab", &["--store", "etcd://127.0.0.1:2379"]);
    assert_eq!(end.status.code(), Some(2));
    let said = String::from_utf8_lossy(&end.stderr);
    assert!(said.contains("--features etcd"), "{said}");
}

#[cfg(feature = "redis")]
#[tokio::test]
async fn an_engine_that_may_forget_is_used_and_named() {
    let redis = Redis::start();
    let socket = format!("redis+unix:{}", redis.socket().display());
    let mut lab = std::process::Command::new(system_tests::programs::path("lab"))
        .args(["--store", &socket])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .expect("the lab starts");
    let mut ready = String::new();
    let stdout = lab.stdout.take().expect("it was piped");
    std::io::BufRead::read_line(&mut std::io::BufReader::new(stdout), &mut ready)
        .expect("it prints");
    lab.kill().expect("it is our child");
    let end = lab.wait_with_output().expect("it is our child");
    let said = String::from_utf8_lossy(&end.stderr);
    assert!(ready.starts_with("http "), "{ready}{said}");
    assert!(said.contains("redis may forget"), "{said}");
}
