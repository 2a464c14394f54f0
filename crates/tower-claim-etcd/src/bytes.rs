//! Records and keys as bytes. Version 1; golden files in `tests/` hold it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tower_claim::engine::span_micros;
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
    let mut terms = Settings::new(Duration::from_micros(r.u64()?));
    terms.cooling = Duration::from_micros(r.u64()?);
    terms.min_hold = Duration::from_micros(r.u64()?);
    terms.unfinished_keep = Duration::from_micros(r.u64()?);
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

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn sample(phase: Phase) -> Record {
        let mut terms = Settings::new(Duration::from_secs(10));
        terms.cooling = Duration::from_millis(1500);
        terms.min_hold = Duration::from_secs(3);
        terms.label = Arc::from("lease 1a2b3c4d");
        terms.on_lapse = LapsePolicy::Hold;
        Record {
            phase,
            nonce: Nonce::from_bytes([7; 16]),
            token: Token::new(4711).unwrap(),
            by_revision: false,
            fingerprint: Some(Fingerprint::from_bytes([9; 32])),
            terms,
            lease_secs: 10,
            attempt: 2,
            progress: 42,
            marked: true,
            revoke_asked: true,
            since: 1_700_000_000_000,
            last_beat: 1_700_000_004_000,
            until: 1_700_000_010_000,
            leases: Leases {
                live: On::Old(0x1122),
                cool: On::Old(0x3344),
                keep: On::Old(0x5566),
            },
        }
    }

    fn phases() -> [(&'static str, Phase); 5] {
        [
            ("held", Phase::Held),
            ("done", Phase::Done(Some(Bytes::from_static(b"result")))),
            ("tombstone", Phase::Done(None)),
            ("unknown", Phase::Unknown),
            ("freed", Phase::Freed),
        ]
    }

    #[test]
    fn a_record_comes_back_as_it_was() {
        for (_, phase) in phases() {
            let record = sample(phase);
            assert_eq!(decode(&encode(&record, &[]), 1), Ok(record));
        }
        let mut plain = sample(Phase::Held);
        plain.fingerprint = None;
        (plain.marked, plain.revoke_asked) = (false, false);
        plain.terms.on_lapse = LapsePolicy::TakeOver;
        plain.terms.label = Arc::from("");
        assert_eq!(decode(&encode(&plain, &[]), 1), Ok(plain));
    }

    #[test]
    fn the_stored_bytes_of_version_1_are_read_for_ever() {
        let golden = include_str!("../tests/golden/record-v1.txt");
        let mut lines = golden.lines();
        for (name, phase) in phases() {
            let record = sample(phase);
            let written: String = encode(&record, &[])
                .iter()
                .map(|b| format!("{b:02x}"))
                .collect();
            assert_eq!(lines.next(), Some(format!("{name} {written}").as_str()));
        }
    }

    #[test]
    fn a_token_by_revision_is_not_below_it() {
        let mut record = sample(Phase::Held);
        record.by_revision = true;
        let bytes = encode(&record, &[]);
        assert_eq!(
            decode(&bytes, 5000).unwrap().token,
            Token::new(5000).unwrap()
        );
        assert_eq!(decode(&bytes, 3).unwrap().token, record.token);
        record.by_revision = false;
        assert_eq!(
            decode(&encode(&record, &[]), 5000).unwrap().token,
            record.token
        );
    }

    #[test]
    fn what_is_cut_off_foreign_or_of_the_future_is_refused() {
        let whole = encode(
            &sample(Phase::Done(Some(Bytes::from_static(b"result")))),
            &[],
        );
        for len in 0..whole.len() {
            assert!(decode(&whole[..len], 1).is_err(), "cut at {len}");
        }
        let mut longer = whole.clone();
        longer.push(0);
        assert_eq!(decode(&longer, 1), Err(Bad::Field("length")));
        let mut future = whole.clone();
        future[3] = 2;
        assert_eq!(decode(&future, 1), Err(Bad::Version(2)));
        assert_eq!(decode(b"{\"json\":1}", 1), Err(Bad::Foreign));
        let key = Key::from_bytes([0xab; 32]);
        assert!(matches!(
            Bad::Foreign.of(&key),
            StoreError::Garbled { key_prefix, .. } if key_prefix == "abababab"
        ));
    }

    #[test]
    fn no_byte_turned_makes_a_panic() {
        let whole = encode(
            &sample(Phase::Done(Some(Bytes::from_static(b"result")))),
            &[],
        );
        for at in 0..whole.len() {
            for with in [0, 1, 0x7f, 0x80, 0xff] {
                let mut turned = whole.clone();
                turned[at] = with;
                let _ = decode(&turned, i64::MAX);
            }
        }
    }
}
