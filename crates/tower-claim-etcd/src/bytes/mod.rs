//! Records and keys as bytes. Version 1; golden files in `tests/` hold it.

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tower_claim::engine::{LONGEST_SPAN, span_micros};
use tower_claim::{Fingerprint, Key, LapsePolicy, Nonce, Settings, StoreError, Token};

use crate::plan::On;
use crate::record::{Leases, Phase, Record};

/// In front of the version.
const MAGIC: &[u8; 3] = b"twc";
const VERSION: u8 = 1;

const BY_REVISION: u8 = 1;
const MARKED: u8 = 2;
const REVOKE_ASKED: u8 = 4;
const FINGERPRINT: u8 = 8;
const HOLD: u8 = 16;

/// `ids`: those of the leases that were granted for the plan.
pub(crate) fn encode(record: &Record, ids: &[i64]) -> Vec<u8> {
    let (phase, body): (u8, Option<&Bytes>) = match &record.phase {
        Phase::Held => (0, None),
        Phase::Done(Some(body)) => (1, Some(body)),
        Phase::Done(None) => (2, None),
        Phase::Unknown => (3, None),
        Phase::Freed => (4, None),
    };
    let flag = |set: bool, bit: u8| if set { bit } else { 0 };
    let flags = flag(record.by_revision, BY_REVISION)
        | flag(record.marked, MARKED)
        | flag(record.revoke_asked, REVOKE_ASKED)
        | flag(record.fingerprint.is_some(), FINGERPRINT)
        | flag(record.terms.on_lapse == LapsePolicy::Hold, HOLD);
    let mut out = Vec::with_capacity(192 + body.map_or(0, Bytes::len));
    out.extend_from_slice(MAGIC);
    out.extend_from_slice(&[VERSION, phase, flags]);
    out.extend_from_slice(record.nonce.as_bytes());
    out.extend_from_slice(&record.token.get().to_be_bytes());
    if let Some(fingerprint) = &record.fingerprint {
        out.extend_from_slice(fingerprint.as_bytes());
    }
    let terms = &record.terms;
    for span in [
        terms.lease,
        terms.cooling,
        terms.min_hold,
        terms.unfinished_keep,
    ] {
        out.extend_from_slice(&span_micros(span).to_be_bytes());
    }
    out.extend_from_slice(&record.attempt.to_be_bytes());
    for number in [
        record.lease_secs,
        record.progress,
        record.since,
        record.last_beat,
        record.until,
    ] {
        out.extend_from_slice(&number.to_be_bytes());
    }
    let Leases { live, cool, keep } = record.leases;
    for lease in [live, cool, keep] {
        out.extend_from_slice(&id(lease, ids).to_be_bytes());
    }
    for text in [terms.label.as_bytes(), body.map_or(&[], |body| &body[..])] {
        let len = u32::try_from(text.len()).unwrap_or(u32::MAX);
        out.extend_from_slice(&len.to_be_bytes());
        out.extend_from_slice(text);
    }
    out
}

/// An etcd lease's id; zero is none.
pub(crate) fn id(lease: On, ids: &[i64]) -> i64 {
    match lease {
        On::Nothing => 0,
        On::Old(id) => id,
        On::New(n) => ids.get(n).copied().unwrap_or(0),
    }
}

/// Why bytes are no record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bad {
    Foreign,
    Truncated,
    Version(u8),
    Field(&'static str),
}

impl std::fmt::Display for Bad {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Bad::Foreign => {
                f.write_str("no record of this store: choose a prefix that nobody else uses")
            }
            Bad::Truncated => f.write_str("the record is cut off"),
            Bad::Version(version) => write!(
                f,
                "the record has version {version}, this program knows {VERSION}: update it"
            ),
            Bad::Field(field) => write!(f, "the record's {field} makes no sense"),
        }
    }
}

impl std::error::Error for Bad {}

