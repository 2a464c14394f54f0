//! The network swallows, cuts and closes over.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use system_tests::relay::{Relay, Way};
use tower_claim::store::{Claimed, Owner, State};
use tower_claim::{Attempt, Entropy, OsEntropy, Settings, StoreError, Terms, Token};

use super::Engine;
use super::scene::{ANSWER, Guard, Party, beaten, knows, settled, terms, within};
use crate::suite::{claim, key, nonce};

/// Owners that are cut off at the same moment.
const ROUNDS: usize = 50;

/// The owner's connection becomes a black hole: neither answers nor an end. It knows before the next owner
/// writes, and what it writes late is refused.
pub async fn black_hole<E: Engine>() {
    let engine = E::start().await;
    let relay = Relay::to(engine.address());
    let owner = Party::at::<E>(relay.address()).await;
    let rival = Party::at::<E>(engine.address()).await;
    let terms = terms::<E>();
    let rounds = join_all((0..ROUNDS).map(async |_| {
        let (held, guard) = (owner.take(key(), &terms, ANSWER).await, Guard::default());
        assert!(guard.write_as(&held).await);
        (held, guard)
    }))
    .await;

    relay.set(Way::Freeze);
    let cut = Instant::now();
    join_all(rounds.iter().map(async |(held, guard)| {
        let follows = async {
            let next = rival
                .take(held.key(), &terms, E::lease() * 2 + ANSWER)
                .await;
            assert!(
                held.check().is_err(),
                "the next owner writes before the old one knew"
            );
            assert!(guard.write_as(&next).await);
            next
        };
        let limit = E::lease() * 2 + ANSWER * 2;
        let (_, next) = within(limit, "the hand-over", async {
            tokio::join!(held.lost(), follows)
        })
        .await;
        knows(held, cut, E::lease()).await;
        assert!(!guard.write_as(held).await, "the old owner writes");
        drop(next);
    }))
    .await;
}

