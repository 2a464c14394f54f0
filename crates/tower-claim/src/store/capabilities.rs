//! What an engine can promise.

use std::fmt;
use std::time::Duration;

use super::promises::{Event, Promise, Weakened};

/// What an engine can promise, in code. [`Display`](fmt::Display) writes the table of promises, in Markdown:
/// each store's docs carry these very rows, and a test compares them.
///
/// ```
/// use tower_claim::store::{Capabilities, Event, MultiKey, Promise};
///
/// const ENGINE: Capabilities = Capabilities::new("my-engine")
///     .with_multi_key(MultiKey::SameSlot)
///     .with_weakened(Event::Failover, &[Promise::OneOwner, Promise::OneResult]);
///
/// assert!(ENGINE.may_forget());
/// assert!(ENGINE.to_string().contains("| weakened by a failover | one owner, one result |"));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// The engine's name: `memory`, `redis`, …
    pub engine: &'static str,
    /// Whether records outlive the process.
    pub durable: bool,
    /// Claims over several keys.
    pub multi_key: MultiKey,
    /// The connection heartbeats go over.
    pub keeper: KeeperConnection,
    /// The smallest span of time the engine can tell.
    pub time_unit: Duration,
    /// The clock that judges leases and keeps.
    pub clock: JudgingClock,
    /// Which events may weaken which promises.
    pub weakened: Weakened,
}

impl Capabilities {
    /// The promises of an engine outside of this process, to begin with: what it keeps outlives the
    /// process, one key at a time, heartbeats over connections of their own, microseconds of the server's
    /// clock, nothing weakens anything.
    pub const fn new(engine: &'static str) -> Self {
        Self {
            engine,
            durable: true,
            multi_key: MultiKey::None,
            keeper: KeeperConnection::Own,
            time_unit: Duration::from_micros(1),
            clock: JudgingClock::Server,
            weakened: Weakened::NOTHING,
        }
    }

    /// The promises of an engine in this process: nothing outlives it, nothing is forgotten within it,
    /// several keys in one step, nanoseconds.
    pub const fn in_process(engine: &'static str) -> Self {
        Self::new(engine)
            .with_durable(false)
            .with_multi_key(MultiKey::Atomic)
            .with_time_unit(Duration::from_nanos(1))
            .with_clock(JudgingClock::Process)
    }

    /// Sets [`durable`](Self::durable).
    #[must_use]
    pub const fn with_durable(mut self, durable: bool) -> Self {
        self.durable = durable;
        self
    }

    /// Sets [`multi_key`](Self::multi_key).
    #[must_use]
    pub const fn with_multi_key(mut self, multi_key: MultiKey) -> Self {
        self.multi_key = multi_key;
        self
    }

    /// Sets [`keeper`](Self::keeper).
    #[must_use]
    pub const fn with_keeper(mut self, keeper: KeeperConnection) -> Self {
        self.keeper = keeper;
        self
    }

    /// Sets [`time_unit`](Self::time_unit).
    #[must_use]
    pub const fn with_time_unit(mut self, unit: Duration) -> Self {
        self.time_unit = unit;
        self
    }

    /// Sets [`clock`](Self::clock).
    #[must_use]
    pub const fn with_clock(mut self, clock: JudgingClock) -> Self {
        self.clock = clock;
        self
    }

    /// Adds to [`weakened`](Self::weakened): the event may weaken these promises.
    #[must_use]
    pub const fn with_weakened(mut self, event: Event, promises: &[Promise]) -> Self {
        self.weakened = self.weakened.with(event, promises);
        self
    }

    /// Whether the engine may forget what it answered without anybody's doing: a failover or a restart
    /// weakens [`Promise::OneResult`]. There [`LapsePolicy::Hold`](crate::LapsePolicy::Hold) and the point
    /// of no return cannot be kept. That an operator can wipe any engine does not count.
    pub const fn may_forget(&self) -> bool {
        self.weakened.may(Event::Failover, Promise::OneResult)
            || self.weakened.may(Event::Restart, Promise::OneResult)
    }

    fn write_forgets(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let events = [Event::Flush, Event::Failover, Event::Restart];
        let mut forgets = events
            .into_iter()
            .filter(|event| self.weakened.may(*event, Promise::OneResult));
        let Some(first) = forgets.next() else {
            return f.write_str(if self.durable {
                "never"
            } else {
                "never, while the process lives"
            });
        };
        write!(f, "after {first}")?;
        forgets.try_for_each(|event| write!(f, ", {event}"))
    }
}

