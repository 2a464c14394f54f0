//! PostgreSQL.

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use super::moved_clock::MovedClock;
use super::place::{folder, free_port, is_root, postgres_folder, program, wait_for};
use super::process::Process;

/// A private PostgreSQL server with a superuser `postgres` and no passwords.
#[derive(Debug)]
pub struct Postgres {
    port: u16,
    settings: Vec<String>,
    /// Before its command.
    under: Vec<String>,
    process: Option<Process>,
    folder: TempDir,
}

fn find(name: &str) -> PathBuf {
    let debian = postgres_folder();
    let folders: Vec<&str> = debian.as_deref().into_iter().collect();
    // Debian's folder first: a wrapper of the same name may be on the path.
    for folder in &folders {
        let file = PathBuf::from(folder).join(name);
        if file.is_file() {
            return file;
        }
    }
    program(name, "postgresql", &folders)
}

/// PostgreSQL refuses to run as root: there it runs as Debian's user.
fn user() -> Option<&'static str> {
    is_root().then_some("postgres")
}

/// One of its programs, run as the user that runs the server.
fn as_user(program: &str) -> Command {
    let program = find(program);
    let Some(user) = user() else {
        return Command::new(program);
    };
    let mut command = Command::new("setpriv");
    command.args(["--reuid", user, "--regid", user, "--clear-groups"]);
    command.arg(program);
    command
}

impl Postgres {
    /// A server that waits for the disk before it answers, as a store demands where answers must be kept.
    pub fn start() -> Self {
        Self::with(&["full_page_writes=off"])
    }

    /// As [`start`](Self::start), under a clock that can be moved.
    pub fn under(clock: &MovedClock) -> Self {
        Self::build(&["full_page_writes=off"], clock.before_command())
    }

    /// A server with these settings (`name=value`) beside its port and folder.
    ///
    /// # Panics
    ///
    /// Where the programs are missing or the database cannot be made.
    pub fn with(settings: &[&str]) -> Self {
        Self::build(settings, Vec::new())
    }

    /// A hot standby that streams from the server at this port of this machine (a relay, perhaps).
    ///
    /// # Panics
    ///
    /// Where that server cannot be copied.
    pub fn replica_of(port: u16) -> Self {
        let folder = folder(user());
        let data = folder.path().join("data").display().to_string();
        let copied = as_user("pg_basebackup")
            .args([
                "-D",
                &data,
                "-h",
                "127.0.0.1",
                "-U",
                "postgres",
                "-R",
                "-c",
                "fast",
            ])
            .args(["-p", &port.to_string(), "--no-sync"])
            .current_dir(folder.path())
            .output()
            .expect("pg_basebackup starts");
        assert!(
            copied.status.success(),
            "pg_basebackup: {}",
            String::from_utf8_lossy(&copied.stderr)
        );
        let mut server = Self {
            port: free_port(),
            settings: vec!["fsync=off".to_owned()],
            under: Vec::new(),
            process: None,
            folder,
        };
        server.run();
        server
    }

    fn build(settings: &[&str], under: Vec<String>) -> Self {
        let folder = folder(user());
        let data = folder.path().join("data").display().to_string();
        let made = as_user("initdb")
            .args(["-D", &data, "-A", "trust", "-U", "postgres", "-E", "UTF8"])
            .args(["--locale=C", "--no-sync"])
            .current_dir(folder.path())
            .output()
            .expect("initdb starts");
        assert!(
            made.status.success(),
            "initdb: {}",
            String::from_utf8_lossy(&made.stderr)
        );
        let mut server = Self {
            port: free_port(),
            settings: settings.iter().map(ToString::to_string).collect(),
            under,
            process: None,
            folder,
        };
        server.run();
        server
    }

    /// A server that speaks TLS by this certificate and key, in PEM.
    ///
    /// # Panics
    ///
    /// As [`with`](Self::with), and where the files cannot be read.
    pub fn with_tls(certificate: &Path, key: &Path) -> Self {
        let mut server = Self::with(&["fsync=off"]);
        server.kill();
        for (from, name) in [(certificate, "server.crt"), (key, "server.key")] {
            let file = server.folder().join("data").join(name);
            std::fs::copy(from, &file).expect("a certificate");
            // The key must be its reader's alone.
            let owner = user().map_or(String::new(), |user| format!("{user} "));
            let script = format!(
                "chmod 600 {0}; [ -z '{owner}' ] || chown {owner}{0}",
                file.display()
            );
            let done = Command::new("sh").args(["-c", &script]).status();
            assert!(done.is_ok_and(|status| status.success()), "{script}");
        }
        server.settings.push("ssl=on".to_owned());
        server.run();
        server
    }

    /// `postgres://postgres@127.0.0.1:PORT/postgres`.
    pub fn url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}/postgres", self.port)
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The process (the postmaster), to be stopped or killed.
    ///
    /// # Panics
    ///
    /// While it is [down](Self::kill).
    pub fn process(&self) -> &Process {
        self.process.as_ref().expect("the server runs")
    }

    /// The server's own folder.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Runs SQL past every client (`psql`, as superuser); its rows, bare.
    ///
    /// # Panics
    ///
    /// With what the server says, where it refuses.
    pub fn sql(&self, text: &str) -> String {
        let asked = Command::new(find("psql"))
            .args(["-X", "-A", "-t", "-q", "-v", "ON_ERROR_STOP=1", "-c", text])
            .arg(self.url())
            .output()
            .expect("psql starts");
        let refused = String::from_utf8_lossy(&asked.stderr);
        assert!(asked.status.success(), "{text}: {refused}");
        String::from_utf8_lossy(&asked.stdout).trim().to_owned()
    }

    /// Runs a file of SQL, as people do by hand.
    ///
    /// # Panics
    ///
    /// With what the server says, where it refuses.
    pub fn sql_file(&self, file: &str) {
        let asked = Command::new(find("psql"))
            .args(["-X", "-q", "-v", "ON_ERROR_STOP=1", "-f", file])
            .arg(self.url())
            .output()
            .expect("psql starts");
        let refused = String::from_utf8_lossy(&asked.stderr);
        assert!(asked.status.success(), "{file}: {refused}");
    }

    /// Kills it. [`run`](Self::run) starts it again on the same port, over the same data.
    pub fn kill(&mut self) {
        if let Some(process) = self.process.take() {
            process.kill();
        }
    }

    /// Starts it, if it does not run.
    pub fn run(&mut self) {
        if self.process.is_some() {
            return;
        }
        let folder = self.folder.path();
        let data = folder.join("data").display().to_string();
        let (port, sockets) = (self.port.to_string(), folder.display().to_string());
        let program = find("postgres").display().to_string();
        let mut command: Vec<&str> = self.under.iter().map(String::as_str).collect();
        command.extend([program.as_str(), "-D", &data, "-p", &port, "-k", &sockets]);
        command.extend(["-c", "listen_addresses=127.0.0.1"]);
        command.extend(["-c", "max_connections=200", "-c", "shared_buffers=32MB"]);
        command.extend(self.settings.iter().flat_map(|setting| ["-c", setting]));
        let log = folder.join("log");
        self.process = Some(Process::start(user(), &command, &log));
        let ready = find("pg_isready");
        wait_for("postgres", &log, || {
            let asked = Command::new(&ready)
                .args(["-q", "-h", "127.0.0.1", "-p", &port])
                .status();
            asked.is_ok_and(|status| status.success())
        });
    }
}
