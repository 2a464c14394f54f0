//! One law per test; times are seconds on a clock that the test holds.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::*;
use crate::store::*;
use crate::{Fingerprint, Key, LapsePolicy};

const KEY: Key = Key::from_bytes([7; 32]);

fn at(seconds: u64) -> At {
    At {
        now: StoreTime::default().saturating_add(secs(seconds)),
        unix_ms: 1000 + seconds * 1000,
    }
}

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn nonce(n: u8) -> Nonce {
    Nonce::from_bytes([n; 16])
}

fn print(n: u8) -> Option<Fingerprint> {
    Some(Fingerprint::from_bytes([n; 32]))
}

fn body(text: &'static str) -> Value {
    Value::Kept(Bytes::from_static(text.as_bytes()))
}

/// Lease 10 s, unfinished keep 100 s, `not_after` 2 s after the call.
fn terms() -> Settings {
    let mut settings = Settings::new(secs(10));
    settings.unfinished_keep = secs(100);
    settings.label = Arc::from("test");
    settings
}

fn hold() -> Settings {
    let mut settings = terms();
    settings.on_lapse = LapsePolicy::Hold;
    settings
}

struct Ask<'a> {
    nonce: u8,
    print: u8,
    settings: &'a Settings,
    floor: Token,
    seconds: u64,
}

impl Ask<'_> {
    fn of(self, record: &mut Record) -> Claimed {
        let request = ClaimRequest {
            key: KEY,
            nonce: nonce(self.nonce),
            fingerprint: print(self.print),
            settings: self.settings,
            floor: self.floor,
            not_after: at(self.seconds + 2).now,
        };
        let share = |settings: &Settings| Arc::new(settings.clone());
        record.claim(&request, at(self.seconds), share).unwrap()
    }
}

fn claim(record: &mut Record, n: u8, settings: &Settings, seconds: u64) -> Claimed {
    claim_as(record, n, 1, settings, seconds)
}

fn claim_as(record: &mut Record, n: u8, print: u8, settings: &Settings, seconds: u64) -> Claimed {
    Ask {
        nonce: n,
        print,
        settings,
        floor: Token::ZERO,
        seconds,
    }
    .of(record)
}

#[track_caller]
fn granted(claimed: Claimed) -> Grant {
    match claimed {
        Claimed::Granted(grant) => grant,
        other => panic!("not granted: {other:?}"),
    }
}

fn owner(n: u8, token: Token) -> Owner {
    Owner {
        key: KEY,
        nonce: nonce(n),
        token,
    }
}

fn renew(record: &mut Record, n: u8, token: Token, progress: u64, seconds: u64) -> Renewed {
    let beat = Beat {
        owner: owner(n, token),
        progress,
    };
    record.renew(&beat, at(seconds))
}

fn finish(record: &mut Record, n: u8, token: Token, text: &'static str, seconds: u64) -> Finish {
    let mut request = FinishRequest {
        owner: owner(n, token),
        value: body(text),
        keep: secs(1000),
    };
    record.finish(&mut request, at(seconds))
}

fn release(record: &mut Record, n: u8, token: Option<Token>, seconds: u64) -> Release {
    let request = ReleaseRequest {
        key: KEY,
        nonce: nonce(n),
        token,
        not_after: at(seconds + 2).now,
    };
    record.release(&request, at(seconds))
}

fn held(settings: &Settings) -> (Record, Token) {
    let mut record = Record::vacant();
    let grant = granted(claim(&mut record, 1, settings, 0));
    (record, grant.token)
}

fn state(record: &Record, seconds: u64) -> State {
    record.peek(KEY, at(seconds)).state
}

// ---- claim

#[test]
fn a_free_key_is_granted_once() {
    let mut record = Record::vacant();
    let grant = granted(claim(&mut record, 1, &terms(), 0));
    assert_eq!(
        (grant.attempt, grant.lease, &grant.took_over),
        (1, secs(10), &None)
    );
    assert_eq!(
        claim_as(&mut record, 2, 9, &terms(), 4),
        Claimed::Busy(Busy {
            token: grant.token,
            since: secs(4),
            expires_in: secs(6),
            same_fingerprint: false,
            label: Arc::from("test"),
        })
    );
}

