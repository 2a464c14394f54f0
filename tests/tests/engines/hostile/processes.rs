//! The owner's own process is blocked or paused.

use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use rustix::process::{Pid, Signal, kill_process};
use system_tests::servers::Leash;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdout, Command};
use tower_claim::store::{KeeperConnection, Value};
use tower_claim::{Attempt, DynClaimStore, Key, LapsePolicy, Namespace, Nonce, Terms, Token, Use};

use super::Engine;
use super::scene::{ANSWER, Guard, Party, TOLERANCE, terms, within};
use crate::suite::{key, nonce};

/// How a store is opened at an address.
pub type Connect = fn(String) -> BoxFuture<'static, Arc<dyn DynClaimStore>>;

/// The owner's runtime does nothing for two leases. A keeper with connections of its own beats on. One that
/// shares the user's cannot: it stops in time, another takes over, and the owner before writes no more.
pub async fn blocked_runtime<E: Engine>(connect: Connect) {
    let engine = E::start().await;
    let rival = Party::at::<E>(engine.address()).await;
    let (key, terms, address) = (key(), terms::<E>(), engine.address());
    let guard = Arc::new(Guard::default());
    let guarded = Arc::clone(&guard);
    let (begins, began) = tokio::sync::oneshot::channel();
    let owner = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        runtime.block_on(async {
            let owner = Party::with(within(ANSWER, "connecting", connect(address)).await);
            let own = owner.store.dyn_capabilities().keeper == KeeperConnection::Own;
            let terms = super::scene::terms::<E>();
            let held = owner.take(key, &terms, ANSWER).await;
            assert!(guarded.write_as(&held).await);
            begins.send(()).expect("the test waits");
            std::thread::sleep(E::lease() * 2);
            let holds = held.check().is_ok();
            let wrote = guarded.write_as(&held).await;
            // It ends with this thread's, which the test waits for: nobody is granted what was given back.
            (own, holds, wrote, held)
        })
    });
    within(ANSWER * 2, "the owner's grant", began)
        .await
        .expect("it is granted");
    let mut next = None;
    while !owner.is_finished() {
        let asked = rival.try_take(key, &terms).await;
        if let Ok(Attempt::Granted(claim)) = asked
            && !owner.is_finished()
        {
            assert!(guard.write_as(&claim).await);
            next = Some(claim);
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let ended = tokio::task::spawn_blocking(|| owner.join());
    let ended = within(ANSWER + E::lease() * 2, "the owner's end", ended).await;
    let (own, holds, wrote, _held) = ended
        .expect("it is waited for")
        .expect("the owner does not panic");
    assert_eq!(
        (holds, wrote, next.is_some()),
        (own, own, !own),
        "(holds, writes, taken by another), own connections: {own}"
    );
}

const ADDRESS: &str = "HOSTILE_ADDRESS";
const KEY: &str = "HOSTILE_KEY";
const MANNER: &str = "HOSTILE_MANNER";
pub const COOLING: Duration = Duration::from_secs(1);

pub fn known(part: &str) -> Key {
    Key::builder(Use::Lease, &Namespace::default())
        .part(part)
        .build()
}

/// How the other process holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Manner {
    /// A lapse cools, then another may take over.
    TakeOver,
    /// Nobody may take over.
    Hold,
    /// As [`TakeOver`](Self::TakeOver), but the point of no return is behind it.
    Marked,
}

impl Manner {
    const ALL: [Self; 3] = [Self::TakeOver, Self::Hold, Self::Marked];

    fn terms(self, lease: Duration) -> Terms {
        let terms = Terms::builder(lease).cooling(COOLING);
        let terms = match self {
            Self::Hold => terms.on_lapse(LapsePolicy::Hold),
            Self::TakeOver | Self::Marked => terms,
        };
        terms.build().expect("a lease long enough")
    }
}

/// Another process of this program that holds a lease.
pub struct Other {
    pub child: Child,
    _leash: Option<Leash>,
    pub pid: Pid,
    pub says: BufReader<ChildStdout>,
    pub part: String,
    pub token: Token,
    nonce: Nonce,
}

impl Other {
    pub async fn holding(address: String, test: &str, manner: Manner) -> Self {
        let part = format!("{:?}", nonce());
        let mut child = Command::new(std::env::current_exe().expect("this program has a file"))
            .args([test, "--exact", "--ignored", "--nocapture"])
            .env(ADDRESS, address)
            .env(KEY, &part)
            .env(MANNER, format!("{manner:?}"))
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
    let mut other = Other::holding(engine.address(), other_process, Manner::TakeOver).await;
    assert!(guard.write(other.token, other.nonce).await);

    let killed = Instant::now();
    kill_process(other.pid, Signal::KILL).expect("it runs");
    within(ANSWER, "its end", other.child.wait())
        .await
        .expect("it has a status");
    let limit = E::lease() + COOLING + E::lapses_late() + TOLERANCE;
    let next = rival.take(known(&other.part), &terms, limit).await;
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
    let other = Other::holding(engine.address(), other_process, Manner::TakeOver).await;
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

    system_tests::servers::stop(pid);
    let limit = E::lease() * 2 + ANSWER;
    let next = rival.take(known(&part), &terms, limit).await;
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
pub async fn heard(says: &mut BufReader<ChildStdout>) -> String {
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
    let told = std::env::var(MANNER).expect("told as well");
    let mut manners = Manner::ALL.into_iter();
    let manner = manners.find(|manner| format!("{manner:?}") == told);
    let manner = manner.expect("one of them");
    let owner = Party::at::<E>(address).await;
    let held = owner
        .take(known(&part), &manner.terms(E::lease()), ANSWER)
        .await;
    if manner == Manner::Marked {
        let clear = held.point_of_no_return().await;
        clear.expect("a clear yes");
    }
    println!("zombie: {} {}", held.token().get(), held.nonce());
    let told = tokio::task::spawn_blocking(|| std::io::stdin().read_line(&mut String::new()));
    told.await
        .expect("it does not panic")
        .expect("the test tells");
    // Before anything is asked of anybody.
    let word = held.check().map_or("lost", |()| "still mine");
    println!("zombie: {word}");
    if manner == Manner::Hold {
        let late = Value::Kept("late".into());
        let answer = held.finish(late, Duration::from_secs(60)).await;
        println!("zombie: {answer:?}");
    }
}
