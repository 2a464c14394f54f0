//! The claim protocol, searched exhaustively: with all its rules every promise holds in every state that can
//! be reached, and without any one of them a promise is broken, with the shortest way to it printed.
//!
//! `cargo test -p system-tests --test model -- --nocapture` shows the figures and the traces.

use std::time::Instant;

use system_tests::claim_model::{Config, Model, Property, Rules, Sends, search};

/// More states than any configuration has. A search that gets here was cut and proves nothing.
const LIMIT: usize = 12_000_000;

fn holds(config: Config) {
    let started = Instant::now();
    let rules = Rules::all();
    let report = search(&Model { config, rules }, LIMIT, None);
    let (name, states, took) = (config.name, report.states, started.elapsed());
    if let Some(trace) = &report.refuted {
        panic!("{name}: broken after {states} states\n{trace}");
    }
    assert!(
        report.fixpoint,
        "{name}: cut at {states} states in {took:.1?}: a bound, not a proof"
    );
    println!("{name}: fixpoint, {states} states, {took:.1?}");
}

fn refuted(property: Property, config: Config, without: fn(&mut Rules)) {
    let mut rules = Rules::all();
    without(&mut rules);
    assert_ne!(rules, Rules::all(), "no rule was left out");
    let report = search(&Model { config, rules }, LIMIT, Some(property));
    let name = config.name;
    let trace = report.refuted.unwrap_or_else(|| {
        panic!(
            "{name}: {property:?} holds without the rule in {} states",
            report.states
        )
    });
    println!(
        "{name}: refuted in {} steps, {} states\n{trace}",
        trace.steps.len(),
        report.states
    );
    assert_eq!(trace.breach.property, property, "{}", trace.breach);
}

mod every_promise_holds {
    use super::*;

    #[test]
    fn under_take_over() {
        holds(Config::TAKE_OVER);
    }

    #[test]
    fn when_grants_are_heard_late() {
        holds(Config::LATE_REPLIES);
    }

    #[test]
    fn when_an_owner_comes_back_with_a_second_nonce() {
        holds(Config::SECOND_NONCE);
    }

    #[test]
    fn under_hold() {
        holds(Config::HOLD);
    }

    #[test]
    fn after_the_mark() {
        holds(Config::MARK);
    }

    #[test]
    fn when_marked_holds_are_renewed() {
        holds(Config::MARK_AND_RENEW);
    }

    #[test]
    fn when_owners_bring_different_policies() {
        holds(Config::MIXED);
    }

    #[test]
    fn when_unfinished_records_pass() {
        holds(Config::UNFINISHED_KEEP);
    }
}

/// One test for each rule: the protocol without it.
mod a_promise_breaks_without {
    use super::*;
    use Property::{C1, L1, S2, S3, S4, S5};

    #[test]
    fn the_token_in_finish() {
        refuted(S4, Config::TAKE_OVER, |rules| rules.token_in_finish = false);
    }

    #[test]
    fn the_token_in_release() {
        refuted(S3, Config::SECOND_NONCE, |rules| {
            rules.token_in_release = false;
        });
    }

    #[test]
    fn mine_grants_nothing() {
        refuted(S3, Config::TAKE_OVER, |rules| {
            rules.mine_grants_nothing = false;
        });
    }

    #[test]
    fn finish_twice_is_finished() {
        refuted(S5, Config::TAKE_OVER, |rules| rules.finish_repeats = false);
    }

    #[test]
    fn release_never_touches_done() {
        refuted(S4, Config::TAKE_OVER, |rules| {
            rules.release_spares_done = false;
        });
    }

    #[test]
    fn the_mark() {
        refuted(S4, Config::MARK, |rules| rules.mark_bars_takeover = false);
    }

    #[test]
    fn a_marked_release_is_unknown() {
        refuted(S4, Config::MARK, |rules| {
            rules.marked_release_is_unknown = false;
        });
    }

    #[test]
    fn a_clear_yes_to_the_mark() {
        refuted(S4, Config::MARK, |rules| rules.clear_yes = false);
    }

    #[test]
    fn the_records_own_policy() {
        refuted(S4, Config::MIXED, |rules| rules.records_own_policy = false);
    }

    #[test]
    fn nothing_live_ends_by_time() {
        refuted(S3, Config::TAKE_OVER, |rules| {
            rules.nothing_live_ends = false;
        });
    }

    #[test]
    fn not_after() {
        refuted(C1, Config::TAKE_OVER, |rules| rules.not_after = false);
    }

    /// The same rule where nobody releases: the late copy is a second grant.
    #[test]
    fn not_after_even_if_nobody_releases() {
        let config = Config {
            sends: Sends {
                release: 0,
                ..Config::TAKE_OVER.sends
            },
            ..Config::TAKE_OVER
        };
        refuted(S5, config, |rules| rules.not_after = false);
    }

    #[test]
    fn one_not_after_for_all_copies_of_a_claim() {
        refuted(S5, Config::TAKE_OVER, |rules| rules.one_not_after = false);
    }

    #[test]
    fn spent_nonces_remembered() {
        refuted(S5, Config::TAKE_OVER, |rules| {
            rules.spent_remembered = false;
        });
    }

    #[test]
    fn release_storing_a_nonce_it_does_not_find() {
        refuted(C1, Config::TAKE_OVER, |rules| {
            rules.release_stores_nonce = false;
        });
    }

    #[test]
    fn a_token_that_outlives_the_record() {
        refuted(S2, Config::TAKE_OVER, |rules| {
            rules.token_outlives_record = false;
        });
    }

    #[test]
    fn a_deadline_counted_from_before_sending() {
        refuted(S3, Config::LATE_REPLIES, |rules| {
            rules.deadline_from_sending = false;
        });
    }

    #[test]
    fn a_check_that_is_false_once_finish_or_release_was_sent() {
        refuted(S3, Config::TAKE_OVER, |rules| {
            rules.belief_ends_at_finish = false;
        });
    }

    #[test]
    fn a_finish_that_is_given_up_within_its_keep() {
        refuted(S5, Config::TAKE_OVER, |rules| {
            rules.finish_is_given_up = false;
        });
    }

    #[test]
    fn sparing_begun_work_from_the_clean_up() {
        refuted(S4, Config::HOLD, |rules| {
            rules.begun_is_not_released = false;
        });
    }

    #[test]
    fn leases_that_lapse() {
        refuted(L1, Config::TAKE_OVER, |rules| rules.leases_lapse = false);
    }
}
