//! The private servers themselves: they start, they are for this machine only, and they end with the test.

use std::collections::HashSet;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
#[cfg(feature = "etcd")]
use system_tests::servers::Etcd;
#[cfg(feature = "redis")]
use system_tests::servers::Redis;
#[cfg(feature = "postgres")]
use system_tests::servers::{PgBouncer, Postgres};

#[cfg(feature = "redis")]
#[test]
fn redis_starts_again_on_its_port() {
    let mut redis = Redis::start();
    let pid = redis.process().pid();
    redis.kill();
    redis.run();
    assert_ne!(redis.process().pid(), pid);
}

#[cfg(feature = "postgres")]
#[test]
fn postgres_starts_again_on_its_port() {
    let mut postgres = Postgres::start();
    postgres.kill();
    postgres.run();
}

#[cfg(feature = "etcd")]
#[test]
fn etcd_starts_with_three_nodes() {
    let etcd = Etcd::with_nodes(3);
    assert_eq!(etcd.addresses().len(), 3);
}

#[cfg(any(feature = "redis", feature = "postgres"))]
const HOUR: i64 = 3600;

#[cfg(any(feature = "redis", feature = "postgres"))]
fn unix_now() -> i64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    i64::try_from(now.expect("after 1970").as_secs()).expect("before the end of time")
}

