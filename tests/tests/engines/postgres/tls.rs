//! TLS with a certificate of our own making.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use system_tests::servers::Postgres;
use tower_claim::ClaimStore;
use tower_claim::store::{Finish, Renewed, Watched};
use tower_claim_postgres::{ConnectError, PostgresStore};

use super::scene::{SECOND, beat, finish, hold, key, until};

fn openssl(folder: &Path, args: &[&str]) {
    let made = Command::new("openssl")
        .args(args)
        .current_dir(folder)
        .output()
        .expect("`openssl` is installed");
    let error = String::from_utf8_lossy(&made.stderr);
    assert!(made.status.success(), "openssl: {error}");
}

/// An authority, and a server's certificate by it; both as files.
fn certificates(folder: &Path, authority: &str) {
    let (key, root) = (format!("{authority}.key"), format!("{authority}.pem"));
    let subject = format!("/CN={authority}");
    openssl(
        folder,
        &[
            "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", &subject,
            "-keyout", &key, "-out", &root,
        ],
    );
}

/// The certificate of an authority that has signed nothing.
pub fn authority() -> Vec<u8> {
    let folder = tempfile::tempdir().expect("a folder");
    certificates(folder.path(), "nobody");
    std::fs::read(folder.path().join("nobody.pem")).expect("it was made")
}

#[tokio::test]
async fn tls_trusts_the_given_authority_only() {
    let folder = tempfile::tempdir().expect("a folder");
    let place = folder.path();
    certificates(place, "ours");
    certificates(place, "another");
    openssl(
        place,
        &[
            "req",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-subj",
            "/CN=localhost",
            "-keyout",
            "server.key",
            "-out",
            "server.csr",
        ],
    );
    std::fs::write(
        place.join("names"),
        "subjectAltName=DNS:localhost,IP:127.0.0.1\n",
    )
    .expect("a file");
    openssl(
        place,
        &[
            "x509",
            "-req",
            "-in",
            "server.csr",
            "-CA",
            "ours.pem",
            "-CAkey",
            "ours.key",
            "-CAcreateserial",
            "-days",
            "2",
            "-extfile",
            "names",
            "-out",
            "server.pem",
        ],
    );
    let server = Postgres::with_tls(&place.join("server.pem"), &place.join("server.key"));

    let read = |name: &str| std::fs::read(place.join(name)).expect("a certificate");
    let builder = PostgresStore::builder()
        .url(&server.url())
        .tls_root(&read("ours.pem"))
        .poll_step(60 * SECOND);
    builder.migrate().await.expect("it migrates over TLS");
    let store = builder.clone().connect().await.expect("it connects");
    beats_and_is_woken(&server, &store).await;

    let stranger = builder.clone().tls_root(&read("another.pem"));
    let error = stranger.connect().await.expect_err("not trusted");
    assert!(matches!(error, ConnectError::Store(_)), "{error}");
    let nonsense = builder.clone().tls_root(b"no certificate").connect().await;
    assert!(matches!(nonsense, Err(ConnectError::Config(_))));

    // No fall-back to plain text.
    let plain = super::server();
    let error = builder.url(&plain.url()).connect().await;
    assert!(matches!(error, Err(ConnectError::Store(_))), "{error:?}");
}

/// A keeper's beats and the notification of who waits go by connections of their own.
async fn beats_and_is_woken(server: &Postgres, store: &PostgresStore) {
    let owner = hold(store, key(), 300 * SECOND).await;
    let keeper = store.keeper_store().await.expect("it connects");
    let beats = keeper.dyn_renew(&[beat(owner)]).await.expect("an answer");
    assert!(matches!(beats[..], [Renewed::Renewed { .. }]));

    let begin = Instant::now();
    let end = async {
        let count = |rows: &str| server.sql(&format!("select count(*) from {rows}"));
        let listens = "pg_stat_activity where query = 'LISTEN tower_claim' and state = 'idle'";
        until("it listens", async || count(listens) == "1").await;
        let watched = "tower_claim.claim where watched";
        until("the watch is announced", async || count(watched) == "1").await;
        let plain = "pg_stat_activity join pg_stat_ssl using (pid) \
            where backend_type = 'client backend' and not ssl";
        assert_eq!(count(plain), "0", "a connection goes past TLS");
        store.finish(finish(owner, "done")).await
    };
    let (seen, ended) = tokio::join!(store.watch(owner.key, owner.token), end);
    assert_eq!(ended.ok(), Some(Finish::Finished));
    assert!(matches!(seen, Ok(Watched::Done(_))), "{seen:?}");
    assert!(begin.elapsed() < 30 * SECOND, "the poll woke it");
}
