//! What a [`FaultStore`](super::FaultStore) does to the calls, and the handle that switches it.

use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What happens to a store's calls. In text: `ok`, `down`, `delay:MS`, `lose-reply:N`, `repeat:N`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Fault {
    /// Nothing. The default.
    #[default]
    Ok,
    /// Every call is refused at once, [`StoreError::Unavailable`](crate::StoreError::Unavailable), and
    /// never reaches the engine.
    Down,
    /// Every call waits this long *before* the engine is asked.
    Delay(Duration),
    /// The next calls, this many, are applied, and answered
    /// [`StoreError::Ambiguous`](crate::StoreError::Ambiguous) at once.
    LoseReply(u32),
    /// The next calls, this many, are delivered twice, one after the other. The caller gets the first
    /// answer.
    Repeat(u32),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Ok => f.write_str("ok"),
            Fault::Down => f.write_str("down"),
            Fault::Delay(by) => write!(f, "delay:{}", by.as_millis()),
            Fault::LoseReply(n) => write!(f, "lose-reply:{n}"),
            Fault::Repeat(n) => write!(f, "repeat:{n}"),
        }
    }
}

/// A text that is no [`Fault`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InvalidFault;

impl fmt::Display for InvalidFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a fault is ok, down, delay:MS, lose-reply:N or repeat:N")
    }
}

impl std::error::Error for InvalidFault {}

impl FromStr for Fault {
    type Err = InvalidFault;

    fn from_str(s: &str) -> Result<Self, Self::Err> {
        let number = |n: &str| n.parse::<u32>().map_err(|_| InvalidFault);
        match s.split_once(':') {
            None if s == "ok" => Ok(Fault::Ok),
            None if s == "down" => Ok(Fault::Down),
            Some(("delay", ms)) => Ok(Fault::Delay(Duration::from_millis(number(ms)?.into()))),
            Some(("lose-reply", n)) => Ok(Fault::LoseReply(number(n)?)),
            Some(("repeat", n)) => Ok(Fault::Repeat(number(n)?)),
            _ => Err(InvalidFault),
        }
    }
}

/// The calls of the store traits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Operation {
    /// `ClaimStore::claim`
    Claim,
    /// `ClaimStore::renew`
    Renew,
    /// `ClaimStore::mark`
    Mark,
    /// `ClaimStore::finish`
    Finish,
    /// `ClaimStore::release`
    Release,
    /// `ClaimStore::watch`
    Watch,
    /// `ClaimStore::peek`
    Peek,
    /// `ClaimMany::claim_many`
    ClaimMany,
    /// `ClaimMany::release_many`
    ReleaseMany,
    /// `ClaimAdmin::scan`
    Scan,
    /// `ClaimAdmin::resolve`
    Resolve,
    /// `ClaimAdmin::ask_revoke`
    AskRevoke,
    /// `ClaimAdmin::break_claim`
    BreakClaim,
    /// `ClaimAdmin::purge`
    Purge,
}

impl Operation {
    const COUNT: usize = Operation::Purge as usize + 1;
}

/// How often each operation was called, refused calls too. A call delivered twice counts once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Calls([u64; Operation::COUNT]);

impl Calls {
    /// Calls of one operation.
    pub fn of(&self, operation: Operation) -> u64 {
        self.0[operation as usize]
    }

    /// All calls: the round trips, on an engine that takes one for each.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }
}

/// The handle of a [`FaultStore`](super::FaultStore): switches it while it runs, counts its calls. Clones
/// are cheap and share one switch.
#[derive(Debug, Clone, Default)]
pub struct Faults {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    all: Fault,
    only: Vec<(Operation, Fault)>,
    calls: Calls,
}

/// What is done to one call.
pub(super) enum Verdict {
    Pass,
    Refuse,
    Delay(Duration),
    LoseReply,
    Repeat,
}

impl Faults {
    /// From now on this happens to every call, whatever was set before.
    pub fn set(&self, fault: Fault) {
        let mut state = self.lock();
        state.all = fault;
        state.only.clear();
    }

    /// From now on this happens to calls of one operation; [`Faults::set`] ends it.
    pub fn set_for(&self, operation: Operation, fault: Fault) {
        let mut state = self.lock();
        state.only.retain(|(op, _)| *op != operation);
        state.only.push((operation, fault));
    }

    /// What happens to calls that have no rule of their own. A used up `LoseReply` or `Repeat` has become
    /// [`Fault::Ok`].
    pub fn current(&self) -> Fault {
        self.lock().all
    }

    /// The calls so far.
    pub fn calls(&self) -> Calls {
        self.lock().calls
    }

    /// Counts from zero again; answers what was counted.
    pub fn reset_calls(&self) -> Calls {
        std::mem::take(&mut self.lock().calls)
    }

    /// Counts a call and says what is done to it.
    pub(super) fn next(&self, operation: Operation) -> Verdict {
        let mut state = self.lock();
        let state = &mut *state;
        state.calls.0[operation as usize] += 1;
        let own = state.only.iter_mut().find(|(op, _)| *op == operation);
        own.map_or(&mut state.all, |(_, fault)| fault).take_one()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Fault {
    fn take_one(&mut self) -> Verdict {
        let (verdict, left) = match self {
            Fault::Ok => return Verdict::Pass,
            Fault::Down => return Verdict::Refuse,
            Fault::Delay(by) => return Verdict::Delay(*by),
            Fault::LoseReply(n) => (Verdict::LoseReply, n),
            Fault::Repeat(n) => (Verdict::Repeat, n),
        };
        let verdict = if *left == 0 { Verdict::Pass } else { verdict };
        *left = left.saturating_sub(1);
        if *left == 0 {
            *self = Fault::Ok;
        }
        verdict
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_written_as_they_are_read() {
        for text in ["ok", "down", "delay:250", "lose-reply:3", "repeat:1"] {
            assert_eq!(text.parse::<Fault>().unwrap().to_string(), text);
        }
        for text in [
            "",
            "Down",
            "delay",
            "delay:",
            "delay:-1",
            "lose-reply:x",
            "ok:1",
            "up",
        ] {
            assert_eq!(text.parse::<Fault>(), Err(InvalidFault), "{text:?}");
        }
    }
}