#[test]
fn the_same_nonce_again_grants_nothing() {
    let (mut record, token) = held(&terms());
    for (seconds, rest) in [(4, 6), (12, 0)] {
        let mine = claim(&mut record, 1, &terms(), seconds);
        assert_eq!(
            mine,
            Claimed::Mine {
                token,
                rest: secs(rest),
                attempt: 1,
            }
        );
    }
    granted(claim(&mut record, 2, &terms(), 12));
    let mine = claim(&mut record, 2, &terms(), 12);
    assert!(matches!(mine, Claimed::Mine { attempt: 2, .. }), "{mine:?}");
}

#[test]
fn a_nonce_whose_hold_is_over_is_never_granted_again() {
    let (mut record, token) = held(&terms());
    assert_eq!(release(&mut record, 1, Some(token), 1), Release::Released);
    assert_eq!(claim(&mut record, 1, &terms(), 1), Claimed::Ended);
    granted(claim(&mut record, 2, &terms(), 1));
    assert_eq!(
        claim(&mut record, 1, &terms(), 2),
        Claimed::Ended,
        "beside a live holder"
    );
    let (mut record, token) = held(&terms());
    let _ = finish(&mut record, 1, token, "a", 1);
    assert_eq!(claim(&mut record, 1, &terms(), 2), Claimed::Ended);
}

#[test]
fn a_claim_past_its_not_after_changes_nothing() {
    let mut record = Record::vacant();
    let settings = terms();
    let request = ClaimRequest {
        key: KEY,
        nonce: nonce(1),
        fingerprint: None,
        settings: &settings,
        floor: Token::ZERO,
        not_after: at(4).now,
    };
    let share = |settings: &Settings| Arc::new(settings.clone());
    assert_eq!(
        record.claim(&request, at(5), share).unwrap(),
        Claimed::TooLate
    );
    assert!(record.is_vacant());
    granted(record.claim(&request, at(4), share).unwrap());
}

#[test]
fn tokens_rise_above_the_last_one_the_floor_and_the_clock() {
    let settings = terms();
    let mut record = Record::vacant();
    let floor = Token::new(1 << 40).unwrap();
    let ask = |n, floor, seconds| Ask {
        nonce: n,
        print: 1,
        settings: &settings,
        floor,
        seconds,
    };
    let first = granted(ask(1, floor, 0).of(&mut record)).token;
    assert!(first > floor);
    release(&mut record, 1, None, 0);
    let second = granted(ask(2, Token::ZERO, 0).of(&mut record)).token;
    assert!(second > first);
}

#[test]
fn no_token_is_given_twice_at_the_end_of_their_range() {
    let mut record = Record::vacant();
    let settings = terms();
    let request = ClaimRequest {
        key: KEY,
        nonce: nonce(1),
        fingerprint: None,
        settings: &settings,
        floor: Token::MAX,
        not_after: StoreTime::NEVER,
    };
    let error = record.claim(&request, at(0), |s| Arc::new(s.clone()));
    assert!(matches!(error, Err(StoreError::Unsupported(_))));
    assert!(record.is_vacant());
}

#[test]
fn a_takeover_waits_for_lapse_and_cooling_and_tells_of_the_one_before() {
    let mut settings = terms();
    settings.cooling = secs(5);
    let (mut record, token) = held(&settings);
    renew(&mut record, 1, token, 42, 3);
    // Lapses at 13, cools until 18, by the record's terms: the asker has none of it.
    let asker = terms();
    assert!(matches!(
        claim(&mut record, 2, &asker, 12),
        Claimed::Busy(_)
    ));
    assert_eq!(
        claim_as(&mut record, 2, 9, &asker, 15),
        Claimed::Cooling(Cooling {
            remaining: secs(3),
            same_fingerprint: false
        })
    );
    let grant = granted(claim(&mut record, 2, &asker, 18));
    assert!(grant.token > token);
    assert_eq!(grant.attempt, 2);
    assert_eq!(
        grant.took_over,
        Some(TookOver {
            token,
            since: secs(18),
            last_beat: secs(15),
            progress: 42,
        })
    );
    assert_eq!(finish(&mut record, 1, token, "late", 19), Finish::Lost);
}

