//! The record of a key whose outcome was unknown, and whose work goes on under another key.
//!
//! ```text
//! version    u8       0xC1
//! goes on    u8       0: the hook is asked first, 1: the handler runs
//! ```

use bytes::Bytes;
use tower_claim::{Key, Namespace, Token, Use};

const VERSION: u8 = 0xC1;

/// How the work goes on under the next key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Marker {
    /// The reconcile hook is asked what became of the run before.
    Ask,
    /// An operator said that nothing happened.
    Run,
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
        Bytes::from_static(match self {
            Self::Ask => &[VERSION, 0],
            Self::Run => &[VERSION, 1],
        })
    }

    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        match bytes {
            [VERSION, 0] => Some(Self::Ask),
            [VERSION, 1] => Some(Self::Run),
            _ => None,
        }
    }

    /// Where the work of a key goes on whose record is done with this marker, under this token.
    pub(crate) fn from(self, key: Key, token: Token) -> MovedTo {
        let next = Key::builder(Use::Idempotency, &Namespace::default())
            .part("after")
            .part(key.as_bytes())
            .part(token.get().to_be_bytes())
            .build();
        MovedTo {
            key: next,
            floor: token,
            marker: self,
        }
    }
}
