//! What one tenant has: pure, without clocks and locks.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use tower_claim::{Key, Moment};

/// What a record takes beside its response.
pub(crate) const RECORD_BYTES: u64 = 256;
/// A span that records are kept for is cut into so many steps: their ends are counted by the step, not one by one.
const STEPS: u32 = 16;

/// What a tenant may have at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limits {
    pub(crate) records: u64,
    pub(crate) bytes: u64,
}

impl Limits {
    pub(crate) const NONE: Self = Self {
        records: u64::MAX,
        bytes: u64::MAX,
    };
}

/// Records and their bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Sum {
    pub(crate) records: u64,
    pub(crate) bytes: u64,
}

/// What is used up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exceeded {
    Records,
    Bytes,
}

/// One tenant's records, as far as this process made them. Its size is bounded by the claims under way and the
/// steps, whatever the number of records.
#[derive(Debug, Default)]
pub(crate) struct Account {
    /// Keys whose claims are under way, and how many claims: repeats of one key count once.
    claiming: HashMap<Key, usize>,
    /// Of runs, and of what they left behind.
    has: Sum,
    /// How much of it ends when.
    ends: BTreeMap<Moment, Sum>,
}

impl Account {
    /// A claim of this key is to be sent: its record is counted before it is there, so that a crowd cannot come in
    /// between.
    pub(crate) fn begin(&mut self, key: Key, limits: &Limits, now: Moment) -> Result<(), Exceeded> {
        self.end_what_is_due(now);
        if let Some(claims) = self.claiming.get_mut(&key) {
            *claims += 1;
            return Ok(());
        }
        let claiming = self.claiming.len() as u64;
        if self.has.records + claiming >= limits.records {
            return Err(Exceeded::Records);
        }
        if self.has.bytes + (claiming + 1) * RECORD_BYTES > limits.bytes {
            return Err(Exceeded::Bytes);
        }
        self.claiming.insert(key, 1);
        Ok(())
    }

    /// The claim has its answer.
    pub(crate) fn claimed(&mut self, key: Key) {
        if let Some(claims) = self.claiming.get_mut(&key) {
            *claims -= 1;
            if *claims == 0 {
                self.claiming.remove(&key);
            }
        }
    }

    /// A run has begun.
    pub(crate) fn run(&mut self) {
        self.has.records += 1;
        self.has.bytes += RECORD_BYTES;
    }

    /// Whether a response of this size may be kept; it is counted then.
    pub(crate) fn fits(&mut self, bytes: u64, limits: &Limits, now: Moment) -> bool {
        self.end_what_is_due(now);
        let claiming = self.claiming.len() as u64 * RECORD_BYTES;
        let fits = self
            .has
            .bytes
            .saturating_add(bytes)
            .saturating_add(claiming)
            <= limits.bytes;
        if fits {
            self.has.bytes += bytes;
        }
        fits
    }

    /// A run is over, and its record, with a response of so many bytes, stays so long.
    pub(crate) fn stays(&mut self, bytes: u64, keep: Duration, now: Moment) {
        let end = self.ends.entry(step(now + keep, keep)).or_default();
        end.records += 1;
        end.bytes += RECORD_BYTES + bytes;
    }

    /// A run is over, and its record is none of ours any more.
    pub(crate) fn gone(&mut self, bytes: u64) {
        self.has.records = self.has.records.saturating_sub(1);
        self.has.bytes = self.has.bytes.saturating_sub(RECORD_BYTES + bytes);
    }

    /// What the tenant has now.
    pub(crate) fn has(&mut self, now: Moment) -> Sum {
        self.end_what_is_due(now);
        self.has
    }

    /// When the next of it ends.
    pub(crate) fn next_end(&self) -> Option<Moment> {
        self.ends.keys().next().copied()
    }

    pub(crate) fn is_empty(&mut self, now: Moment) -> bool {
        self.claiming.is_empty() && self.has(now).records == 0
    }

