//! The guard's marks, in a transaction.

use redb::{ReadTransaction, ReadableTable, ReadableTableMetadata, TableDefinition};
use redb::{Table, WriteTransaction};
use tower_claim::store::Admission;
use tower_claim::{Nonce, StoreError, Token};

use crate::book::Book;
use crate::error::Trouble;

/// The mark of each resource: the token (8 bytes, big-endian), and the nonce unless an operator raised it.
const MARKS: TableDefinition<'static, &'static str, &'static [u8]> =
    TableDefinition::new("tower-claim.marks");
/// The marks by their token: the token (8 bytes, big-endian), and the resource.
const LOWEST: TableDefinition<'static, &'static [u8], ()> =
    TableDefinition::new("tower-claim.marks-lowest");
/// One row: the highest token of a mark that was folded into it, the mark of each resource that has none.
const FLOOR: TableDefinition<'static, (), u64> = TableDefinition::new("tower-claim.marks-floor");

/// Marks that one new one folds into the floor, at most: more than one only after the bound was lowered.
const FOLDED_AT_ONCE: usize = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) high: Token,
    /// `None` where an operator raised the mark, and for the floor: then the token itself is refused as well.
    pub(crate) nonce: Option<Nonce>,
}

impl Mark {
    /// `None` where the write goes on only once the mark is raised.
    pub(crate) fn judge(self, token: Token, nonce: Nonce) -> Option<Admission> {
        let Mark { high, nonce: known } = self;
        match known {
            _ if token > high => None,
            Some(known) if token == high && known == nonce => Some(Admission::Admitted),
            Some(_) if token == high => Some(Admission::Collision { high }),
            _ => Some(Admission::Stale { high }),
        }
    }

    fn to_bytes(self) -> Vec<u8> {
        let high = self.high.get().to_be_bytes();
        let nonce = self.nonce.iter().flat_map(Nonce::as_bytes);
        high.iter().chain(nonce).copied().collect()
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (high, nonce) = bytes.split_first_chunk()?;
        Some(Self {
            high: Token::new(u64::from_be_bytes(*high))?,
            nonce: match nonce {
                [] => None,
                nonce => Some(Nonce::from_bytes(nonce.try_into().ok()?)),
            },
        })
    }
}

fn lowest_row(high: Token, resource: &str) -> Vec<u8> {
    [&high.get().to_be_bytes(), resource.as_bytes()].concat()
}

/// Makes the tables, so that readers find them.
pub(crate) fn create(txn: &WriteTransaction) -> Result<(), redb::Error> {
    txn.open_table(MARKS)?;
    txn.open_table(LOWEST)?;
    txn.open_table(FLOOR)?;
    Ok(())
}

/// The mark that stands for a resource.
pub(crate) fn look(txn: &ReadTransaction, resource: &str) -> Result<Mark, Trouble> {
    match own(&txn.open_table(MARKS)?, resource)? {
        Some(mark) => Ok(mark),
        None => floor(&txn.open_table(FLOOR)?),
    }
}

/// Raises a mark; answers the one that stands then.
pub(crate) fn raise(
    book: &mut Book<'_>,
    resource: &str,
    to: Mark,
    most: u64,
) -> Result<Mark, Trouble> {
    let txn = book.txn();
    let mut marks = txn.open_table(MARKS)?;
    let own = own(&marks, resource)?;
    let stands = match own {
        Some(mark) => mark,
        None => floor(&txn.open_table(FLOOR)?)?,
    };
    if to.high < stands.high || to.high == Token::ZERO || to == stands {
        return Ok(stands);
    }
    if to.high == stands.high && to.nonce.is_some() {
        return Ok(stands);
    }
    let mut lowest = txn.open_table(LOWEST)?;
    match own {
        Some(own) => drop(lowest.remove(lowest_row(own.high, resource).as_slice())?),
        None => make_room(txn, &mut marks, &mut lowest, most)?,
    }
    marks.insert(resource, to.to_bytes().as_slice())?;
    lowest.insert(lowest_row(to.high, resource).as_slice(), ())?;
    book.touch();
    Ok(to)
}

/// Folds the lowest marks into the floor, so that one more is within the bound.
///
/// A resource that loses its mark gets one at least as high, so nothing that its guard refused is admitted.
fn make_room(
    txn: &WriteTransaction,
    marks: &mut Table<'_, &'static str, &'static [u8]>,
    lowest: &mut Table<'_, &'static [u8], ()>,
    most: u64,
) -> Result<(), Trouble> {
    for _ in 0..FOLDED_AT_ONCE {
        if marks.len()? < most {
            break;
        }
        let Some(row) = lowest.pop_first()?.map(|(row, _)| row.value().to_vec()) else {
            break;
        };
        let Some((high, resource)) = row.split_first_chunk() else {
            continue;
        };
        let high = u64::from_be_bytes(*high);
        let mut floor = txn.open_table(FLOOR)?;
        let stands = floor.get(())?.map_or(0, |floor| floor.value());
        floor.insert((), stands.max(high))?;
        if let Ok(resource) = std::str::from_utf8(resource) {
            marks.remove(resource)?;
        }
    }
    Ok(())
}

fn own(
    marks: &impl ReadableTable<&'static str, &'static [u8]>,
    resource: &str,
) -> Result<Option<Mark>, Trouble> {
    let Some(row) = marks.get(resource)? else {
        return Ok(None);
    };
    let mark = Mark::from_bytes(row.value()).ok_or_else(|| garbled(resource))?;
    Ok(Some(mark))
}

fn floor(floor: &impl ReadableTable<(), u64>) -> Result<Mark, Trouble> {
    let high = floor.get(())?.map_or(0, |floor| floor.value());
    let high = Token::new(high).ok_or_else(|| garbled("the floor"))?;
    Ok(Mark { high, nonce: None })
}

fn garbled(resource: &str) -> StoreError {
    StoreError::Garbled {
        key_prefix: resource.chars().take(8).collect(),
        source: "not a mark of a guard".into(),
    }
}

#[cfg(test)]
pub(crate) fn count(txn: &ReadTransaction) -> Result<(u64, u64), Trouble> {
    let marks = txn.open_table(MARKS)?.len()?;
    Ok((marks, txn.open_table(LOWEST)?.len()?))
}
