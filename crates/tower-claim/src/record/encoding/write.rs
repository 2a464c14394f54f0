//! Writes a record.

use std::time::Duration;

use super::{
    BODY, FINGERPRINT, MARKED, REVOKE_ASKED, SPENT, STAYS_TAKEN, TERMS, VERSION, checksum,
};
use crate::record::{Phase, Record, Spent};
use crate::store::StoreTime;
use crate::{LapsePolicy, Settings};

impl Record {
    /// The record as bytes, with a version byte first. [`from_bytes`](Self::from_bytes) reads them.
    ///
    /// A record has one form: equal bytes mean that a move changed nothing.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Out(Vec::with_capacity(128 + self.heap_bytes()));
        out.byte(VERSION);
        out.byte(match self.phase {
            Phase::Vacant => 0,
            Phase::Free { .. } => 1,
            Phase::Held { .. } => 2,
            Phase::Done { .. } => 3,
            Phase::Unknown { .. } => 4,
        });
        out.byte(self.flags());
        out.number(self.token.get());
        out.bytes(self.nonce.as_bytes());
        out.time(self.since);
        out.time(self.until);
        if !self.is_vacant() {
            out.time(self.phase.not_after().time());
        }
        if let Some(fingerprint) = self.phase.fingerprint() {
            out.bytes(fingerprint.as_bytes());
        }
        match self.phase {
            Phase::Held {
                last_beat,
                progress,
                attempt,
                ..
            } => {
                out.time(last_beat);
                out.number(progress);
                out.number(u64::from(attempt));
            }
            Phase::Unknown {
                not_before,
                last_beat,
                progress,
                ..
            } => {
                out.time(not_before);
                out.time(last_beat);
                out.number(progress);
            }
            Phase::Vacant | Phase::Free { .. } | Phase::Done { .. } => {}
        }
        if let Some(terms) = &self.terms {
            out.terms(terms);
        }
        out.spent(&self.spent);
        if let Phase::Done {
            body: Some(body), ..
        } = &self.phase
        {
            out.number(body.len() as u64);
            out.bytes(body);
        }
        let sum = checksum(&out.0);
        out.bytes(&sum);
        out.0
    }

    fn flags(&self) -> u8 {
        let (marked, revoke_asked, body, stays_taken) = match &self.phase {
            Phase::Held {
                marked,
                revoke_asked,
                ..
            } => (*marked, *revoke_asked, false, false),
            Phase::Unknown { marked, .. } => (*marked, false, false, false),
            Phase::Done {
                body, stays_taken, ..
            } => (false, false, body.is_some(), *stays_taken),
            Phase::Vacant | Phase::Free { .. } => (false, false, false, false),
        };
        [
            (self.phase.fingerprint().is_some(), FINGERPRINT),
            (self.terms.is_some(), TERMS),
            (body, BODY),
            (marked, MARKED),
            (revoke_asked, REVOKE_ASKED),
            (self.spent.latest().is_some(), SPENT),
            (stays_taken, STAYS_TAKEN),
        ]
        .into_iter()
        .filter_map(|(set, flag)| set.then_some(flag))
        .sum()
    }
}

struct Out(Vec<u8>);

impl Out {
    fn byte(&mut self, byte: u8) {
        self.0.push(byte);
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    fn number(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.byte(number as u8 | 0x80);
            number >>= 7;
        }
        self.byte(number as u8);
    }

    fn time(&mut self, time: StoreTime) {
        self.number(time.as_micros());
    }

    fn span(&mut self, span: Duration) {
        self.number(span.as_secs());
        self.number(u64::from(span.subsec_nanos()));
    }

    fn terms(&mut self, terms: &Settings) {
        let Settings {
            lease,
            cooling,
            min_hold,
            on_lapse,
            unfinished_keep,
            label,
        } = terms;
        for span in [lease, cooling, min_hold, unfinished_keep] {
            self.span(*span);
        }
        self.byte(match on_lapse {
            LapsePolicy::TakeOver => 0,
            LapsePolicy::Hold => 1,
        });
        self.number(label.len() as u64);
        self.bytes(label.as_bytes());
    }

    fn spent(&mut self, spent: &Spent) {
        let Some((folded, latest, nonces)) = spent.parts() else {
            return;
        };
        self.time(folded);
        self.time(latest);
        self.number(nonces.len() as u64);
        for (not_after, nonce) in nonces {
            self.bytes(nonce.as_bytes());
            self.time(not_after);
        }
    }
}
