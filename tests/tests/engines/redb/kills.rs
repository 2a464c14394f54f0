//! A process that is killed at any point under load loses nothing that it was answered.
//!
//! This test binary runs itself again as the victim. It claims, finishes and releases over few keys from
//! many tasks, and writes a line to its standard output for each answer. The parent kills it with SIGKILL,
//! opens the file, and compares it with the lines.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tower_claim::store::{
    ClaimRequest, Claimed, Finish, FinishRequest, Owner, Release, ReleaseRequest, State, Value,
};
use tower_claim::{ClaimStore, Key, Namespace, Nonce, OsEntropy, Settings, Token, Use};
use tower_claim_redb::{OpenError, RedbStore};

const KILLS: usize = 200;
const TASKS: u64 = 24;
/// Keys that are finished for good, in the order of their numbers: each task has its own.
const LEASES: u64 = 8;
const VICTIM: &str = "REDB_VICTIM";
const THIS_TEST: &str = "redb::kills::two_hundred_kills_lose_nothing_that_was_answered";
/// Longer than the test.
const KEEP: Duration = Duration::from_secs(3600);

fn key(kind: &str, n: u64) -> Key {
    Key::builder(Use::Idempotency, &Namespace::default())
        .part(kind)
        .part(n.to_be_bytes())
        .build()
}

/// What the victim was answered, as a line.
fn tell(what: &str, key: u64, token: Token) {
    let line = format!("{what} {key} {}\n", token.get());
    // One write of less than a page: whole or not at all.
    std::io::stdout()
        .write_all(line.as_bytes())
        .expect("the parent reads");
}

/// What the parent has read of all victims.
#[derive(Default)]
struct Told {
    /// The highest token granted, of each lease key.
    leases: HashMap<u64, u64>,
    /// The token that finished each work key.
    finished: HashMap<u64, u64>,
    grants: usize,
}

impl Told {
    fn hear(&mut self, line: &str) {
        let words: Vec<&str> = line.split(' ').collect();
        let [what, key, token] = words[..] else {
            return;
        };
        let (Ok(key), Ok(token)) = (key.parse::<u64>(), token.parse::<u64>()) else {
            return;
        };
        match what {
            "leased" => {
                self.grants += 1;
                let before = self.leases.insert(key, token).unwrap_or(0);
                assert!(token > before, "lease {key}: {token} after {before}");
            }
            "granted" => {
                self.grants += 1;
                let done = self.finished.get(&key);
                assert!(done.is_none(), "work {key} was granted after its finish");
            }
            "finished" => {
                let before = self.finished.insert(key, token);
                assert!(before.is_none_or(|before| before == token));
            }
            _ => {}
        }
    }
}

/// Runs until it is killed.
async fn victim(path: &Path) {
    let store = RedbStore::open(path).expect("the file opens after a kill");
    println!();
    let from = std::env::var("REDB_FROM").map_or(0, |from| from.parse().unwrap_or(0));
    let tasks = (0..TASKS).map(|task| {
        let store = store.clone();
        tokio::spawn(async move {
            for round in 0.. {
                lease(&store, (task + round) % LEASES).await;
                // Of each three keys one is new; the others may be done by another task or run.
                work(&store, from + round * TASKS + task).await;
                work(&store, from + round * TASKS + (task * 7) % TASKS).await;
            }
        })
    });
    futures_util::future::join_all(tasks.collect::<Vec<_>>()).await;
}

fn ask<'a>(store: &RedbStore, key: Key, settings: &'a Settings) -> ClaimRequest<'a> {
    ClaimRequest {
        key,
        nonce: Nonce::draw(&OsEntropy),
        fingerprint: None,
        settings,
        floor: Token::ZERO,
        not_after: store.now().saturating_add(Duration::from_secs(2)),
    }
}

async fn lease(store: &RedbStore, n: u64) {
    let settings = Settings::new(Duration::from_secs(60));
    let request = ask(store, key("lease", n), &settings);
    let Ok(Claimed::Granted(grant)) = store.claim(request).await else {
        return;
    };
    tell("leased", n, grant.token);
    let release = ReleaseRequest {
        key: request.key,
        nonce: request.nonce,
        token: Some(grant.token),
        not_after: request.not_after,
    };
    let released = store.release(release).await;
    assert!(matches!(released, Ok(Release::Released)), "{released:?}");
}

