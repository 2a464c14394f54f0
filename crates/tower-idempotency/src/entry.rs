//! The first look at a request, by its head alone.

use std::fmt;
use std::iter;
use std::sync::Arc;
use std::time::Duration;

use http::request::Parts;
use tower_claim::http::{BusinessKey, Gate, InvalidKey, KeySource, Mode, original_uri};
use tower_claim::{Clock, Code, Key, Namespace, Refusal, Use};

use crate::counts::Counters;
use crate::derived::Derived;
use crate::fingerprint::Bound;
use crate::layer::LayerId;
use crate::quota::{Tenant, Tenants};
use crate::run::IdempotentRun;
use crate::scope::Scoped;
use crate::unguarded::Named;
use crate::weak::{self, OnWeakKey, Warned};

type ScopeFn = dyn Fn(&Parts) -> Option<String> + Send + Sync;

/// How a request is read.
#[derive(Clone)]
pub(crate) struct EntryRules {
    pub(crate) layer: LayerId,
    pub(crate) gate: Gate,
    pub(crate) source: Source,
    pub(crate) on_weak_key: OnWeakKey,
    pub(crate) require_key: bool,
    pub(crate) scope: Option<Arc<ScopeFn>>,
    pub(crate) require_scope: bool,
    /// Where tenants have quotas.
    pub(crate) tenants: Option<Tenants>,
    pub(crate) namespace: Namespace,
    pub(crate) bound: Bound,
}

/// Where keys come from.
#[derive(Debug, Clone)]
pub(crate) enum Source {
    /// The head alone.
    Head(KeySource),
    /// Named fields, perhaps of the body.
    Fields(Derived),
}

/// What is done with a request.
pub(crate) enum Entry {
    /// None of our business.
    Pass,
    /// The same, though a key was sent along.
    Ignore,
    /// It runs without a claim, and would have had one: switched off, or only looked on.
    Unguarded(Named),
    Refuse(Refusal),
    Guard(Ticket),
}

/// A request that is guarded, as far as its head tells.
pub(crate) enum Ticket {
    Keyed(Guarded),
    /// Its body names the key, which was begun with its scope.
    ByBody(Scoped),
}

/// A request with a key.
pub(crate) struct Guarded {
    pub(crate) key: Key,
    pub(crate) business_key: BusinessKey,
    /// Where tenants have quotas.
    pub(crate) tenant: Option<Tenant>,
    /// Where the last window ended a moment ago.
    pub(crate) last: Option<LastWindow>,
}

/// The key that a request had in the last window: it counts while there is a record of it that is near enough.
pub(crate) struct LastWindow {
    pub(crate) key: Key,
    pub(crate) business_key: BusinessKey,
    /// Near enough is what ended less than this ago.
    pub(crate) ended_within: Duration,
}

impl Ticket {
    /// Its key, as far as the head tells.
    fn named(self) -> Named {
        match self {
            Self::Keyed(guarded) => Some((guarded.key, guarded.business_key)),
            Self::ByBody(_) => None,
        }
    }

    /// Whether it asks for what this run is about; `None` where its body tells.
    fn is_of(&self, run: &IdempotentRun) -> Option<bool> {
        match self {
            Self::Keyed(guarded) => Some(guarded.is_of(run)),
            Self::ByBody(_) => None,
        }
    }
}

impl Guarded {
    /// Whether it asks for what this run is about. A handler that sends requests of its own, each under a key of its
    /// own, may send its extensions along: those are guarded.
    pub(crate) fn is_of(&self, run: &IdempotentRun) -> bool {
        self.business_keys().any(|key| key == run.key())
    }

    fn business_keys(&self) -> impl Iterator<Item = &BusinessKey> {
        let last = self.last.as_ref().map(|last| &last.business_key);
        iter::once(&self.business_key).chain(last)
    }

    fn of(business_key: BusinessKey, scoped: Scoped) -> Self {
        Self {
            key: business_key.add_to(scoped.key).build(),
            business_key,
            tenant: scoped.tenant,
            last: None,
        }
    }
}

