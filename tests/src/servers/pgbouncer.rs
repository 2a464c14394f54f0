//! A pooler before PostgreSQL.

use std::path::PathBuf;

use tempfile::TempDir;

use super::place::{folder, free_port, is_root, program, wait_for};
use super::postgres::Postgres;
use super::process::Process;

/// A private pgbouncer that gives each *transaction* one of a few sessions.
#[derive(Debug)]
pub struct PgBouncer {
    port: u16,
    process: Process,
    _folder: TempDir,
}

/// It refuses to run as root, too.
fn user() -> Option<&'static str> {
    is_root().then_some("postgres")
}

fn find() -> PathBuf {
    program("pgbouncer", "pgbouncer", &["/usr/sbin"])
}

impl PgBouncer {
    /// One with this many sessions at `server`.
    ///
    /// # Panics
    ///
    /// Where the program is missing, or does not come.
    pub fn before(server: &Postgres, sessions: usize) -> Self {
        let folder = folder(user());
        let port = free_port();
        let place = folder.path();
        let users = place.join("users");
        std::fs::write(&users, "\"postgres\" \"\"\n").expect("a file of users");
        let settings = place.join("pgbouncer.ini");
        let text = format!(
            "[databases]\n* = host=127.0.0.1 port={}\n\
             [pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n\
             auth_type = trust\nauth_file = {}\npool_mode = transaction\n\
             default_pool_size = {sessions}\nmax_client_conn = 1000\n",
            server.port(),
            users.display(),
        );
        std::fs::write(&settings, text).expect("a file of settings");
        let log = place.join("log");
        let (bouncer, settings) = (find().display().to_string(), settings.display().to_string());
        let process = Process::start(user(), &[&bouncer, &settings], &log);
        wait_for("pgbouncer", &log, || {
            std::net::TcpStream::connect(("127.0.0.1", port)).is_ok()
        });
        Self {
            port,
            process,
            _folder: folder,
        }
    }

    /// Its process.
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// `postgres://postgres@127.0.0.1:PORT/postgres`.
    pub fn url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}/postgres", self.port)
    }
}