async fn work(store: &RedbStore, n: u64) {
    let settings = Settings::new(Duration::from_secs(60));
    let request = ask(store, key("work", n), &settings);
    let Ok(Claimed::Granted(grant)) = store.claim(request).await else {
        return;
    };
    tell("granted", n, grant.token);
    let finish = FinishRequest {
        owner: Owner {
            key: request.key,
            nonce: request.nonce,
            token: grant.token,
        },
        value: Value::Kept(grant.token.get().to_be_bytes().to_vec().into()),
        keep: KEEP,
    };
    if let Ok(Finish::Finished) = store.finish(finish).await {
        tell("finished", n, grant.token);
    }
}

fn start(path: &Path, from: u64) -> Child {
    Command::new(std::env::current_exe().expect("this test"))
        .args([THIS_TEST, "--exact", "--nocapture", "--quiet"])
        .env(VICTIM, path)
        .env("REDB_FROM", from.to_string())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the victim starts")
}

/// Kills the victim this long after its first answer; hears all it said.
fn kill_after(path: &Path, mut victim: Child, delay: Duration, told: &mut Told) {
    let mut lines = BufReader::new(victim.stdout.take().expect("a pipe"));
    let mut line = String::new();
    let mut hear = |line: &mut String, told: &mut Told| {
        line.clear();
        let read = lines.read_line(line).expect("a pipe");
        // A line that was cut says nothing.
        if let Some(line) = line.strip_suffix('\n') {
            told.hear(line);
        }
        read > 0
    };
    let grants = told.grants;
    let mut begun = None;
    let mut killed = false;
    while hear(&mut line, told) {
        if told.grants > grants && begun.is_none() {
            // The victim has the file, and nobody else gets it.
            let second = RedbStore::open(path).expect_err("two processes own the file");
            assert!(matches!(second.kind(), OpenError::InUse), "{second:?}");
            begun = Some(Instant::now());
        }
        if !killed && begun.is_some_and(|begun| begun.elapsed() >= delay) {
            victim.kill().expect("it runs");
            killed = true;
        }
    }
    let end = victim.wait_with_output().expect("it ended");
    let said = String::from_utf8_lossy(&end.stderr);
    assert!(killed, "the victim ended by itself: {said}");
}

/// Compares the file with what was answered.
async fn compare(path: &Path, told: &Told, since: &mut HashMap<u64, u64>) {
    let store = RedbStore::open(path).expect("the file opens after a kill");
    for (n, token) in &told.finished {
        if since.insert(*n, *token).is_some() {
            continue; // compared before; the last kill compares all
        }
        let settings = Settings::new(Duration::from_secs(1));
        let request = ask(&store, key("work", *n), &settings);
        match store.claim(request).await.expect("an answer") {
            Claimed::Done(done) => {
                assert_eq!(done.token.get(), *token, "work {n}");
                let value = Value::Kept(token.to_be_bytes().to_vec().into());
                assert_eq!(done.value, value, "work {n}");
            }
            other => panic!("the finished result of work {n} is lost: {other:?}"),
        }
    }
    for (n, token) in &told.leases {
        let record = store.peek(key("lease", *n)).await.expect("an answer");
        let record = record.expect("granted a moment ago");
        assert!(record.token.get() >= *token, "lease {n} went back");
        // Whoever had it is dead.
        assert!(
            record.state == State::Free || record.lapsed,
            "lease {n} is held by a dead owner: {record:?}"
        );
    }
    store.close().await;
}

#[test]
fn two_hundred_kills_lose_nothing_that_was_answered() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    if let Some(path) = std::env::var_os(VICTIM) {
        runtime.block_on(victim(Path::new(&path)));
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("claims.redb");
    let mut told = Told::default();
    let mut compared = HashMap::new();
    let begun = Instant::now();
    // From a fixed seed: delays of 0 to 40 ms after the first answer.
    let mut state = 88_172_645_463_325_252_u64;
    for kill in 0..KILLS {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let delay = Duration::from_micros(state % 40_000);
        let from = told
            .finished
            .keys()
            .max()
            .map_or(0, |max| max.saturating_sub(TASKS));
        kill_after(&path, start(&path, from), delay, &mut told);
        if kill == KILLS - 1 {
            compared.clear();
        }
        runtime.block_on(compare(&path, &told, &mut compared));
    }
    println!(
        "{KILLS} kills in {:.1?}: {} grants, {} finished",
        begun.elapsed(),
        told.grants,
        told.finished.len()
    );
    // How many depends on the disk; more than the first of each life.
    assert!(told.grants > 2 * KILLS, "hardly any load: {}", told.grants);
}
