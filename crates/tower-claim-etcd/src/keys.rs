//! Where everything lies in etcd.
//!
//! ```text
//! {prefix}/k/{key}/r        the record
//! {prefix}/k/{key}/live     its hold has not lapsed
//! {prefix}/k/{key}/cool     cooling
//! {prefix}/k/{key}/wait     minimum hold
//! {prefix}/k/{key}/floor    a token above the store's revision (on no lease)
//! {prefix}/n/{key}/{nonce}  a nonce that is never granted (again)
//! {prefix}/f/{resource}     a guard's mark (on no lease)
//! ```

use tower_claim::store::StoreTime;
use tower_claim::{Key, Nonce, Token};

use crate::bytes::{Bad, decode};
use crate::plan::Sibling;
use crate::record::{Kept, Seen};

/// The keys under one prefix.
#[derive(Debug, Clone)]
pub(crate) struct Keys {
    prefix: String,
}

impl Keys {
    pub(crate) fn new(prefix: &str) -> Self {
        Self {
            prefix: prefix.to_owned(),
        }
    }

    /// All records with their siblings.
    pub(crate) fn all(&self) -> String {
        format!("{}/k/", self.prefix)
    }

    /// The record and its siblings.
    pub(crate) fn of(&self, key: &Key) -> String {
        format!("{}/k/{key}/", self.prefix)
    }

    /// After every key of [`of`](Self::of): `0` follows `/`.
    pub(crate) fn after(&self, key: &Key) -> String {
        format!("{}/k/{key}0", self.prefix)
    }

    /// After every record.
    pub(crate) fn end(&self) -> String {
        format!("{}/k0", self.prefix)
    }

    pub(crate) fn record(&self, key: &Key) -> String {
        format!("{}/k/{key}/r", self.prefix)
    }

    pub(crate) fn sibling(&self, key: &Key, sibling: Sibling) -> String {
        format!("{}/k/{key}/{}", self.prefix, name(sibling))
    }

    pub(crate) fn spent(&self, key: &Key, nonce: &Nonce) -> String {
        format!("{}/n/{key}/{nonce}", self.prefix)
    }

    pub(crate) fn mark(&self, resource: &str) -> String {
        format!("{}/f/{resource}", self.prefix)
    }

    /// Whose key this is, and which.
    pub(crate) fn parse<'a>(&self, bytes: &'a [u8]) -> Option<(Key, &'a str)> {
        let text = std::str::from_utf8(bytes).ok()?;
        let rest = text.strip_prefix(&self.prefix)?.strip_prefix("/k/")?;
        let (key, name) = rest.split_once('/')?;
        Some((key.parse().ok()?, name))
    }

    /// Whose key this is, if it is one that this version writes.
    pub(crate) fn of_ours(&self, bytes: &[u8]) -> Option<Key> {
        let (key, name) = self.parse(bytes)?;
        matches!(name, "r" | LIVE | "cool" | "wait" | "floor").then_some(key)
    }
}

fn name(sibling: Sibling) -> &'static str {
    match sibling {
        Sibling::Live => "live",
        Sibling::Cool => "cool",
        Sibling::Wait => "wait",
        Sibling::Floor => "floor",
    }
}

/// The name of the liveness key, in watch events.
pub(crate) const LIVE: &str = "live";

/// One key of etcd, as read.
pub(crate) struct Read<'a> {
    pub(crate) name: &'a str,
    pub(crate) value: &'a [u8],
    pub(crate) revision: i64,
    /// The etcd lease it lies on; zero is none.
    pub(crate) lease: i64,
}

impl Seen {
    /// Takes in one key of etcd. What this version does not know is left alone.
    pub(crate) fn take(&mut self, read: &Read<'_>) -> Result<(), Bad> {
        let number = || {
            let bytes = read.value.try_into().map_err(|_| Bad::Truncated)?;
            Ok(u64::from_be_bytes(bytes))
        };
        // Sums of instants must not overflow.
        let instant = || Ok::<_, Bad>(number()?.min(StoreTime::NEVER.as_micros() >> 14));
        match read.name {
            "r" => {
                let record = decode(read.value, read.revision)?;
                self.record = Some(Kept {
                    record,
                    revision: read.revision,
                    lease: read.lease,
                });
            }
            LIVE => self.live = Some(read.lease),
            "cool" => self.cool = Some(instant()?),
            "wait" => self.wait = Some(instant()?),
            "floor" => {
                let token = Token::new(number()?).ok_or(Bad::Field("floor"))?;
                self.floor = Some((token, read.revision));
            }
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_found_again_and_stay_in_their_range() {
        let keys = Keys::new("shop");
        let key = Key::from_bytes([0xfe; 32]);
        let (from, to) = (keys.of(&key), keys.after(&key));
        for sibling in [Sibling::Live, Sibling::Cool, Sibling::Wait, Sibling::Floor] {
            let path = keys.sibling(&key, sibling);
            assert!(from < path && path < to && path < keys.end());
            assert_eq!(keys.parse(path.as_bytes()), Some((key, name(sibling))));
        }
        assert_eq!(keys.parse(keys.record(&key).as_bytes()), Some((key, "r")));
        assert_eq!(keys.parse(b"shop/k/zz/r"), None);
        assert_eq!(keys.parse(b"other/k/"), None);
    }
}
