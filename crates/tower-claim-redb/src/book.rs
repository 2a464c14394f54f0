//! The records, in a transaction.

use redb::{ReadTransaction, ReadableTable, Table, TableDefinition, WriteTransaction};
use tower_claim::engine::{At, Record, UnreadableRecord};
use tower_claim::store::{RecordView, StoreTime};
use tower_claim::{Key, StoreError};

use crate::error::Trouble;
use crate::meta::Runs;

/// A record, behind the instant it is filed under in [`DUE`] (8 bytes, big-endian).
const RECORDS: TableDefinition<'static, &'static [u8; 32], &'static [u8]> =
    TableDefinition::new("tower-claim.records");
/// When to look at which record: the instant (8 bytes, big-endian), and the key.
const DUE: TableDefinition<'static, &'static [u8; 40], ()> =
    TableDefinition::new("tower-claim.due");

/// Records that one page of a scan looks at, at most.
const LOOKED_AT: usize = 4096;

/// A record as it is kept, and as it is worth now.
struct Kept {
    due: StoreTime,
    record: Record,
}

impl Kept {
    fn read(key: &Key, row: &[u8], runs: &Runs) -> Result<Self, StoreError> {
        let cut = || UnreadableRecord::Truncated.of_key(key);
        let (due, record) = row.split_first_chunk().ok_or_else(cut)?;
        let mut record = Record::from_bytes(record).map_err(|error| error.of_key(key))?;
        if let Some(ended) = runs.ended(record.since()) {
            record.lapse_owners(ended);
        }
        Ok(Self {
            due: StoreTime::from_micros(u64::from_be_bytes(*due)),
            record,
        })
    }

    fn row(due: StoreTime, record: &[u8]) -> Vec<u8> {
        let due = due.as_micros().to_be_bytes();
        [due.as_slice(), record].concat()
    }
}

fn due_row(due: StoreTime, key: &Key) -> [u8; 40] {
    let mut row = [0; 40];
    row[..8].copy_from_slice(&due.as_micros().to_be_bytes());
    row[8..].copy_from_slice(key.as_bytes());
    row
}

/// The records, to be changed.
pub(crate) struct Book<'txn> {
    records: Table<'txn, &'static [u8; 32], &'static [u8]>,
    due: Table<'txn, &'static [u8; 40], ()>,
    runs: &'txn Runs,
    txn: &'txn WriteTransaction,
    changed: bool,
    /// Keys of which a hold began or ended.
    turned: Vec<Key>,
}

impl<'txn> Book<'txn> {
    pub(crate) fn open(txn: &'txn WriteTransaction, runs: &'txn Runs) -> Result<Self, Trouble> {
        Ok(Self {
            records: txn.open_table(RECORDS)?,
            due: txn.open_table(DUE)?,
            runs,
            txn,
            changed: false,
            turned: Vec::new(),
        })
    }

