//! Counts what really happened.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use http::request::Parts;
use serde_json::{Value, json};
use tower_claim::http::original_uri;

/// Effects of this process, by method and original path without query. Clones share the counts.
#[derive(Debug, Clone, Default)]
pub(crate) struct Effects(Arc<Mutex<BTreeMap<String, u64>>>);

impl Effects {
    /// Counts one, and answers how many there are under this name now.
    pub(crate) fn count(&self, parts: &Parts) -> u64 {
        let path = original_uri(&parts.extensions, &parts.uri).path();
        let mut by = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let n = by.entry(format!("{} {path}", parts.method)).or_default();
        *n += 1;
        *n
    }

    pub(crate) fn reset(&self) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clear();
    }

    pub(crate) fn json(&self) -> Value {
        let by = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        json!({ "total": by.values().sum::<u64>(), "by": &*by })
    }
}
