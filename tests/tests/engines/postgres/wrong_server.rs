//! What is no server for claims, told in one line: nobody, somebody else, a replica.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Instant;

use futures_util::future::join_all;
use system_tests::servers::Redis;
use tower_claim::{ClaimStore, StoreError};
use tower_claim_postgres::{ConnectError, Names, PostgresStore};

use super::scene::{Ask, SECOND, client, key, tables, until};
use super::server;

#[tokio::test]
async fn a_server_that_is_not_there_or_takes_no_writes_is_told_in_one_line() {
    let nobody = PostgresStore::connect("postgres://nobody@127.0.0.1:1/none").await;
    let garbled = PostgresStore::connect("postgres://:::").await;
    let tls = PostgresStore::connect("postgres://a@127.0.0.1/a?sslmode=require").await;
    let (builder, schema) = tables().await;
    let read_only = format!(
        "{}?options=-cdefault_transaction_read_only=on",
        server().url()
    );
    let replica = builder.clone().url(&read_only).connect().await;
    for (answer, says) in [
        (nobody, "no connection to 127.0.0.1:1 (Connection refused"),
        (garbled, "postgres://USER"),
        (tls, "tls_root"),
        (replica, "primary"),
    ] {
        let text = answer.expect_err("no store").to_string();
        assert!(text.contains(says) && text.lines().count() == 1, "{text}");
    }

    // A primary that became a replica under an open store.
    let store = builder.pool_size(1).connect().await.expect("it connects");
    let client = client(&server().url()).await;
    let role = format!("demoted_{schema}");
    let names = Names::new(&schema, "").expect("a name");
    let make = format!("create role {role} login; {}", names.grants(&role));
    client.batch_execute(&make).await.expect("a role");
    let url = format!("postgres://{role}@127.0.0.1:{}/postgres", server().port());
    drop(store);
    let builder = PostgresStore::builder().url(&url).schema(&schema);
    let store = builder.pool_size(1).connect().await.expect("it connects");
    let demote = format!(
        "alter role {role} set default_transaction_read_only = on; \
         select pg_terminate_backend(pid) from pg_stat_activity where usename = '{role}'"
    );
    client.batch_execute(&demote).await.expect("it is changed");
    until("the session is gone", async || {
        let ask = Ask::new(&store, key(), SECOND);
        match store.claim(ask.request()).await {
            Err(StoreError::Unavailable(source)) => source.to_string().contains("primary"),
            Err(StoreError::Ambiguous(_)) => false,
            other => panic!("{other:?}"),
        }
    })
    .await;
}

/// A port where something takes connections and does this with each.
fn stranger(meet: impl Fn(TcpStream) + Clone + Send + 'static) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("bound").port();
    std::thread::spawn(move || {
        for socket in listener.incoming().flatten() {
            let meet = meet.clone();
            std::thread::spawn(move || meet(socket));
        }
    });
    port
}

/// One line that says what was expected, where, and what came; and no password.
fn tells(port: u16, says: &str, error: &ConnectError) {
    let (text, debug) = (error.to_string(), format!("{error:?}"));
    let at = format!("127.0.0.1:{port}");
    for part in [says, &at, "PostgreSQL", "5432"] {
        assert!(text.contains(part), "no `{part}` in: {text}");
    }
    assert!(text.lines().count() == 1, "{text}");
    assert!(!text.contains(PASSWORD) && !debug.contains(PASSWORD));
}

const PASSWORD: &str = "hunter2";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_of_another_kind_is_named_with_its_address() {
    let of_web = stranger(|mut socket| {
        let mut byte = [0];
        while socket.read_exact(&mut byte).is_ok() && byte != *b"\n" {}
        let _ = socket.write_all(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n");
    });
    let redis = tokio::task::spawn_blocking(Redis::start).await;
    let redis = redis.expect("it starts");
    let of_redis: u16 = redis.address()["127.0.0.1:".len()..]
        .parse()
        .expect("a port");
    let greeting = stranger(|mut socket| {
        let _ = socket.write_all(b"SSH-2.0-OpenSSH_9.2p1\r\n");
        std::thread::sleep(5 * SECOND);
    });
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let of_silent = silent.local_addr().expect("bound").port();
    let closing = stranger(drop);
    let each = [
        (
            of_web,
            "an HTTP server (it says `HTTP/1.1 400 Bad Request`)",
        ),
        (of_redis, "Redis (it says `+PONG`)"),
        (greeting, "another server (it says `SSH-2.0-OpenSSH_9.2p1`)"),
        (of_silent, "says nothing"),
        (closing, "closes the connection"),
    ];
    let root = super::tls::authority();
    let each = each.map(async |(port, says)| {
        let url = format!("postgres://app:{PASSWORD}@127.0.0.1:{port}/shop");
        let builder = PostgresStore::builder().url(&url);
        let begun = Instant::now();
        tells(
            port,
            says,
            &builder.migrate().await.expect_err("a stranger"),
        );
        // As the driver asks for TLS first.
        let builder = builder.tls_root(&root);
        tells(
            port,
            says,
            &builder.connect().await.expect_err("a stranger"),
        );
        assert!(begun.elapsed() < 20 * SECOND, "it waited too long");
    });
    join_all(each).await;
}

/// What PostgreSQL itself says is passed on.
#[tokio::test]
async fn a_refusal_by_postgres_is_told_in_its_own_words() {
    let url = format!("postgres://postgres@127.0.0.1:{}/nowhere", server().port());
    let error = PostgresStore::connect(&url).await.expect_err("no database");
    let text = error.to_string();
    assert!(text.contains("\"nowhere\" does not exist"), "{text}");
    let url = server().url().replace("postgres@", "nobody@");
    let error = PostgresStore::connect(&url).await.expect_err("no role");
    let text = error.to_string();
    assert!(text.contains("\"nobody\" does not exist"), "{text}");
}
