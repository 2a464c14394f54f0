//! Reading the columns of an answer.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tower_claim::store::{
    Busy, Claimed, Cooling, DoneRecord, Grant, RecordView, State, TookOver, Unknown, Value,
};
use tower_claim::{Fingerprint, Key, Nonce, Token};

use super::param::plain;

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
pub(super) fn strange(answer: &str) -> ReadError {
    format!("an answer that this version does not know: `{answer}`").into()
}

/// Reads a row, and puts the key's prefix to what is wrong with it.
pub(super) struct Reader<'a, C>(pub(super) &'a C);

impl<C: Columns> Reader<'_, C> {
    pub(super) fn number(&self, column: &str) -> Result<u64, ReadError> {
        let value = self.0.int(column)?;
        let value = value.ok_or_else(|| format!("`{column}` is missing"))?;
        u64::try_from(value).map_err(|_| format!("`{column}` is negative").into())
    }

    pub(super) fn span(&self, column: &str) -> Result<Duration, ReadError> {
        self.number(column).map(Duration::from_micros)
    }

    pub(super) fn token(&self, column: &str) -> Result<Token, ReadError> {
        let number = self.number(column)?;
        Token::new(number).ok_or_else(|| format!("`{column}` is no token: {number}").into())
    }

    pub(super) fn flag(&self, column: &str) -> Result<bool, ReadError> {
        let value = self.0.flag(column)?;
        value.ok_or_else(|| format!("`{column}` is missing").into())
    }

    pub(super) fn text(&self, column: &str) -> Result<String, ReadError> {
        let value = self.0.text(column)?;
        value.ok_or_else(|| format!("`{column}` is missing").into())
    }

    fn label(&self) -> Result<Arc<str>, ReadError> {
        Ok(Arc::from(plain(&self.text("label")?)))
    }

    pub(super) fn array<const N: usize>(&self, column: &str) -> Result<[u8; N], ReadError> {
        let value = self.0.bytes(column)?;
        let value = value.ok_or_else(|| format!("`{column}` is missing"))?;
        let length = value.len();
        <[u8; N]>::try_from(value).map_err(|_| format!("`{column}` has {length} bytes").into())
    }

    pub(super) fn answer(&self) -> Result<String, ReadError> {
        self.text("answer")
    }

    pub(super) fn done(&self, same_fingerprint: bool) -> Result<DoneRecord, ReadError> {
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

    pub(super) fn grant(&self) -> Result<Grant, ReadError> {
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

    pub(super) fn attempt(&self) -> Result<u32, ReadError> {
        Ok(u32::try_from(self.number("attempt")?)?)
    }

    pub(super) fn claimed(&self) -> Result<Claimed, ReadError> {
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
                label: self.label()?,
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

    pub(super) fn view(&self) -> Result<RecordView, ReadError> {
        let key = Key::from_bytes(self.array("key")?);
        let state = match &*self.text("state")? {
            "free" => State::Free,
            "held" => State::Held,
            "done" => State::Done,
            "unknown" => State::Unknown,
            other => return Err(strange(other)),
        };
        let mut view = RecordView::new(key, state);
        view.label = self.label()?;
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
        view.attempt = self.attempt()?;
        Ok(view)
    }
}