#[test]
fn a_lapsed_record_binds_its_fingerprint_until_its_unfinished_keep_has_passed() {
    let (mut record, token) = held(&terms());
    for seconds in [10, 109] {
        let Claimed::Busy(busy) = claim_as(&mut record, 2, 9, &terms(), seconds) else {
            panic!("not busy");
        };
        assert_eq!(
            (busy.expires_in, busy.same_fingerprint),
            (Duration::ZERO, false)
        );
    }
    assert_eq!(state(&record, 109), State::Held);
    let mut late = record.clone();
    assert_eq!(
        finish(&mut late, 1, token, "in time", 109),
        Finish::Finished
    );
    assert_eq!(finish(&mut record, 1, token, "too late", 110), Finish::Lost);
    assert_eq!(state(&record, 110), State::Free);
    let grant = granted(claim_as(&mut record, 2, 9, &terms(), 110));
    assert_eq!((grant.attempt, grant.took_over), (1, None));
}

#[test]
fn the_records_own_policy_judges_it() {
    let (mut record, token) = held(&hold());
    assert_eq!(
        claim(&mut record, 2, &terms(), 10),
        Claimed::Unknown(Unknown {
            token,
            same_fingerprint: true
        })
    );
    let (mut record, _) = held(&terms());
    granted(claim(&mut record, 2, &hold(), 10));
}

#[test]
fn a_key_stays_taken_for_its_min_hold_however_the_hold_ends() {
    let mut settings = terms();
    settings.min_hold = secs(30);
    let cooling = |remaining| {
        Claimed::Cooling(Cooling {
            remaining: secs(remaining),
            same_fingerprint: true,
        })
    };
    let (mut released, token) = held(&settings);
    let mut finished = released.clone();
    let mut lapsed = released.clone();
    let mut broken = released.clone();

    release(&mut released, 1, Some(token), 5);
    assert_eq!(claim_as(&mut released, 2, 9, &terms(), 5), cooling(25));
    granted(claim(&mut released, 2, &terms(), 30));

    let mut request = FinishRequest {
        owner: owner(1, token),
        value: Value::Tombstone,
        keep: Duration::ZERO,
    };
    let _ = finished.finish(&mut request, at(5));
    assert!(matches!(
        claim(&mut finished, 2, &terms(), 29),
        Claimed::Done(_)
    ));
    granted(claim(&mut finished, 2, &terms(), 30));

    assert_eq!(claim(&mut lapsed, 2, &terms(), 12), cooling(18));
    granted(claim(&mut lapsed, 2, &terms(), 30));

    broken.break_claim(token, at(5)).unwrap();
    assert_eq!(claim(&mut broken, 2, &terms(), 12), cooling(18));
}

#[test]
fn a_release_does_not_cool_and_a_break_does() {
    let mut settings = terms();
    settings.cooling = secs(5);
    let (mut record, token) = held(&settings);
    let mut broken = record.clone();
    release(&mut record, 1, Some(token), 3);
    granted(claim(&mut record, 2, &terms(), 3));
    broken.break_claim(token, at(3)).unwrap();
    assert!(matches!(
        claim(&mut broken, 2, &terms(), 7),
        Claimed::Cooling(_)
    ));
    granted(claim(&mut broken, 2, &terms(), 8));
}

// ---- renew, mark

#[test]
fn a_beat_extends_a_live_lease_and_never_shortens_one() {
    let (mut record, token) = held(&terms());
    let renewed = |rest| Renewed::Renewed {
        rest: secs(rest),
        revoke_asked: false,
    };
    assert_eq!(renew(&mut record, 1, token, 5, 4), renewed(10));
    // A beat of an earlier instant, delivered late.
    assert_eq!(renew(&mut record, 1, token, 3, 3), renewed(11));
    let view = record.peek(KEY, at(5));
    assert_eq!((view.progress, view.expires_in), (5, secs(9)));
    assert_eq!(
        renew(&mut record, 1, token, 6, 14),
        Renewed::Lost(LostReason::Lapsed)
    );
}