impl fmt::Display for Capabilities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("| Promise | |\n|---|---|\n| forgets what it answered | ")?;
        self.write_forgets(f)?;
        writeln!(f, " |")?;
        let durable = if self.durable { "yes" } else { "no" };
        writeln!(f, "| outlives the process | {durable} |")?;
        writeln!(f, "| several keys at once | {} |", self.multi_key)?;
        writeln!(f, "| heartbeats | {} |", self.keeper)?;
        f.write_str("| smallest span of time | ")?;
        write_span(self.time_unit, f)?;
        writeln!(f, " |")?;
        write!(f, "| clock | {} |", self.clock)?;
        for event in Event::ALL {
            write!(f, "\n| weakened by {event} | ")?;
            self.weakened.write(*event, f)?;
            f.write_str(" |")?;
        }
        Ok(())
    }
}

/// In the largest unit that needs no fraction.
fn write_span(span: Duration, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let nanos = span.as_nanos();
    let units = [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "µs")];
    let fits = units
        .into_iter()
        .find(|(unit, _)| nanos.is_multiple_of(*unit));
    let (unit, name) = fits.unwrap_or((1, "ns"));
    write!(f, "{} {name}", nanos / unit)
}

/// Claims over several keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MultiKey {
    /// Any keys, all or nothing in one step.
    Atomic,
    /// Only keys that share a slot (Redis Cluster with a hash tag).
    SameSlot,
    /// One key at a time.
    None,
}

impl fmt::Display for MultiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            MultiKey::Atomic => "atomic, any keys",
            MultiKey::SameSlot => "atomic, keys of one slot",
            MultiKey::None => "no",
        })
    }
}

/// The connection heartbeats go over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum KeeperConnection {
    /// Made on the keeper's own runtime: beats go on when the user's runtime is blocked.
    Own,
    /// Shared with requests: beats stall with the user's runtime.
    Shared,
}

impl fmt::Display for KeeperConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            KeeperConnection::Own => "independent of the user's runtime",
            KeeperConnection::Shared => "stall with the user's runtime",
        })
    }
}

/// The clock that judges leases and keeps. Never that of the asker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum JudgingClock {
    /// One in this process.
    Process,
    /// The server's.
    Server,
    /// None that can be read: the engine ends keys of its own after whole seconds.
    Leases,
}

impl fmt::Display for JudgingClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            JudgingClock::Process => "this process's",
            JudgingClock::Server => "the server's",
            JudgingClock::Leases => "the engine's leases",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_says_what_the_engine_is() {
        let engine = Capabilities::new("scripted")
            .with_multi_key(MultiKey::SameSlot)
            .with_keeper(KeeperConnection::Shared)
            .with_time_unit(Duration::from_secs(1))
            .with_clock(JudgingClock::Leases)
            .with_weakened(Event::Flush, &[Promise::OneResult, Promise::OneOwner])
            .with_weakened(Event::Failover, &[Promise::OneResult])
            .with_weakened(Event::Failover, &[Promise::RisingTokens])
            .with_weakened(Event::MovedClock, &[Promise::ClaimableAgain]);
        let table = "\
            | Promise | |\n\
            |---|---|\n\
            | forgets what it answered | after a flush, a failover |\n\
            | outlives the process | yes |\n\
            | several keys at once | atomic, keys of one slot |\n\
            | heartbeats | stall with the user's runtime |\n\
            | smallest span of time | 1 s |\n\
            | clock | the engine's leases |\n\
            | weakened by a flush | one owner, one result |\n\
            | weakened by a failover | rising tokens, one result |\n\
            | weakened by a moved clock | claimable again |\n\
            | weakened by a restart | nothing |";
        assert_eq!(engine.to_string(), table);
    }

    #[test]
    fn an_engine_forgets_by_failover_or_restart_not_by_an_operators_hand() {
        let of = |event, promise| {
            Capabilities::new("scripted")
                .with_weakened(event, &[promise])
                .may_forget()
        };
        for event in Event::ALL {
            let by_itself = matches!(event, Event::Failover | Event::Restart);
            for promise in Promise::ALL {
                let expected = by_itself && *promise == Promise::OneResult;
                assert_eq!(of(*event, *promise), expected, "{event}, {promise}");
            }
        }
    }

    #[test]
    fn spans_are_written_in_the_largest_whole_unit() {
        for (span, text) in [
            (Duration::from_secs(1), "1 s"),
            (Duration::from_millis(1500), "1500 ms"),
            (Duration::from_micros(1), "1 µs"),
            (Duration::from_nanos(1), "1 ns"),
        ] {
            let table = Capabilities::new("scripted")
                .with_time_unit(span)
                .to_string();
            let row = format!("| smallest span of time | {text} |");
            assert!(table.contains(&row), "{table}");
        }
    }
}
