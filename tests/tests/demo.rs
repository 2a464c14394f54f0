//! The demo as a server: its page, its end, and a port that is taken.

use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use system_tests::client::{Answer, get, post, until};
use system_tests::programs::{path, run_within};

const LIMIT: Duration = Duration::from_secs(60);

/// Killed when dropped.
struct Demo {
    child: Child,
    address: SocketAddr,
    /// What it says after it has told where its page is.
    rest: Option<JoinHandle<Vec<String>>>,
}

impl Demo {
    fn start(args: &[&str]) -> Self {
        let mut child = Command::new(path("demo"))
            .args(["--listen", "127.0.0.1:0"])
            .args(args)
            .stdout(Stdio::piped())
            .spawn()
            .expect("the demo starts");
        let mut said = BufReader::new(child.stdout.take().expect("it was piped")).lines();
        let address = said
            .by_ref()
            .map(|line| line.expect("it speaks UTF-8"))
            .find_map(|line| {
                let (_, url) = line.split_once("a page to play with")?;
                let address = url.trim().strip_prefix("http://")?.strip_suffix('/')?;
                address.parse().ok()
            })
            .expect("it says where the page is");
        // Nobody may stop it by not listening.
        let rest = std::thread::spawn(move || said.map_while(Result::ok).collect());
        Self {
            child,
            address,
            rest: Some(rest),
        }
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test]
async fn it_says_where_its_page_is_and_ends_when_told_to() {
    let mut demo = Demo::start(&[]);
    let address = demo.address;
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
        .args(["-TERM", &demo.child.id().to_string()])
        .status();
    assert!(end.expect("kill runs").success());
    assert_eq!(hanging.await.expect("no panic").status, 200);
    let began = Instant::now();
    let status = loop {
        if let Some(status) = demo.child.try_wait().expect("the demo is our child") {
            break status;
        }
        assert!(began.elapsed() < LIMIT, "it does not end");
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    assert!(status.success(), "{status}");
    let rest = demo.rest.take().expect("nobody took it").join();
    let rest = rest.expect("no panic");
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

/// Announces to classroom 7.
async fn announce(demo: &Demo) -> Answer {
    let call = post(demo.address, "/classrooms/7/announcement");
    call.body("No lessons tomorrow").send().await
}

#[tokio::test]
async fn an_announcement_outlives_the_process_where_the_store_does() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = format!("redb:{}", folder.path().join("claims").display());
    for (store, replayed) in [("memory:", false), (file.as_str(), true)] {
        let first = announce(&Demo::start(&["--store", store])).await;
        assert_eq!((first.status.as_u16(), first.replayed()), (201, false));
        let again = announce(&Demo::start(&["--store", store])).await;
        assert_eq!((again.status.as_u16(), again.replayed()), (201, replayed));
    }
}

#[tokio::test]
async fn a_classroom_in_two_spellings_is_told_once_and_has_one_lease() {
    let demo = Demo::start(&[]);
    for (room, status) in [("77", 201), ("%37%37", 422), ("77", 201)] {
        let call = post(demo.address, format!("/classrooms/{room}/announcement"));
        let told = call.body("No lessons tomorrow").send().await;
        assert_eq!(told.status, status, "{room}");
    }
    let inbox = get(demo.address, "/classrooms/77/inbox").send().await;
    assert_eq!(inbox.json().as_array().map(Vec::len), Some(1));

    // The job holds the lease until it is woken, or for the length of the lease.
    let paused = post(demo.address, "/seats/77/jobs?paused=true");
    assert_eq!(paused.body("Ada").send().await.status, 202);
    let second = post(demo.address, "/seats/%37%37/jobs").body("Bob");
    assert_eq!(second.send().await.status, 423);
}

#[tokio::test]
async fn a_body_that_no_handler_saw_does_not_bind_its_key() {
    let demo = Demo::start(&[]);
    let enrol = |body: &'static str| {
        let call = post(demo.address, "/enrolments").key("one-click-7f3a");
        call.header("content-type", "application/json").body(body)
    };
    for (body, status) in [("{", 400), (r#"{"pupil":"Ada"}"#, 422)] {
        assert_eq!(enrol(body).send().await.status, status, "{body}");
    }
    let right = r#"{"pupil":"Ada","course":"chess"}"#;
    for replayed in [false, true] {
        let enrolled = enrol(right).send().await;
        assert_eq!(
            (enrolled.status.as_u16(), enrolled.replayed()),
            (201, replayed)
        );
    }
}

#[test]
fn a_store_that_cannot_be_opened_is_one_line_without_its_password() {
    let folder = tempfile::tempdir().expect("a folder");
    let nobody = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let nobody = nobody.local_addr().expect("an address").to_string();
    for store in [
        format!("redb:{}/missing/claims", folder.path().display()),
        format!("redis://:secret@{nobody}/0"),
        "redis://:secret@localhost:port/0".to_owned(),
        format!("redis+unix:{}/socket", folder.path().display()),
        format!("postgres://u:secret@{nobody}/db"),
        "postgres://u:secret@localhost:port/db".to_owned(),
        format!("etcd://{nobody}"),
    ] {
        let store = store.as_str();
        for args in [&["--store", store][..], &["tour", "--store", store]] {
            let demo = run_within(LIMIT, "demo", args);
            let said = String::from_utf8_lossy(&demo.stderr);
            assert_eq!(demo.status.code(), Some(1), "{args:?}: {said}");
            assert!(demo.stdout.is_empty(), "{args:?} goes on");
            assert_eq!(said.lines().count(), 1, "{said}");
            assert!(said.starts_with("demo: cannot open the store "), "{said}");
            assert!(!said.contains("secret"), "{said}");
        }
    }
}