#[test]
fn a_lost_beat_says_why() {
    let (mut record, token) = held(&terms());
    let stranger = renew(&mut record, 2, token, 0, 1);
    assert_eq!(stranger, Renewed::Lost(LostReason::Superseded));
    let mut broken = record.clone();
    broken.break_claim(token, at(1)).unwrap();
    let beat = renew(&mut broken, 1, token, 0, 2);
    assert_eq!(beat, Renewed::Lost(LostReason::Broken));
    granted(claim(&mut record, 2, &terms(), 10));
    let beat = renew(&mut record, 1, token, 0, 11);
    assert_eq!(beat, Renewed::Lost(LostReason::Superseded));
    let mut vacant = Record::vacant();
    let beat = renew(&mut vacant, 1, token, 0, 11);
    assert_eq!(beat, Renewed::Lost(LostReason::Superseded));
    assert!(vacant.is_vacant());
}

#[test]
fn a_marked_claim_becomes_unknown_by_lapse_and_by_release() {
    let (mut record, token) = held(&terms());
    assert_eq!(record.mark(owner(1, token), at(1)), Marked::Marked);
    assert_eq!(record.mark(owner(1, token), at(2)), Marked::Marked);
    let mut released = record.clone();

    assert!(matches!(
        claim(&mut record, 2, &terms(), 10),
        Claimed::Unknown(_)
    ));
    assert_eq!(release(&mut record, 1, Some(token), 11), Release::Lost);
    assert_eq!(finish(&mut record, 1, token, "a", 12), Finish::Finished);

    assert_eq!(release(&mut released, 1, Some(token), 3), Release::Released);
    assert_eq!(state(&released, 102), State::Unknown);
    assert_eq!(finish(&mut released, 1, token, "a", 12), Finish::Lost);
    assert_eq!(state(&released, 103), State::Free);
}

#[test]
fn a_mark_needs_a_live_hold() {
    let (mut record, token) = held(&terms());
    let marked = record.mark(owner(1, token), at(10));
    assert_eq!(marked, Marked::Lost(LostReason::Lapsed));
    granted(claim(&mut record, 2, &terms(), 10));
}

// ---- finish

#[test]
fn the_token_decides_a_finish_and_not_time() {
    for settings in [terms(), hold()] {
        let (mut record, token) = held(&settings);
        let forged = Token::new(token.get() + 1).unwrap();
        assert_eq!(finish(&mut record, 1, forged, "x", 1), Finish::Lost);
        assert_eq!(finish(&mut record, 2, token, "x", 1), Finish::Lost);
        assert_eq!(finish(&mut record, 1, token, "a", 60), Finish::Finished);
    }
}

#[test]
fn the_first_of_two_finishes_wins() {
    let (mut record, token) = held(&terms());
    assert_eq!(finish(&mut record, 1, token, "first", 1), Finish::Finished);
    assert_eq!(finish(&mut record, 1, token, "second", 2), Finish::Finished);
    assert_eq!(finish(&mut record, 2, token, "third", 2), Finish::Lost);
    let Claimed::Done(done) = claim_as(&mut record, 2, 9, &terms(), 3) else {
        panic!("not done");
    };
    assert_eq!(
        done,
        DoneRecord {
            token,
            same_fingerprint: false,
            value: body("first"),
            finished: secs(2),
            keep_left: secs(998),
        }
    );
}

#[test]
fn a_finished_key_is_claimable_after_its_keep() {
    let (mut record, token) = held(&terms());
    let _ = finish(&mut record, 1, token, "a", 1);
    assert!(matches!(
        claim(&mut record, 2, &terms(), 1000),
        Claimed::Done(_)
    ));
    let grant = granted(claim_as(&mut record, 2, 9, &terms(), 1001));
    assert_eq!(grant.attempt, 1);
    assert!(grant.token > token);
}

// ---- release

#[test]
fn a_release_never_touches_what_is_done() {
    let (mut record, token) = held(&terms());
    let _ = finish(&mut record, 1, token, "a", 1);
    assert_eq!(release(&mut record, 1, Some(token), 2), Release::Lost);
    assert_eq!(release(&mut record, 1, None, 2), Release::Lost);
    assert_eq!(state(&record, 3), State::Done);
}

#[test]
fn a_release_on_a_foreign_hold_only_refuses_its_own_nonce() {
    let (mut record, token) = held(&terms());
    assert_eq!(release(&mut record, 2, None, 1), Release::Already);
    assert_eq!(release(&mut record, 2, Some(token), 1), Release::Already);
    assert_eq!(state(&record, 1), State::Held);
    release(&mut record, 1, None, 1);
    assert_eq!(claim(&mut record, 2, &terms(), 2), Claimed::Ended);
    granted(claim(&mut record, 3, &terms(), 2));
}