/// The server tells the moved time, at once, both ways.
#[cfg(any(feature = "redis", feature = "postgres"))]
fn follows(clock: &system_tests::servers::MovedClock, tells: impl Fn() -> i64) {
    for offset in [0, HOUR, -HOUR, 0] {
        clock.set(offset);
        // A server may have read its clock just before, and a busy machine stand still in between.
        let until = Instant::now() + Duration::from_secs(30);
        loop {
            let off = tells() - unix_now();
            if (off - offset).abs() <= 1 {
                break;
            }
            assert!(Instant::now() < until, "off by {off} s, not {offset} s");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

#[cfg(feature = "redis")]
#[test]
fn the_clock_of_redis_moves() {
    let clock = system_tests::servers::MovedClock::new();
    let redis = Redis::under(&clock);
    follows(&clock, || {
        let told = redis.ask("TIME");
        let seconds = told.lines().nth(2).expect("an array of two texts");
        seconds.parse().expect("seconds")
    });
}

#[cfg(feature = "postgres")]
#[test]
fn the_clock_of_postgres_moves() {
    let clock = system_tests::servers::MovedClock::new();
    let postgres = Postgres::under(&clock);
    follows(&clock, || {
        let told = postgres.sql("select extract(epoch from clock_timestamp())::bigint");
        told.parse().expect("seconds")
    });
}

/// One of each.
struct All {
    #[cfg(feature = "redis")]
    redis: Redis,
    #[cfg(feature = "postgres")]
    pgbouncer: PgBouncer,
    #[cfg(feature = "postgres")]
    postgres: Postgres,
    #[cfg(feature = "etcd")]
    etcd: Etcd,
}

impl All {
    fn start() -> Self {
        #[cfg(feature = "postgres")]
        let postgres = Postgres::start();
        Self {
            #[cfg(feature = "redis")]
            redis: Redis::start(),
            #[cfg(feature = "postgres")]
            pgbouncer: PgBouncer::before(&postgres, 1),
            #[cfg(feature = "postgres")]
            postgres,
            #[cfg(feature = "etcd")]
            etcd: Etcd::start(),
        }
    }

    fn processes(&self) -> Vec<&system_tests::servers::Process> {
        vec![
            #[cfg(feature = "redis")]
            self.redis.process(),
            #[cfg(feature = "postgres")]
            self.pgbouncer.process(),
            #[cfg(feature = "postgres")]
            self.postgres.process(),
            #[cfg(feature = "etcd")]
            self.etcd.process(0),
        ]
    }
}

/// The local addresses, in the kernel's hexadecimal, of the sockets that wait for anybody.
fn listens_at(pid: i32) -> Vec<String> {
    let files = std::fs::read_dir(format!("/proc/{pid}/fd")).expect("it runs");
    let sockets: HashSet<_> = files
        .flatten()
        .filter_map(|file| std::fs::read_link(file.path()).ok())
        .filter_map(|link| {
            let inode = link.to_str()?.strip_prefix("socket:[")?;
            Some(inode.strip_suffix(']')?.to_owned())
        })
        .collect();
    let mut found = Vec::new();
    for table in ["tcp", "tcp6", "udp", "udp6"] {
        let table = std::fs::read_to_string(format!("/proc/net/{table}")).unwrap_or_default();
        for line in table.lines().skip(1) {
            let words: Vec<_> = line.split_whitespace().collect();
            // TCP in state LISTEN, UDP without a peer.
            if matches!(words[3], "0A" | "07") && sockets.contains(words[9]) {
                found.push(words[1].to_owned());
            }
        }
    }
    found
}

#[test]
fn no_server_listens_beyond_this_machine() {
    const LOOPBACK: [&str; 2] = ["0100007F:", "00000000000000000000000001000000:"];
    let all = All::start();
    for process in all.processes() {
        let addresses: Vec<_> = process.family().into_iter().flat_map(listens_at).collect();
        assert!(!addresses.is_empty(), "{} listens nowhere", process.pid());
        for address in addresses {
            assert!(
                LOOPBACK
                    .iter()
                    .any(|loopback| address.starts_with(loopback)),
                "{address} of {:?}",
                process.log()
            );
        }
    }
}

const THE_OTHER: &str = "servers::the_process_that_ends";
const WORD: &str = "SERVERS_END";

/// A process with servers ends; soon nothing of them is left, not even a folder.
fn nothing_outlives(word: &str, end: impl FnOnce(Pid)) {
    let place = tempfile::tempdir().expect("a folder");
    // PostgreSQL runs as another user.
    let open = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(place.path(), open).expect("it is ours");
    let mut other = Command::new(std::env::current_exe().expect("this program has a file"))
        .args([THE_OTHER, "--exact", "--ignored", "--nocapture"])
        .env(WORD, word)
        .env("TMPDIR", place.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("it starts again");
    let mut says = BufReader::new(other.stdout.take().expect("it is piped"));
    let mut family: Vec<i32> = Vec::new();
    loop {
        let mut line = String::new();
        let read = says.read_line(&mut line).expect("a pipe");
        assert!(read > 0, "the other process ended before its servers ran");
        if let Some((_, pids)) = line.trim().split_once("servers: ") {
            family.extend(pids.split(' ').filter_map(|pid| pid.parse::<i32>().ok()));
            break;
        }
    }
    assert!(!family.is_empty(), "no servers");
    let pid = i32::try_from(other.id()).ok().and_then(Pid::from_raw);
    end(pid.expect("a process id"));
    drop(other.stdin.take());
    let status = other.wait().expect("it is our child");
    assert!(!status.success(), "it ended well");

    let until = Instant::now() + Duration::from_secs(30);
    let left = || {
        let running = family.iter().map(|pid| format!("/proc/{pid}"));
        let running = running.filter(|process| Path::new(process).exists());
        let folders = std::fs::read_dir(place.path()).expect("it is ours");
        let folders = folders
            .flatten()
            .map(|entry| entry.path().display().to_string());
        running.chain(folders).collect::<Vec<_>>()
    };
    while !left().is_empty() {
        assert!(Instant::now() < until, "left behind: {:?}", left());
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn nothing_outlives_a_panic() {
    nothing_outlives("panic", |_| {});
}

#[test]
fn nothing_outlives_a_kill() {
    nothing_outlives("wait", |pid| {
        kill_process(pid, Signal::KILL).expect("it runs");
    });
}

/// As Ctrl-C in a terminal does: to the whole group. (Whoever runs in the background may ignore that one.)
#[test]
fn nothing_outlives_a_signal_to_the_whole_group() {
    nothing_outlives("group", |pid| {
        rustix::process::kill_process_group(pid, Signal::TERM).expect("it leads one");
    });
}

#[test]
#[ignore = "the other process of a test"]
fn the_process_that_ends() {
    let Ok(word) = std::env::var(WORD) else {
        return; // asked for by hand
    };
    if word == "group" {
        rustix::process::setpgid(None, None).expect("a group of its own");
    }
    let all = All::start();
    let family: Vec<_> = all
        .processes()
        .into_iter()
        .flat_map(system_tests::servers::Process::family)
        .map(|pid| pid.to_string())
        .collect();
    // The hardest to end: processes that stand still.
    for process in all.processes() {
        process.stop();
    }
    println!("servers: {}", family.join(" "));
    assert!(word != "panic", "as told");
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}
