//! Stores that break one rule each: the hour that is there for the rule must go red, and say why.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tower_claim::{DynClaimStore, Token};

use super::engines::redis::One;
use super::liar::{Liar, Lie};
use super::scene::note;
use super::{Behind, Engine, losses, network, outages, retention};
use crate::suite::nonce;

/// Redis behind a liar. `LIE` is the place in [`LIES`].
struct Lying<const LIE: u8>(One);

const LIES: [Lie; 12] = [
    Lie::OldToken,
    Lie::LongLease,
    Lie::NoAnswer,
    Lie::Unavailable,
    Lie::TwoOwners,
    Lie::Regrant,
    Lie::DeafToBeats,
    Lie::DeafToReleases,
    Lie::Asleep,
    Lie::Hoarder,
    Lie::Boaster,
    Lie::Pessimist,
];

impl<const LIE: u8> Engine for Lying<LIE> {
    fn start() -> BoxFuture<'static, Self> {
        Box::pin(async { Self(One::start().await) })
    }

    fn connect(address: String) -> BoxFuture<'static, Arc<dyn DynClaimStore>> {
        Box::pin(async {
            let inner = One::connect(address).await;
            let lie = LIES[usize::from(LIE)];
            Arc::new(Liar { inner, lie }) as Arc<dyn DynClaimStore>
        })
    }

    fn address(&self) -> String {
        self.0.address()
    }

    fn kept(&self) -> BoxFuture<'_, usize> {
        self.0.kept()
    }

    fn forgets_within() -> Duration {
        Duration::from_secs(8)
    }
}

impl<const LIE: u8> Behind for Lying<LIE> {
    type Of = One;

    fn server(&mut self) -> &mut One {
        &mut self.0
    }

    fn server_ref(&self) -> &One {
        &self.0
    }
}

macro_rules! goes_red {
    ($name:ident, $($hour:ident)::+ < $lie:literal >, $says:literal) => {
        #[tokio::test(flavor = "multi_thread")]
        #[should_panic(expected = $says)]
        async fn $name() {
            $($hour)::+::<Lying<$lie>>().await;
        }
    };
}

goes_red!(
    an_old_token_is_seen,
    outages::long_pause<0>,
    "next.token() > held.token()"
);
goes_red!(
    an_owner_who_believes_past_its_lease_is_seen,
    network::black_hole<1>,
    "before the old one knew"
);
goes_red!(
    a_call_that_waits_for_ever_is_seen,
    outages::long_pause<2>,
    "calls without an answer: not done within"
);
goes_red!(
    an_applied_call_that_is_said_not_to_be_is_seen,
    network::lost_grant<3>,
    "Unavailable"
);
goes_red!(
    a_held_key_that_is_granted_is_seen,
    outages::brief_pause<4>,
    "Granted"
);
goes_red!(
    a_nonce_with_a_second_lease_is_seen,
    network::lost_grant<5>,
    "left == right"
);
goes_red!(
    beats_that_were_not_sent_are_seen,
    outages::brief_pause<6>,
    "Granted"
);
goes_red!(
    releases_that_were_not_sent_are_seen,
    network::dropped_claims<7>,
    "not granted within"
);
goes_red!(
    a_waiter_who_is_not_woken_is_seen,
    outages::long_pause<8>,
    "the waiter: not done within"
);
goes_red!(
    a_record_that_is_kept_for_ever_is_seen,
    retention::nothing_is_kept<9>,
    "are kept"
);
goes_red!(
    a_weakness_that_is_not_named_is_seen,
    losses::wipe<10>,
    "`capabilities()` names it"
);
goes_red!(
    a_name_without_a_weakness_is_seen,
    losses::wipe<11>,
    "`claimable again` over a flush"
);

/// A guard that accepts what it must not.
#[test]
#[should_panic(expected = "accepted writes go back")]
fn a_guard_that_accepts_a_stale_owner_is_seen() {
    let (mut accepted, old, new) = (Vec::new(), nonce(), nonce());
    let token = |value| Token::new(value).expect("below the highest");
    note(&mut accepted, token(7), old);
    note(&mut accepted, token(8), new);
    note(&mut accepted, token(7), old);
}

#[test]
#[should_panic(expected = "accepted writes go back")]
fn a_guard_that_accepts_one_token_from_two_is_seen() {
    let (mut accepted, token) = (Vec::new(), Token::new(7).expect("below the highest"));
    note(&mut accepted, token, nonce());
    note(&mut accepted, token, nonce());
}
