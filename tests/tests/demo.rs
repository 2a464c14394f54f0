//! The demo as a server: its page, its end, and a port that is taken.

use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use system_tests::client::{get, until};
use system_tests::programs::{path, run_within};

const LIMIT: Duration = Duration::from_secs(60);

/// Killed when dropped.
struct Demo(Child);

impl Drop for Demo {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test]
async fn it_says_where_its_page_is_and_ends_when_told_to() {
    let child = Command::new(path("demo"))
        .args(["--listen", "127.0.0.1:0"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("the demo starts");
    let mut demo = Demo(child);
    let mut said = BufReader::new(demo.0.stdout.take().expect("it was piped")).lines();
    let address: SocketAddr = said
        .by_ref()
        .map(|line| line.expect("it speaks UTF-8"))
        .find_map(|line| {
            let (_, url) = line.split_once("a page to play with")?;
            let address = url.trim().strip_prefix("http://")?.strip_suffix('/')?;
            address.parse().ok()
        })
        .expect("it says where the page is");
    // Nobody may stop it by not listening.
    let rest = std::thread::spawn(move || said.map_while(Result::ok).collect::<Vec<_>>());

    let page = get(address, "/").send().await;
    assert_eq!(page.status, 200);
    let page = String::from_utf8_lossy(&page.body).into_owned();
    assert!(page.starts_with("<!doctype html>"));
    for foreign in ["http://", "https://", "innerHTML", "insertAdjacentHTML"] {
        assert!(!page.contains(foreign), "the page has {foreign}");
    }

    // One that hangs is told to go on, and answered.
    let hanging = tokio::spawn(get(address, "/catalogue/atlas?upstream=hang").send());
    until(
        "it hangs",
        || get(address, "/board?stage=upstream_called").send(),
        |board| {
            board.json()["live"]
                .as_array()
                .is_some_and(|l| l.len() == 1)
        },
    )
    .await;
    let end = Command::new("kill")
        .args(["-TERM", &demo.0.id().to_string()])
        .status();
    assert!(end.expect("kill runs").success());
    assert_eq!(hanging.await.expect("no panic").status, 200);
    let began = Instant::now();
    let status = loop {
        if let Some(status) = demo.0.try_wait().expect("the demo is our child") {
            break status;
        }
        assert!(began.elapsed() < LIMIT, "it does not end");
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    assert!(status.success(), "{status}");
    let rest = rest.join().expect("no panic");
    assert!(
        rest.iter().any(|l| l.contains("no new requests")),
        "{rest:?}"
    );
}

#[test]
fn a_port_that_is_taken_is_named() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("an address").to_string();
    let demo = run_within(LIMIT, "demo", &["--listen", &address]);
    assert_eq!(demo.status.code(), Some(1));
    let said = String::from_utf8_lossy(&demo.stderr);
    assert!(
        said.contains(&address) && said.contains("--listen"),
        "{said}"
    );
    assert_eq!(said.lines().count(), 1, "{said}");
}
