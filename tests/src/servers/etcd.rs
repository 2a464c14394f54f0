//! etcd, one node or three.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

use tempfile::TempDir;

use super::place::{folder, free_port, program, wait_for};
use super::process::Process;

/// A private etcd cluster.
#[derive(Debug)]
pub struct Etcd {
    nodes: Vec<Node>,
    cluster: String,
    more: Vec<String>,
    tls: bool,
}

#[derive(Debug)]
struct Node {
    name: String,
    client: u16,
    peer: u16,
    /// Where it says in plain HTTP how it is: the client's port, unless that speaks TLS.
    metrics: u16,
    process: Option<Process>,
    folder: TempDir,
}

impl Etcd {
    /// One node.
    pub fn start() -> Self {
        Self::with_nodes(1)
    }

    /// One node, with more settings.
    pub fn with_settings<S: Into<String>>(more: impl IntoIterator<Item = S>) -> Self {
        let more = more.into_iter().map(Into::into).collect();
        Self::launch(1, more, false)
    }

    /// One node that speaks TLS to clients, with this certificate and key.
    pub fn with_tls(certificate: &Path, key: &Path) -> Self {
        let file = |path: &Path| path.display().to_string();
        let more = ["--cert-file", &file(certificate), "--key-file", &file(key)];
        Self::launch(1, more.map(str::to_owned).to_vec(), true)
    }

    /// A cluster of so many nodes.
    pub fn with_nodes(count: usize) -> Self {
        Self::launch(count, Vec::new(), false)
    }

    fn launch(count: usize, more: Vec<String>, tls: bool) -> Self {
        let nodes: Vec<_> = (0..count)
            .map(|n| {
                let client = free_port();
                Node {
                    name: format!("n{n}"),
                    client,
                    peer: free_port(),
                    metrics: if tls { free_port() } else { client },
                    process: None,
                    folder: folder(None),
                }
            })
            .collect();
        let peers = nodes
            .iter()
            .map(|node| format!("{}=http://127.0.0.1:{}", node.name, node.peer));
        let cluster = peers.collect::<Vec<_>>().join(",");
        let mut server = Self {
            nodes,
            cluster,
            more,
            tls,
        };
        for n in 0..count {
            server.run(n);
        }
        for node in &server.nodes {
            node.wait();
        }
        server
    }

    /// `127.0.0.1:PORT` of each node.
    pub fn addresses(&self) -> Vec<String> {
        let addresses = self.nodes.iter().map(|node| node.address());
        addresses.collect()
    }

    /// The process of a node, to be stopped or killed.
    ///
    /// # Panics
    ///
    /// While it is [down](Self::kill).
    pub fn process(&self, node: usize) -> &Process {
        self.nodes[node].process.as_ref().expect("the node runs")
    }

    /// Kills a node. [`run`](Self::run) starts it again on the same ports, over the same folder.
    pub fn kill(&mut self, node: usize) {
        if let Some(process) = self.nodes[node].process.take() {
            process.kill();
        }
    }

    /// Kills all nodes, and starts them again on the same ports, over empty folders: a new cluster, whose
    /// revisions begin anew. Waits until it answers.
    ///
    /// # Panics
    ///
    /// Where a folder cannot be removed.
    pub fn wipe(&mut self) {
        for n in 0..self.nodes.len() {
            self.kill(n);
            let data = self.nodes[n].folder.path().join("data");
            std::fs::remove_dir_all(data).expect("the folder is ours");
        }
        for n in 0..self.nodes.len() {
            self.run(n);
        }
        for node in &self.nodes {
            node.wait();
        }
    }

    /// Starts a node, if it does not run; does not wait until it answers.
    pub fn run(&mut self, node: usize) {
        let cluster = &self.cluster;
        let node = &mut self.nodes[node];
        if node.process.is_some() {
            return;
        }
        let program = program("etcd", "etcd-server", &[]).display().to_string();
        let data = node.folder.path().join("data").display().to_string();
        let scheme = if self.tls { "https" } else { "http" };
        let client = format!("{scheme}://127.0.0.1:{}", node.client);
        let metrics = format!("http://127.0.0.1:{}", node.metrics);
        let peer = format!("http://127.0.0.1:{}", node.peer);
        // A short election makes short leases possible: the smallest is 1.5 times its timeout, in seconds.
        let mut command = vec![
            program.as_str(),
            "--name",
            &node.name,
            "--data-dir",
            &data,
            "--unsafe-no-fsync",
            "--heartbeat-interval",
            "50",
            "--election-timeout",
            "600",
            "--listen-client-urls",
            &client,
            "--advertise-client-urls",
            &client,
            "--listen-peer-urls",
            &peer,
            "--initial-advertise-peer-urls",
            &peer,
            "--initial-cluster",
            cluster,
            "--logger",
            "zap",
            "--log-level",
            "error",
        ];
        if self.tls {
            command.extend(["--listen-metrics-urls", &metrics]);
        }
        command.extend(self.more.iter().map(String::as_str));
        let log = node.folder.path().join("log");
        node.process = Some(Process::start(None, &command, &log));
    }
}

impl Node {
    fn address(&self) -> String {
        format!("127.0.0.1:{}", self.client)
    }

    /// There is a leader, and it answers.
    fn is_healthy(&self) -> bool {
        let ask = || {
            let mut socket = TcpStream::connect(("127.0.0.1", self.metrics))?;
            socket.set_read_timeout(Some(Duration::from_secs(1)))?;
            socket.write_all(b"GET /health HTTP/1.0\r\n\r\n")?;
            let mut answer = String::new();
            socket.read_to_string(&mut answer)?;
            Ok::<_, std::io::Error>(answer.contains(r#""health":"true""#))
        };
        ask().unwrap_or(false)
    }

    fn wait(&self) {
        let log = self.folder.path().join("log");
        wait_for("etcd", &log, || self.is_healthy());
    }
}
