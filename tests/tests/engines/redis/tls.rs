//! TLS with a certificate of our own.

use std::net::TcpListener;
use std::path::Path;
use std::process::Command;

use system_tests::servers::Redis;
use tower_claim::{ClaimStore, DynClaimStore};
use tower_claim_redis::RedisStore;

use super::key;

fn openssl(folder: &Path, arguments: &str) {
    let made = Command::new("openssl")
        .args(arguments.split_whitespace())
        .current_dir(folder)
        .output()
        .expect("`openssl` is missing: install the package `openssl`");
    assert!(
        made.status.success(),
        "{}",
        String::from_utf8_lossy(&made.stderr)
    );
}

#[tokio::test]
async fn a_server_with_a_certificate_of_our_own_is_trusted_only_by_its_authority() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    openssl(
        at,
        "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=ours -keyout ca.key -out ca.pem",
    );
    openssl(
        at,
        "req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=redis -keyout server.key -out server.csr",
    );
    std::fs::write(at.join("names"), "subjectAltName=IP:127.0.0.1\n").unwrap();
    openssl(
        at,
        "x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile names -out server.pem",
    );
    let file = |name: &str| at.join(name).display().to_string();
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = socket.local_addr().unwrap().port().to_string();
    drop(socket);
    let redis = Redis::with(&[
        "--save",
        "",
        "--tls-port",
        &port,
        "--tls-auth-clients",
        "no",
        "--tls-cert-file",
        &file("server.pem"),
        "--tls-key-file",
        &file("server.key"),
        "--tls-ca-cert-file",
        &file("ca.pem"),
    ]);
    let url = format!("rediss://127.0.0.1:{port}");
    let ca = std::fs::read(at.join("ca.pem")).unwrap();

    let store = RedisStore::builder()
        .url(&url)
        .ca_certificate(ca)
        .connect()
        .await
        .unwrap();
    assert!(store.peek(key()).await.unwrap().is_none());
    let keeper = store.keeper_store().await.unwrap();
    assert!(keeper.dyn_peek(key()).await.unwrap().is_none());

    let stranger = RedisStore::connect(&url).await.unwrap_err().to_string();
    assert!(stranger.contains("certificate"), "{stranger}");
    let plain = format!("redis://127.0.0.1:{port}");
    let plain = RedisStore::connect(plain).await.unwrap_err().to_string();
    assert!(plain.contains("rediss://"), "{plain}");
    let plain = format!("rediss://{}", redis.address());
    let plain = RedisStore::connect(plain).await.unwrap_err().to_string();
    assert!(plain.contains("redis://"), "{plain}");
    let broken = RedisStore::builder()
        .url(&url)
        .ca_certificate("no certificate");
    let broken = broken.connect().await.unwrap_err().to_string();
    assert!(broken.contains("ca_certificate"), "{broken}");
}
