//! From settings to a layer: the one place where bad settings are refused.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use tokio::sync::Semaphore;
use tower_claim::http::{KeySource, KeySyntax};
use tower_claim::{ConfigError, Keeper, LapsePolicy, Namespace, Terms};

use super::{DAY, HEADER, IdempotencyBuilder};
use crate::admit::OnBusy;
use crate::counts::Counters;
use crate::derived::{Derived, Window};
use crate::entry::Source;
use crate::fingerprint::{BodyRules, Bound, Secret};
use crate::inside::{ClaimInside, Here};
use crate::layer::{IdempotencyLayer, LABEL, RECONCILE_LABEL};
use crate::order::Order;
use crate::policy::PolicyLink;
use crate::quota::{Limits, Quotas, RECORD_BYTES, Tenants};
use crate::reconcile::Reconcile;
use crate::running::Running;
use crate::seal;
use crate::shared::Shared;
use crate::store_down::OnStoreDown;
use crate::telemetry::Meter;
use crate::wait::Followers;

/// What changes something.
const METHODS: [Method; 4] = [Method::POST, Method::PATCH, Method::PUT, Method::DELETE];

impl IdempotencyBuilder {
    /// The layer.
    ///
    /// # Errors
    ///
    /// A lease that is too short to be renewed or for the store's engine; a zero where zero does not mean
    /// off; a malformed namespace; fields or windows that cannot make a key, or a derived key without a scope; rules
    /// for the fingerprint that exclude each other; [`LapsePolicy::Hold`](tower_claim::LapsePolicy::Hold) on an engine that may
    /// forget, which a reconcile hook needs, too; two hooks for one constraint; headers that would break a replay; a bad key ring; [`RunOn::Task`](tower_claim::RunOn::Task) outside of a runtime. The text says what to write
    /// instead.
    pub fn build(mut self) -> Result<IdempotencyLayer, ConfigError> {
        let mut terms = Terms::builder(self.lease)
            .label(LABEL)
            .renewal(self.renewal)
            .unfinished_keep(self.unfinished_keep);
        if let Some(max_hold) = self.max_hold {
            terms = terms.max_hold(max_hold);
        }
        if self.trust_forgetful_store {
            terms = terms.trust_forgetful_store();
        }
        // Where the hook is asked first, a lapse is no reason for doubt.
        let asking = terms.clone().label(RECONCILE_LABEL).build()?;
        let on_lapse = match self.reconcile {
            Some(_) => LapsePolicy::Hold,
            None => self.on_lapse,
        };
        let terms = terms.on_lapse(on_lapse).build()?;
        let terms = terms.lapse_unheard_takeovers();
        let engine = self.store.dyn_capabilities();
        terms
            .check_against(&engine)
            .map_err(|error| match self.reconcile {
                Some(_) if error.setting() == "on_lapse" => ConfigError::new(
                    "reconcile",
                    format!(
                        "`{}` may forget what it answered, so a lapsed run may be gone before the hook is asked: use \
                         another store, say that this one does not forget (Redis: `durable_single_node()`), leave the \
                         hook out, or take the risk by trust_forgetful_store()",
                        engine.engine
                    ),
                ),
                _ => error,
            })?;
        let wait = match self.on_busy {
            OnBusy::Wait(limit) => limit,
            OnBusy::Reject => Duration::MAX,
        };
        let retention = self.kept_for();
        refuse_zero("retention", retention.is_zero(), "use 24 hours")?;
        refuse_zero("on_busy", wait.is_zero(), "use OnBusy::Reject")?;
        refuse_zero("max_waiters", self.waits.in_all == 0, "use OnBusy::Reject")?;
        refuse_zero(
            "max_waiters_per_key",
            self.waits.per_key == 0,
            "use OnBusy::Reject",
        )?;
        refuse_zero("max_in_flight", self.max_in_flight == 0, "use at least 1")?;
        if self.max_in_flight > Semaphore::MAX_PERMITS {
            return Err(ConfigError::new(
                "max_in_flight",
                format!("use at most {}", Semaphore::MAX_PERMITS),
            ));
        }
        if self.on_store_down == OnStoreDown::RunUnprotected && on_lapse == LapsePolicy::Hold {
            return Err(ConfigError::new(
                "on_store_down",
                "work that must not run twice after a lapse must not run unprotected: use OnStoreDown::Refuse, \
                 or LapsePolicy::TakeOver without a reconcile hook"
                    .to_owned(),
            ));
        }
        if let Some(name) = self.namespace.take() {
            self.entry.namespace = Namespace::new(name)
                .map_err(|error| ConfigError::new("namespace", error.to_string()))?;
        }
        seal::check(self.seal.as_ref())?;
        if let Some(name) = self.headers.forbidden() {
            return Err(ConfigError::new(
                "keep_header",
                format!(
                    "`{name}` belongs to one message only, and would break a replay: leave it out"
                ),
            ));
        }
        self.check_quota()?;
        self.check_keys()?;
        self.check_inside()?;
        self.check_existing()?;
        self.check_fingerprint()?;
        let meter = self.meter();
        let store = meter.watch_over(Arc::clone(&self.store), Arc::clone(&self.clock));
        let mut keeper = Keeper::builder(store)
            .clock(Arc::clone(&self.clock))
            .entropy(Arc::clone(&self.entropy))
            .run_on(self.run_on);
        if let Some((failures, pause)) = self.circuit {
            keeper = keeper.circuit_breaker(failures, pause);
        }
        let keeper = keeper.build()?;
        let reconcile = self
            .reconcile
            .take()
            .map(|by| Reconcile { by, terms: asking });
        let policy_link = self.policy_at.take().map(PolicyLink::to).transpose()?;
        Ok(self.assemble(keeper, terms, reconcile, policy_link, meter))
    }

