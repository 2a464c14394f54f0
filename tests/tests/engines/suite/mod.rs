//! One suite for every engine.
//!
//! An engine's own file calls, with a function that opens its store anew over one server:
//!
//! - [`every_law`]: the conformance suite, plain and behind each [`Trouble`], one after the other; or
//!   [`laws`] for one of [`plain_and_troubled`].
//! - [`behind_the_relay`]: the same laws through a [`Relay`] that delays each byte; the function gets the
//!   relay's `HOST:PORT` and opens a store that connects there.
//! - [`lost_answers`]: the relay closes the connection behind each request of each call, and swallows its
//!   reply. The error must be honest (*unavailable* only where nothing was applied), and the repeat with the
//!   same nonce must have the effect of one.
//! - [`tokens_follow_their_rule`]: the exact token of a grant, where it counts from the store's milliseconds.
//! - [`guard_laws`]: the laws of the engine's [`FenceStore`].

mod calls;
mod lost_answers;
mod tokens;

use std::time::Duration;

#[allow(unused_imports, reason = "each engine uses what it can")]
pub use lost_answers::{lost_answers, lost_answers_of_a_reader};
use system_tests::relay::{Relay, Way};
#[allow(unused_imports, reason = "each engine uses what it can")]
pub use tokens::tokens_follow_their_rule;
use tower_claim::conformance::{Report, Suite, Time, Trouble};
use tower_claim::store::{ClaimRequest, MultiKey, Owner, ReleaseRequest, StoreTime};
use tower_claim::{
    ClaimAdmin, ClaimMany, FenceStore, Key, Namespace, Nonce, OsEntropy, Settings, Token, Use,
};

/// Steps of 100 ms: for engines that tell milliseconds and answer in few of them.
pub const QUICK: Time = Time::Real {
    unit: Duration::from_millis(100),
    tolerance: Duration::from_millis(20),
};

/// Every law of one key, of several keys where the engine takes any, and of operators: plain, then behind
/// each trouble.
pub async fn every_law<S: ClaimMany + ClaimAdmin>(time: Time, open: impl AsyncFn() -> S) {
    for suite in plain_and_troubled(Suite::new(time)) {
        laws(suite, &open).await;
    }
}

/// The suite, and the suite behind each trouble.
pub fn plain_and_troubled(suite: Suite) -> impl Iterator<Item = Suite> {
    let troubled = Trouble::ALL.map(|trouble| suite.clone().behind(trouble));
    std::iter::once(suite).chain(troubled)
}

/// Every law, plain, through a relay that delays each byte by 2 ms either way.
pub async fn behind_the_relay<S: ClaimMany + ClaimAdmin>(
    suite: Suite,
    server: &str,
    open: impl AsyncFn(String) -> S,
) {
    let relay = Relay::to(server);
    let (requests, replies) = (Duration::from_millis(2), Duration::from_millis(2));
    relay.set(Way::Delay { requests, replies });
    laws(suite, &async || open(relay.address()).await).await;
    assert!(relay.requests() > 0, "the store went past the relay");
}

/// The laws of a guard.
pub async fn guard_laws<F: FenceStore>(open: impl AsyncFn() -> F) {
    held(Suite::new(QUICK).fence_store(open).await);
}

/// Every law of one suite, at once.
pub async fn laws<S: ClaimMany + ClaimAdmin>(suite: Suite, open: &impl AsyncFn() -> S) {
    let many = async {
        if open().await.capabilities().multi_key == MultiKey::Atomic {
            held(suite.claim_many(open).await);
        }
    };
    let one = async { held(suite.claim_store(open).await) };
    let admin = async { held(suite.claim_admin(open).await) };
    tokio::join!(one, many, admin);
}

/// The report is seen with `--nocapture`.
pub fn held(report: Report) {
    println!("{report}");
    report.assert();
}
/// A claim without a fingerprint.
pub fn claim<'a>(owner: &Owner, settings: &'a Settings, not_after: StoreTime) -> ClaimRequest<'a> {
    ClaimRequest {
        key: owner.key,
        nonce: owner.nonce,
        fingerprint: None,
        settings,
        floor: Token::ZERO,
        not_after,
    }
}

/// The release of a claim.
pub fn release(owner: &Owner, not_after: StoreTime) -> ReleaseRequest {
    ReleaseRequest {
        key: owner.key,
        nonce: owner.nonce,
        token: Some(owner.token),
        not_after,
    }
}

/// A nonce drawn at random.
pub fn nonce() -> Nonce {
    Nonce::draw(&OsEntropy)
}

/// A key that no other test has.
pub fn key() -> Key {
    let part = format!("{:?}", nonce());
    Key::builder(Use::Lease, &Namespace::default())
        .part(part)
        .build()
}
