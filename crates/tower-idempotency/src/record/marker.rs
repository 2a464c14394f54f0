//! The record of a key whose outcome was unknown, and whose work goes on under another key.
//!
//! ```text
//! version    u8       0xC1
//! goes on    u8       0: the hook is asked first, 1: the handler runs
//! marked     u8       1: the run before had passed its point of no return
//! progress   u64      what it had told last
//! ```
//!
//! A record that is done can be claimed by nobody, and the next key can be claimed, lost, given back and taken over
//! as often as need be: nothing that goes wrong there makes the work run unasked.

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
        let mut out = BytesMut::with_capacity(11);
        out.put_slice(&[VERSION, goes_on, u8::from(before.was_marked)]);
        out.put_u64(before.progress);
        out.freeze()
    }

    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        let [VERSION, goes_on, was_marked @ 0..=1, progress @ ..] = bytes else {
            return None;
        };
        let progress = u64::from_be_bytes(progress.try_into().ok()?);
        match goes_on {
            0 => Some(Self::Ask(Before {
                was_marked: *was_marked == 1,
                progress,
            })),
            1 => Some(Self::Run),
            _ => None,
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
