//! From rows to answers.

use tower_claim::engine::Watching;
use tower_claim::store::{
    Admission, Broken, Claimed, ClaimedMany, Finish, LostReason, Marked, Purged, RecordView,
    Release, Renewed, Resolved, StoreTime, Watched,
};
use tower_claim::{Key, StoreError, Token};

pub use super::row::{Columns, ReadError};
use super::row::{Reader, strange};

fn garbled(key_prefix: String) -> impl FnOnce(ReadError) -> StoreError {
    move |source| StoreError::Garbled { key_prefix, source }
}

fn read<C: Columns, T>(
    key: &Key,
    row: &C,
    read: impl FnOnce(&Reader<'_, C>) -> Result<T, ReadError>,
) -> Result<T, StoreError> {
    read(&Reader(row)).map_err(garbled(key.prefix()))
}

/// When the server answered, by its own clock; `None` for a guard's answer.
pub fn at(row: &impl Columns) -> Option<StoreTime> {
    let micros = row.int("at").ok().flatten()?;
    Some(StoreTime::from_micros(u64::try_from(micros).ok()?))
}

/// Which member of a batch the row answers, from 0.
///
/// # Errors
///
/// [`StoreError::Garbled`] for a row that is none of a batch.
pub fn place(row: &impl Columns) -> Result<usize, StoreError> {
    let place = || -> Result<usize, ReadError> {
        let nth = usize::try_from(Reader(row).number("nth")?)?;
        nth.checked_sub(1)
            .ok_or_else(|| "`nth` counts from 1".into())
    };
    place().map_err(garbled(String::new()))
}

/// Reads the answer to a claim. One that met a locked row within a transaction reads as
/// [`Claimed::Busy`], with a token of zero where the row is not there to be seen yet.
///
/// # Errors
///
/// [`StoreError::Garbled`], as for all of these.
pub fn claimed(key: &Key, row: &impl Columns) -> Result<Claimed, StoreError> {
    read(key, row, |row| row.claimed())
}

/// Reads the answer to a claim of several keys.
///
/// # Errors
///
/// [`StoreError::Garbled`].
pub fn claimed_many(first: &Key, row: &impl Columns) -> Result<ClaimedMany, StoreError> {
    read(first, row, |row| {
        Ok(match row.claimed()? {
            Claimed::Granted(grant) => ClaimedMany::Granted(grant),
            by => ClaimedMany::Refused {
                key: Key::from_bytes(row.array("key")?),
                by,
            },
        })
    })
}

fn lost(answer: &str) -> Result<LostReason, ReadError> {
    Ok(match answer {
        "superseded" => LostReason::Superseded,
        "broken" => LostReason::Broken,
        "lapsed" => LostReason::Lapsed,
        other => return Err(strange(other)),
    })
}

/// Reads the answer to one beat.
///
/// # Errors
///
/// [`StoreError::Garbled`].
pub fn renewed(key: &Key, row: &impl Columns) -> Result<Renewed, StoreError> {
    read(key, row, |row| {
        Ok(match &*row.answer()? {
            "renewed" => Renewed::Renewed {
                rest: row.span("rest")?,
                revoke_asked: row.flag("revoke_asked")?,
            },
            "unsure" => Renewed::Unsure,
            other => Renewed::Lost(lost(other)?),
        })
    })
}

/// Reads the answer to a mark.
///
/// # Errors
///
/// [`StoreError::Garbled`].
pub fn marked(key: &Key, row: &impl Columns) -> Result<Marked, StoreError> {
    read(key, row, |row| {
        Ok(match &*row.answer()? {
            "marked" => Marked::Marked,
            other => Marked::Lost(lost(other)?),
        })
    })
}

/// Reads whether the owner holds the key still; `None` when it does, why not otherwise.
///
/// # Errors
///
/// [`StoreError::Garbled`].
pub fn still_held(key: &Key, row: &impl Columns) -> Result<Option<LostReason>, StoreError> {
    read(key, row, |row| {
        Ok(match &*row.answer()? {
            "held" => None,
            other => Some(lost(other)?),
        })
    })
}

/// Reads the answer to a finish.
///
/// # Errors
///
/// [`StoreError::Garbled`].
pub fn finished(key: &Key, row: &impl Columns) -> Result<Finish, StoreError> {
    read(key, row, |row| {
        Ok(match &*row.answer()? {
            "finished" => Finish::Finished,
            "lost" => Finish::Lost,
            other => return Err(strange(other)),
        })
    })
}

/// Reads the answer to a release.
///
/// # Errors
///
/// [`StoreError::Garbled`].
pub fn released(key: &Key, row: &impl Columns) -> Result<Release, StoreError> {
    read(key, row, |row| {
        Ok(match &*row.answer()? {
            "released" => Release::Released,
            "already" => Release::Already,
            "lost" => Release::Lost,
            other => return Err(strange(other)),
        })
    })
}

/// Reads what became of a hold.
///
/// # Errors
///
/// [`StoreError::Garbled`].
pub fn watching(key: &Key, row: &impl Columns) -> Result<Watching, StoreError> {
    read(key, row, |row| {
        Ok(match &*row.answer()? {
            "until" => Watching::Until(StoreTime::from_micros(row.number("until")?)),
            "ended" => Watching::Over(Watched::Ended),
            "done" => Watching::Over(Watched::Done(row.done(true)?)),
            "superseded" => Watching::Over(Watched::Superseded {
                token: row.token("token")?,
            }),
            other => return Err(strange(other)),
        })
    })
}

/// Reads a record as people see it.
///
/// # Errors
///
/// [`StoreError::Garbled`].
pub fn viewed(row: &impl Columns) -> Result<RecordView, StoreError> {
    let key = row.bytes("key").ok().flatten().unwrap_or_default();
    let prefix = key.iter().take(4).map(|byte| format!("{byte:02x}"));
    Reader(row).view().map_err(garbled(prefix.collect()))
}

/// Reads the answer to a resolve.
///
/// # Errors
///
/// [`StoreError::Garbled`].
pub fn resolved(key: &Key, row: &impl Columns) -> Result<Resolved, StoreError> {
    read(key, row, |row| {
        Ok(match &*row.answer()? {
            "resolved" => Resolved::Resolved {
                token: row.token("token")?,
            },
            "absent" => Resolved::Absent,
            "conflict" => Resolved::Conflict {
                token: row.token("token")?,
            },
            other => return Err(strange(other)),
        })
    })
}

/// Reads whether there was a hold whose owner could be asked to stop.
///
/// # Errors
///
/// [`StoreError::Garbled`].
pub fn asked(key: &Key, row: &impl Columns) -> Result<bool, StoreError> {
    read(key, row, |row| {
        Ok(match &*row.answer()? {
            "asked" => true,
            "no such hold" => false,
            other => return Err(strange(other)),
        })
    })
}

/// Reads the answer to a break.
///
/// # Errors
///
/// [`StoreError::Garbled`].
pub fn broken(key: &Key, row: &impl Columns) -> Result<Broken, StoreError> {
    read(key, row, |row| {
        Ok(match &*row.answer()? {
            "broken" => Broken::Broken {
                token: row.token("token")?,
            },
            "absent" => Broken::Absent,
            "conflict" => Broken::Conflict {
                token: row.token("token")?,
            },
            other => return Err(strange(other)),
        })
    })
}

/// Reads the answer to a purge.
///
/// # Errors
///
/// [`StoreError::Garbled`].
pub fn purged(key: &Key, row: &impl Columns) -> Result<Purged, StoreError> {
    read(key, row, |row| {
        Ok(match &*row.answer()? {
            "purged" => Purged::Purged {
                token: row.token("token")?,
            },
            "absent" => Purged::Absent,
            "conflict" => Purged::Conflict {
                token: row.token("token")?,
            },
            other => return Err(strange(other)),
        })
    })
}

/// Reads a guard's answer.
///
/// # Errors
///
/// [`StoreError::Garbled`].
pub fn admission(row: &impl Columns) -> Result<Admission, StoreError> {
    let row = Reader(row);
    let admission = || -> Result<Admission, ReadError> {
        let high = row.token("high")?;
        Ok(match &*row.answer()? {
            "admitted" => Admission::Admitted,
            "stale" => Admission::Stale { high },
            "collision" => Admission::Collision { high },
            other => return Err(strange(other)),
        })
    };
    admission().map_err(garbled(String::new()))
}

/// Reads a guard's mark.
///
/// # Errors
///
/// [`StoreError::Garbled`].
pub fn high(row: &impl Columns) -> Result<Token, StoreError> {
    Reader(row).token("high").map_err(garbled(String::new()))
}

/// Reads how many records a purge looked at, and how many it dropped.
///
/// # Errors
///
/// [`StoreError::Garbled`].
pub fn purged_ended(row: &impl Columns) -> Result<(u64, u64), StoreError> {
    let row = Reader(row);
    let both = || Ok((row.number("seen")?, row.number("dropped")?));
    both().map_err(garbled(String::new()))
}
