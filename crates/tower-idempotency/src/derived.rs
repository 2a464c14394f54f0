//! Keys that the server derives from named fields.

use std::time::Duration;

use http::request::Parts;
use tower_claim::http::{BusinessKey, InvalidKey, KeyFields};
use tower_claim::store::{RecordView, State};
use tower_claim::{Fingerprint, StoreError};

use crate::entry::{Guarded, LastWindow};
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
    /// How long a key counts that was first used when its window began.
    pub(crate) fn counts_for(self) -> Duration {
        self.length.saturating_add(self.overlap)
    }

    /// The number of the window, and of the one before it while that still counts: for what ended less than this ago.
    fn numbers(self, now: Duration) -> (u128, Option<(u128, Duration)>) {
        let length = self.length.as_nanos().max(1);
        let (number, into) = (now.as_nanos() / length, now.as_nanos() % length);
        let into = u64::try_from(into).map_or(Duration::MAX, Duration::from_nanos);
        let last = (into < self.overlap).then(|| number.checked_sub(1));
        let within = into.saturating_add(self.overlap);
        (number, last.flatten().map(|last| (last, within)))
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
        let (number, last) = match self.window.map(|window| window.numbers(now)) {
            Some((number, last)) => (Some(number), last),
            None => (None, None),
        };
        let (now, business_key) = key(number)?;
        let last = match last {
            Some((number, ended_within)) => {
                let (key, business_key) = key(Some(number))?;
                Some(LastWindow {
                    key,
                    business_key,
                    ended_within,
                })
            }
            None => None,
        };
        Ok(Some(Guarded {
            key: now,
            business_key,
            tenant: scoped.tenant,
            last,
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
    pub(crate) async fn in_its_window(
        &self,
        entry: Guarded,
        print: Fingerprint,
    ) -> Result<Guarded, Reply> {
        let Some(last) = &entry.last else {
            return Ok(entry);
        };
        let counts = self.still_counts(last, Some(print)).await;
        if !counts.map_err(|error| self.store_failed(&error))? {
            return Ok(entry);
        }
        Ok(Guarded {
            key: last.key,
            business_key: last.business_key.clone(),
            tenant: entry.tenant,
            last: None,
        })
    }

    /// Whether a request at the border is a repeat of what has this key: not of what ended long before, which the next
    /// intent, a job of each day, only looks like. Who asks with no payload takes any.
    pub(crate) async fn still_counts(
        &self,
        last: &LastWindow,
        print: Option<Fingerprint>,
    ) -> Result<bool, StoreError> {
        let record = self.keeper.store().dyn_peek(last.key).await?;
        Ok(record.is_some_and(|record| {
            let is_same = print.is_none_or(|print| record.fingerprint == Some(print));
            is_same && ended(&record).is_some_and(|ago| ago < last.ended_within)
        }))
    }
}

/// How long ago the work came to its end, in whatever way; zero while it runs, `None` where there is no record.
fn ended(record: &RecordView) -> Option<Duration> {
    match record.state {
        State::Free => None,
        State::Held if record.lapsed => Some(record.last_beat.min(record.since)),
        State::Held => Some(Duration::ZERO),
        _ => Some(record.since),
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
        let last = |millis| Some((0, Duration::from_millis(millis)));
        assert_eq!(at(0), (0, None));
        assert_eq!(at(59_999), (0, None));
        assert_eq!(at(60_000), (1, last(5_000)));
        assert_eq!(at(64_999), (1, last(9_999)));
        assert_eq!(at(65_000), (1, None));
    }
}
