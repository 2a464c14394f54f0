//! The settings of the core.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tower_claim::{Clock, ConfigError, SystemClock};

use crate::carry::Carries;
use crate::core::{Share, SingleFlight};

/// The settings every form of the layer shares.
#[derive(Debug, Clone)]
pub(crate) struct Policy {
    pub(crate) max_age: Duration,
    pub(crate) wait: Duration,
    pub(crate) max_followers: usize,
    pub(crate) extra_leaders: u32,
    pub(crate) shards: usize,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) carries: Carries,
}

impl Default for Policy {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(4, usize::from);
        Self {
            max_age: Duration::from_secs(30),
            wait: Duration::from_secs(5),
            max_followers: 10_000,
            extra_leaders: 1,
            shards: (cores * 4).next_power_of_two(),
            clock: Arc::new(SystemClock),
            carries: Carries::default(),
        }
    }
}

impl Policy {
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        if self.max_age.is_zero() {
            return Err(ConfigError::new(
                "flight_age",
                "a flight of no length cannot be joined; use a duration above zero",
            ));
        }
        if self.wait.is_zero() {
            return Err(ConfigError::new(
                "flight_wait",
                "a follower that may not wait gets nothing; use a duration above zero",
            ));
        }
        if self.max_followers == 0 {
            return Err(ConfigError::new(
                "max_waiters",
                "a flight without followers merges nothing; use 1 or more, or turn the layer off",
            ));
        }
        if !(1..=65_536).contains(&self.shards) {
            return Err(ConfigError::new("shards", "use 1 to 65536"));
        }
        Ok(())
    }
}

/// The setters of [`Policy`], the same words in every builder.
macro_rules! policy_setters {
    () => {
        /// How old a flight may grow before newcomers start another and waiting followers get
        /// `flight-aged`. Default 30 s. The leader stays with its call: this clock is not its timeout.
        pub fn flight_age(mut self, age: std::time::Duration) -> Self {
            self.policy.max_age = age;
            self
        }

        /// How long each follower waits, from its own arrival. Default 5 s. Never applies to the leader.
        pub fn flight_wait(mut self, wait: std::time::Duration) -> Self {
            self.policy.wait = wait;
            self
        }

        /// How many followers one flight may have; more are refused `overloaded`. Default 10,000.
        pub fn max_waiters(mut self, followers: usize) -> Self {
            self.policy.max_followers = followers;
            self
        }

        /// How many of the followers that waited too long may start a call of their own, per key and
        /// until the flight is too old; the others get `wait-timeout`. Default 1: never a herd. 0 means
        /// none.
        pub fn extra_leaders(mut self, leaders: u32) -> Self {
            self.policy.extra_leaders = leaders;
            self
        }

        /// How many locks the table is split over, rounded up to a power of two, 65,536 at most. Default:
        /// four per core.
        pub fn shards(mut self, shards: usize) -> Self {
            self.policy.shards = shards;
            self
        }

        /// The clock both limits are read from. Default: the system's.
        pub fn clock(mut self, clock: std::sync::Arc<dyn tower_claim::Clock>) -> Self {
            self.policy.clock = clock;
            self
        }

        /// Takes something of the leader's task, such as a task-local, along when its call becomes a task
        /// of its own. Default: the tracing span only (feature `tracing`).
        pub fn carry(mut self, carry: impl tower_claim::Carry) -> Self {
            self.policy.carries.add(carry);
            self
        }
    };
}
pub(crate) use policy_setters;

/// Builds a [`SingleFlight`].
///
/// ```
/// use std::time::Duration;
/// use tower_single_flight::SingleFlight;
///
/// let flights: SingleFlight<String, u64> = SingleFlight::builder()
///     .flight_age(Duration::from_secs(10))
///     .flight_wait(Duration::from_secs(2))
///     .max_waiters(1_000)
///     .extra_leaders(2)
///     .build()?;
///
/// let refused = SingleFlight::<String, u64>::builder().flight_wait(Duration::ZERO).build();
/// assert_eq!(refused.unwrap_err().setting(), "flight_wait");
/// # Ok::<_, tower_claim::ConfigError>(())
/// ```
#[must_use = "call `build()`"]
pub struct SingleFlightBuilder<K, T, E = std::convert::Infallible, O = T> {
    policy: Policy,
    share: Share<O, T>,
    flights: std::marker::PhantomData<fn(K) -> E>,
}

impl<K, T, E, O> SingleFlightBuilder<K, T, E, O> {
    pub(crate) fn new(share: Share<O, T>) -> Self {
        Self {
            policy: Policy::default(),
            share,
            flights: std::marker::PhantomData,
        }
    }

    policy_setters!();

    /// # Errors
    /// A zero `flight_age`, `flight_wait` or `max_waiters`; `shards` outside 1 to 65,536.
    pub fn build(self) -> Result<SingleFlight<K, T, E, O>, ConfigError> {
        self.policy.check()?;
        Ok(SingleFlight::with(self.policy, self.share))
    }
}

impl<K, T, E, O> fmt::Debug for SingleFlightBuilder<K, T, E, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SingleFlightBuilder")
            .field(&self.policy)
            .finish()
    }
}