    fn end_what_is_due(&mut self, now: Moment) {
        while let Some(end) = self.ends.first_entry() {
            if *end.key() > now {
                return;
            }
            let sum = end.remove();
            self.has.records = self.has.records.saturating_sub(sum.records);
            self.has.bytes = self.has.bytes.saturating_sub(sum.bytes);
        }
    }
}

/// The end of the step that this instant is in: never before it.
fn step(at: Moment, keep: Duration) -> Moment {
    let length = (keep / STEPS).as_nanos().max(1);
    let steps = at.elapsed().as_nanos().div_ceil(length);
    let nanos = u64::try_from(steps.saturating_mul(length)).unwrap_or(u64::MAX);
    Moment::since_start(Duration::from_nanos(nanos))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tower_claim::{Namespace, Use};

    use super::*;

    const LIMITS: Limits = Limits {
        records: 3,
        bytes: 10 * RECORD_BYTES,
    };

    fn key(n: u64) -> Key {
        let key = Key::builder(Use::Idempotency, &Namespace::default());
        key.part(n.to_string()).build()
    }

    fn at(secs: u64) -> Moment {
        Moment::since_start(Duration::from_secs(secs))
    }

    #[test]
    fn records_count_from_the_claim_to_their_end() {
        let mut account = Account::default();
        for n in 0..3 {
            assert_eq!(account.begin(key(n), &LIMITS, at(0)), Ok(()));
        }
        let full = account.begin(key(3), &LIMITS, at(0));
        assert_eq!(full, Err(Exceeded::Records));
        assert_eq!(account.begin(key(0), &LIMITS, at(0)), Ok(()), "a repeat");
        for n in [0, 0, 1, 2] {
            account.claimed(key(n));
        }
        for _ in 0..3 {
            account.run();
        }
        assert!(account.begin(key(3), &LIMITS, at(0)).is_err(), "all run");
        account.gone(0);
        account.stays(0, Duration::from_secs(160), at(0));
        account.stays(0, Duration::from_secs(16), at(0));
        assert_eq!(account.has(at(15)).records, 2);
        assert_eq!(account.next_end(), Some(at(16)));
        assert_eq!(account.has(at(16)).records, 1);
        assert_eq!(account.has(at(159)).records, 1);
        assert!(account.is_empty(at(160)));
    }

    #[test]
    fn a_response_that_does_not_fit_is_not_counted() {
        let mut account = Account::default();
        account.run();
        let room = 9 * RECORD_BYTES;
        assert!(!account.fits(room + 1, &LIMITS, at(0)));
        assert!(!account.fits(u64::MAX, &LIMITS, at(0)), "no overflow");
        assert!(account.fits(room, &LIMITS, at(0)));
        assert_eq!(account.begin(key(1), &LIMITS, at(0)), Err(Exceeded::Bytes));
        account.stays(room, Duration::from_secs(1), at(0));
        assert!(account.is_empty(at(2)));
        assert_eq!(account.has(at(2)), Sum::default());
    }

    proptest! {
        #[test]
        fn a_record_never_ends_early_and_soon_ends(keeps in prop::collection::vec(1u64..1000, 1..200)) {
            let mut account = Account::default();
            for &keep in &keeps {
                account.run();
                account.stays(7, Duration::from_secs(keep), at(5));
            }
            for now in (0..1100).step_by(10) {
                let live = keeps.iter().filter(|&&keep| 5 + keep > now).count() as u64;
                // Late by one step at most.
                let late = keeps.iter().filter(|&&keep| 5 + keep + keep / 16 + 1 > now).count() as u64;
                let has = account.has(at(now)).records;
                prop_assert!((live..=late).contains(&has), "{live} {has} {late} at {now}");
            }
            prop_assert!(account.is_empty(at(1100)));
        }

        #[test]
        fn its_size_does_not_grow_with_its_records(starts in prop::collection::vec(0u64..1_000_000, 1..500)) {
            let mut starts = starts;
            starts.sort_unstable();
            let mut account = Account::default();
            for start in starts {
                account.run();
                account.stays(0, Duration::from_secs(86_400), at(start));
                account.has(at(start));
                prop_assert!(account.ends.len() <= STEPS as usize + 2);
            }
        }
    }
}
