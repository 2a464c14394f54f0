use std::time::Duration;

use futures_util::FutureExt;
use tower_claim::testing::{FaultStore, Operation};
use tower_claim::{MemoryStore, Namespace, Use};

use super::*;

fn key(part: &str) -> Key {
    let key = Key::builder(Use::Idempotency, &Namespace::default());
    key.part(part).build()
}

fn print(of: u8) -> Fingerprint {
    Fingerprint::builder().part(Some(&[of])).build()
}

/// A crowd over a store that nobody holds a key in: every watch is over at once.
struct Place {
    store: FaultStore<MemoryStore>,
    followers: Followers,
}

impl Place {
    fn new(in_all: usize, per_key: usize, bytes: usize) -> Self {
        let store = FaultStore::new(MemoryStore::new());
        let keeper = Keeper::new(store.clone());
        let limits = WaitLimits {
            in_all,
            per_key,
            bytes,
        };
        Self {
            store,
            followers: Followers::new(limits, &keeper, None),
        }
    }

    fn follow(&self, part: &str, token: u64, of: u8, bytes: usize) -> Option<Follower> {
        let token = Token::new(token).unwrap();
        self.followers
            .follow(key(part), token, Some(print(of)), bytes)
    }

    fn watches(&self) -> u64 {
        self.store.faults().calls().of(Operation::Watch)
    }

    fn counts(&self) -> (usize, usize, usize) {
        let state = self.followers.0.lock();
        (state.crowds.len(), state.followers, state.bytes)
    }
}

fn told(of: u8) -> Told {
    Told {
        print: print(of),
        sent: Moment::since_start(Duration::ZERO),
        attempt: Err(StoreError::Full),
    }
}

fn next(follower: &mut Follower) -> Option<Next> {
    follower.next().now_or_never()
}

#[track_caller]
fn turn(follower: &mut Follower) -> Turn {
    match next(follower) {
        Some(Next::Turn(turn)) => turn,
        _ => panic!("it is not its turn"),
    }
}

