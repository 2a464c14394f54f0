//! What a move writes: keys, each on an etcd lease that is there already or is granted for it.

use std::time::Duration;

use tower_claim::Token;
use tower_claim::engine::LONGEST_SPAN;

use crate::record::Record;

/// The etcd lease a key lies on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum On {
    /// None: the key stays until it is deleted.
    Nothing,
    /// One that was granted before.
    Old(i64),
    /// The one of this number among those granted for the plan.
    New(usize),
}

/// The keys beside a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Sibling {
    /// The hold has not lapsed.
    Live,
    /// The key cools: a crashed owner's late effects may still arrive.
    Cool,
    /// The minimum hold.
    Wait,
    /// A token above the store's revision: it outlives its record.
    Floor,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Write {
    /// The record, on a lease.
    Record(Box<Record>, On),
    /// The record is gone.
    Forget,
    /// A sibling, with a number in it.
    Put(Sibling, u64, On),
    Delete(Sibling),
    /// The asker's nonce is never granted (again), as long as this lease lives.
    Spend(On),
}

/// A change of one key: all of it, or nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Plan {
    /// The leases to grant, in seconds.
    pub(crate) grants: Vec<u64>,
    pub(crate) writes: Vec<Write>,
    /// Leases that carry nothing any more afterwards.
    pub(crate) revokes: Vec<i64>,
    /// The token that the change makes is at least this, and not below its revision.
    pub(crate) token: Option<Token>,
}

impl Plan {
    /// A lease of its own for what is written next.
    pub(crate) fn grant(&mut self, secs: u64) -> On {
        self.grants.push(secs.max(1));
        On::New(self.grants.len() - 1)
    }

    pub(crate) fn write(&mut self, write: Write) {
        self.writes.push(write);
    }

    pub(crate) fn revoke(&mut self, leases: impl IntoIterator<Item = On>) {
        for lease in leases {
            if let On::Old(id) = lease {
                self.revokes.push(id);
            }
        }
    }
}

/// A span in etcd's whole seconds, never shorter.
pub(crate) fn secs(span: Duration) -> u64 {
    let span = span.min(LONGEST_SPAN);
    span.as_secs() + u64::from(span.subsec_nanos() > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn part_of_a_second_counts_as_a_whole_one() {
        assert_eq!(secs(Duration::ZERO), 0);
        assert_eq!(secs(Duration::from_nanos(1)), 1);
        assert_eq!(secs(Duration::from_secs(2)), 2);
        assert_eq!(secs(Duration::from_millis(2001)), 3);
        // etcd knows no longer lease than 9,000,000,000 s.
        assert!(secs(Duration::MAX) < 9_000_000_000);
    }
}
