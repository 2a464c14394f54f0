//! The villain: a re-entrant lock keyed by thread.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

/// Lets in whoever is *the thread* that holds the lock already: the rule of Java's `ReentrantLock`, and of
/// the distributed locks that took it over. Never released by hand, it was meant as "once per hour".
///
/// On a pool of threads two requests are one owner as soon as one thread serves both. Then the second
/// enters as if it were the first, and the announcement goes out again. With more threads it happens less
/// often, which is worse: tests pass.
#[derive(Debug, Default)]
pub(crate) struct ReentrantLock {
    held: Mutex<HashMap<String, Hold>>,
}

#[derive(Debug)]
struct Hold {
    owner: ThreadId,
    until: Instant,
}

impl ReentrantLock {
    /// Whether the caller's thread holds the lock of this name from now on.
    pub(crate) fn try_lock(&self, name: &str, lease: Duration) -> bool {
        let now = Instant::now();
        let owner = thread::current().id();
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        match held.get(name) {
            Some(hold) if hold.until > now && hold.owner != owner => false,
            _ => {
                let until = now + lease;
                held.insert(name.to_owned(), Hold { owner, until });
                true
            }
        }
    }
}
