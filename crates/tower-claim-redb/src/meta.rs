//! What a file says about itself, beside its records.

use redb::{ReadTransaction, TableDefinition, WriteTransaction};
use tower_claim::store::StoreTime;

use crate::error::OpenError;
use crate::time::Seen;

/// Names one process. Drawn when it first opens a file.
pub(crate) type Process = [u8; 16];

/// The only format so far.
const FORMAT: u32 = 1;
/// Openings that are told apart. A hold from before all of them lapses at the earliest.
const MOST_RUNS: usize = 1024;

const META: TableDefinition<'static, &'static str, &'static [u8]> =
    TableDefinition::new("tower-claim.meta");
const FORMAT_ROW: &str = "format";
const SEEN_ROW: &str = "seen";
const RUNS_ROW: &str = "runs";

/// The processes that had the file, one after the other.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Runs {
    last: Process,
    /// When each began, by the file's time.
    began: Vec<StoreTime>,
}

impl Runs {
    /// A process opens the file. One that had it last goes on with its holds; the holds of any other end.
    pub(crate) fn enter(&mut self, process: Process, now: StoreTime) -> bool {
        if !self.began.is_empty() && self.last == process {
            return false;
        }
        self.last = process;
        self.began.push(now);
        let surplus = self.began.len().saturating_sub(MOST_RUNS);
        self.began.drain(..surplus);
        true
    }

    pub(crate) fn is_last(&self, process: Process) -> bool {
        self.last == process
    }

    /// When the process ended that had the file at `then`, at the latest: when the next one began.
    pub(crate) fn ended(&self, then: StoreTime) -> Option<StoreTime> {
        let next = self.began.partition_point(|began| *began <= then);
        self.began.get(next).copied()
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Meta {
    /// `None` in a new file.
    pub(crate) seen: Option<Seen>,
    pub(crate) runs: Runs,
}

/// Reads what a file says; nothing in a new one.
pub(crate) fn read(txn: &ReadTransaction) -> Result<Meta, OpenError> {
    let mut tables = txn.list_tables().map_err(OpenError::storage)?;
    let strangers = txn.list_multimap_tables().map_err(OpenError::storage)?;
    if tables.next().is_none() && strangers.count() == 0 {
        return Ok(Meta::default());
    }
    let table = match txn.open_table(META) {
        Ok(table) => table,
        Err(redb::TableError::Storage(error)) => return Err(OpenError::storage(error)),
        Err(_) => return Err(OpenError::Foreign),
    };
    let row = |name| match table.get(name) {
        Ok(Some(row)) => Ok(row.value().to_vec()),
        Ok(None) => Err(OpenError::Foreign),
        Err(error) => Err(OpenError::storage(error)),
    };
    match row(FORMAT_ROW)?.try_into().map(u32::from_be_bytes) {
        Ok(FORMAT) => {}
        Ok(later) => return Err(OpenError::FutureFormat(later)),
        Err(_) => return Err(OpenError::Foreign),
    }
    Ok(Meta {
        seen: Some(seen_from(&row(SEEN_ROW)?).ok_or(OpenError::Foreign)?),
        runs: runs_from(&row(RUNS_ROW)?).ok_or(OpenError::Foreign)?,
    })
}

/// Writes all of it.
pub(crate) fn write(txn: &WriteTransaction, seen: &Seen, runs: &Runs) -> Result<(), redb::Error> {
    let mut table = txn.open_table(META)?;
    table.insert(FORMAT_ROW, FORMAT.to_be_bytes().as_slice())?;
    table.insert(SEEN_ROW, seen_bytes(seen).as_slice())?;
    table.insert(RUNS_ROW, runs_bytes(runs).as_slice())?;
    Ok(())
}

/// Writes what time it is.
pub(crate) fn write_seen(txn: &WriteTransaction, seen: &Seen) -> Result<(), redb::Error> {
    let mut table = txn.open_table(META)?;
    table.insert(SEEN_ROW, seen_bytes(seen).as_slice())?;
    Ok(())
}

fn seen_bytes(seen: &Seen) -> Vec<u8> {
    let Seen {
        time,
        unix,
        highest_unix_ms,
        since_boot,
        boot,
    } = seen;
    let numbers = [time.as_micros(), *unix, *highest_unix_ms, *since_boot];
    let numbers = numbers.into_iter().flat_map(u64::to_be_bytes);
    numbers.chain(*boot).collect()
}

fn seen_from(bytes: &[u8]) -> Option<Seen> {
    let (numbers, boot) = bytes.split_last_chunk()?;
    let [time, unix, highest_unix_ms, since_boot] = u64s(numbers)?.try_into().ok()?;
    Some(Seen {
        time: StoreTime::from_micros(time),
        unix,
        highest_unix_ms,
        since_boot,
        boot: *boot,
    })
}

fn runs_bytes(runs: &Runs) -> Vec<u8> {
    let began = runs.began.iter();
    let began = began.flat_map(|began| began.as_micros().to_be_bytes());
    runs.last.into_iter().chain(began).collect()
}

fn runs_from(bytes: &[u8]) -> Option<Runs> {
    let (last, began) = bytes.split_first_chunk()?;
    let began = u64s(began)?.into_iter().map(StoreTime::from_micros);
    Some(Runs {
        last: *last,
        began: began.collect(),
    })
}

fn u64s(bytes: &[u8]) -> Option<Vec<u64>> {
    let chunks = bytes.chunks(8);
    let number = |chunk: &[u8]| chunk.try_into().ok().map(u64::from_be_bytes);
    chunks.map(number).collect()
}