#[test]
fn a_release_before_its_claim_refuses_it() {
    let mut record = Record::vacant();
    assert_eq!(release(&mut record, 1, None, 0), Release::Already);
    assert_eq!(claim(&mut record, 1, &terms(), 1), Claimed::Ended);
    granted(claim(&mut record, 2, &terms(), 1));
}

#[test]
fn two_releases_are_as_one() {
    let (mut record, token) = held(&terms());
    assert_eq!(release(&mut record, 1, Some(token), 1), Release::Released);
    assert_eq!(release(&mut record, 1, Some(token), 1), Release::Already);
    granted(claim(&mut record, 2, &terms(), 1));
    assert_eq!(release(&mut record, 1, Some(token), 1), Release::Already);
    assert_eq!(state(&record, 1), State::Held);
}

// ---- operator

#[test]
fn resolve_settles_only_an_unknown_outcome_under_the_expected_token() {
    let (mut record, token) = held(&hold());
    let conflict = Resolved::Conflict { token };
    let absent = || Resolution::Absent;
    assert_eq!(record.resolve(token, absent(), at(9)).unwrap(), conflict);
    let other = Token::new(token.get() + 1).unwrap();
    assert_eq!(record.resolve(other, absent(), at(10)).unwrap(), conflict);
    let mut done = record.clone();

    let Resolved::Resolved { token: raised } = record.resolve(token, absent(), at(10)).unwrap()
    else {
        panic!("not resolved");
    };
    assert!(raised > token);
    assert_eq!(finish(&mut record, 1, token, "a", 11), Finish::Lost);
    assert!(granted(claim_as(&mut record, 2, 9, &terms(), 11)).token > raised);

    let resolution = Resolution::Done(body("by hand"), secs(50));
    done.resolve(token, resolution, at(10)).unwrap();
    assert_eq!(finish(&mut done, 1, token, "a", 11), Finish::Lost);
    let Claimed::Done(found) = claim(&mut done, 2, &terms(), 11) else {
        panic!("not done");
    };
    assert_eq!(
        (found.value, found.keep_left, found.same_fingerprint),
        (body("by hand"), secs(49), true)
    );
    assert_eq!(
        Record::vacant()
            .resolve(token, Resolution::Absent, at(0))
            .unwrap(),
        Resolved::Absent
    );
}

#[test]
fn break_ends_a_hold_under_the_expected_token_and_raises_it() {
    let (record, token) = held(&terms());
    let other = Token::new(token.get() + 1).unwrap();
    let mut done = record.clone();
    let _ = finish(&mut done, 1, token, "a", 1);
    assert_eq!(
        done.break_claim(token, at(2)).unwrap(),
        Broken::Conflict { token }
    );

    for (settings, marked, expected) in [
        (terms(), false, State::Free),
        (terms(), true, State::Unknown),
        (hold(), false, State::Unknown),
    ] {
        let (mut record, token) = held(&settings);
        if marked {
            let _ = record.mark(owner(1, token), at(1));
        }
        assert_eq!(
            record.break_claim(other, at(1)).unwrap(),
            Broken::Conflict { token }
        );
        let Broken::Broken { token: raised } = record.break_claim(token, at(1)).unwrap() else {
            panic!("not broken");
        };
        assert!(raised > token);
        assert_eq!(state(&record, 2), expected);
        assert_eq!(finish(&mut record, 1, token, "a", 2), Finish::Lost);
        assert_eq!(claim(&mut record, 1, &terms(), 2), Claimed::Ended);
        assert_eq!(
            renew(&mut record, 1, token, 0, 2),
            Renewed::Lost(LostReason::Broken)
        );
    }
    assert_eq!(
        Record::vacant().break_claim(token, at(0)).unwrap(),
        Broken::Absent
    );
}

