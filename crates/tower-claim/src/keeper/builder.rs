//! Settings of a keeper.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::circuit::{Circuit, Limits};
use super::desk::Desk;
use super::{Clock, DynClaimMany, DynClaimStore, Entropy, Inner, Keeper, Place};
use crate::{ConfigError, OsEntropy, SystemClock};

/// Where a keeper's worker runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum RunOn {
    /// On a thread and runtime of its own: beats go on when the application's runtime is blocked. The
    /// default.
    #[default]
    Thread,
    /// As a task of the runtime that `build` is called on: beats stall with it. For tests in paused time,
    /// which does not reach a thread.
    Task,
}

/// Builds a [`Keeper`]. Made by [`Keeper::builder`].
#[derive(Debug)]
pub struct KeeperBuilder {
    store: Arc<dyn DynClaimStore>,
    many: Option<Arc<dyn DynClaimMany>>,
    clock: Arc<dyn Clock>,
    entropy: Arc<dyn Entropy>,
    run_on: RunOn,
    circuit: Option<Limits>,
}

impl KeeperBuilder {
    pub(super) fn new(store: Arc<dyn DynClaimStore>, many: Option<Arc<dyn DynClaimMany>>) -> Self {
        Self {
            store,
            many,
            clock: Arc::new(SystemClock),
            entropy: Arc::new(OsEntropy),
            run_on: RunOn::default(),
            circuit: None,
        }
    }

    /// The clock that deadlines and beats go by. Default: [`SystemClock`].
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Where nonces come from. Default: [`OsEntropy`].
    #[must_use]
    pub fn entropy(mut self, entropy: Arc<dyn Entropy>) -> Self {
        self.entropy = entropy;
        self
    }

    /// Where the worker runs. Default: [`RunOn::Thread`].
    #[must_use]
    pub fn run_on(mut self, run_on: RunOn) -> Self {
        self.run_on = run_on;
        self
    }

    /// A circuit breaker before the claims. After so many calls in a row that the store did not answer, or refused as
    /// unavailable, it is not asked for the `pause`: claims fail at once ([`StoreError::Unavailable`]) instead of waiting
    /// out their attempts one by one, and the store has time to come up. Then one claim tries for all. Renewals,
    /// finishes and releases are never held back. Default: none, each claim asks.
    ///
    /// [`StoreError::Unavailable`]: crate::StoreError::Unavailable
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_claim::{Keeper, MemoryStore};
    ///
    /// let keeper = Keeper::builder(MemoryStore::new())
    ///     .circuit_breaker(5, Duration::from_secs(1))
    ///     .build()?;
    /// # Ok::<(), tower_claim::ConfigError>(())
    /// ```
    #[must_use]
    pub fn circuit_breaker(mut self, failures: u32, pause: Duration) -> Self {
        self.circuit = Some(Limits { failures, pause });
        self
    }

    /// The keeper.
    ///
    /// # Errors
    ///
    /// [`RunOn::Task`] outside of a tokio runtime; a circuit breaker of no failures or without a pause.
    pub fn build(self) -> Result<Keeper, ConfigError> {
        let place = match self.run_on {
            RunOn::Thread => Place::Thread,
            RunOn::Task => Place::Task(tokio::runtime::Handle::try_current().map_err(|_| {
                ConfigError::new(
                    "run_on",
                    "RunOn::Task needs a tokio runtime: call build() on one, or use RunOn::Thread",
                )
            })?),
        };
        let circuit = self.circuit.map(Limits::check).transpose()?;
        Ok(Self { circuit, ..self }.assemble(place))
    }

    pub(super) fn assemble(self, runs_on: Place) -> Keeper {
        Keeper {
            inner: Arc::new(Inner {
                desk: Arc::new(Desk::new(Arc::clone(&self.clock))),
                store: self.store,
                many: self.many,
                clock: self.clock,
                entropy: self.entropy,
                circuit: self.circuit.map(Circuit::new),
                runs_on,
                starting: Mutex::new(()),
            }),
        }
    }
}