    /// The layer with nothing but defaults, which need no checks.
    pub(crate) fn defaults(self) -> IdempotencyLayer {
        let meter = self.meter();
        let store = meter.watch_over(Arc::clone(&self.store), Arc::clone(&self.clock));
        let terms = Terms::default().labelled(LABEL).lapse_unheard_takeovers();
        self.assemble(Keeper::new(store), terms, None, None, meter)
    }

    /// How long an outcome is kept: as it was set, else for a day, and while its window counts.
    fn kept_for(&self) -> Duration {
        let counts_for = self.window.map(Window::counts_for);
        let by_default = DAY.max(counts_for.unwrap_or_default());
        self.retention.unwrap_or(by_default)
    }

    fn meter(&self) -> Meter {
        let name = self.name.as_deref();
        Meter::of(&Arc::from(name.unwrap_or(self.entry.namespace.as_str())))
    }

    fn check_quota(&self) -> Result<(), ConfigError> {
        let Limits { records, bytes } = self.quota;
        refuse_zero("max_records_per_tenant", records == 0, "use at least 1")?;
        if bytes < RECORD_BYTES {
            return Err(ConfigError::new(
                "max_bytes_per_tenant",
                format!("not one record fits in: use at least {RECORD_BYTES}"),
            ));
        }
        if self.quota != Limits::NONE && self.entry.scope.is_none() && !self.one_tenant {
            return Err(ConfigError::new(
                "max_records_per_tenant",
                "nobody says whose request it is: set `scope`, or say `one_tenant`".to_owned(),
            ));
        }
        Ok(())
    }

    fn check_keys(&self) -> Result<(), ConfigError> {
        let wrong = |setting, text: &str| Err(ConfigError::new(setting, text.to_owned()));
        if self.entry.require_scope && self.entry.scope.is_none() {
            return wrong(
                "require_scope",
                "nobody says whose request it is, so every one would be refused: set `scope`",
            );
        }
        let of_a_header = self.header != HEADER || self.syntax != KeySyntax::default();
        if of_a_header && self.source.is_some() {
            return wrong(
                "header",
                "the key does not come from a header: leave out `header` and `key_syntax`, or the other source",
            );
        }
        let is_made_by_a_function = matches!(self.source, Some(Source::Head(_)));
        if is_made_by_a_function && self.entry.scope.is_none() && !self.one_tenant {
            return wrong(
                "derived_key",
                "two tenants may have keys alike: set `scope`, or say `one_tenant`",
            );
        }
        let Some(Source::Fields(derived)) = &self.source else {
            return match self.window {
                Some(_) => wrong(
                    "key_window",
                    "for a key by `derived_from` only: set it, or put the window into your key",
                ),
                None => Ok(()),
            };
        };
        derived.fields.check("derived_from")?;
        if self.entry.scope.is_none() && !self.one_tenant {
            return wrong(
                "derived_from",
                "two tenants may have fields alike: set `scope`, or say `one_tenant`",
            );
        }
        match self.window {
            Some(window) if window.length.is_zero() => {
                wrong("key_window", "a window of no length: use 24 hours, or none")
            }
            Some(window) if window.overlap >= window.length => {
                wrong("key_window", "use an overlap shorter than the window")
            }
            Some(window) if self.kept_for() < window.counts_for() => Err(ConfigError::new(
                "retention",
                format!(
                    "an answer would be forgotten within its `key_window`, and the same intent run again: use {} \
                     seconds at least, the window and its overlap, or leave `retention` out",
                    window.counts_for().as_secs_f64().ceil()
                ),
            )),
            _ => Ok(()),
        }
    }

