//! From rows to answers.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tower_claim::engine::Watching;
use tower_claim::store::{
    Admission, Broken, Busy, Claimed, ClaimedMany, Cooling, DoneRecord, Finish, Grant, LostReason,
    Marked, RecordView, Release, Renewed, Resolved, State, StoreTime, TookOver, Unknown, Value,
    Watched,
};
use tower_claim::{Fingerprint, Key, Nonce, StoreError, Token};

/// Why a column could not be read.
pub type ReadError = Box<dyn std::error::Error + Send + Sync>;

/// A row of an answer, as a driver hands it over. Each asks for a column by its name; `None` is NULL.
pub trait Columns {
    /// A `bigint`.
    ///
    /// # Errors
    ///
    /// Where there is no such column, or it is of another type.
    fn int(&self, column: &str) -> Result<Option<i64>, ReadError>;
    /// A `boolean`.
    ///
    /// # Errors
    ///
    /// As for [`int`](Self::int).
    fn flag(&self, column: &str) -> Result<Option<bool>, ReadError>;
    /// A `text`.
    ///
    /// # Errors
    ///
    /// As for [`int`](Self::int).
    fn text(&self, column: &str) -> Result<Option<String>, ReadError>;
    /// A `bytea`.
    ///
    /// # Errors
    ///
    /// As for [`int`](Self::int).
    fn bytes(&self, column: &str) -> Result<Option<Vec<u8>>, ReadError>;
}

/// An answer that this version does not know.
fn strange(answer: &str) -> ReadError {
    format!("an answer that this version does not know: `{answer}`").into()
}

/// Reads a row, and puts the key's prefix to what is wrong with it.
struct Reader<'a, C>(&'a C);

impl<C: Columns> Reader<'_, C> {
    fn number(&self, column: &str) -> Result<u64, ReadError> {
        let value = self.0.int(column)?;
        let value = value.ok_or_else(|| format!("`{column}` is missing"))?;
        u64::try_from(value).map_err(|_| format!("`{column}` is negative").into())
    }

    fn span(&self, column: &str) -> Result<Duration, ReadError> {
        self.number(column).map(Duration::from_micros)
    }

    fn token(&self, column: &str) -> Result<Token, ReadError> {
        let number = self.number(column)?;
        Token::new(number).ok_or_else(|| format!("`{column}` is no token: {number}").into())
    }

    fn flag(&self, column: &str) -> Result<bool, ReadError> {
        let value = self.0.flag(column)?;
        value.ok_or_else(|| format!("`{column}` is missing").into())
    }

    fn text(&self, column: &str) -> Result<String, ReadError> {
        let value = self.0.text(column)?;
        value.ok_or_else(|| format!("`{column}` is missing").into())
    }

    fn array<const N: usize>(&self, column: &str) -> Result<[u8; N], ReadError> {
        let value = self.0.bytes(column)?;
        let value = value.ok_or_else(|| format!("`{column}` is missing"))?;
        let length = value.len();
        <[u8; N]>::try_from(value).map_err(|_| format!("`{column}` has {length} bytes").into())
    }

    fn answer(&self) -> Result<String, ReadError> {
        self.text("answer")
    }

    fn done(&self, same_fingerprint: bool) -> Result<DoneRecord, ReadError> {
        Ok(DoneRecord {
            token: self.token("token")?,
            same_fingerprint,
            value: match self.0.bytes("value")? {
                Some(body) => Value::Kept(Bytes::from(body)),
                None => Value::Tombstone,
            },
            finished: self.span("since")?,
            keep_left: self.span("rest")?,
        })
    }

    fn grant(&self) -> Result<Grant, ReadError> {
        let took_over = match self.0.int("took_token")? {
            None => None,
            Some(_) => Some(TookOver {
                token: self.token("took_token")?,
                since: self.span("took_since")?,
                last_beat: self.span("took_beat")?,
                progress: self.number("took_progress")?,
            }),
        };
        Ok(Grant {
            token: self.token("token")?,
            lease: self.span("rest")?,
            attempt: self.attempt()?,
            took_over,
        })
    }

    fn attempt(&self) -> Result<u32, ReadError> {
        Ok(u32::try_from(self.number("attempt")?)?)
    }

    fn claimed(&self) -> Result<Claimed, ReadError> {
        let answer = self.answer()?;
        Ok(match &*answer {
            "granted" => Claimed::Granted(self.grant()?),
            "mine" => Claimed::Mine {
                token: self.token("token")?,
                rest: self.span("rest")?,
                attempt: self.attempt()?,
            },
            "ended" => Claimed::Ended,
            // Locked: somebody is at it just now.
            "busy" | "locked" => Claimed::Busy(Busy {
                token: self.token("token")?,
                since: self.span("since")?,
                expires_in: self.span("rest")?,
                same_fingerprint: self.flag("same_fingerprint")?,
                label: Arc::from(self.text("label")?),
            }),
            "done" => Claimed::Done(self.done(self.flag("same_fingerprint")?)?),
            "cooling" => Claimed::Cooling(Cooling {
                remaining: self.span("rest")?,
                same_fingerprint: self.flag("same_fingerprint")?,
            }),
            "unknown" => Claimed::Unknown(Unknown {
                token: self.token("token")?,
                same_fingerprint: self.flag("same_fingerprint")?,
            }),
            "too late" => Claimed::TooLate,
            other => return Err(strange(other)),
        })
    }

    fn view(&self) -> Result<RecordView, ReadError> {
        let key = Key::from_bytes(self.array("key")?);
        let state = match &*self.text("state")? {
            "free" => State::Free,
            "held" => State::Held,
            "done" => State::Done,
            "unknown" => State::Unknown,
            other => return Err(strange(other)),
        };
        let mut view = RecordView::new(key, state);
        view.label = Arc::from(self.text("label")?);
        view.token = self.token("token")?;
        view.nonce = Nonce::from_bytes(self.array("nonce")?);
        view.fingerprint = match self.0.bytes("fingerprint")? {
            None => None,
            Some(_) => Some(Fingerprint::from_bytes(self.array("fingerprint")?)),
        };
        view.since = self.span("since")?;
        view.expires_in = self.span("rest")?;
        view.last_beat = self.span("last_beat")?;
        view.progress = self.number("progress")?;
        view.marked = self.flag("marked")?;
        view.lapsed = self.flag("lapsed")?;
        Ok(view)
    }
}

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
pub fn purged(row: &impl Columns) -> Result<(u64, u64), StoreError> {
    let row = Reader(row);
    let both = || Ok((row.number("seen")?, row.number("dropped")?));
    both().map_err(garbled(String::new()))
}
