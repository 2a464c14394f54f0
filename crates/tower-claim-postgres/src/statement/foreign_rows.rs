//! Rows that are none of ours: every reader refuses them, and none panics.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use tower_claim::{Key, StoreError};

use super::answer::*;

/// What a server may send in a column.
#[derive(Debug, Clone)]
enum Cell {
    Null,
    Int(i64),
    Flag(bool),
    Text(&'static str),
    Bytes(Vec<u8>),
}

#[derive(Debug, Clone)]
struct Row(BTreeMap<&'static str, Cell>);

impl Row {
    fn cell<T>(&self, of: &str, read: impl Fn(&Cell) -> Option<T>) -> Result<Option<T>, ReadError> {
        match self.0.get(of) {
            None => Err("no such column".into()),
            Some(Cell::Null) => Ok(None),
            Some(cell) => read(cell).map(Some).ok_or_else(|| "another type".into()),
        }
    }
}

impl Columns for Row {
    fn int(&self, column: &str) -> Result<Option<i64>, ReadError> {
        self.cell(column, |cell| match cell {
            Cell::Int(value) => Some(*value),
            _ => None,
        })
    }
    fn flag(&self, column: &str) -> Result<Option<bool>, ReadError> {
        self.cell(column, |cell| match cell {
            Cell::Flag(value) => Some(*value),
            _ => None,
        })
    }
    fn text(&self, column: &str) -> Result<Option<String>, ReadError> {
        self.cell(column, |cell| match cell {
            Cell::Text(value) => Some((*value).to_owned()),
            _ => None,
        })
    }
    fn bytes(&self, column: &str) -> Result<Option<Vec<u8>>, ReadError> {
        self.cell(column, |cell| match cell {
            Cell::Bytes(value) => Some(value.clone()),
            _ => None,
        })
    }
}

const ANSWERS: &[&str] = &[
    "granted",
    "mine",
    "ended",
    "busy",
    "locked",
    "done",
    "cooling",
    "unknown",
    "too late",
    "superseded",
    "broken",
    "lapsed",
    "renewed",
    "unsure",
    "marked",
    "held",
    "finished",
    "lost",
    "released",
    "already",
    "until",
    "resolved",
    "absent",
    "conflict",
    "asked",
    "no such hold",
    "admitted",
    "stale",
    "collision",
    "",
    "a word of a later version",
    "GRANTED",
];

/// A row that answers every call.
fn whole(answer: &'static str) -> Row {
    let int = |n| Cell::Int(n);
    Row(BTreeMap::from([
        ("answer", Cell::Text(answer)),
        ("at", int(1)),
        ("attempt", int(1)),
        ("dropped", int(1)),
        ("fingerprint", Cell::Bytes(vec![1; 32])),
        ("high", int(1)),
        ("key", Cell::Bytes(vec![1; 32])),
        ("label", Cell::Text("ä")),
        ("lapsed", Cell::Flag(false)),
        ("last_beat", int(1)),
        ("marked", Cell::Flag(true)),
        ("nonce", Cell::Bytes(vec![1; 16])),
        ("nth", int(1)),
        ("progress", int(1)),
        ("rest", int(1)),
        ("revoke_asked", Cell::Flag(true)),
        ("same_fingerprint", Cell::Flag(true)),
        ("seen", int(1)),
        ("since", int(1)),
        ("state", Cell::Text("held")),
        ("token", int(1)),
        ("took_beat", int(1)),
        ("took_progress", int(1)),
        ("took_since", int(1)),
        ("took_token", int(1)),
        ("until", int(1)),
        ("value", Cell::Bytes(Vec::new())),
    ]))
}

/// Every reader of a row, and whether it understood.
fn read_all(row: &Row) -> Vec<bool> {
    let key = Key::from_bytes([7; 32]);
    let of_key = [
        claimed(&key, row).err(),
        claimed_many(&key, row).err(),
        renewed(&key, row).err(),
        marked(&key, row).err(),
        still_held(&key, row).err(),
        finished(&key, row).err(),
        released(&key, row).err(),
        watching(&key, row).err(),
        resolved(&key, row).err(),
        asked(&key, row).err(),
        broken(&key, row).err(),
        purged(&key, row).err(),
    ];
    for error in of_key.iter().flatten() {
        let StoreError::Garbled { key_prefix, .. } = error else {
            panic!("{error:?}");
        };
        assert_eq!(*key_prefix, key.prefix());
    }
    let others = [
        viewed(row).err(),
        admission(row).err(),
        high(row).err(),
        purged_ended(row).err(),
        place(row).err(),
    ];
    let all = of_key.into_iter().chain(others);
    let _ = at(row);
    all.map(|error| {
        let garbled = matches!(error, Some(StoreError::Garbled { .. }));
        assert!(error.is_none() || garbled, "{error:?}");
        !garbled
    })
    .collect()
}

#[test]
fn whatever_a_row_holds_it_is_read_or_garbled_and_never_a_panic() {
    let odd = [
        Cell::Null,
        Cell::Int(-1),
        Cell::Int(i64::MIN),
        Cell::Int(i64::MAX),
        Cell::Int(1 << 53),
        Cell::Flag(false),
        Cell::Text("held"),
        Cell::Text("\u{fffd}\u{1f980}"),
        Cell::Bytes(Vec::new()),
        Cell::Bytes(vec![0xff; 31]),
        Cell::Bytes(vec![0xff; 1 << 20]),
    ];
    let (mut understood, mut garbled) = (0, 0);
    for answer in ANSWERS {
        let whole = whole(answer);
        for column in whole.0.keys() {
            let missing = {
                let mut row = whole.clone();
                row.0.remove(column);
                row
            };
            let changed = odd.iter().map(|cell| {
                let mut row = whole.clone();
                row.0.insert(column, cell.clone());
                row
            });
            for row in changed.chain([missing]) {
                let read = catch_unwind(AssertUnwindSafe(|| read_all(&row)));
                let read = read.unwrap_or_else(|_| panic!("{answer}, {column}"));
                understood += read.iter().filter(|ok| **ok).count();
                garbled += read.iter().filter(|ok| !**ok).count();
            }
        }
    }
    assert!(
        understood > 1_000 && garbled > 1_000,
        "{understood} {garbled}"
    );
}
