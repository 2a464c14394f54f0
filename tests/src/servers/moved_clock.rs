//! A server's wall clock, moved while it runs.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

use tempfile::TempDir;

use super::place::folder;

/// A wall clock for servers started under it. Their monotonic clocks stay as they are. (`faketime` moves
/// those, too, and hangs Redis 7.)
#[derive(Debug)]
pub struct MovedClock {
    folder: TempDir,
}

impl MovedClock {
    /// A clock that is right.
    ///
    /// # Panics
    ///
    /// Where `cc` is missing, or builds no shared library.
    pub fn new() -> Self {
        let clock = Self {
            folder: folder(None),
        };
        // The server may run as another user.
        let open = fs::Permissions::from_mode(0o755);
        fs::set_permissions(clock.folder.path(), open).expect("the folder is ours");
        clock.set(0);
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/src/servers/moved_clock.c");
        let built = Command::new("cc")
            .args(["-O2", "-Wall", "-Werror", "-shared", "-fPIC", "-o"])
            .arg(clock.library())
            .arg(source)
            .output()
            .expect("`cc` is missing: install the package `gcc` (tests/run does)");
        assert!(
            built.status.success(),
            "{}",
            String::from_utf8_lossy(&built.stderr)
        );
        clock
    }

    /// From now on the clock is so many seconds ahead of this machine's; behind it, where negative.
    ///
    /// # Panics
    ///
    /// Where its file cannot be written.
    pub fn set(&self, seconds: i64) {
        // In place: the servers have the file mapped.
        fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .open(self.file())
            .and_then(|mut file| std::io::Write::write_all(&mut file, &seconds.to_ne_bytes()))
            .expect("the folder is ours");
    }

    fn library(&self) -> PathBuf {
        self.folder.path().join("moved_clock.so")
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("seconds")
    }

    /// What a command begins with to be run under the clock.
    pub(super) fn before_command(&self) -> Vec<String> {
        vec![
            "env".to_owned(),
            format!("LD_PRELOAD={}", self.library().display()),
            format!("MOVED_CLOCK={}", self.file().display()),
        ]
    }
}

impl Default for MovedClock {
    fn default() -> Self {
        Self::new()
    }
}
