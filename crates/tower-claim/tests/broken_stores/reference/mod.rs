//! A second store, as plain as can be: one lock, records that are never forgotten, nothing fast. It keeps
//! every law, and can be told to break one rule, named in words.

mod admin;
mod claim;
mod fence;
mod many;
mod owner;
mod store;
mod watch;

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::Notify;
use tower_claim::store::{Owner, TookOver, Value};
use tower_claim::testing::ManualClock;
use tower_claim::{Clock, Fingerprint, Key, LapsePolicy, Nonce, Settings, Token};

pub(crate) use fence::ReferenceFence;

/// The store. `flaw` is the one rule it breaks; empty for none.
#[derive(Debug, Clone)]
pub(crate) struct Reference {
    clock: ManualClock,
    flaw: &'static str,
    records: Arc<Mutex<Records>>,
    changed: Arc<Notify>,
    repeating: Arc<AtomicBool>,
}

/// Spans beyond it are as long as it.
const LONGEST: Duration = Duration::from_secs(1000 * 365 * 24 * 60 * 60);

#[derive(Debug)]
struct Records {
    flaw: &'static str,
    now: Duration,
    unix: Duration,
    map: BTreeMap<Key, Record>,
    first_refused: HashMap<Nonce, Duration>,
}

#[derive(Debug, Clone, PartialEq)]
enum State {
    Free,
    Held,
    Done { value: Value, until: Duration },
    Unknown { by_lapse: bool, until: Duration },
}

#[derive(Debug, Clone)]
struct Record {
    flaw: &'static str,
    state: State,
    since: Duration,
    nonce: Nonce,
    token: Token,
    fingerprint: Option<Fingerprint>,
    terms: Settings,
    granted: Duration,
    /// Of the lease.
    end: Duration,
    last_beat: Duration,
    progress: u64,
    attempt: u32,
    marked: bool,
    revoke_asked: bool,
    broken: bool,
    not_before: Duration,
    /// Every nonce that was granted or refused: when, and as which. Never forgotten.
    spent: HashMap<Nonce, (Duration, usize)>,
    latest_not_after: Duration,
}

impl Reference {
    pub(crate) fn new(clock: ManualClock, flaw: &'static str) -> Self {
        let records = Records {
            flaw,
            now: Duration::ZERO,
            unix: Duration::ZERO,
            map: BTreeMap::new(),
            first_refused: HashMap::new(),
        };
        Self {
            clock,
            flaw,
            records: Arc::new(Mutex::new(records)),
            changed: Arc::default(),
            repeating: Arc::default(),
        }
    }

    fn breaks(&self, rule: &str) -> bool {
        self.flaw == rule
    }

    /// The records, as they stand now.
    fn records(&self) -> MutexGuard<'_, Records> {
        let mut records = self.records.lock().unwrap();
        records.now = self.clock.now().elapsed();
        records.unix = self.clock.unix_time();
        records
    }

    fn wake(&self) {
        if self.breaks("one watcher is woken") {
            self.changed.notify_one();
        } else {
            self.changed.notify_waiters();
        }
    }
}

impl Records {
    fn breaks(&self, rule: &str) -> bool {
        self.flaw == rule
    }

    fn place(&self, key: Key) -> Key {
        if self.breaks("all keys are one") {
            return Key::from_bytes([0; 32]);
        }
        if self.breaks("half of a key counts") {
            let mut half = *key.as_bytes();
            half[16..].fill(0);
            return Key::from_bytes(half);
        }
        key
    }

    /// The record, where there is one, by now.
    fn find(&mut self, key: Key) -> Option<&mut Record> {
        let (now, key) = (self.now, self.place(key));
        let record = self.map.get_mut(&key)?;
        record.settle(now);
        Some(record)
    }

    /// The record, made where there is none.
    fn get(&mut self, key: Key) -> &mut Record {
        let (now, key) = (self.now, self.place(key));
        let fresh = Record::new(self.flaw, now);
        let record = self.map.entry(key).or_insert(fresh);
        record.settle(now);
        record
    }
}