/// The connection is cut between the commit of a grant and its answer, and the lease passes. The same nonce
/// is told that it has nothing left; a new one gets a higher token.
pub async fn lost_grant<E: Engine>() {
    let engine = E::start().await;
    let relay = Relay::to(engine.address());
    let cut_off = Party::at::<E>(relay.address()).await;
    let direct = Party::at::<E>(engine.address()).await;
    let settings = Settings::new(E::lease());
    let not_after = direct
        .store
        .dyn_now()
        .saturating_add(Duration::from_secs(600));
    let fresh = || Owner {
        key: key(),
        nonce: nonce(),
        token: Token::ZERO,
    };

    let mut found = None;
    // How many pieces a call is sent in, and where the commit lies among them, differs from time to time.
    for before in (0..10).cycle().take(80) {
        let owner = fresh();
        relay.cut_after(before);
        let request = claim(&owner, &settings, not_after);
        let answer = within(ANSWER, "a claim", cut_off.store.dyn_claim(request)).await;
        relay.call_off();
        let Err(error) = answer else {
            continue;
        };
        if let Some(token) = committed(&direct, &owner).await {
            assert!(matches!(error, StoreError::Ambiguous(_)), "{error:?}");
            found = Some((owner, token));
            break;
        }
    }
    let (owner, lost) = found.expect("a cut falls between commit and answer");

    let lapsed = async {
        while let Ok(Some(record)) = direct.store.dyn_peek(owner.key).await {
            if record.lapsed {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    within(E::lease() * 2 + ANSWER, "the lapse", lapsed).await;
    settled(&cut_off.store).await;
    let request = claim(&owner, &settings, not_after);
    match cut_off.store.dyn_claim(request).await {
        Ok(Claimed::Mine { token, rest, .. }) => assert_eq!((token, rest), (lost, Duration::ZERO)),
        other => panic!("an old nonce after its lapse: {other:?}"),
    }
    let next = Owner {
        nonce: nonce(),
        ..owner
    };
    match cut_off
        .store
        .dyn_claim(claim(&next, &settings, not_after))
        .await
    {
        Ok(Claimed::Granted(grant)) => assert!(grant.token > lost),
        other => panic!("a lapsed key: {other:?}"),
    }
    let request = claim(&owner, &settings, not_after);
    match cut_off.store.dyn_claim(request).await {
        Ok(Claimed::Ended | Claimed::Busy(_)) => {}
        other => panic!("a nonce that is over: {other:?}"),
    }
    let record = direct.store.dyn_peek(owner.key).await;
    let record = record.expect("it is answered").expect("it is held");
    assert_eq!((record.state, record.nonce), (State::Held, next.nonce));
}

/// The token granted to the owner, if one comes to be: the server may need a moment for a request whose
/// client is gone.
async fn committed(direct: &Party, owner: &Owner) -> Option<Token> {
    for _ in 0..30 {
        let record = direct.store.dyn_peek(owner.key).await;
        let record = record.expect("nothing is between the test and the server");
        if let Some(record) = record.filter(|record| record.nonce == owner.nonce) {
            return Some(record.token);
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    None
}

/// A keeper's connection is cut behind each request of a claim. Granted or not: no key stays taken.
pub async fn lost_answers_to_a_keeper<E: Engine>() {
    let engine = E::start().await;
    let relay = Relay::to(engine.address());
    let owner = Party::at::<E>(relay.address()).await;
    let rival = Party::at::<E>(engine.address()).await;
    let terms = long_terms();
    let mut refused = 0;
    for before in 0..6 {
        let key = key();
        relay.cut_after(before);
        match owner.try_take(key, &terms).await {
            Ok(Attempt::Granted(held)) => {
                assert_eq!(held.check(), Ok(()));
                let record = rival.store.dyn_peek(key).await;
                let record = record.expect("it is answered").expect("it is held");
                assert_eq!((record.token, record.nonce), (held.token(), held.nonce()));
            }
            Ok(other) => panic!("nobody else is here: {other:?}"),
            Err(_) => refused += 1,
        }
        relay.call_off();
        // Far sooner than its lease.
        drop(rival.take(key, &terms, ANSWER).await);
    }
    assert!(relay.requests() > 6, "the keeper went past the relay");
    println!("{refused} of 6 claims were refused");

    // No answer to any copy: the keeper gives up, and ends what was granted all the same.
    let mut granted_unheard = 0;
    for _ in 0..3 {
        let key = key();
        relay.set(Way::SwallowReplies);
        let asked = owner.keeper.claim(key, None, &terms, Token::ZERO);
        let mut asked = std::pin::pin!(within(ANSWER * 3, "a claim that nobody answers", asked));
        let mut held = false;
        let answer = loop {
            tokio::select! {
                answer = &mut asked => break answer,
                record = rival.store.dyn_peek(key) => {
                    let record = record.expect("it is answered");
                    held |= record.is_some_and(|record| record.state == State::Held);
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            }
        };
        let error = answer.expect_err("no answer came through");
        assert!(error.is_retryable(), "{error:?}");
        granted_unheard += usize::from(held);
        relay.set(Way::Pass);
        relay.cut();
        drop(rival.take(key, &terms, ANSWER).await);
    }
    assert!(
        granted_unheard > 0 || E::reads_first(),
        "no claim was granted unheard"
    );
}

/// Claims dropped at random instants, from before they were sent to after they were answered.
pub async fn dropped_claims<E: Engine>() {
    let engine = E::start().await;
    let relay = Relay::to(engine.address());
    let owner = Party::at::<E>(relay.address()).await;
    let rival = Party::at::<E>(engine.address()).await;
    let terms = long_terms();
    // So slow that a claim can be dropped while it is under way.
    let (requests, replies) = (Duration::from_millis(1), Duration::from_millis(1));
    relay.set(Way::Delay { requests, replies });
    let mut dropped = 0;
    for _ in 0..200 {
        let key = key();
        let patience = Duration::from_millis(6).mul_f64(OsEntropy.fraction());
        let asked = owner.keeper.claim(key, None, &terms, Token::ZERO);
        dropped += usize::from(tokio::time::timeout(patience, asked).await.is_err());
        // Far sooner than its lease.
        drop(rival.take(key, &terms, ANSWER).await);
    }
    assert!(dropped > 20, "few were dropped under way: {dropped}");
}

/// The server is there, and takes nobody: every beat of a third of a lease fails at once. The hold lives on under
/// the token it had.
pub async fn refused<E: Engine>() {
    let engine = E::start().await;
    let relay = Relay::to(engine.address());
    let owner = Party::at::<E>(relay.address()).await;
    let rival = Party::at::<E>(engine.address()).await;
    let (key, terms, guard) = (key(), terms::<E>(), Guard::default());
    let held = owner.take(key, &terms, ANSWER).await;
    beaten(&held).await;
    relay.set(Way::Refuse);
    relay.cut();
    tokio::time::sleep(E::lease() / 3).await;
    assert!(owner.store.dyn_peek(key).await.is_err(), "nobody is taken");
    relay.set(Way::Pass);
    // Two leases on: beats came through again, or it would be over.
    tokio::time::sleep(E::lease() * 2).await;
    assert_eq!(held.check(), Ok(()));
    match rival.try_take(key, &terms).await {
        Ok(Attempt::Busy(busy)) => assert_eq!(busy.token, held.token()),
        other => panic!("not held any more: {other:?}"),
    }
    assert!(guard.write_as(&held).await);
}

/// A lease that no test outlasts: what is free sooner was released.
fn long_terms() -> Terms {
    Terms::builder(Duration::from_secs(60))
        .build()
        .expect("a lease long enough")
}