#[test]
fn who_comes_after_a_watch_is_over_looks_again() {
    let place = Place::new(9, 9, 9);
    let follow = |token| place.follow("k", token, 1, 0).unwrap();
    let (first, second) = (follow(1), follow(1));
    assert!(first.over().now_or_never().is_some());
    let late = follow(2);
    assert!(late.over().now_or_never().is_some());
    assert_eq!(place.watches(), 2);
    assert!(second.over().now_or_never().is_some());
    assert_eq!(place.watches(), 2, "it was there for the first");
    assert_eq!(place.counts(), (0, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_hold_whose_watch_ends_while_it_goes_on_is_watched_again_after_a_pause() {
    let place = Place::new(9, 9, 9);
    let follow = || place.follow("k", 1, 1, 0).unwrap();
    let (first, stays) = (follow(), follow());
    assert!(first.over().now_or_never().is_some());
    let again = follow();
    assert!(again.over().now_or_never().is_none());
    assert_eq!(place.watches(), 1);
    drop(stays);
}

#[test]
fn the_last_follower_takes_the_watch_along() {
    let place = Place::new(2, 9, 9);
    let follow = |part| place.follow(part, 1, 1, 1);
    let (first, second) = (follow("k").unwrap(), follow("k").unwrap());
    assert_eq!(place.counts(), (1, 2, 2));
    assert!(follow("other").is_none(), "full");
    drop(first);
    assert_eq!(place.counts(), (1, 1, 1));
    assert!(second.over().now_or_never().is_some(), "nobody holds it");
    assert_eq!(place.counts(), (0, 0, 0));
}

#[test]
fn one_key_does_not_take_the_places_of_all() {
    let place = Place::new(9, 2, 9);
    let follow = |part| place.follow(part, 1, 1, 0);
    let crowd = (follow("hot"), follow("hot"));
    assert!(crowd.0.is_some() && crowd.1.is_some());
    assert!(follow("hot").is_none());
    let mut moves = follow("other").unwrap();
    assert!(!moves.move_to(key("hot")), "nor by a move");
    drop(crowd);
    assert!(follow("hot").is_some());
    assert!(moves.move_to(key("hot")));
    drop(moves);
    assert_eq!(place.counts(), (0, 0, 0));
}

#[test]
fn the_bodies_of_those_that_wait_are_bounded_together() {
    let place = Place::new(9, 9, 100);
    let follow = |part, bytes| place.follow(part, 1, 1, bytes);
    let large = follow("a", 99).unwrap();
    assert!(follow("b", 2).is_none());
    let small = follow("b", 1).unwrap();
    assert!(follow("c", usize::MAX).is_none(), "no overflow");
    drop(large);
    assert!(follow("b", 99).is_some());
    drop(small);
    assert_eq!(place.counts(), (0, 0, 0));
}

#[test]
fn one_key_has_one_watch_and_it_is_of_the_newest_hold() {
    let place = Place::new(9, 9, 9);
    let follow = |token| place.follow("k", token, 1, 0).unwrap();
    let (old, new, late) = (follow(1), follow(2), follow(1));
    assert_eq!(place.counts(), (1, 3, 0));
    assert!(new.over().now_or_never().is_some());
    assert!(late.over().now_or_never().is_some());
    assert_eq!(
        place.watches(),
        1,
        "told late of an older hold: the same watch"
    );
    assert!(old.over().now_or_never().is_some());
}

#[test]
fn one_asks_at_a_time_and_the_others_follow_what_it_began() {
    let place = Place::new(9, 9, 9);
    let mut crowd: Vec<_> = (0..3)
        .map(|_| place.follow("k", 1, 1, 0).unwrap())
        .collect();
    let mut asks = crowd.remove(0);
    let turn = turn(&mut asks);
    assert!(crowd.iter_mut().all(|waits| next(waits).is_none()));
    // It was granted the key: it leaves, and the others follow.
    asks.follows(Token::new(5).unwrap());
    drop((turn, asks));
    assert_eq!(place.watches(), 1);
    // That hold is over as well: another one's turn.
    let mut second = crowd.remove(0);
    assert!(matches!(next(&mut second), Some(Next::Turn(_))));
    assert_eq!(place.watches(), 2);
}

#[test]
fn a_turn_that_is_dropped_without_a_word_is_anothers() {
    let place = Place::new(9, 9, 9);
    let follow = || place.follow("k", 1, 1, 0).unwrap();
    let (mut gone, mut waits) = (follow(), follow());
    let turn = turn(&mut gone);
    assert!(next(&mut waits).is_none());
    drop((gone, turn));
    assert!(matches!(next(&mut waits), Some(Next::Turn(_))));
}

#[test]
fn what_one_was_told_all_hear_that_have_its_payload() {
    let place = Place::new(9, 9, 9);
    let follow = |of| place.follow("k", 1, of, 0).unwrap();
    let (mut asks, mut like, mut other) = (follow(1), follow(1), follow(2));
    let turn = turn(&mut asks);
    asks.tell(turn, told(1));
    assert!(matches!(next(&mut like), Some(Next::Told(_))));
    assert!(matches!(next(&mut other), Some(Next::Turn(_))), "it asks");
    assert_eq!(place.watches(), 1);
}

/// Who comes after what was told is not told it: it may be over by now.
#[test]
fn what_was_told_is_not_for_those_that_come_later() {
    let place = Place::new(9, 9, 9);
    let follow = |token| place.follow("k", token, 1, 0).unwrap();
    let (mut asks, _stays) = (follow(1), follow(1));
    let turn = turn(&mut asks);
    asks.tell(turn, told(1));
    let mut late = follow(2);
    assert!(!matches!(next(&mut late), Some(Next::Told(_))));
    assert_eq!(place.watches(), 2);
}

/// The hold that a crowd was led to by one of its own is of its payload; any other's may not be.
#[tokio::test]
async fn the_outcome_of_a_hold_is_the_answer_for_its_own_payload_only() {
    let place = Place::new(9, 9, 9);
    let store = &place.store;
    let keeper = Keeper::new(store.clone());
    let terms = tower_claim::Terms::builder(Duration::from_secs(30));
    let terms = terms.build().unwrap();
    let granted = keeper.claim(key("k"), Some(print(1)), &terms, Token::ZERO);
    let Ok(Attempt::Granted(claim)) = granted.await else {
        panic!("nobody holds it");
    };
    // All are told of a hold before.
    let follow = |of| place.follow("k", 1, of, 0).unwrap();
    let (mut asks, mut like, mut other) = (follow(1), follow(1), follow(2));
    let turn = turn(&mut asks);
    asks.follows(claim.token());
    drop(turn);
    let value = tower_claim::store::Value::Kept("out".into());
    let _ = claim.finish(value, Duration::from_secs(60)).await;
    assert!(matches!(next(&mut asks), Some(Next::Done(_))));
    assert!(matches!(next(&mut like), Some(Next::Done(_))));
    assert!(
        matches!(next(&mut other), Some(Next::Turn(_))),
        "its claim tells"
    );
}
