//! The programs of `examples/` as processes of their own.

use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// The path of a program, built on the first call.
pub fn path(program: &str) -> PathBuf {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(build).join(program)
}

fn build() -> PathBuf {
    let features: &[&str] = if cfg!(feature = "etcd") {
        &["--features", "lab/etcd,demo/etcd"]
    } else {
        &[]
    };
    let build = Command::new(env!("CARGO"))
        .args([
            "build",
            "--quiet",
            "--package",
            "lab",
            "--package",
            "demo",
            "--package",
            "idempotency-kit",
            "--message-format",
            "json",
        ])
        .args(features)
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
        .stderr(Stdio::inherit())
        .output()
        .expect("cargo runs");
    assert!(build.status.success(), "the programs do not build");
    let lines = String::from_utf8(build.stdout).expect("cargo speaks UTF-8");
    let path = lines
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .find_map(|message| message["executable"].as_str().map(PathBuf::from))
        .expect("cargo names the programs it built");
    path.parent()
        .expect("a program lies in a folder")
        .to_owned()
}

/// Runs a program to its end.
pub fn run(program: &str, args: &[&str]) -> Output {
    Command::new(path(program))
        .args(args)
        .output()
        .expect("the program starts")
}

/// Runs a program to its end, which must come within `limit`; else it is killed.
///
/// # Panics
///
/// When it is still running then.
pub fn run_within(limit: Duration, program: &str, args: &[&str]) -> Output {
    let child = Command::new(path(program))
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let id = child.id().to_string();
    let (done, ended) = std::sync::mpsc::channel();
    // Reads both pipes while it runs: a full one would stop it.
    std::thread::spawn(move || done.send(child.wait_with_output()));
    let Ok(output) = ended.recv_timeout(limit) else {
        let _ = Command::new("kill").args(["-KILL", &id]).status();
        panic!("{program} {args:?} still runs after {limit:?}");
    };
    output.expect("the program is our child")
}

/// A lab that runs; killed when dropped.
#[derive(Debug)]
pub struct Lab {
    child: Child,
    address: SocketAddr,
}

impl Lab {
    /// Starts a lab with these options and waits until it is ready.
    pub fn start(args: &[&str]) -> Self {
        Self::start_with(args, &[])
    }

    /// Starts a lab with these options and environment variables.
    pub fn start_with(args: &[&str], env: &[(&str, &str)]) -> Self {
        let mut child = Command::new(path("lab"))
            .args(args)
            .envs(env.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .expect("the lab starts");
        let mut line = String::new();
        let stdout = child.stdout.as_mut().expect("it was piped");
        BufReader::new(stdout)
            .read_line(&mut line)
            .expect("the lab prints a line");
        let address = line
            .trim_end()
            .strip_prefix("http http://")
            .and_then(|address| address.parse().ok())
            .unwrap_or_else(|| panic!("the ready line is wrong: {line:?}"));
        Self { child, address }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends it a signal by name: `TERM`, `STOP`, `CONT`, `KILL`.
    pub fn signal(&self, name: &str) {
        let done = Command::new("kill")
            .args([&format!("-{name}"), &self.pid().to_string()])
            .status()
            .expect("kill runs");
        assert!(done.success(), "signal {name} was not sent");
    }

    /// Waits for its end; `None` when it still runs after `limit`.
    pub fn wait(&mut self, limit: Duration) -> Option<ExitStatus> {
        let end = Instant::now() + limit;
        loop {
            if let Some(status) = self.child.try_wait().expect("the lab is our child") {
                return Some(status);
            }
            if Instant::now() >= end {
                return None;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// What it wrote to standard output after the ready line. Only after its end.
    pub fn rest_of_stdout(&mut self) -> String {
        let mut rest = String::new();
        if let Some(stdout) = self.child.stdout.as_mut() {
            stdout.read_to_string(&mut rest).expect("it is text");
        }
        rest
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
