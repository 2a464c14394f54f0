//! Which calls are at one resource, and whose turn it is. Pure: no clock, no task, no request.
//!
//! A mark that is checked at the door only is not enough: an older call may have passed it, stand still
//! inside, and write after a newer one. So a newer call, once its token is in the mark, **cancels every
//! older call and waits until their futures are gone**; only then it runs.
//!
//! The order is what makes it hold:
//!
//! 1. [`enter`](Calls::enter) *before* the store is asked. A call that the store admitted before ours is
//!    then already in the list when we look.
//! 2. The store admits: the mark is raised. A call that asks from now on with an older token is refused
//!    by the store.
//! 3. [`admit`](Calls::admit) cancels all that are older; [`turn`](Calls::turn) says `Run` once they are
//!    gone.
//!
//! Draining before the mark is raised would leave a gap in which an older call gets in; entering after the
//! store was asked, one in which it is not seen. The tests walk through every order of steps, and refute
//! each of these variants.

use tower_claim::Token;

/// One call at the resource.
pub(crate) type CallId = u64;

/// What a call may do now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Turn {
    /// No older call is left.
    Run,
    /// Older calls were cancelled, some of them are still there.
    Wait,
    /// A newer call was admitted: end, and leave.
    Cancelled,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Call {
    id: CallId,
    token: Token,
    cancelled: bool,
}

/// The calls at one resource, from before the store is asked until their futures are gone.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(crate) struct Calls {
    calls: Vec<Call>,
}

impl Calls {
    /// A call arrives. `id` must be new.
    pub(crate) fn enter(&mut self, id: CallId, token: Token) {
        self.calls.push(Call {
            id,
            token,
            cancelled: false,
        });
    }

    /// The store has admitted this call. Cancels every older one; answers whom it cancelled.
    pub(crate) fn admit(&mut self, id: CallId) -> Vec<CallId> {
        let Some(token) = self.token(id) else {
            return Vec::new();
        };
        let older = |call: &&mut Call| call.token < token && !call.cancelled;
        self.calls
            .iter_mut()
            .filter(older)
            .map(|call| {
                call.cancelled = true;
                call.id
            })
            .collect()
    }

    /// Whether an admitted call may run.
    ///
    /// It waits for cancelled calls only. An older one that entered after our admission is not cancelled:
    /// the store refuses it, so a stream of stale calls cannot keep a newer one waiting.
    pub(crate) fn turn(&self, id: CallId) -> Turn {
        let Some(me) = self.calls.iter().find(|call| call.id == id) else {
            return Turn::Cancelled;
        };
        if me.cancelled {
            Turn::Cancelled
        } else if self.calls.iter().any(|c| c.cancelled && c.token < me.token) {
            Turn::Wait
        } else {
            Turn::Run
        }
    }

    /// The call's future is gone; nothing of it can write any more.
    pub(crate) fn leave(&mut self, id: CallId) {
        self.calls.retain(|call| call.id != id);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    fn token(&self, id: CallId) -> Option<Token> {
        self.calls.iter().find(|c| c.id == id).map(|c| c.token)
    }
}

#[cfg(test)]
mod tests {
    //! Every order of steps of three calls. A call enters, asks the store, learns the answer, waits for its
    //! turn, writes twice, and leaves; it may be given up at any step (its client hung up), and a
    //! cancelled one may still write until its future is gone.

    use std::collections::HashSet;

    use super::*;

    /// The rule under test, and the rules without one of its parts.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    enum Rule {
        Ours,
        /// The guard that checks at the door only.
        NoDrain,
        /// Cancels the older calls, but does not wait for their end.
        NoWait,
        /// Asks the store first, and enters with the answer.
        EnterAfterTheStore,
        /// Drains first, then raises the mark.
        DrainBeforeTheMark,
    }

    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
    enum At {
        Outside,
        Entered,
        /// The store has answered yes, the call does not know it yet.
        Answered,
        Admitted,
        Running {
            writes: u8,
        },
        Gone,
    }

    #[derive(Clone, PartialEq, Eq, Hash)]
    struct World {
        at: Vec<At>,
        calls: Calls,
        mark: u64,
        last_write: u64,
    }

    type Trace = Vec<(usize, At)>;

    fn token(n: u64) -> Token {
        Token::new(n).unwrap()
    }

