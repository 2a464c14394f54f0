//! TLS with a certificate of our own.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use etcd_client::{Certificate, TlsOptions};
use system_tests::servers::Etcd;
use tower_claim::store::{Beat, Renewed};
use tower_claim::{ClaimStore, DynClaimStore};
use tower_claim_etcd::{ConnectError, EtcdStore};

use super::bench::{hold, key, prefix};

fn openssl(folder: &Path, arguments: &str) {
    let made = Command::new("openssl")
        .args(arguments.split_whitespace())
        .current_dir(folder)
        .output()
        .expect("`openssl` is missing: install the package `openssl`");
    let said = String::from_utf8_lossy(&made.stderr);
    assert!(made.status.success(), "{said}");
}

const CURVE: &str = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes";

fn authority(folder: &Path, name: &str) -> Vec<u8> {
    let files = format!("-keyout {name}.key -out {name}.pem");
    openssl(
        folder,
        &format!("req -x509 {CURVE} -days 2 -subj /CN={name} {files}"),
    );
    std::fs::read(folder.join(format!("{name}.pem"))).expect("it was made")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_with_a_certificate_of_our_own_is_trusted_only_by_its_authority() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    let (ours, theirs) = (authority(at, "ours"), authority(at, "theirs"));
    let request = "-subj /CN=etcd -keyout server.key -out server.csr";
    openssl(at, &format!("req {CURVE} {request}"));
    std::fs::write(at.join("names"), "subjectAltName=IP:127.0.0.1\n").expect("written");
    openssl(
        at,
        "x509 -req -in server.csr -CA ours.pem -CAkey ours.key -CAcreateserial -days 2 -extfile names -out server.pem",
    );
    let server = Etcd::with_tls(&at.join("server.pem"), &at.join("server.key"));
    let address = server.addresses().remove(0);
    let builder = |scheme: &str| {
        let endpoints = [format!("{scheme}://{address}")];
        let builder = EtcdStore::builder().endpoints(endpoints).prefix(prefix());
        builder.call_timeout(Duration::from_secs(5))
    };
    let trusting = |authority: &[u8]| {
        let tls = TlsOptions::new().ca_certificate(Certificate::from_pem(authority));
        builder("https").tls(tls)
    };

    let store = trusting(&ours).connect().await.expect("it is trusted");
    let owner = hold(&store, key(), Duration::from_secs(10)).await;
    let keeper = store.keeper_store().await.expect("it is trusted as well");
    let renewed = keeper.dyn_renew(&[Beat { owner, progress: 0 }]).await;
    let renewed = renewed.expect("renewed");
    assert!(matches!(renewed[..], [Renewed::Renewed { .. }]));
    let seen = store.peek(owner.key).await.expect("etcd answers");
    assert_eq!(seen.map(|record| record.token), Some(owner.token));

    for stranger in [trusting(&theirs), builder("https")] {
        let error = stranger.connect().await.expect_err("not ours");
        let text = error.to_string();
        assert!(text.contains("certificate"), "{text}");
        assert!(text.contains("`tls`"), "it says the mend: {text}");
        assert!(!text.contains('\n'), "{text}");
    }
    let plain = builder("http").connect().await.expect_err("it speaks TLS");
    let text = plain.to_string();
    assert!(
        text.contains("does not answer") && !text.contains('\n'),
        "{text}"
    );
    // Trust was given, and would not be used.
    let tls = TlsOptions::new().ca_certificate(Certificate::from_pem(ours));
    let idle = builder("http").tls(tls).connect().await;
    let idle = idle.expect_err("`http` with trust");
    assert!(matches!(idle, ConnectError::Config(_)), "{idle:?}");
}