/// What is seen beside the request.
pub(crate) struct Sight<'a> {
    pub(crate) counters: &'a Counters,
    pub(crate) clock: &'a dyn Clock,
    pub(crate) warned: &'a Warned,
}

impl EntryRules {
    /// Allocates nothing for a request that is none of our business.
    pub(crate) fn look_at(&self, parts: &Parts, sight: &Sight<'_>) -> Entry {
        let mode = self.gate.mode(parts);
        if mode == Mode::Off {
            return self.switched_off(parts, sight.clock);
        }
        let entry = match self.read(parts, sight) {
            Ok(None) => return Entry::Pass,
            // A layer value on a route and on the router around it is one guard, not two; also where
            // something between them took the key off.
            Ok(Some(ticket))
                if self.run_around(parts).is_some_and(|run| {
                    // Where the body is not read in the end, it is taken for the same request.
                    ticket.is_of(run).unwrap_or(mode == Mode::Observe)
                }) =>
            {
                return Entry::Pass;
            }
            Err(_) if self.run_around(parts).is_some() => return Entry::Pass,
            Ok(Some(ticket)) => Entry::Guard(ticket),
            Err(refusal) => Entry::Refuse(refusal),
        };
        if mode != Mode::Observe {
            return entry;
        }
        match entry {
            Entry::Refuse(_) => sight.counters.observed_refusals.add(),
            _ => sight.counters.observed.add(),
        }
        match entry {
            Entry::Guard(ticket) => Entry::Unguarded(ticket.named()),
            _ if self.brings_a_key(parts) => Entry::Unguarded(None),
            _ => Entry::Pass,
        }
    }

    /// Refuses nothing, warns of nothing, counts nothing.
    fn switched_off(&self, parts: &Parts, clock: &dyn Clock) -> Entry {
        if !self.brings_a_key(parts) {
            return Entry::Pass;
        }
        if !self.gate.names(parts) {
            return match (self.header(), self.run_around(parts)) {
                (Some(_), None) => Entry::Ignore,
                _ => Entry::Pass,
            };
        }
        let ticket = match self.ticket(parts, clock, |_| Ok(())) {
            Ok(None) => return Entry::Pass,
            Ok(Some(ticket)) => Some(ticket),
            Err(_) => None,
        };
        match self.run_around(parts) {
            Some(run)
                if ticket
                    .as_ref()
                    .is_none_or(|ticket| ticket.is_of(run).unwrap_or(true)) =>
            {
                Entry::Pass
            }
            _ => Entry::Unguarded(ticket.and_then(Ticket::named)),
        }
    }

    /// Whether the client sent a key, be it what it may; where the server makes the keys, any request may have one.
    fn brings_a_key(&self, parts: &Parts) -> bool {
        self.header()
            .is_none_or(|name| parts.headers.contains_key(name))
    }