    impl World {
        /// All worlds that one step of call `i` leads to.
        fn steps(&self, rule: Rule, tokens: &[u64], i: usize) -> Vec<World> {
            if self.at[i] == At::Gone {
                return Vec::new();
            }
            let id = i as CallId;
            let mine = token(tokens[i]);
            let mut next = Vec::new();
            let mut step = |change: &dyn Fn(&mut World)| {
                let mut world = self.clone();
                change(&mut world);
                next.push(world);
            };
            let gone = |w: &mut World| {
                w.calls.leave(id);
                w.at[i] = At::Gone;
            };
            let ask_store = |w: &mut World| {
                if tokens[i] >= w.mark {
                    w.mark = tokens[i];
                    w.at[i] = At::Answered;
                } else {
                    w.calls.leave(id);
                    w.at[i] = At::Gone;
                }
            };
            match self.at[i] {
                At::Outside => step(&|w| {
                    if rule == Rule::EnterAfterTheStore {
                        ask_store(w);
                    } else {
                        w.calls.enter(id, mine);
                        if rule == Rule::DrainBeforeTheMark {
                            w.calls.admit(id);
                        }
                        w.at[i] = At::Entered;
                    }
                }),
                At::Entered => match (rule, self.calls.turn(id)) {
                    (Rule::DrainBeforeTheMark, Turn::Wait) => {}
                    _ => step(&ask_store),
                },
                At::Answered => step(&|w| {
                    match rule {
                        Rule::EnterAfterTheStore => {
                            w.calls.enter(id, mine);
                            w.calls.admit(id);
                        }
                        Rule::DrainBeforeTheMark | Rule::NoDrain => {}
                        Rule::Ours | Rule::NoWait => {
                            w.calls.admit(id);
                        }
                    }
                    w.at[i] = At::Admitted;
                }),
                At::Admitted => match self.calls.turn(id) {
                    Turn::Wait if rule != Rule::NoWait => {}
                    Turn::Wait | Turn::Run => step(&|w| w.at[i] = At::Running { writes: 0 }),
                    Turn::Cancelled => {}
                },
                At::Running { writes } => {
                    if writes < 2 {
                        step(&|w| {
                            w.last_write = tokens[i];
                            w.at[i] = At::Running { writes: writes + 1 };
                        });
                    }
                }
                At::Gone => {}
            }
            // Given up, cancelled, or done.
            step(&gone);
            next
        }
    }

    /// Walks every order; answers the states seen, or the way to a write that went back.
    fn explore(rule: Rule, tokens: &[u64]) -> Result<usize, Trace> {
        let start = World {
            at: vec![At::Outside; tokens.len()],
            calls: Calls::default(),
            mark: 0,
            last_write: 0,
        };
        let mut seen = HashSet::from([start.clone()]);
        let mut todo = vec![(start, Trace::new())];
        while let Some((world, trace)) = todo.pop() {
            let mut alive = false;
            for i in 0..tokens.len() {
                for next in world.steps(rule, tokens, i) {
                    alive = true;
                    let mut trace = trace.clone();
                    trace.push((i, next.at[i]));
                    if next.last_write < world.last_write {
                        return Err(trace);
                    }
                    if seen.insert(next.clone()) {
                        todo.push((next, trace));
                    }
                }
            }
            if !alive {
                assert!(world.at.iter().all(|at| *at == At::Gone));
                assert!(world.calls.is_empty(), "a call was left behind");
            }
        }
        Ok(seen.len())
    }

    const CASES: [&[u64]; 4] = [&[1, 2], &[1, 2, 3], &[2, 1, 2], &[1, 1, 2]];

    #[test]
    fn no_write_goes_back_in_any_order_of_steps() {
        for tokens in CASES {
            let states =
                explore(Rule::Ours, tokens).unwrap_or_else(|trace| panic!("{tokens:?}: {trace:?}"));
            assert!(states > 50, "{tokens:?}: only {states} states");
        }
    }

    #[test]
    fn without_each_part_of_the_rule_a_write_goes_back() {
        for rule in [
            Rule::NoDrain,
            Rule::NoWait,
            Rule::EnterAfterTheStore,
            Rule::DrainBeforeTheMark,
        ] {
            let refuted = CASES.iter().any(|tokens| explore(rule, tokens).is_err());
            assert!(refuted, "{rule:?} holds: the model is too weak");
        }
    }

    #[test]
    fn a_stream_of_stale_calls_cannot_keep_a_newer_one_waiting() {
        let mut calls = Calls::default();
        calls.enter(1, token(5));
        calls.admit(1);
        assert_eq!(calls.turn(1), Turn::Run);
        calls.enter(2, token(4));
        assert_eq!(calls.turn(1), Turn::Run);
    }

    #[test]
    fn calls_of_one_owner_run_side_by_side() {
        let mut calls = Calls::default();
        calls.enter(1, token(5));
        calls.enter(2, token(5));
        assert_eq!((calls.admit(1), calls.admit(2)), (vec![], vec![]));
        assert_eq!((calls.turn(1), calls.turn(2)), (Turn::Run, Turn::Run));
    }

    #[test]
    fn a_second_call_of_the_new_owner_waits_for_the_old_one_too() {
        let mut calls = Calls::default();
        calls.enter(1, token(4));
        calls.enter(2, token(5));
        calls.enter(3, token(5));
        assert_eq!(calls.admit(2), [1]);
        assert_eq!(calls.admit(3), [] as [CallId; 0]);
        assert_eq!(
            (calls.turn(1), calls.turn(2), calls.turn(3)),
            (Turn::Cancelled, Turn::Wait, Turn::Wait)
        );
        calls.leave(1);
        assert_eq!((calls.turn(2), calls.turn(3)), (Turn::Run, Turn::Run));
    }
}
