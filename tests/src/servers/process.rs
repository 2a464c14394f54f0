//! A process that does not outlive the test.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use super::stillness::stop;

/// A server's process. Killed when dropped, and when this process ends in any way: a small shell stands
/// between, which kills it and those it has started when the pipe from us closes. Where we did not say
/// farewell, nobody else cleans up: it removes the server's folder, too.
#[derive(Debug)]
pub struct Process {
    watchdog: Child,
    pid: Pid,
    log: PathBuf,
}

impl Process {
    /// Starts a program as `user` (of this process where `None`), its output in `log`.
    ///
    /// # Panics
    ///
    /// Where no shell can be started.
    pub fn start(user: Option<&str>, command: &[&str], log: &Path) -> Self {
        // `setpriv` becomes the program: the pid is the server's own.
        // A process that is stopped (a backend of PostgreSQL) does not see its parent die: it is killed itself.
        // The next one over the same folder may not begin before the last of them is gone.
        // The kernel hangs up on a group without a parent of which one stands still.
        const WATCH: &str = r#"trap '' HUP; "$@" </dev/null >&2 & server=$!; echo $server; exec >/dev/null 2>&1
            read -r farewell
            kill -STOP $server
            children=$(cat /proc/$server/task/*/children)
            kill -KILL $server $children
            wait $server
            for child in $children; do while [ -e /proc/$child/exe ]; do sleep 0.01; done; done
            case $farewell:$PWD in :*/claims-*) rm -rf "$PWD" ;; esac"#;
        let into = File::create(log).expect("a log in the server's folder");
        let mut shell = Command::new("sh");
        shell.args(["-c", WATCH, "watchdog"]);
        if let Some(user) = user {
            shell.args([
                "setpriv",
                "--reuid",
                user,
                "--regid",
                user,
                "--clear-groups",
            ]);
        }
        let mut watchdog = shell
            .args(command)
            .current_dir(log.parent().expect("a log lies in a folder"))
            // Ctrl-C is for us: the watchdog must outlive us.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(into)
            .spawn()
            .expect("a shell starts");
        let mut line = String::new();
        BufReader::new(watchdog.stdout.take().expect("it is piped"))
            .read_line(&mut line)
            .expect("the shell tells a pid");
        let pid = line.trim().parse().ok().and_then(Pid::from_raw);
        Self {
            watchdog,
            pid: pid.expect("a pid"),
            log: log.to_owned(),
        }
    }

    /// The server's process id.
    pub fn pid(&self) -> i32 {
        self.pid.as_raw_nonzero().get()
    }

    /// Its process id, and those of the processes that it has started.
    pub fn family(&self) -> Vec<i32> {
        let mut family = vec![self.pid()];
        for process in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
            let stat = std::fs::read_to_string(process.path().join("stat")).unwrap_or_default();
            // "pid (name) state parent …"; the name may hold anything.
            let parent = stat
                .rsplit_once(')')
                .and_then(|(_, rest)| rest.split_whitespace().nth(1));
            let pid = stat.split_whitespace().next();
            if parent.and_then(|parent| parent.parse().ok()) == Some(self.pid()) {
                family.extend(pid.and_then(|pid| pid.parse::<i32>().ok()));
            }
        }
        family
    }

    /// What it printed.
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// Stops it where it stands (SIGSTOP), with the processes it has started: PostgreSQL answers from those.
    pub fn stop(&self) {
        // First, so that it starts no more.
        stop(self.pid);
        for child in self.family().into_iter().skip(1).filter_map(Pid::from_raw) {
            stop(child);
        }
    }

    /// Lets it go on (SIGCONT).
    pub fn go_on(&self) {
        self.signal_children(Signal::CONT);
        self.signal(Signal::CONT);
    }

    /// Kills it, as a crash would (SIGKILL), and waits until it is gone.
    pub fn kill(mut self) {
        self.end();
    }

    /// Asks it to end (SIGTERM), and waits until it has.
    pub fn terminate(mut self) {
        self.signal(Signal::TERM);
        while kill_process(self.pid, Signal::CONT).is_ok() {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        self.end();
    }

    fn signal(&self, signal: Signal) {
        // It may have ended by itself.
        let _ = kill_process(self.pid, signal);
    }

    fn signal_children(&self, signal: Signal) {
        for child in self.family().into_iter().skip(1).filter_map(Pid::from_raw) {
            let _ = kill_process(child, signal);
        }
    }

    fn end(&mut self) {
        // Closes the pipe: the watchdog kills the server and waits for it.
        if let Some(mut pipe) = self.watchdog.stdin.take() {
            let _ = pipe.write_all(b"farewell\n");
        }
        let _ = self.watchdog.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
    }
}