    /// The run of this layer value around this request.
    pub(crate) fn run_around<'a>(&self, parts: &'a Parts) -> Option<&'a IdempotentRun> {
        parts.extensions.get::<IdempotentRun>()?.of(self.layer)
    }

    fn read(&self, parts: &Parts, sight: &Sight<'_>) -> Result<Option<Ticket>, Refusal> {
        self.ticket(parts, sight.clock, |key| self.judge(key, parts, sight))
    }

    fn ticket(
        &self,
        parts: &Parts,
        clock: &dyn Clock,
        judge: impl FnOnce(&BusinessKey) -> Result<(), Refusal>,
    ) -> Result<Option<Ticket>, Refusal> {
        let guarded = match &self.source {
            Source::Head(source) => {
                let key = source.read(parts).map_err(|why| self.invalid(why))?;
                let Some(business_key) = key else {
                    return self.without_key();
                };
                judge(&business_key)?;
                Guarded::of(business_key, self.scoped(parts)?)
            }
            Source::Fields(derived) if derived.needs_body() => {
                return self.scoped(parts).map(Ticket::ByBody).map(Some);
            }
            Source::Fields(derived) => {
                let now = clock.unix_time();
                match derived.read(&self.scoped(parts)?, parts, &[], now)? {
                    Some(guarded) => guarded,
                    None => return self.without_key(),
                }
            }
        };
        Ok(Some(Ticket::Keyed(guarded)))
    }

    /// The key of a request whose body was read. `None` where it has none, or is guarded by this layer value already.
    pub(crate) fn read_body(
        &self,
        scoped: &Scoped,
        parts: &Parts,
        body: &[u8],
        clock: &dyn Clock,
    ) -> Result<Option<Guarded>, Refusal> {
        let Source::Fields(derived) = &self.source else {
            return Ok(None);
        };
        let read = derived.read(scoped, parts, body, clock.unix_time());
        match (read, self.run_around(parts)) {
            (Ok(Some(guarded)), Some(run)) if guarded.is_of(run) => Ok(None),
            (Ok(None) | Err(_), Some(_)) => Ok(None),
            (Ok(Some(guarded)), _) => Ok(Some(guarded)),
            (Ok(None), None) => self.without_key(),
            (Err(why), None) => Err(why.into()),
        }
    }

    fn without_key<T>(&self) -> Result<Option<T>, Refusal> {
        if self.require_key {
            Err(self.missing())
        } else {
            Ok(None)
        }
    }

    fn judge(&self, key: &BusinessKey, parts: &Parts, sight: &Sight<'_>) -> Result<(), Refusal> {
        if self.on_weak_key == OnWeakKey::Allow {
            return Ok(());
        }
        let Some(weakness) = key.weakness(sight.clock) else {
            return Ok(());
        };
        sight.counters.weak_keys.add();
        if self.on_weak_key == OnWeakKey::Refuse {
            return Err(weak::refusal(weakness));
        }
        let uri = original_uri(&parts.extensions, &parts.uri);
        let meter = &sight.counters.meter;
        sight.warned.warn(weakness, uri.path(), meter);
        Ok(())
    }

    fn scoped(&self, parts: &Parts) -> Result<Scoped, Refusal> {
        let scope = self.scope.as_ref().and_then(|scope| scope(parts));
        let key = Key::builder(Use::Idempotency, &self.namespace);
        let key = match &scope {
            Some(scope) => key.part("scope").part(scope),
            None if self.require_scope => return Err(Refusal::new(Code::ScopeMissing)),
            None => key.part("shared"),
        };
        let tenants = self.tenants.as_ref();
        let tenant = tenants.map(|tenants| tenants.number(scope.as_deref()));
        Ok(Scoped { key, tenant })
    }

    /// The key that somebody asks about, by a request that need not be the one that had it. `None` where that
    /// does not name it.
    pub(crate) fn asked(
        &self,
        source: Option<&KeySource>,
        parts: &Parts,
        clock: &dyn Clock,
    ) -> Result<Guarded, Refusal> {
        let scoped = self.scoped(parts)?;
        let guarded = match (source, &self.source) {
            (Some(source), _) | (None, Source::Head(source)) => {
                let key = source.read(parts).map_err(|why| self.invalid(why))?;
                key.map(|key| Guarded::of(key, scoped))
            }
            (None, Source::Fields(derived)) if derived.needs_body() => None,
            (None, Source::Fields(derived)) => {
                derived.read(&scoped, parts, &[], clock.unix_time())?
            }
        };
        guarded.ok_or_else(|| self.missing())
    }

    fn header(&self) -> Option<&http::HeaderName> {
        match &self.source {
            Source::Head(source) => source.header_name(),
            Source::Fields(_) => None,
        }
    }

    fn invalid(&self, why: InvalidKey) -> Refusal {
        match self.header() {
            Some(name) => {
                Refusal::new(Code::KeyInvalid).with_detail(format!("in the header {name}: {why}"))
            }
            None => why.into(),
        }
    }

    fn missing(&self) -> Refusal {
        let refusal = Refusal::new(Code::KeyMissing);
        match self.header() {
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
            .field("on_weak_key", &self.on_weak_key)
            .field("require_key", &self.require_key)
            .field("scope", &self.scope.as_ref().map(|_| "…"))
            .field("require_scope", &self.require_scope)
            .field("namespace", &self.namespace)
            .field("bound", &self.bound)
            .finish_non_exhaustive()
    }
}