#[test]
fn the_owner_sees_at_its_next_beat_that_it_is_asked_to_stop() {
    let (mut record, token) = held(&terms());
    let other = Token::new(token.get() + 1).unwrap();
    assert!(!record.ask_revoke(other, at(1)));
    assert!(record.ask_revoke(token, at(1)));
    assert_eq!(
        renew(&mut record, 1, token, 0, 2),
        Renewed::Renewed {
            rest: secs(10),
            revoke_asked: true
        }
    );
    assert!(!record.ask_revoke(token, at(12)), "it has lapsed");
}

// ---- watch, peek

#[test]
fn a_watch_tells_what_became_of_the_hold() {
    let over = |record: &Record, token, seconds| match record.watch(token, at(seconds)) {
        Watching::Over(watched) => Some(watched),
        Watching::Until(_) => None,
    };
    let (mut record, token) = held(&terms());
    assert!(matches!(
        record.watch(token, at(1)),
        Watching::Until(until) if until == at(10).now
    ));
    assert_eq!(over(&record, token, 10), Some(Watched::Ended));
    let mut done = record.clone();
    let _ = finish(&mut done, 1, token, "a", 1);
    assert!(matches!(
        over(&done, token, 2),
        Some(Watched::Done(found)) if found.value == body("a") && found.same_fingerprint
    ));
    let next = granted(claim(&mut record, 2, &terms(), 10)).token;
    assert_eq!(
        over(&record, token, 11),
        Some(Watched::Superseded { token: next })
    );
    release(&mut record, 2, None, 11);
    assert_eq!(over(&record, next, 11), Some(Watched::Ended));
    assert_eq!(over(&Record::vacant(), token, 0), Some(Watched::Ended));
}

#[test]
fn a_peek_shows_a_lapsed_hold_as_what_the_lapse_means() {
    let (mut record, token) = held(&hold());
    renew(&mut record, 1, token, 7, 2);
    let view = record.peek(KEY, at(20));
    assert_eq!((view.state, view.lapsed), (State::Unknown, true));
    assert_eq!((view.since, view.expires_in), (secs(8), secs(92)));
    assert_eq!(
        (view.last_beat, view.progress, view.token),
        (secs(18), 7, token)
    );
    let (record, _) = held(&terms());
    let view = record.peek(KEY, at(20));
    assert_eq!((view.state, view.lapsed), (State::Held, true));
    assert_eq!(view.expires_in, Duration::ZERO);
}

// ---- forgetting

#[test]
fn a_free_record_is_forgotten_once_nothing_is_under_way() {
    let (mut record, token) = held(&terms());
    assert!(!record.is_forgettable(at(9)));
    release(&mut record, 1, Some(token), 3);
    assert!(!record.is_forgettable(at(5)));
    let due = record.due_at();
    assert!(due > at(5).now && due < at(6).now);
    assert!(record.is_forgettable(at(6)));
}

#[test]
fn nothing_live_is_ever_forgettable() {
    for settings in [terms(), hold()] {
        let (record, _) = held(&settings);
        assert!((0..110).all(|s| !record.is_forgettable(at(s))));
        assert!(record.is_forgettable(at(110)));
        assert_eq!(record.due_at(), at(110).now);
    }
}

#[test]
fn a_record_whose_token_is_ahead_of_the_clock_is_not_forgotten() {
    let settings = terms();
    let mut record = Record::vacant();
    let floor = Token::new(60_000 * 1024).unwrap();
    let ask = Ask {
        nonce: 1,
        print: 1,
        settings: &settings,
        floor,
        seconds: 0,
    };
    granted(ask.of(&mut record));
    release(&mut record, 1, None, 0);
    assert!(!record.is_forgettable(at(30)));
    assert_eq!(
        record.token_ahead(at(30).unix_ms),
        secs(29) + Duration::from_millis(1)
    );
    assert!(record.is_forgettable(at(60)));
}

#[test]
fn settling_changes_no_answer() {
    let (mut record, token) = held(&terms());
    let _ = finish(&mut record, 1, token, "a", 1);
    let before = record.peek(KEY, at(1002));
    assert!(record.heap_bytes() > 0);
    record.settle(at(1000).now);
    assert_eq!(state(&record, 1000), State::Done);
    record.settle(at(1002).now);
    assert_eq!(record.heap_bytes(), 0);
    assert_eq!(record.peek(KEY, at(1002)), before);
    assert_eq!(claim(&mut record, 1, &terms(), 1002), Claimed::Ended);
}
