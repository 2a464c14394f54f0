//! What was written to the ledgers, and how often a write was refused.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};
use tower_claim::store::Admission;
use tower_claim::{Nonce, StoreError, Token};

/// The ledgers' data. It lies in the engine of the claims, so that all processes over one store share it.
///
/// A write is judged once more where it happens, in one step with it: between the fence at the door and the
/// write another process may have been let in with a newer token, and the fence of this one knows nothing
/// of it.
pub(crate) trait Books: fmt::Debug + Send + Sync {
    /// Writes an entry behind all others, unless a newer one is there.
    fn write<'a>(
        &'a self,
        id: &'a str,
        entry: &'a Entry,
    ) -> BoxFuture<'a, Result<Admission, StoreError>>;

    /// One more write was refused.
    fn count_refusal<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<(), StoreError>>;

    /// What is written there; of a ledger never written to: nothing.
    fn read<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Book, StoreError>>;
}

/// One ledger.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Book {
    /// In order of admission.
    pub(crate) admitted: Vec<Entry>,
    pub(crate) refused: u64,
}

/// One admitted write.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Entry {
    pub(crate) token: u64,
    pub(crate) nonce: String,
    /// The writer's process.
    pub(crate) pid: u32,
}

impl Entry {
    /// An entry of this process.
    pub(crate) fn new(token: Token, nonce: Nonce) -> Self {
        Self {
            token: token.get(),
            nonce: nonce.to_string(),
            pid: std::process::id(),
        }
    }

    /// Whether this may be written behind `last`.
    pub(super) fn behind(&self, last: Option<&Entry>) -> Admission {
        match last {
            Some(last) if last.token > self.token => Admission::Stale { high: last.high() },
            Some(last) if last.token == self.token && last.nonce != self.nonce => {
                Admission::Collision { high: last.high() }
            }
            _ => Admission::Admitted,
        }
    }

    /// The grant under which it is written.
    pub(super) fn grant(&self) -> Result<(Token, Nonce), StoreError> {
        let nonce = self.nonce.parse().map_err(StoreError::unavailable)?;
        Ok((self.high(), nonce))
    }

    fn high(&self) -> Token {
        Token::new(self.token).unwrap_or(Token::ZERO)
    }

    pub(super) fn to_json(&self) -> Result<String, StoreError> {
        serde_json::to_string(self).map_err(StoreError::unavailable)
    }

    pub(super) fn from_json(text: &str) -> Result<Self, StoreError> {
        serde_json::from_str(text).map_err(StoreError::unavailable)
    }
}

impl Book {
    /// Writes an entry behind all others, unless a newer one is there.
    pub(crate) fn write(&mut self, entry: &Entry) -> Admission {
        let admission = entry.behind(self.admitted.last());
        if admission == Admission::Admitted {
            self.admitted.push(entry.clone());
        }
        admission
    }
}

/// The ledgers of this process.
#[derive(Debug, Default)]
pub(crate) struct MemoryBooks(Mutex<HashMap<String, Book>>);

impl MemoryBooks {
    fn books(&self) -> MutexGuard<'_, HashMap<String, Book>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Books for MemoryBooks {
    fn write<'a>(
        &'a self,
        id: &'a str,
        entry: &'a Entry,
    ) -> BoxFuture<'a, Result<Admission, StoreError>> {
        Box::pin(async move { Ok(self.books().entry(id.to_owned()).or_default().write(entry)) })
    }

    fn count_refusal<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(async move {
            self.books().entry(id.to_owned()).or_default().refused += 1;
            Ok(())
        })
    }

    fn read<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Book, StoreError>> {
        Box::pin(async move { Ok(self.books().get(id).cloned().unwrap_or_default()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(token: u64, nonce: &str) -> Entry {
        Entry {
            token,
            nonce: nonce.to_owned(),
            pid: 1,
        }
    }

    #[test]
    fn a_book_never_goes_back() {
        let mut book = Book::default();
        let high = Token::new(5).unwrap();
        for (write, answer) in [
            (entry(4, "a"), Admission::Admitted),
            (entry(5, "b"), Admission::Admitted),
            (entry(5, "b"), Admission::Admitted),
            (entry(4, "a"), Admission::Stale { high }),
            (entry(5, "c"), Admission::Collision { high }),
        ] {
            assert_eq!(book.write(&write), answer, "{write:?}");
        }
        let tokens: Vec<_> = book.admitted.iter().map(|entry| entry.token).collect();
        assert_eq!(tokens, [4, 5, 5]);
    }
}
