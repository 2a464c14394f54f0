//! A process that stands still.

use std::fs;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

const PATIENCE: Duration = Duration::from_secs(10);

/// Stops a process where it stands (SIGSTOP), and waits until each of its threads does: on a busy machine they run on
/// until one of them has taken the signal.
///
/// # Panics
///
/// Where it goes on running for ten seconds.
pub fn stop(process: Pid) {
    // It may have ended by itself.
    let _ = kill_process(process, Signal::STOP);
    let late = Instant::now() + PATIENCE;
    while !stands_still(process) {
        assert!(Instant::now() < late, "{process:?} does not stop");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn stands_still(process: Pid) -> bool {
    let threads = fs::read_dir(format!("/proc/{}/task", process.as_raw_nonzero()));
    let Ok(threads) = threads else {
        return true; // it is gone
    };
    threads.flatten().all(|thread| {
        let stat = fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        // "pid (name) state …"; the name may hold anything.
        let state = stat.rsplit_once(')').map(|(_, rest)| rest.trim_start());
        state.is_none_or(|state| state.starts_with(['T', 't', 'Z', 'X']))
    })
}
