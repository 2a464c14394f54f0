//! The owner's own process is blocked or paused.

use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use system_tests::servers::Leash;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdout, Command};
use tower_claim::store::KeeperConnection;
use tower_claim::{Attempt, Key, Namespace, Nonce, Terms, Token, Use};

use super::Engine;
use super::scene::{ANSWER, Guard, Party, TOLERANCE, terms, within};
use crate::suite::{key, nonce};

/// The owner's runtime does nothing for two leases: a keeper with connections of its own beats on.
pub async fn blocked_runtime<E: Engine>() {
    let engine = E::start().await;
    let rival = Party::at::<E>(engine.address()).await;
    let (key, terms, address) = (key(), terms::<E>(), engine.address());
    let (begins, began) = tokio::sync::oneshot::channel();
    let owner = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        runtime.block_on(async {
            let owner = Party::at::<E>(address).await;
            let terms = super::scene::terms::<E>();
            let held = owner.take(key, &terms, ANSWER).await;
            begins.send(()).expect("the test waits");
            std::thread::sleep(E::lease() * 2);
            held.check()
        })
    });
    within(ANSWER * 2, "the owner's grant", began)
        .await
        .expect("it is granted");
    let mut taken = false;
    while !owner.is_finished() {
        let asked = rival.try_take(key, &terms).await;
        taken |= !owner.is_finished() && matches!(asked, Ok(Attempt::Granted(_)));
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let holds = owner.join().expect("the owner does not panic").is_ok();
    let own = rival.store.dyn_capabilities().keeper == KeeperConnection::Own;
    assert_eq!(
        (holds, taken),
        (own, !own),
        "(holds, taken by another), own connections: {own}"
    );
}

const ADDRESS: &str = "HOSTILE_ADDRESS";
const KEY: &str = "HOSTILE_KEY";
const COOLING: Duration = Duration::from_secs(1);

fn named(part: &str) -> Key {
    Key::builder(Use::Lease, &Namespace::default())
        .part(part)
        .build()
}

/// Of the other process: a lapse cools.
fn cooled<E: Engine>() -> Terms {
    Terms::builder(E::lease())
        .cooling(COOLING)
        .build()
        .expect("a lease long enough")
}

/// Another process of this program that holds a lease.
struct Other {
    child: Child,
    _leash: Option<Leash>,
    pid: Pid,
    says: BufReader<ChildStdout>,
    part: String,
    token: Token,
    nonce: Nonce,
}

impl Other {
    async fn holding(address: String, test: &str) -> Self {
        let part = format!("{:?}", nonce());
        let mut child = Command::new(std::env::current_exe().expect("this program has a file"))
            .args([test, "--exact", "--ignored", "--nocapture"])
            .env(ADDRESS, address)
            .env(KEY, &part)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            // A group that loses its parent is woken up by the kernel: ours may, this one keeps us.
            .process_group(0)
            .spawn()
            .expect("it starts again");
        let leash = child.id().map(Leash::on);
        let pid = child.id().and_then(|pid| i32::try_from(pid).ok());
        let mut says = BufReader::new(child.stdout.take().expect("it is piped"));
        let held = heard(&mut says).await;
        let (token, nonce) = held.split_once(' ').expect("token and nonce");
        Self {
            child,
            _leash: leash,
            pid: pid.and_then(Pid::from_raw).expect("a process id"),
            says,
            part,
            token: token.parse().ok().and_then(Token::new).expect("a token"),
            nonce: nonce.parse().expect("a nonce"),
        }
    }
}

/// A process that holds a lease is killed (SIGKILL), its connections with it: the key stays taken for what is
/// left of the lease and the cooling, and not for longer.
pub async fn killed<E: Engine>(other_process: &str) {
    let engine = E::start().await;
    let rival = Party::at::<E>(engine.address()).await;
    let (terms, guard) = (terms::<E>(), Guard::default());
    let mut other = Other::holding(engine.address(), other_process).await;
    assert!(guard.write(other.token, other.nonce).await);

    let killed = Instant::now();
    kill_process(other.pid, Signal::KILL).expect("it runs");
    within(ANSWER, "its end", other.child.wait())
        .await
        .expect("it has a status");
    let limit = E::lease() + COOLING + E::lapses_late() + TOLERANCE;
    let next = rival.take(named(&other.part), &terms, limit).await;
    // Beats are a third of a lease apart, or a little more.
    assert!(
        killed.elapsed() > E::lease() / 2 + COOLING,
        "free after {:?}",
        killed.elapsed()
    );
    assert!(next.token() > other.token);
    assert!(guard.write_as(&next).await);
    assert!(!guard.write(other.token, other.nonce).await);
}

/// A process that holds a lease is paused (SIGSTOP) until another owner has written. Waking up, it knows
/// before it asks anybody; what it writes all the same is refused.
pub async fn zombie<E: Engine>(other_process: &str) {
    let engine = E::start().await;
    let rival = Party::at::<E>(engine.address()).await;
    let (terms, guard) = (terms::<E>(), Guard::default());
    let other = Other::holding(engine.address(), other_process).await;
    let Other {
        mut child,
        mut says,
        part,
        pid,
        token,
        nonce,
        _leash,
    } = other;
    assert!(guard.write(token, nonce).await);

    kill_process(pid, Signal::STOP).expect("it runs");
    let limit = E::lease() * 2 + ANSWER;
    let next = rival.take(named(&part), &terms, limit).await;
    assert!(next.token() > token);
    assert!(guard.write_as(&next).await);
    kill_process(pid, Signal::CONT).expect("it is there");

    let mut tell = child.stdin.take().expect("it is piped");
    tell.write_all(b"go\n").await.expect("it listens");
    assert_eq!(heard(&mut says).await, "lost");
    assert!(!guard.write(token, nonce).await, "the old owner writes");
    let ended = within(ANSWER, "its end", child.wait()).await;
    assert!(ended.expect("it has a status").success());
}

/// What the other process says behind its mark; the test harness talks, too.
async fn heard(says: &mut BufReader<ChildStdout>) -> String {
    let said = async {
        let mut line = String::new();
        while says.read_line(&mut line).await.is_ok_and(|bytes| bytes > 0) {
            if let Some((_, said)) = line.trim_end().split_once("zombie: ") {
                return said.to_owned();
            }
            line.clear();
        }
        panic!("the other process ended")
    };
    within(ANSWER * 2, "a word of the other process", said).await
}

/// The other process.
pub async fn to_be_paused<E: Engine>() {
    let (Ok(address), Ok(part)) = (std::env::var(ADDRESS), std::env::var(KEY)) else {
        return; // asked for by hand
    };
    let owner = Party::at::<E>(address).await;
    let held = owner.take(named(&part), &cooled::<E>(), ANSWER).await;
    println!("zombie: {} {}", held.token().get(), held.nonce());
    let told = tokio::task::spawn_blocking(|| std::io::stdin().read_line(&mut String::new()));
    told.await
        .expect("it does not panic")
        .expect("the test tells");
    // Before anything is asked of anybody.
    let word = held.check().map_or("lost", |()| "still mine");
    println!("zombie: {word}");
}
