//! The moves against the reference: the same calls at the same seconds are answered alike.

mod map;
mod run;
mod world;

use std::time::Duration;

use proptest::prelude::*;
use tower_claim::Token;
use tower_claim::store::{StoreTime, Watched};

use super::Seen;
use world::{Move, Terms, World};

const KEY: tower_claim::Key = tower_claim::Key::from_bytes([7; 32]);

fn secs_of(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn time(seconds: u64) -> StoreTime {
    StoreTime::default().saturating_add(secs_of(seconds))
}

fn terms() -> impl Strategy<Value = Terms> {
    let parts = (
        1..8_u64,
        prop_oneof![Just(0), 1..6_u64],
        prop_oneof![Just(0), 1..12_u64],
        prop_oneof![Just(0_u64), 1..20_u64, Just(4000)],
        any::<bool>(),
    );
    parts.prop_map(|(lease, cooling, min_hold, unfinished, hold)| Terms {
        lease,
        cooling,
        min_hold,
        unfinished,
        hold,
    })
}

fn moves() -> impl Strategy<Value = Move> {
    let who = || 0..3_usize;
    let wait = prop_oneof![6 => 1..5_u64, 2 => 5..30_u64, 1 => Just(90), 1 => Just(5000)];
    let claim = (any::<bool>(), terms(), 0..40_u64, 0..6_u64);
    prop_oneof![
        6 => wait.prop_map(Move::Wait),
        6 => claim.prop_map(|(print, terms, floor, rest)| Move::Claim { print, terms, floor, rest }),
        2 => who().prop_map(|who| Move::Again { who }),
        4 => (who(), 0..9_u64).prop_map(|(who, progress)| Move::Renew { who, progress }),
        2 => who().prop_map(|who| Move::Mark { who }),
        2 => (who(), 0..20_u64, any::<bool>())
            .prop_map(|(who, keep, tombstone)| Move::Finish { who, keep, tombstone }),
        2 => (who(), any::<bool>()).prop_map(|(who, by_token)| Move::Release { who, by_token }),
        1 => (0..6_u64).prop_map(|rest| Move::ReleaseStranger { rest }),
        2 => (who(), prop::option::of(0..20_u64))
            .prop_map(|(who, done)| Move::Resolve { who, done }),
        1 => who().prop_map(|who| Move::AskRevoke { who }),
        2 => who().prop_map(|who| Move::Break { who }),
        2 => who().prop_map(|who| Move::Purge { who }),
        2 => who().prop_map(|who| Move::Watch { who }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn every_sequence_of_moves_is_answered_as_the_reference_answers_it(
        all in prop::collection::vec(moves(), 1..40),
    ) {
        let mut world = World::new();
        for one in all {
            world.run(one)?;
        }
    }
}

#[test]
fn a_watched_hold_that_was_never_there_has_ended() {
    assert_eq!(Seen::default().watch(Token::MAX, 0), Ok(Watched::Ended));
}
