//! Ports, folders, programs and users.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// A port of loopback that nobody listens on just now, and that this process is given once.
///
/// Not one that the system chooses: until its server listens, the system may give it to another server, or to
/// a connection that goes out. Linux takes those from 32,768 on.
///
/// # Panics
///
/// Where all are taken.
pub fn free_port() -> u16 {
    const FIRST: u32 = 20_000;
    const COUNT: u32 = 12_000;
    static GIVEN: AtomicU32 = AtomicU32::new(0);
    // Tests of two processes begin at places far apart.
    let start = std::process::id().wrapping_mul(131);
    for _ in 0..COUNT {
        let nth = start.wrapping_add(GIVEN.fetch_add(1, Ordering::Relaxed));
        let port = u16::try_from(FIRST + nth % COUNT).expect("below 32,768");
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
    panic!("loopback has no free port from {FIRST} on");
}

/// A folder that goes with the test, and that `user` may write to.
pub(super) fn folder(user: Option<&str>) -> TempDir {
    let folder = tempfile::Builder::new()
        .prefix("claims-")
        .tempdir()
        .expect("a temporary folder");
    if let Some(user) = user {
        let owned = Command::new("chown").arg(user).arg(folder.path()).status();
        assert!(
            owned.is_ok_and(|status| status.success()),
            "chown to {user}"
        );
    }
    folder
}

/// A program of a server.
///
/// # Panics
///
/// Where it is missing, with the package to install.
pub(super) fn program(name: &str, package: &str, folders: &[&str]) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(folders.iter().map(PathBuf::from))
        .map(|folder| folder.join(name))
        .find(|file| file.is_file())
        .unwrap_or_else(|| {
            panic!("`{name}` is missing: install the package `{package}` (tests/run does)")
        })
}

/// The newest folder of PostgreSQL programs on Debian.
pub(super) fn postgres_folder() -> Option<String> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").ok()?;
    let newest = versions
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
        .max()?;
    Some(format!("/usr/lib/postgresql/{newest}/bin"))
}

/// Whether this process is root, which PostgreSQL refuses to run as.
pub(super) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Waits for a condition.
///
/// # Panics
///
/// After 90 s, with what was waited for and what `log` says last.
pub(super) fn wait_for(what: &str, log: &Path, mut ready: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(90);
    while !ready() {
        if Instant::now() > until {
            let log = std::fs::read_to_string(log).unwrap_or_default();
            panic!("{what} did not come; its log:\n{log}");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}
