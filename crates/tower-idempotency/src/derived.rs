//! Keys that the server derives from named fields.

use std::time::Duration;

use http::request::Parts;
use tower_claim::http::{BusinessKey, InvalidKey, KeyFields};

use crate::entry::Guarded;
use crate::fields::{RequestFields, Values};
use crate::reply::Reply;
use crate::scope::Scoped;
use crate::shared::Shared;

/// The field that the number of the window goes under. No other can be named so.
const WINDOW: &str = "\0window";

/// Which fields make a key.
#[derive(Debug, Clone)]
pub(crate) struct Derived {
    pub(crate) fields: RequestFields,
    pub(crate) window: Option<Window>,
}

/// A key means the same within a window of time only.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Window {
    pub(crate) length: Duration,
    /// How long the last window still counts.
    pub(crate) overlap: Duration,
}

impl Window {
    /// The number of the window, and of the one before it while that still counts.
    fn numbers(self, now: Duration) -> (u128, Option<u128>) {
        let length = self.length.as_nanos().max(1);
        let (number, into) = (now.as_nanos() / length, now.as_nanos() % length);
        let before = (into < self.overlap.as_nanos()).then(|| number.checked_sub(1));
        (number, before.flatten())
    }
}

impl Derived {
    pub(crate) fn needs_body(&self) -> bool {
        self.fields.need_body()
    }

    /// The key, `None` when a field is absent.
    pub(crate) fn read(
        &self,
        scoped: &Scoped,
        parts: &Parts,
        body: &[u8],
        now: Duration,
    ) -> Result<Option<Guarded>, InvalidKey> {
        let values = self.fields.read(parts, body)?;
        if values.iter().any(|(_, value)| value.is_none()) {
            return Ok(None);
        }
        let key = |window: Option<u128>| {
            let business_key = BusinessKey::fields(fields(&values, window))?;
            Ok((
                business_key.add_to(scoped.key.clone()).build(),
                business_key,
            ))
        };
        let (number, before) = match self.window.map(|window| window.numbers(now)) {
            Some((number, before)) => (Some(number), before),
            None => (None, None),
        };
        let (now, business_key) = key(number)?;
        Ok(Some(Guarded {
            key: now,
            business_key,
            tenant: scoped.tenant,
            before: before.map(|number| key(Some(number))).transpose()?,
        }))
    }
}

fn fields(values: &Values<'_>, window: Option<u128>) -> KeyFields {
    let fields = values
        .iter()
        .fold(KeyFields::new(), |fields, (name, value)| {
            fields.field((*name).clone(), value.as_deref().unwrap_or_default())
        });
    match window {
        Some(number) => fields.field(WINDOW, number),
        None => fields,
    }
}

impl Shared {
    /// Where a window has just begun, a record of the last one goes on to count: one more trip to the store,
    /// in that time only.
    pub(crate) async fn in_its_window(&self, entry: Guarded) -> Result<Guarded, Reply> {
        let Some((key, business_key)) = &entry.before else {
            return Ok(entry);
        };
        if !self.is_taken(*key).await? {
            return Ok(entry);
        }
        Ok(Guarded {
            key: *key,
            business_key: business_key.clone(),
            tenant: entry.tenant,
            before: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_ends_and_the_last_one_counts_for_a_while() {
        let window = Window {
            length: Duration::from_secs(60),
            overlap: Duration::from_secs(5),
        };
        let at = |millis| window.numbers(Duration::from_millis(millis));
        assert_eq!(at(0), (0, None));
        assert_eq!(at(59_999), (0, None));
        assert_eq!(at(60_000), (1, Some(0)));
        assert_eq!(at(64_999), (1, Some(0)));
        assert_eq!(at(65_000), (1, None));
    }
}