impl Record {
    fn new(flaw: &'static str, now: Duration) -> Self {
        Self {
            flaw,
            state: State::Free,
            since: now,
            nonce: Nonce::from_bytes([0; 16]),
            token: Token::ZERO,
            fingerprint: None,
            terms: Settings::new(Duration::ZERO),
            granted: now,
            end: now,
            last_beat: now,
            progress: 0,
            attempt: 0,
            marked: false,
            revoke_asked: false,
            broken: false,
            not_before: Duration::ZERO,
            spent: HashMap::new(),
            latest_not_after: Duration::ZERO,
        }
    }

    fn breaks(&self, rule: &str) -> bool {
        self.flaw == rule
    }

    fn lapsed(&self, now: Duration) -> bool {
        let lease = if self.breaks("a hold lapses at half its lease") {
            self.end - self.terms.lease / 2
        } else {
            self.end
        };
        now >= lease
    }

    fn holds(&self) -> bool {
        let mark = self.marked && !self.breaks("the mark is ignored");
        let hold = self.terms.on_lapse == LapsePolicy::Hold && !self.breaks("Hold is taken over");
        mark || hold
    }

    /// What time alone does to it.
    fn settle(&mut self, now: Duration) {
        let keep = self.terms.unfinished_keep;
        if self.state == State::Held && now >= self.end {
            let from = match self.breaks("the unknown keep counts from the grant") {
                true => self.granted,
                false => self.end,
            };
            let cooled = match self.breaks("cooling ends with the unfinished keep") {
                true => self.end + self.terms.cooling.min(keep),
                false => self.end + self.terms.cooling,
            };
            if self.holds() {
                self.stay_taken(cooled, "lapse");
                let by_lapse = true;
                let until = from + keep;
                self.become_now(State::Unknown { by_lapse, until }, self.end);
            } else if (now >= self.end + keep
                && !self.breaks("an unfinished record binds for ever"))
                || self.breaks("the unfinished keep is ignored")
            {
                self.stay_taken(cooled, "lapse");
                self.free(self.end + keep);
                if self.breaks("the end of an unfinished keep forgets the token") {
                    self.token = Token::ZERO;
                }
            }
        }
        let ttl = self.granted + self.terms.lease + keep;
        let live = self.state == State::Held;
        if live && self.breaks("the unfinished keep ends a live hold") && now >= ttl {
            self.free(now);
        }
        match self.state {
            State::Done { until, .. } if now >= until => {
                self.free(until);
                if self.breaks("the end of a keep forgets the token") {
                    self.token = Token::ZERO;
                }
            }
            State::Unknown { until, .. }
                if now >= until && !self.breaks("unknown stays for ever") =>
            {
                self.free(until);
            }
            _ => {}
        }
    }

    fn become_now(&mut self, state: State, since: Duration) {
        self.state = state;
        self.since = since;
    }

    /// The hold ends like this: nobody is granted the key before it has cooled and its minimum hold is over.
    fn stay_taken(&mut self, cooled: Duration, ending: &str) {
        self.not_before = cooled.max(self.min_hold_end(ending));
    }

    fn min_hold_end(&self, ending: &str) -> Duration {
        match self.flaw.strip_prefix("min_hold ends with the ") {
            Some(flaw) if flaw == ending => Duration::ZERO,
            _ => self.granted + self.terms.min_hold,
        }
    }

    /// Keeps token, nonce, spent nonces and "not before".
    fn free(&mut self, since: Duration) {
        self.become_now(State::Free, since);
        self.fingerprint = None;
        if !self.breaks("the mark outlives its record") {
            self.marked = false;
        }
    }

    fn is(&self, owner: Owner) -> bool {
        self.nonce == owner.nonce && self.token == owner.token
    }

    fn spend(&mut self, nonce: Nonce, now: Duration) {
        let nth = self.spent.len();
        self.spent.entry(nonce).or_insert((now, nth));
    }

    fn same(&self, fingerprint: Option<Fingerprint>) -> bool {
        let none = self.fingerprint.is_none() || fingerprint.is_none();
        self.fingerprint == fingerprint || none && self.breaks("no fingerprint is the same as any")
    }

    fn before(&self, now: Duration) -> TookOver {
        TookOver {
            token: self.token,
            since: now - self.granted,
            last_beat: now - self.last_beat,
            progress: self.progress,
        }
    }
}
