//! The record of a key whose outcome was unknown, and whose work goes on under another key.
//!
//! ```text
//! version    u8       0xC1
//! goes on    u8       0: the hook is asked first, 1: the handler runs
//! marked     u8       1: the run before had passed its point of no return
//! progress   u64      what it had told last
//! first seen u64      milliseconds since the Unix epoch: when the first run began, as far as known; 0: unknown
//! ```
//!
//! One that ends before the last field is read still.
//!
//! A record that is done can be claimed by nobody, and the next key can be claimed, lost, given back and taken over
//! as often as need be: nothing that goes wrong there makes the work run unasked.

use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use tower_claim::{Key, Namespace, Token, Use};

const VERSION: u8 = 0xC1;

/// How the work goes on under the next key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Marker {
    /// The reconcile hook is asked what became of the run before.
    Ask(Before),
    /// An operator said that nothing happened.
    Run,
}

/// What was known of the run before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Before {
    pub(crate) was_marked: bool,
    pub(crate) progress: u64,
    /// When the first run began, since the Unix epoch.
    pub(crate) first_seen: Option<Duration>,
}

/// The next key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MovedTo {
    pub(crate) key: Key,
    /// Every token granted there is above this one, and so above those of all runs before.
    pub(crate) floor: Token,
    pub(crate) marker: Marker,
}

impl Marker {
    pub(crate) fn to_bytes(self) -> Bytes {
        let (goes_on, before) = match self {
            Self::Ask(before) => (0, before),
            Self::Run => (1, Before::default()),
        };
        let mut out = BytesMut::with_capacity(19);
        out.put_slice(&[VERSION, goes_on, u8::from(before.was_marked)]);
        out.put_u64(before.progress);
        let first_seen = before.first_seen.unwrap_or_default().as_millis();
        out.put_u64(u64::try_from(first_seen).unwrap_or(u64::MAX));
        out.freeze()
    }

    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        let [VERSION, goes_on, was_marked @ 0..=1, numbers @ ..] = bytes else {
            return None;
        };
        let (progress, numbers) = numbers.split_first_chunk()?;
        let first_seen = match numbers {
            [] => 0,
            first_seen => u64::from_be_bytes(first_seen.try_into().ok()?),
        };
        match goes_on {
            0 => Some(Self::Ask(Before {
                was_marked: *was_marked == 1,
                progress: u64::from_be_bytes(*progress),
                first_seen: (first_seen > 0).then(|| Duration::from_millis(first_seen)),
            })),
            1 => Some(Self::Run),
            _ => None,
        }
    }

    /// When the first run began, as far as is known here.
    pub(crate) fn first_seen(self) -> Option<Duration> {
        match self {
            Self::Ask(before) => before.first_seen,
            Self::Run => None,
        }
    }

    /// Where the work of a key goes on whose record is done with this marker, under this token.
    pub(crate) fn leads_to(self, key: Key, token: Token) -> MovedTo {
        let next = Key::builder(Use::Idempotency, &Namespace::default())
            .part("after")
            .part(key.as_bytes())
            .part(token.get().to_be_bytes());
        MovedTo {
            key: next.build(),
            floor: token,
            marker: self,
        }
    }
}
