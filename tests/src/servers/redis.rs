//! Redis, or Valkey where `VALKEY_SERVER` names its program.

use std::net::TcpStream;
use std::path::PathBuf;

use tempfile::TempDir;

use super::place::{folder, free_port, program, wait_for};
use super::process::Process;

/// A private Redis server.
#[derive(Debug)]
pub struct Redis {
    port: u16,
    program: PathBuf,
    settings: Vec<String>,
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
        let name = std::env::var("VALKEY_SERVER").unwrap_or_else(|_| "redis-server".to_owned());
        let mut server = Self {
            port: free_port(),
            program: program(&name, "redis-server", &[]),
            settings: settings.iter().map(ToString::to_string).collect(),
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
        let mut command = vec![program.as_str(), "--bind", "127.0.0.1", "--port", &port];
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
