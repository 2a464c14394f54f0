//! From requests to statements: what operators, and the purger, ask.

use tower_claim::engine::span_micros;
use tower_claim::store::Resolution;
use tower_claim::{Key, Token};

use super::ask::call;
use super::param::{Param, key, token, value};
use super::{Call, Statements};

impl Statements {
    /// Records in the order of their keys. Read each row by [`viewed`](super::answer::viewed).
    pub fn scan(&self, from: Option<Key>, to: Option<Key>, limit: usize) -> Call {
        let from = from.map_or_else(Vec::new, |key| key.as_bytes().to_vec());
        call(
            &self.texts.scan,
            vec![
                Param::Bytes(Some(from)),
                Param::Bytes(to.map(|key| key.as_bytes().to_vec())),
                Param::Small(i32::try_from(limit).unwrap_or(i32::MAX)),
            ],
        )
    }

    /// Read the answer by [`resolved`](super::answer::resolved).
    pub fn resolve(&self, of: Key, expected: Token, resolution: &Resolution) -> Call {
        let (body, keep) = match resolution {
            Resolution::Done(body, keep) => (value(body), Some(span_micros(*keep))),
            // Every other resolution leaves nothing.
            _ => (Param::Bytes(None), None),
        };
        call(
            &self.texts.resolve,
            vec![
                key(of),
                token(expected),
                body,
                Param::Int(keep),
                Param::Small(self.lock_ms),
            ],
        )
    }

    /// Read the answer by [`asked`](super::answer::asked).
    pub fn ask_revoke(&self, of: Key, expected: Token) -> Call {
        let params = vec![key(of), token(expected), Param::Small(self.lock_ms)];
        call(&self.texts.ask_revoke, params)
    }

    /// Read the answer by [`broken`](super::answer::broken).
    pub fn break_claim(&self, of: Key, expected: Token) -> Call {
        let params = vec![key(of), token(expected), Param::Small(self.lock_ms)];
        call(&self.texts.break_claim, params)
    }

    /// Read the answer by [`purged`](super::answer::purged).
    pub fn purge(&self, of: Key, expected: Token) -> Call {
        let params = vec![key(of), token(expected), Param::Small(self.lock_ms)];
        call(&self.texts.purge, params)
    }

    /// Looks at so many records that are due. Read the answer by [`purged_ended`](super::answer::purged_ended).
    pub fn purge_ended(&self, batch: usize) -> Call {
        let batch = i32::try_from(batch).unwrap_or(i32::MAX);
        call(&self.texts.purge_ended, vec![Param::Small(batch)])
    }
}
