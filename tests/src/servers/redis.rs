//! Redis, or Valkey where `VALKEY_SERVER` names its program.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::time::Duration;

use tempfile::TempDir;

use super::moved_clock::MovedClock;
use super::place::{folder, free_port, program, wait_for};
use super::process::Process;

/// A private Redis server.
#[derive(Debug)]
pub struct Redis {
    port: u16,
    program: PathBuf,
    settings: Vec<String>,
    /// Before its command.
    under: Vec<String>,
    process: Option<Process>,
    folder: TempDir,
}

impl Redis {
    /// A server that keeps nothing on disk and evicts nothing.
    pub fn start() -> Self {
        Self::with(&["--save", "", "--appendonly", "no"])
    }

    /// A server with these settings beside its port and folder.
    pub fn with(settings: &[&str]) -> Self {
        Self::build(settings, Vec::new())
    }

    /// As [`start`](Self::start), under a clock that can be moved.
    pub fn under(clock: &MovedClock) -> Self {
        let settings = &["--save", "", "--appendonly", "no"];
        Self::build(settings, clock.before_command())
    }

    fn build(settings: &[&str], under: Vec<String>) -> Self {
        let name = std::env::var("VALKEY_SERVER").unwrap_or_else(|_| "redis-server".to_owned());
        let mut server = Self {
            port: free_port(),
            program: program(&name, "redis-server", &[]),
            settings: settings.iter().map(ToString::to_string).collect(),
            under,
            process: None,
            folder: folder(None),
        };
        server.run();
        server
    }

    /// `127.0.0.1:PORT`.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// `redis://127.0.0.1:PORT/0`.
    pub fn url(&self) -> String {
        format!("redis://{}/0", self.address())
    }

    /// Its unix socket.
    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("socket")
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The process, to be stopped or killed.
    ///
    /// # Panics
    ///
    /// While it is [down](Self::kill).
    pub fn process(&self) -> &Process {
        self.process.as_ref().expect("the server runs")
    }

    /// Sends one command in plain words (`FLUSHALL`, `REPLICAOF NO ONE`) past every client; its raw answer.
    ///
    /// # Panics
    ///
    /// Where there is no answer within 5 s.
    pub fn ask(&self, command: &str) -> String {
        let mut socket = TcpStream::connect(self.address()).expect("the server runs");
        let patience = Some(Duration::from_secs(5));
        socket.set_read_timeout(patience).expect("it may be set");
        // The server closes after its answers: they are read to their end.
        let words = format!("{command}\r\nQUIT\r\n");
        socket.write_all(words.as_bytes()).expect("it listens");
        let mut answer = String::new();
        socket.read_to_string(&mut answer).expect("an answer");
        answer
    }

    /// Kills it. [`run`](Self::run) starts it again on the same port, over the same folder.
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
        let (port, folder) = (self.port.to_string(), self.folder.path());
        let (dir, socket) = (folder.display().to_string(), self.socket());
        let program = self.program.display().to_string();
        let socket = socket.display().to_string();
        let mut command: Vec<&str> = self.under.iter().map(String::as_str).collect();
        command.extend([program.as_str(), "--bind", "127.0.0.1", "--port", &port]);
        command.extend(["--unixsocket", &socket, "--dir", &dir, "--daemonize", "no"]);
        command.extend(self.settings.iter().map(String::as_str));
        let log = folder.join("log");
        self.process = Some(Process::start(None, &command, &log));
        let address = self.address();
        wait_for("redis-server", &log, || {
            TcpStream::connect(&address).is_ok()
        });
    }
}
