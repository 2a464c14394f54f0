//! A circuit breaker before the claims: whoever comes while the store does not answer is told so at once.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::{ConfigError, Moment, StoreError};

/// When a keeper stops asking a store that does not answer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    pub(super) failures: u32,
    pub(super) pause: Duration,
}

impl Limits {
    pub(super) fn check(self) -> Result<Self, ConfigError> {
        let refuse = |problem| Err(ConfigError::new("circuit_breaker", problem));
        if self.failures == 0 {
            return refuse("no store could ever be asked: use at least 1 failure");
        }
        if self.pause.is_zero() {
            return refuse("without a pause nothing is held back: use 1 second");
        }
        Ok(self)
    }
}

/// Closed until so many calls in a row had no answer; then open for the pause; then one call tries for all.
#[derive(Debug)]
pub(super) struct Circuit {
    limits: Limits,
    state: Mutex<State>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Closed { failures: u32 },
    Open { until: Moment },
    HalfOpen { since: Moment },
}

/// Leave to ask the store.
#[derive(Debug)]
#[must_use = "tell it what came of the call"]
pub(super) struct Pass<'a> {
    circuit: &'a Circuit,
    /// This call tries for all, since then.
    trial: Option<Moment>,
}

impl Circuit {
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            limits,
            state: Mutex::new(State::Closed { failures: 0 }),
        }
    }

    pub(super) fn admit(&self, now: Moment) -> Result<Pass<'_>, StoreError> {
        let mut state = self.lock();
        let trial = match *state {
            State::Closed { .. } => None,
            State::Open { until } if until <= now => {
                *state = State::HalfOpen { since: now };
                Some(now)
            }
            State::Open { .. } | State::HalfOpen { .. } => {
                return Err(StoreError::unavailable(
                    "it did not answer before, and is not asked now: the circuit breaker is open",
                ));
            }
        };
        Ok(Pass {
            circuit: self,
            trial,
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pass<'_> {
    /// The call came to this. A store that answers "full" or "cannot be read" is up.
    pub(super) fn tell<T>(&self, came_to: &Result<T, StoreError>, now: Moment) {
        let mut state = self.circuit.lock();
        let down = matches!(
            came_to,
            Err(StoreError::Unavailable(_) | StoreError::Ambiguous(_))
        );
        *state = match *state {
            _ if !down => State::Closed { failures: 0 },
            State::Closed { failures } if failures + 1 < self.circuit.limits.failures => {
                State::Closed {
                    failures: failures + 1,
                }
            }
            // A call from before: what it met is known already.
            standing @ (State::Open { .. } | State::HalfOpen { .. }) if !self.tries(standing) => {
                standing
            }
            _ => State::Open {
                until: now + self.circuit.limits.pause,
            },
        };
    }

    fn tries(&self, state: State) -> bool {
        matches!(state, State::HalfOpen { since } if self.trial == Some(since))
    }
}

/// A trial whose caller left says nothing: the next one tries.
impl Drop for Pass<'_> {
    fn drop(&mut self) {
        let Some(since) = self.trial else { return };
        let mut state = self.circuit.lock();
        if self.tries(*state) {
            *state = State::Open { until: since };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    fn circuit() -> Circuit {
        Circuit::new(Limits {
            failures: 3,
            pause: S,
        })
    }

    fn at(ms: u64) -> Moment {
        Moment::since_start(Duration::from_millis(ms))
    }

    fn down() -> Result<(), StoreError> {
        Err(StoreError::unavailable("down"))
    }

    fn fail(circuit: &Circuit, times: usize, now: Moment) {
        for _ in 0..times {
            circuit.admit(now).unwrap().tell(&down(), now);
        }
    }

    #[test]
    fn it_opens_after_so_many_failures_in_a_row_and_not_before() {
        let circuit = circuit();
        fail(&circuit, 2, at(0));
        circuit.admit(at(0)).unwrap().tell(&Ok(()), at(0));
        fail(&circuit, 3, at(0));
        assert!(circuit.admit(at(999)).is_err());
    }

    #[test]
    fn an_ambiguous_answer_counts_and_a_full_or_garbled_store_does_not() {
        let circuit = circuit();
        fail(&circuit, 2, at(0));
        let full: Result<(), _> = Err(StoreError::Full);
        circuit.admit(at(0)).unwrap().tell(&full, at(0));
        fail(&circuit, 2, at(0));
        let ambiguous: Result<(), _> = Err(StoreError::ambiguous("no answer"));
        circuit.admit(at(0)).unwrap().tell(&ambiguous, at(0));
        assert!(circuit.admit(at(0)).is_err());
    }

    #[test]
    fn after_the_pause_one_call_tries_for_all() {
        let circuit = circuit();
        fail(&circuit, 3, at(0));
        let trial = circuit.admit(at(1000)).unwrap();
        assert!(circuit.admit(at(5000)).is_err(), "one at a time");
        trial.tell(&down(), at(5000));
        drop(trial);
        assert!(circuit.admit(at(5999)).is_err(), "and again a whole pause");
        circuit.admit(at(6000)).unwrap().tell(&Ok(()), at(6000));
        fail(&circuit, 2, at(6000));
        assert!(
            circuit.admit(at(6000)).is_ok(),
            "closed: it counts from zero"
        );
    }

    #[test]
    fn a_trial_whose_caller_left_hands_over_to_the_next() {
        let circuit = circuit();
        fail(&circuit, 3, at(0));
        drop(circuit.admit(at(1000)).unwrap());
        assert!(circuit.admit(at(1000)).is_ok());
    }

    #[test]
    fn calls_from_before_neither_lengthen_the_pause_nor_end_the_trial() {
        let circuit = circuit();
        let late: Vec<_> = (0..2).map(|_| circuit.admit(at(0)).unwrap()).collect();
        fail(&circuit, 3, at(0));
        late[0].tell(&down(), at(900));
        let trial = circuit.admit(at(1000)).unwrap();
        late[1].tell(&down(), at(1001));
        drop(late);
        assert!(circuit.admit(at(1001)).is_err(), "the trial is under way");
        drop(trial);
    }

    #[test]
    fn an_answer_to_any_call_closes_it() {
        let circuit = circuit();
        let late = circuit.admit(at(0)).unwrap();
        fail(&circuit, 3, at(0));
        late.tell(&Ok(()), at(500));
        assert!(circuit.admit(at(500)).is_ok());
    }
}
