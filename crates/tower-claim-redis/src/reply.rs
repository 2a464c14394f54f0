//! What the scripts answer, read.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use redis::Value;
use tower_claim::store::StoreTime;
use tower_claim::{Fingerprint, Key, StoreError, Token};

/// The rest of one answer.
#[derive(Debug)]
pub(crate) struct Reply(std::vec::IntoIter<Value>);

/// A script's answer: the time first.
pub(crate) fn read(value: Value) -> Result<(StoreTime, Reply), StoreError> {
    let mut reply = Reply::of(value)?;
    let time = reply.time()?;
    Ok((time, reply))
}

/// The call may have been applied: somebody between us and the server has changed the answer.
fn unreadable() -> StoreError {
    StoreError::ambiguous("the answer is none of this script's")
}

impl Reply {
    pub(crate) fn of(value: Value) -> Result<Self, StoreError> {
        match value {
            Value::Array(values) => Ok(Self(values.into_iter())),
            _ => Err(unreadable()),
        }
    }

    fn next(&mut self) -> Result<Value, StoreError> {
        self.0.next().ok_or_else(unreadable)
    }

    /// The answers of a batch, one for each key.
    pub(crate) fn parts(self, count: usize) -> Result<Vec<Value>, StoreError> {
        let parts: Vec<Value> = self.0.collect();
        match parts.len() == count {
            true => Ok(parts),
            false => Err(unreadable()),
        }
    }

    /// The answer of a script that takes many keys, and was given one.
    pub(crate) fn part(self) -> Result<Value, StoreError> {
        self.parts(1)?.pop().ok_or_else(unreadable)
    }

    /// What happened, as the script names it. Errors of the record come out here.
    pub(crate) fn tag(&mut self, record: &str) -> Result<String, StoreError> {
        let tag = self.text()?;
        match tag.as_str() {
            "garbled" => Err(StoreError::Garbled {
                key_prefix: record.to_owned(),
                source: self.label()?.to_string().into(),
            }),
            "inflated" => Err(StoreError::Unsupported(
                "a fencing token above 2^53 - 1: the floor is inflated",
            )),
            _ => Ok(tag),
        }
    }

    pub(crate) fn text(&mut self) -> Result<String, StoreError> {
        String::from_utf8(self.bytes()?.into()).map_err(|_| unreadable())
    }

    fn bytes(&mut self) -> Result<Bytes, StoreError> {
        self.maybe_bytes()?.ok_or_else(unreadable)
    }

    pub(crate) fn maybe_bytes(&mut self) -> Result<Option<Bytes>, StoreError> {
        match self.next()? {
            Value::BulkString(bytes) => Ok(Some(bytes.into())),
            Value::SimpleString(text) => Ok(Some(text.into())),
            Value::Nil => Ok(None),
            _ => Err(unreadable()),
        }
    }

    pub(crate) fn number(&mut self) -> Result<u64, StoreError> {
        match self.next()? {
            Value::Int(number) => u64::try_from(number).map_err(|_| unreadable()),
            Value::BulkString(digits) => std::str::from_utf8(&digits)
                .ok()
                .and_then(|digits| digits.parse().ok())
                .ok_or_else(unreadable),
            _ => Err(unreadable()),
        }
    }

    pub(crate) fn time(&mut self) -> Result<StoreTime, StoreError> {
        self.number().map(StoreTime::from_micros)
    }

    pub(crate) fn span(&mut self) -> Result<Duration, StoreError> {
        self.number().map(Duration::from_micros)
    }

    pub(crate) fn flag(&mut self) -> Result<bool, StoreError> {
        self.number().map(|number| number == 1)
    }

    pub(crate) fn token(&mut self) -> Result<Token, StoreError> {
        Token::new(self.number()?).ok_or_else(unreadable)
    }

    pub(crate) fn label(&mut self) -> Result<Arc<str>, StoreError> {
        // What somebody else has put there is shown as well as it can be.
        let bytes = self.bytes()?;
        Ok(Arc::from(String::from_utf8_lossy(&bytes)))
    }

    /// An array, or nothing.
    pub(crate) fn maybe_part(&mut self) -> Result<Option<Reply>, StoreError> {
        match self.next()? {
            Value::Nil => Ok(None),
            part => Reply::of(part).map(Some),
        }
    }

    pub(crate) fn parse<T: std::str::FromStr>(&mut self) -> Result<T, StoreError> {
        self.text()?.parse().map_err(|_| unreadable())
    }

    pub(crate) fn fingerprint(&mut self) -> Result<Option<Fingerprint>, StoreError> {
        let digits = self.text()?;
        if digits.is_empty() {
            return Ok(None);
        }
        // 32 bytes in hex, as a key is written.
        let bytes: Key = digits.parse().map_err(|_| unreadable())?;
        Ok(Some(Fingerprint::from_bytes(*bytes.as_bytes())))
    }

    /// An answer that this version does not know.
    pub(crate) fn unknown<T>() -> Result<T, StoreError> {
        Err(unreadable())
    }
}

/// As a script takes it: nothing is the empty text.
pub(crate) fn fingerprint_digits(fingerprint: Option<Fingerprint>) -> String {
    fingerprint.map_or_else(String::new, |fingerprint| {
        Key::from_bytes(*fingerprint.as_bytes()).to_string()
    })
}
