//! The first look at a request, by its head alone.

use std::fmt;
use std::sync::Arc;

use http::request::Parts;
use tower_claim::http::{BusinessKey, Gate, InvalidKey, KeySource, Mode};
use tower_claim::{Code, Key, Namespace, Refusal, Use};

use crate::counts::Counters;
use crate::fingerprint::Bound;
use crate::layer::LayerId;
use crate::run::IdempotentRun;

type ScopeFn = dyn Fn(&Parts) -> Option<String> + Send + Sync;

/// How a request is read.
#[derive(Clone)]
pub(crate) struct EntryRules {
    pub(crate) layer: LayerId,
    pub(crate) gate: Gate,
    pub(crate) source: KeySource,
    pub(crate) require_key: bool,
    pub(crate) scope: Option<Arc<ScopeFn>>,
    pub(crate) require_scope: bool,
    pub(crate) namespace: Namespace,
    pub(crate) bound: Bound,
}

/// What is done with a request.
pub(crate) enum Entry {
    /// None of our business.
    Pass,
    Refuse(Refusal),
    Guard(Guarded),
}

/// A request with a key.
pub(crate) struct Guarded {
    pub(crate) key: Key,
    pub(crate) business_key: BusinessKey,
}

impl EntryRules {
    /// Allocates nothing for a request that is none of our business.
    pub(crate) fn look_at(&self, parts: &Parts, counters: &Counters) -> Entry {
        let mode = self.gate.mode(parts);
        if mode == Mode::Off {
            return Entry::Pass;
        }
        let entry = match self.read(parts) {
            Ok(None) => return Entry::Pass,
            // A layer value on a route and on the router around it is one guard, not two; also where
            // something between them took the key off.
            Ok(Some(_)) | Err(_) if self.is_within(parts) => return Entry::Pass,
            Ok(Some(guarded)) => Entry::Guard(guarded),
            Err(refusal) => Entry::Refuse(refusal),
        };
        if mode == Mode::Observe {
            match entry {
                Entry::Refuse(_) => counters.observed_refusals.add(),
                _ => counters.observed.add(),
            }
            return Entry::Pass;
        }
        entry
    }

    fn is_within(&self, parts: &Parts) -> bool {
        parts
            .extensions
            .get::<IdempotentRun>()
            .is_some_and(|run| run.is_of(self.layer))
    }

    fn read(&self, parts: &Parts) -> Result<Option<Guarded>, Refusal> {
        let Some(business_key) = self.source.read(parts).map_err(|why| self.invalid(why))? else {
            return if self.require_key {
                Err(self.missing())
            } else {
                Ok(None)
            };
        };
        let scope = self.scope.as_ref().and_then(|scope| scope(parts));
        let key = Key::builder(Use::Idempotency, &self.namespace);
        let key = match &scope {
            Some(scope) => key.part("scope").part(scope),
            None if self.require_scope => return Err(Refusal::new(Code::ScopeMissing)),
            None => key.part("shared"),
        };
        Ok(Some(Guarded {
            key: business_key.add_to(key).build(),
            business_key,
        }))
    }

    fn invalid(&self, why: InvalidKey) -> Refusal {
        match self.source.header_name() {
            Some(name) => {
                Refusal::new(Code::KeyInvalid).with_detail(format!("in the header {name}: {why}"))
            }
            None => why.into(),
        }
    }

    fn missing(&self) -> Refusal {
        let refusal = Refusal::new(Code::KeyMissing);
        match self.source.header_name() {
            Some(name) => refusal.with_detail(format!("send the header {name}")),
            None => refusal,
        }
    }
}

impl fmt::Debug for EntryRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EntryRules")
            .field("gate", &self.gate)
            .field("source", &self.source)
            .field("require_key", &self.require_key)
            .field("scope", &self.scope.as_ref().map(|_| "…"))
            .field("require_scope", &self.require_scope)
            .field("namespace", &self.namespace)
            .field("bound", &self.bound)
            .finish_non_exhaustive()
    }
}
