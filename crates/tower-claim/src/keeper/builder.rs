//! Settings of a keeper.

use std::sync::{Arc, Mutex};

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
}

impl KeeperBuilder {
    pub(super) fn new(store: Arc<dyn DynClaimStore>, many: Option<Arc<dyn DynClaimMany>>) -> Self {
        Self {
            store,
            many,
            clock: Arc::new(SystemClock),
            entropy: Arc::new(OsEntropy),
            run_on: RunOn::default(),
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

    /// The keeper.
    ///
    /// # Errors
    ///
    /// [`RunOn::Task`] outside of a tokio runtime.
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
        Ok(self.assemble(place))
    }

    pub(super) fn assemble(self, runs_on: Place) -> Keeper {
        Keeper {
            inner: Arc::new(Inner {
                desk: Arc::new(Desk::new(Arc::clone(&self.clock))),
                store: self.store,
                many: self.many,
                clock: self.clock,
                entropy: self.entropy,
                runs_on,
                starting: Mutex::new(()),
            }),
        }
    }
}
