//! Reads a record.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::UnreadableRecord::{Foreign, FutureVersion, Truncated};
use super::{
    ALL_FLAGS, BODY, CHECKSUM, FINGERPRINT, MARKED, REVOKE_ASKED, SPENT, STAYS_TAKEN, TERMS,
    UnreadableRecord, VERSION, checksum,
};
use crate::record::{Limit, Phase, Record, Spent};
use crate::store::StoreTime;
use crate::{Fingerprint, LapsePolicy, Nonce, Settings, Token};

type Read<T> = Result<T, UnreadableRecord>;

impl Record {
    /// The record that [`to_bytes`](Self::to_bytes) wrote, by this version of the crate or an earlier one.
    ///
    /// Allocates no more than a small multiple of the bytes given, whatever they say.
    ///
    /// # Errors
    ///
    /// [`UnreadableRecord`] for bytes of a future version, for truncated ones and for any others.
    /// [`UnreadableRecord::of_key`] makes it the error a store answers.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, UnreadableRecord> {
        match *bytes.first().ok_or(Truncated)? {
            VERSION => {}
            0 => return Err(Foreign("version 0")),
            version => return Err(FutureVersion(version)),
        }
        let (content, sum) = bytes.split_last_chunk::<CHECKSUM>().ok_or(Truncated)?;
        let record = In(content).record();
        // What was met on the way says more than that the sum is wrong.
        if record.is_ok() && *sum != checksum(content) {
            return Err(Foreign("its checksum is another one"));
        }
        record
    }
}

struct In<'a>(&'a [u8]);

impl<'a> In<'a> {
    fn record(mut self) -> Read<Record> {
        let [_version, tag, flags] = self.array()?;
        if flags & !ALL_FLAGS != 0 {
            return Err(Foreign("unknown flags"));
        }
        let has = |flag: u8| flags & flag != 0;
        let token = Token::new(self.number()?).ok_or(Foreign("a token of 2^53 or above"))?;
        let nonce = Nonce::from_bytes(self.array()?);
        let (since, until) = (self.time()?, self.time()?);
        let not_after = match tag {
            0 => Limit::default(),
            _ => self.limit()?,
        };
        let fingerprint = match has(FINGERPRINT) {
            true => Some(Fingerprint::from_bytes(self.array()?)),
            false => None,
        };
        let (phase, may_have) = match tag {
            0 => (Phase::Vacant, SPENT),
            1 => (Phase::Free { not_after }, SPENT),
            2 => {
                let phase = Phase::Held {
                    not_after,
                    fingerprint,
                    last_beat: self.time()?,
                    progress: self.number()?,
                    attempt: u32::try_from(self.number()?)
                        .map_err(|_| Foreign("an attempt of 2^32 or above"))?,
                    marked: has(MARKED),
                    revoke_asked: has(REVOKE_ASKED),
                };
                (phase, FINGERPRINT | TERMS | MARKED | REVOKE_ASKED | SPENT)
            }
            3 => {
                let phase = Phase::Done {
                    not_after,
                    fingerprint,
                    stays_taken: has(STAYS_TAKEN),
                    body: None,
                };
                (phase, FINGERPRINT | TERMS | BODY | SPENT | STAYS_TAKEN)
            }
            4 => {
                let phase = Phase::Unknown {
                    not_after,
                    fingerprint,
                    not_before: self.time()?,
                    last_beat: self.time()?,
                    progress: self.number()?,
                    marked: has(MARKED),
                };
                (phase, FINGERPRINT | TERMS | MARKED | SPENT)
            }
            _ => return Err(Foreign("an unknown phase")),
        };
        if flags & !may_have != 0 {
            return Err(Foreign("flags that do not go with the phase"));
        }
        let mut record = Record {
            phase,
            token,
            nonce,
            terms: match has(TERMS) {
                true => Some(Arc::new(self.terms()?)),
                false => None,
            },
            since,
            until,
            spent: match has(SPENT) {
                true => self.spent()?,
                false => Spent::default(),
            },
        };
        if let (Phase::Done { body, .. }, true) = (&mut record.phase, has(BODY)) {
            let len = self.number()?;
            *body = Some(Bytes::copy_from_slice(self.slice(len)?));
        }
        match self.0 {
            [] => Ok(record),
            _ => Err(Foreign("more bytes than a record has")),
        }
    }

    fn terms(&mut self) -> Read<Settings> {
        let (lease, cooling) = (self.span()?, self.span()?);
        let (min_hold, unfinished_keep) = (self.span()?, self.span()?);
        let on_lapse = match self.array()? {
            [0] => LapsePolicy::TakeOver,
            [1] => LapsePolicy::Hold,
            _ => return Err(Foreign("an unknown lapse policy")),
        };
        let len = self.number()?;
        let label = std::str::from_utf8(self.slice(len)?);
        Ok(Settings {
            lease,
            cooling,
            min_hold,
            on_lapse,
            unfinished_keep,
            label: Arc::from(label.map_err(|_| Foreign("a label that is not UTF-8"))?),
        })
    }

    fn spent(&mut self) -> Read<Spent> {
        const SHORTEST: usize = 16 + 1;
        let (folded, latest) = (self.time()?, self.time()?);
        let count = self.number()?;
        // Before anything is allocated: the bytes must be there.
        let fits = usize::try_from(count).ok();
        let count = fits.filter(|count| *count <= self.0.len() / SHORTEST);
        let mut nonces = Vec::with_capacity(count.ok_or(Truncated)?);
        for _ in 0..nonces.capacity() {
            let nonce = Nonce::from_bytes(self.array()?);
            nonces.push((self.time()?, nonce));
        }
        if !nonces.is_sorted_by(|a, b| a < b) {
            return Err(Foreign("spent nonces out of order"));
        }
        Spent::from_parts((folded, latest, nonces)).ok_or(Foreign("spent nonces that none spent"))
    }

    fn slice(&mut self, len: u64) -> Read<&'a [u8]> {
        let len = usize::try_from(len).map_err(|_| Truncated)?;
        let (slice, rest) = self.0.split_at_checked(len).ok_or(Truncated)?;
        self.0 = rest;
        Ok(slice)
    }

    fn array<const N: usize>(&mut self) -> Read<[u8; N]> {
        let (array, rest) = self.0.split_first_chunk::<N>().ok_or(Truncated)?;
        self.0 = rest;
        Ok(*array)
    }

    fn number(&mut self) -> Read<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let [byte] = self.array()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return Err(Foreign("a number above 2^64"));
            }
            number |= bits << shift;
            if byte < 0x80 {
                return match (byte, shift) {
                    (0, 1..) => Err(Foreign("a number in a longer form")),
                    _ => Ok(number),
                };
            }
        }
        Err(Foreign("a number above 2^64"))
    }

    fn time(&mut self) -> Read<StoreTime> {
        self.number().map(StoreTime::from_micros)
    }

    fn limit(&mut self) -> Read<Limit> {
        let time = self.time()?;
        let limit = Limit::of(time);
        match limit.time() == time {
            true => Ok(limit),
            false => Err(Foreign("a `not_after` between two steps")),
        }
    }

    fn span(&mut self) -> Read<Duration> {
        let (secs, nanos) = (self.number()?, self.number()?);
        match u32::try_from(nanos) {
            Ok(nanos @ 0..1_000_000_000) => Ok(Duration::new(secs, nanos)),
            _ => Err(Foreign("a second of nanoseconds")),
        }
    }
}
