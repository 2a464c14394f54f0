//! A process that is not ours to wait for, and must not outlive us.

use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

/// Kills a process when this one ends in any way. Dropped, it lets go.
#[derive(Debug)]
pub struct Leash(Child);

impl Leash {
    /// On the process with this id.
    ///
    /// # Panics
    ///
    /// Where no shell can be started.
    pub fn on(pid: u32) -> Self {
        let shell = Command::new("sh")
            .args([
                "-c",
                "trap '' HUP; cat; kill -KILL $1",
                "leash",
                &pid.to_string(),
            ])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // Ctrl-C is for us: the leash must outlive us.
            .process_group(0)
            .spawn();
        Self(shell.expect("a shell starts"))
    }
}

impl Drop for Leash {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
