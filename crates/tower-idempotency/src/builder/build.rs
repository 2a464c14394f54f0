//! From settings to a layer: the one place where bad settings are refused.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use tokio::sync::Semaphore;
use tower_claim::http::KeySource;
use tower_claim::{ConfigError, Keeper, Namespace, Terms};

use super::IdempotencyBuilder;
use crate::admit::OnBusy;
use crate::counts::Counters;
use crate::layer::IdempotencyLayer;
use crate::shared::Shared;
use crate::wait::Followers;

/// What records are labelled with; who shows one appends a prefix of its key.
const LABEL: &str = "idempotency";
/// What changes something.
const METHODS: [Method; 4] = [Method::POST, Method::PATCH, Method::PUT, Method::DELETE];

impl IdempotencyBuilder {
    /// The layer.
    ///
    /// # Errors
    ///
    /// A lease that is too short to be renewed or for the store's engine; a zero where zero does not mean
    /// off; a malformed namespace; [`LapsePolicy::Hold`](tower_claim::LapsePolicy::Hold) on an engine that may
    /// forget; [`RunOn::Task`](tower_claim::RunOn::Task) outside of a runtime. The text says what to write
    /// instead.
    pub fn build(mut self) -> Result<IdempotencyLayer, ConfigError> {
        let mut terms = Terms::builder(self.lease)
            .label(LABEL)
            .renewal(self.renewal)
            .on_lapse(self.on_lapse)
            .unfinished_keep(self.unfinished_keep);
        if let Some(max_hold) = self.max_hold {
            terms = terms.max_hold(max_hold);
        }
        if self.trust_forgetful_store {
            terms = terms.trust_forgetful_store();
        }
        let terms = terms.build()?;
        terms.check_against(&self.store.dyn_capabilities())?;
        let wait = match self.on_busy {
            OnBusy::Wait(limit) => limit,
            OnBusy::Reject => Duration::MAX,
        };
        refuse_zero("retention", self.retention.is_zero(), "use 24 hours")?;
        refuse_zero("on_busy", wait.is_zero(), "use OnBusy::Reject")?;
        refuse_zero("max_waiters", self.max_waiters == 0, "use OnBusy::Reject")?;
        refuse_zero("max_in_flight", self.max_in_flight == 0, "use at least 1")?;
        if self.max_in_flight > Semaphore::MAX_PERMITS {
            return Err(ConfigError::new(
                "max_in_flight",
                format!("use at most {}", Semaphore::MAX_PERMITS),
            ));
        }
        if let Some(name) = self.namespace.take() {
            self.entry.namespace = Namespace::new(name)
                .map_err(|error| ConfigError::new("namespace", error.to_string()))?;
        }
        let keeper = Keeper::builder(Arc::clone(&self.store))
            .clock(Arc::clone(&self.clock))
            .entropy(Arc::clone(&self.entropy))
            .run_on(self.run_on)
            .build()?;
        Ok(self.assemble(keeper, terms))
    }

    /// The layer with nothing but defaults, which need no checks.
    pub(crate) fn defaults(self) -> IdempotencyLayer {
        let keeper = Keeper::new(Arc::clone(&self.store));
        self.assemble(keeper, Terms::default().labelled(LABEL))
    }

    fn assemble(self, keeper: Keeper, terms: Terms) -> IdempotencyLayer {
        let mut entry = self.entry;
        entry.gate = entry.gate.or_methods(METHODS);
        entry.source = self
            .derived
            .unwrap_or_else(|| KeySource::header(self.header, self.syntax));
        IdempotencyLayer::of(Shared {
            keeper,
            terms,
            entry,
            on_busy: self.on_busy,
            followers: Followers::new(self.max_waiters),
            retention: self.retention,
            max_request_body: self.max_request_body,
            max_response_body: self.max_response_body,
            headers: self.headers,
            outcome: self.outcome,
            render: self.render,
            detached: self.detached.with_clock(self.clock),
            max_in_flight: self.max_in_flight,
            in_flight: Arc::new(Semaphore::new(self.max_in_flight)),
            counters: Counters::default(),
        })
    }
}

fn refuse_zero(setting: &'static str, is_zero: bool, mend: &str) -> Result<(), ConfigError> {
    if is_zero {
        return Err(ConfigError::new(setting, format!("zero: {mend}")));
    }
    Ok(())
}
