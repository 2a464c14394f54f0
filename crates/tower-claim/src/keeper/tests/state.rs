//! One hold as its owner sees it, without clock, store and task.

use std::time::Duration;

use super::super::state::*;
use super::super::timing::Jitter;
use super::super::{Loss, Renewal, Terms, TermsBuilder};
use crate::store::{LostReason, Renewed};
use crate::{LapsePolicy, Moment};

const MS: Duration = Duration::from_millis(1);
const LEASE: Duration = Duration::from_millis(1000);

fn at(ms: u32) -> Moment {
    Moment::since_start(ms * MS)
}

fn hold(of: impl FnOnce(TermsBuilder) -> TermsBuilder) -> HoldState {
    let terms = of(Terms::builder(LEASE)).build().unwrap();
    HoldState::granted(&terms, terms.timing(), at(0), LEASE, Jitter::new(1))
}

fn renewed(rest: Duration) -> Beaten {
    Beaten::Renewed {
        rest,
        revoke_asked: false,
    }
}

#[test]
fn the_owner_stops_believing_at_the_stop_point_without_being_told() {
    let mut h = hold(|t| t);
    assert_eq!(h.check(at(939)), Ok(()));
    assert_eq!(h.check(at(940)), Err(Loss::Expired));
    assert_eq!(h.check(at(0)), Err(Loss::Expired), "once lost is lost");
}

#[test]
fn a_renewal_moves_the_stop_point_and_never_back() {
    let mut h = hold(|t| t);
    assert_eq!(h.begin_beat(at(300)), Some(0));
    h.end_beat(at(300), renewed(LEASE));
    assert_eq!(h.check(at(1239)), Ok(()));
    h.begin_beat(at(600));
    h.end_beat(at(600), renewed(10 * MS));
    assert_eq!(h.check(at(1239)), Ok(()), "a short answer shortens nothing");
    assert_eq!(h.check(at(1240)), Err(Loss::Expired));
}

#[test]
fn a_beat_in_doubt_is_retried_and_the_loss_names_the_outage() {
    let mut h = hold(|t| t);
    h.begin_beat(at(300));
    let Next::After(retry) = h.end_beat(at(300), Beaten::Doubt) else {
        panic!("given up after one beat");
    };
    assert!(retry < LEASE / 12, "{retry:?}");
    assert_eq!(h.check(at(939)), Ok(()));
    assert_eq!(h.check(at(940)), Err(Loss::StoreUnreachable));
}

#[test]
fn superseded_and_broken_end_every_hold_at_once() {
    for policy in [LapsePolicy::TakeOver, LapsePolicy::Hold] {
        for (reason, loss) in [
            (LostReason::Superseded, Loss::Stolen),
            (LostReason::Broken, Loss::Broken),
        ] {
            let mut h = hold(|t| t.on_lapse(policy));
            h.begin_beat(at(300));
            assert_eq!(h.end_beat(at(300), Beaten::Lost(reason)), Next::Never);
            assert_eq!(h.check(at(301)), Err(loss), "{policy:?} {reason:?}");
        }
    }
}

#[test]
fn a_lapse_ends_a_hold_only_where_another_may_take_over() {
    let lapsed = Beaten::Lost(LostReason::Lapsed);

    let mut h = hold(|t| t);
    h.begin_beat(at(300));
    assert_eq!(h.end_beat(at(300), lapsed), Next::Never);
    assert_eq!(h.check(at(301)), Err(Loss::Expired));

    for mut h in [hold(|t| t.on_lapse(LapsePolicy::Hold)), {
        let mut h = hold(|t| t);
        h.told_marked().unwrap();
        h
    }] {
        h.begin_beat(at(300));
        assert_ne!(h.end_beat(at(300), lapsed), Next::Never, "keeps asking");
        assert_eq!(h.check(at(5000)), Ok(()), "works on past its lease");
    }
}

#[test]
fn a_hold_that_nobody_takes_over_ends_with_its_unfinished_keep() {
    let mut h = hold(|t| t.on_lapse(LapsePolicy::Hold).unfinished_keep(10_000 * MS));
    assert_eq!(h.check(at(940 + 9_899)), Ok(()));
    assert_eq!(h.check(at(940 + 9_900)), Err(Loss::Expired));
}

#[test]
fn max_hold_ends_every_hold() {
    for policy in [LapsePolicy::TakeOver, LapsePolicy::Hold] {
        let mut h = hold(|t| t.max_hold(2 * LEASE).on_lapse(policy));
        for beat in [300, 600, 900, 1200, 1500, 1800] {
            assert_eq!(h.begin_beat(at(beat)), Some(0));
            h.end_beat(at(beat), renewed(LEASE));
        }
        assert_eq!(h.check(at(1999)), Ok(()), "{policy:?}");
        assert_eq!(h.begin_beat(at(2000)), None, "{policy:?}");
        assert_eq!(h.check(at(2000)), Err(Loss::Expired), "{policy:?}");
    }
}

#[test]
fn a_job_that_does_not_move_is_not_renewed() {
    let mut h = hold(|t| {
        t.renewal(Renewal::Progress {
            stall_after: 2 * LEASE,
        })
    });
    h.moved(at(100), Some(7));
    for beat in [300, 900, 1500, 2099] {
        assert_eq!(h.begin_beat(at(beat)), Some(7));
        h.end_beat(at(beat), renewed(LEASE));
    }
    assert_eq!(h.begin_beat(at(2100)), None);
    assert_eq!(h.check(at(2100)), Err(Loss::Stalled));
}

#[test]
fn a_beat_that_returns_after_the_end_changes_nothing() {
    let mut h = hold(|t| t);
    h.begin_beat(at(300));
    h.phase = Phase::Releasing;
    assert_eq!(h.check(at(301)), Err(Loss::Ended));
    assert_eq!(h.end_beat(at(300), renewed(LEASE)), Next::Never);
    assert_eq!(h.begin_beat(at(600)), None);
}

#[test]
fn a_mark_that_comes_after_the_loss_is_no_yes() {
    let mut h = hold(|t| t);
    assert_eq!(h.check(at(940)), Err(Loss::Expired));
    assert_eq!(h.told_marked(), Err(Loss::Expired));
    assert!(!h.is_marked());
}

#[test]
fn several_keys_are_as_good_as_the_worst() {
    let r = |rest, revoke_asked| Renewed::Renewed { rest, revoke_asked };
    let worst = Beaten::worst;
    assert_eq!(
        worst(&[r(LEASE, false), r(LEASE / 2, true)]),
        Beaten::Renewed {
            rest: LEASE / 2,
            revoke_asked: true
        }
    );
    assert_eq!(worst(&[Renewed::Unsure, r(LEASE, false)]), Beaten::Doubt);
    let lost = Renewed::Lost;
    assert_eq!(
        worst(&[
            lost(LostReason::Lapsed),
            lost(LostReason::Superseded),
            Renewed::Unsure
        ]),
        Beaten::Lost(LostReason::Superseded)
    );
    assert_eq!(
        worst(&[lost(LostReason::Broken), lost(LostReason::Lapsed)]),
        Beaten::Lost(LostReason::Broken)
    );
    assert_eq!(worst(&[]), Beaten::Doubt);
}
