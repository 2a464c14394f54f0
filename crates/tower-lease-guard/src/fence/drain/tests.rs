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