    pub(crate) fn txn(&self) -> &'txn WriteTransaction {
        self.txn
    }

    pub(crate) fn touch(&mut self) {
        self.changed = true;
    }

    pub(crate) fn is_changed(&self) -> bool {
        self.changed
    }

    pub(crate) fn into_turned(self) -> Vec<Key> {
        self.turned
    }

    fn kept(&self, key: &Key) -> Result<Option<Kept>, Trouble> {
        match self.records.get(key.as_bytes())? {
            Some(row) => Ok(Some(Kept::read(key, row.value(), self.runs)?)),
            None => Ok(None),
        }
    }

    /// The record; vacant where there is none, or one with nothing left to say.
    pub(crate) fn record(&self, key: &Key, at: At) -> Result<Record, Trouble> {
        let kept = self.kept(key)?.map(|kept| kept.record);
        Ok(speaking(kept, at))
    }

    /// Applies a move. One that changes nothing writes nothing; one that fails changes nothing.
    pub(crate) fn change<R>(
        &mut self,
        key: &Key,
        at: At,
        op: impl FnOnce(&mut Record) -> Result<R, StoreError>,
    ) -> Result<R, Trouble> {
        let kept = self.kept(key)?;
        let due = kept.as_ref().map(|kept| kept.due);
        let mut record = speaking(kept.map(|kept| kept.record), at);
        let (before, stamp) = (record.to_bytes(), record.stamp());
        let answer = op(&mut record)?;
        let after = record.to_bytes();
        if after == before || record.is_forgettable(at) && due.is_none() {
            return Ok(answer);
        }
        // A record that is due later is looked at when it was due before, and put off then.
        let now_due = due.map_or(record.due_at(), |due| due.min(record.due_at()));
        if due != Some(now_due) {
            if let Some(due) = due {
                self.due.remove(&due_row(due, key))?;
            }
            self.due.insert(&due_row(now_due, key), ())?;
        }
        let row = Kept::row(now_due, &after);
        self.records.insert(key.as_bytes(), row.as_slice())?;
        self.changed = true;
        if record.stamp() != stamp {
            self.turned.push(*key);
        }
        Ok(answer)
    }

    /// Looks at records that may have ended by time, `at_most` so many.
    pub(crate) fn clean(&mut self, at: At, at_most: usize) -> Result<(), Trouble> {
        for _ in 0..at_most {
            let Some((due, key)) = self.first_due()? else {
                return Ok(());
            };
            if due > at.now {
                return Ok(());
            }
            self.due.remove(&due_row(due, &key))?;
            self.changed = true;
            let mut record = match self.kept(&key) {
                Ok(Some(kept)) => kept.record,
                Ok(None) => continue,
                Err(Trouble::Call(error)) => {
                    // It stays, and is told whenever it is asked for; nothing more can be done about it.
                    tracing::error!(%error, "a record cannot be cleaned up");
                    continue;
                }
                Err(error) => return Err(error),
            };
            record.settle(at.now);
            let mut next = record.due_at();
            if next <= at.now {
                if record.is_forgettable(at) {
                    self.records.remove(key.as_bytes())?;
                    continue;
                }
                // Only its token keeps it: it is ahead of the wall clock, which was set back, or it was
                // granted above an inflated floor.
                next = at.now.saturating_add(record.token_ahead(at.unix_ms));
            }
            self.due.insert(&due_row(next, &key), ())?;
            let row = Kept::row(next, &record.to_bytes());
            self.records.insert(key.as_bytes(), row.as_slice())?;
        }
        Ok(())
    }

    /// When to clean next.
    pub(crate) fn next_due(&self) -> Result<Option<StoreTime>, Trouble> {
        Ok(self.first_due()?.map(|(due, _)| due))
    }

    fn first_due(&self) -> Result<Option<(StoreTime, Key)>, Trouble> {
        let first = self.due.first()?;
        Ok(first.map(|(row, _)| {
            let (due, key) = row.value().split_at(8);
            let due = due.try_into().map_or(0, u64::from_be_bytes);
            let key = key.try_into().unwrap_or([0; 32]);
            (StoreTime::from_micros(due), Key::from_bytes(key))
        }))
    }
}

fn speaking(record: Option<Record>, at: At) -> Record {
    let speaks = |record: &Record| !record.is_forgettable(at);
    record.filter(speaks).unwrap_or_else(Record::vacant)
}

/// Makes the tables, so that readers find them.
pub(crate) fn create(txn: &WriteTransaction) -> Result<(), redb::Error> {
    txn.open_table(RECORDS)?;
    txn.open_table(DUE)?;
    Ok(())
}

/// Reads one record: vacant where there is none, or one with nothing left to say.
pub(crate) fn look(
    txn: &ReadTransaction,
    runs: &Runs,
    key: &Key,
    at: At,
) -> Result<Record, Trouble> {
    let records = txn.open_table(RECORDS)?;
    let row = records.get(key.as_bytes())?;
    let kept = match row {
        Some(row) => Some(Kept::read(key, row.value(), runs)?.record),
        None => None,
    };
    Ok(speaking(kept, at))
}

/// At most `limit` records in the order of their keys, and where the next page begins.
pub(crate) fn scan(
    txn: &ReadTransaction,
    runs: &Runs,
    from: Option<Key>,
    limit: usize,
    at: At,
) -> Result<(Vec<RecordView>, Option<Key>), Trouble> {
    let records = txn.open_table(RECORDS)?;
    let from = from.map_or([0; 32], |key| *key.as_bytes());
    let mut views = Vec::new();
    for (n, row) in records.range::<&[u8; 32]>(&from..)?.enumerate() {
        let (key, row) = row?;
        let key = Key::from_bytes(*key.value());
        if views.len() == limit || n == LOOKED_AT {
            return Ok((views, Some(key)));
        }
        match Kept::read(&key, row.value(), runs) {
            Ok(kept) if kept.record.is_forgettable(at) => {}
            Ok(kept) => views.push(kept.record.peek(key, at)),
            // An operator wants to see the others.
            Err(error) => tracing::error!(%error, "left out of a scan"),
        }
    }
    Ok((views, None))
}

#[cfg(test)]
pub(crate) fn count(txn: &ReadTransaction) -> Result<u64, Trouble> {
    use redb::ReadableTableMetadata;
    Ok(txn.open_table(RECORDS)?.len()?)
}