    fn check_fingerprint(&self) -> Result<(), ConfigError> {
        let no_secret = self.fingerprint_secret == Some([0; 32]);
        let no_upload = self.stream_uploads == Some(0);
        refuse_zero("stream_uploads", no_upload, "leave it out")?;
        refuse_zero("fingerprint_secret", no_secret, "use 32 random bytes")?;
        if let Some(fields) = &self.bound_fields {
            fields.check("fingerprint_fields")?;
        }
        let by_bytes = BodyRules {
            content_digest: self.body_rules.content_digest,
            ..BodyRules::default()
        };
        let fields_of_bodies = self.bound_fields.is_some()
            || matches!(&self.source, Some(Source::Fields(derived)) if derived.needs_body());
        if self.stream_uploads.is_some() && (self.body_rules != by_bytes || fields_of_bodies) {
            return Err(ConfigError::new(
                "stream_uploads",
                "goes with fingerprints of all bytes, and with a key from the head: everything else needs the whole \
                 body before the handler gets it"
                    .to_owned(),
            ));
        }
        let rules = self.body_rules != BodyRules::default();
        let chosen = [self.first_payload_wins, self.bound_fields.is_some(), rules];
        if chosen.iter().filter(|&&chosen| chosen).count() > 1 {
            return Err(ConfigError::new(
                "fingerprint",
                "`first_payload_wins`, `fingerprint_fields` and the rules for whole bodies exclude each other: \
                 choose one"
                    .to_owned(),
            ));
        }
        Ok(())
    }

    fn assemble(
        self,
        keeper: Keeper,
        terms: Terms,
        reconcile: Option<Reconcile>,
        policy_link: Option<PolicyLink>,
        meter: Meter,
    ) -> IdempotencyLayer {
        let retention = self.kept_for();
        let order = Order::new(self.entry.scope.is_none() && !self.one_tenant);
        let mut entry = self.entry;
        entry.gate = entry.gate.or_methods(METHODS);
        entry.source = match self.source {
            Some(Source::Fields(derived)) => Source::Fields(Derived {
                window: self.window,
                ..derived
            }),
            Some(head) => head,
            None => Source::Head(KeySource::header(self.header, self.syntax)),
        };
        entry.bound = match self.bound_fields {
            _ if self.first_payload_wins => Bound::Target,
            Some(fields) => Bound::Fields(fields),
            None => Bound::Payload(self.body_rules),
        };
        let tenants = (self.quota != Limits::NONE).then(Tenants::default);
        entry.tenants = tenants.clone();
        let quotas = tenants.map(|tenants| {
            // A key that was given back stays in the store until no copy of its claim can arrive any more.
            let linger = terms.attempt_timeout() * 4;
            let clock = Arc::clone(&self.clock);
            Arc::new(Quotas::new(self.quota, linger, clock, tenants))
        });
        let inside = self.inside.map(|begin| ClaimInside {
            begin,
            entropy: Arc::clone(&self.entropy),
            here: Here::default(),
        });
        let here = inside.as_ref().map(|inside| inside.here.clone());
        let running = Arc::new(Running::new(Arc::clone(&self.clock), meter.clone()));
        let followers = Followers::new(self.waits, &keeper, here);
        IdempotencyLayer::of(Shared {
            engine: keeper.store().dyn_capabilities().engine,
            keeper,
            terms,
            entropy: Arc::clone(&self.entropy),
            entry,
            fingerprint_secret: self.fingerprint_secret.map(Secret::new),
            on_busy: self.on_busy,
            on_store_down: self.on_store_down,
            followers,
            retention,
            unfinished_keep: self.unfinished_keep,
            quotas,
            max_request_body: self.max_request_body,
            stream_uploads: self.stream_uploads,
            max_response_body: self.max_response_body,
            headers: self.headers,
            outcome: self.outcome,
            tell_status: self.tell_status,
            stands_down: self.stands_down,
            redact: self.redact,
            sealer: seal::sealer(self.seal, self.entropy),
            on_not_kept: self.on_not_kept,
            reconcile,
            inside,
            existing: self.existing,
            render: self.render,
            policy_link,
            detached: self.detached.with_clock(self.clock),
            max_in_flight: self.max_in_flight,
            in_flight: Arc::new(Semaphore::new(self.max_in_flight)),
            counters: Counters::told_to(&meter),
            order,
            running,
        })
    }
}

fn refuse_zero(setting: &'static str, is_zero: bool, mend: &str) -> Result<(), ConfigError> {
    if is_zero {
        return Err(ConfigError::new(setting, format!("zero: {mend}")));
    }
    Ok(())
}