impl Bad {
    pub(crate) fn of(self, key: &Key) -> StoreError {
        StoreError::Garbled {
            key_prefix: key.prefix(),
            source: self.into(),
        }
    }
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn slice(&mut self, len: usize) -> Result<&'a [u8], Bad> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or(Bad::Truncated)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Bad> {
        let taken = self.slice(N)?;
        taken.try_into().map_err(|_| Bad::Truncated)
    }

    fn u64(&mut self) -> Result<u64, Bad> {
        Ok(u64::from_be_bytes(self.array()?))
    }

    fn span(&mut self) -> Result<Duration, Bad> {
        let span = Duration::from_micros(self.u64()?);
        match span <= LONGEST_SPAN {
            true => Ok(span),
            false => Err(Bad::Field("span")),
        }
    }

    fn lease(&mut self) -> Result<On, Bad> {
        Ok(match i64::from_be_bytes(self.array()?) {
            0 => On::Nothing,
            id => On::Old(id),
        })
    }

    fn text(&mut self) -> Result<&'a [u8], Bad> {
        let len = u32::from_be_bytes(self.array()?);
        self.slice(usize::try_from(len).map_err(|_| Bad::Truncated)?)
    }
}

/// A record that was written by this revision.
pub(crate) fn decode(bytes: &[u8], revision: i64) -> Result<Record, Bad> {
    let mut r = Reader(bytes);
    if r.array::<3>().map_err(|_| Bad::Foreign)? != *MAGIC {
        return Err(Bad::Foreign);
    }
    match r.array::<1>()? {
        [VERSION] => {}
        [other] => return Err(Bad::Version(other)),
    }
    let [phase, flags] = r.array()?;
    if flags & !(BY_REVISION | MARKED | REVOKE_ASKED | FINGERPRINT | HOLD) != 0 {
        return Err(Bad::Field("flags"));
    }
    let by_revision = flags & BY_REVISION != 0;
    let nonce = Nonce::from_bytes(r.array()?);
    let mut token = r.u64()?;
    if by_revision {
        token = token.max(u64::try_from(revision).unwrap_or(0));
    }
    let token = Token::new(token).ok_or(Bad::Field("token"))?;
    let fingerprint = match flags & FINGERPRINT {
        0 => None,
        _ => Some(Fingerprint::from_bytes(r.array()?)),
    };
    let mut terms = Settings::new(r.span()?);
    terms.cooling = r.span()?;
    terms.min_hold = r.span()?;
    terms.unfinished_keep = r.span()?;
    if flags & HOLD != 0 {
        terms.on_lapse = LapsePolicy::Hold;
    }
    let attempt = u32::from_be_bytes(r.array()?);
    let [lease_secs, progress, since, last_beat, until] =
        [r.u64()?, r.u64()?, r.u64()?, r.u64()?, r.u64()?];
    // Sums of them must not overflow.
    if [lease_secs, since, last_beat, until]
        .iter()
        .any(|n| *n >= 1 << 50)
    {
        return Err(Bad::Field("time"));
    }
    let leases = Leases {
        live: r.lease()?,
        cool: r.lease()?,
        keep: r.lease()?,
    };
    let label = std::str::from_utf8(r.text()?).map_err(|_| Bad::Field("label"))?;
    terms.label = Arc::from(label);
    let body = r.text()?;
    let phase = match phase {
        0 => Phase::Held,
        1 => Phase::Done(Some(Bytes::copy_from_slice(body))),
        2 => Phase::Done(None),
        3 => Phase::Unknown,
        4 => Phase::Freed,
        _ => return Err(Bad::Field("phase")),
    };
    if !r.0.is_empty() {
        return Err(Bad::Field("length"));
    }
    Ok(Record {
        phase,
        nonce,
        token,
        by_revision,
        fingerprint,
        terms,
        lease_secs,
        attempt,
        progress,
        marked: flags & MARKED != 0,
        revoke_asked: flags & REVOKE_ASKED != 0,
        since,
        last_beat,
        until,
        leases,
    })
}
