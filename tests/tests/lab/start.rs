//! Starting and stopping.

use std::time::{Duration, Instant};

use system_tests::client::{get, post};
use system_tests::programs::{Lab, run};

#[test]
fn bad_options_end_with_2_and_usage() {
    for args in [
        &["--warp", "9"][..],
        &["--lease", "never"],
        &["--lease", "0"],
        &["--retention", "0"],
        &["--store", "mysql://localhost"],
        &["--namespace", "a b"],
        &["--on-busy", "queue"],
        &["--keys", "loose"],
        &["--on-lapse", "hope"],
        &["--store-down", "ajar"],
        &["--store-down", "open", "--on-lapse", "hold"],
        &["--fingerprint", "xml"],
        &["--outer-timeout", "soon"],
        &["--inner", "off"],
        &["--listen", "nowhere"],
        &["--listen", "0.0.0.0:0"],
    ] {
        let end = run("lab", args);
        assert_eq!(end.status.code(), Some(2), "{args:?}");
        let said = String::from_utf8_lossy(&end.stderr);
        assert!(said.contains("Usage"), "{args:?}: {said}");
        assert!(end.stdout.is_empty(), "{args:?} printed to standard output");
    }
}

#[test]
fn what_is_not_built_yet_ends_with_2_and_says_so() {
    for (args, name) in [
        (&["--grpc", "127.0.0.1:0"][..], "--grpc"),
        (&["--flight-keep", "1s"], "--flight-keep"),
        (&["--cooling", "1s"], "--cooling"),
    ] {
        let end = run("lab", args);
        assert_eq!(end.status.code(), Some(2), "{args:?}");
        let said = String::from_utf8_lossy(&end.stderr);
        assert!(
            said.contains(&format!("not yet: {name}")),
            "{args:?}: {said}"
        );
    }
}

#[test]
fn a_lease_that_cannot_beat_twice_is_refused_at_start() {
    let end = run("lab", &["--lease", "50ms"]);
    assert_eq!(end.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&end.stderr).contains("lease"));
    drop(Lab::start(&["--lease", "100ms"]));
    drop(Lab::start(&["--lease", "10ms", "--renew", "off"]));
}

#[tokio::test]
async fn sigterm_lets_running_requests_finish_and_exits_0() {
    let mut lab = Lab::start(&[]);
    let address = lab.address();
    let slow = tokio::spawn(post(address, "/orders").lab("delay=4000").send());
    super::wait_live(&lab, "/orders", 1).await;
    lab.signal("TERM");
    let answer = slow.await.expect("the request ends");
    assert_eq!(answer.status, 201);
    assert!(answer.complete);
    let status = tokio::task::spawn_blocking(move || {
        let status = lab.wait(Duration::from_secs(30));
        assert_eq!(lab.rest_of_stdout(), "", "the ready line is all there is");
        status
    });
    assert_eq!(status.await.unwrap().expect("the lab ends").code(), Some(0));
}

#[tokio::test]
async fn sigterm_ends_within_its_grace_whatever_hangs() {
    let mut lab = Lab::start(&[]);
    let address = lab.address();
    let hung = tokio::spawn(get(address, "/orders").lab("hang").open());
    let blocked = tokio::spawn(get(address, "/orders").lab("delay=1500&block=60000").open());
    super::wait_live(&lab, "/orders", 2).await;
    let begun = Instant::now();
    lab.signal("TERM");
    let status = tokio::task::spawn_blocking(move || lab.wait(Duration::from_secs(45)));
    let status = status
        .await
        .unwrap()
        .expect("the lab ends although requests hang");
    assert_eq!(status.code(), Some(0));
    assert!(
        begun.elapsed() < Duration::from_secs(40),
        "it took {:?}",
        begun.elapsed()
    );
    hung.abort();
    blocked.abort();
}

#[tokio::test]
async fn http1_and_h2c_share_a_port() {
    let lab = Lab::start(&[]);
    assert_eq!(get(lab.address(), "/effects").send().await.status, 200);
    assert_eq!(
        get(lab.address(), "/effects").http2().send().await.status,
        200
    );
}

#[tokio::test]
async fn routes_that_are_not_built_yet_answer_501() {
    let lab = Lab::start(&[]);
    let key = "0".repeat(64);
    for call in [
        get(lab.address(), "/board/ui"),
        post(lab.address(), format!("/claims/{key}/break?token=1")),
        post(lab.address(), "/items/7/invalidate"),
        post(lab.address(), "/lab.Lab/Order"),
    ] {
        let answer = call.send().await;
        assert_eq!(answer.status, 501);
        assert!(answer.body.starts_with(b"not yet: "), "{answer:?}");
    }
    assert_eq!(get(lab.address(), "/nowhere").send().await.status, 404);
}

#[test]
fn a_taken_port_is_one_clear_line() {
    let lab = Lab::start(&[]);
    let end = run("lab", &["--listen", &lab.address().to_string()]);
    assert_eq!(end.status.code(), Some(1));
    let said = String::from_utf8_lossy(&end.stderr);
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.contains("cannot serve"), "{said}");
}

#[tokio::test]
async fn its_policy_tells_how_orders_are_kept() {
    let lab = Lab::start(&["--retention", "7m"]);
    let policy = get(lab.address(), "/policy?format=json").send().await;
    assert_eq!(policy.status, 200);
    let text = policy.json().to_string();
    assert!(text.contains(r#""retention_seconds":420"#), "{text}");
    let page = get(lab.address(), "/policy").header("accept", "text/html");
    let page = page.send().await;
    assert!(page.body.starts_with(b"<!DOCTYPE html>"), "{page:?}");
}
