//! One hold as its owner sees it: may it still believe, shall it beat, what does an answer mean. Pure:
//! no clock, no store, no task.

use std::time::Duration;

use super::terms::{Renewal, Terms};
use super::timing::{Jitter, Timing, drift};
use crate::store::{LostReason, Renewed};
use crate::{LapsePolicy, Moment};

/// Why an owner does not hold its claim any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Loss {
    /// The lease ran out: it was not renewed, or `max_hold` has passed.
    Expired,
    /// Another owner has the key, or may have: the record names another nonce or is gone.
    Stolen,
    /// An operator broke the hold.
    Broken,
    /// The work did not move for its `stall_after`.
    Stalled,
    /// The lease ran out while the store did not answer the beats: an outage, not a thief.
    StoreUnreachable,
    /// The owner itself ended it: a finish or a release was sent.
    Ended,
}

impl Loss {
    /// `expired`, `stolen`, `broken`, `stalled`, `store-unreachable`, `ended`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Loss::Expired => "expired",
            Loss::Stolen => "stolen",
            Loss::Broken => "broken",
            Loss::Stalled => "stalled",
            Loss::StoreUnreachable => "store-unreachable",
            Loss::Ended => "ended",
        }
    }
}

impl std::fmt::Display for Loss {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Loss::Expired => "the claim's lease ran out",
            Loss::Stolen => "another owner has the claim",
            Loss::Broken => "an operator broke the claim",
            Loss::Stalled => "the work did not move for too long",
            Loss::StoreUnreachable => "the lease ran out while the store did not answer",
            Loss::Ended => "the claim was finished or released",
        })
    }
}

impl std::error::Error for Loss {}

/// How far the owner has gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// Neither finish nor release was sent.
    Open,
    /// A finish was sent: from now on the owner only repeats it.
    Finishing,
    /// A release was sent, or is about to be.
    Releasing,
}

/// What became of one beat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Beaten {
    /// The store's word.
    Renewed {
        rest: Duration,
        revoke_asked: bool,
    },
    Lost(LostReason),
    /// No answer, an error, or a store that could not tell: doubt, not loss.
    Doubt,
}

impl Beaten {
    /// One answer for a hold over several keys: the worst of them.
    pub(super) fn worst(answers: &[Renewed]) -> Self {
        let mut worst = Self::Renewed {
            rest: Duration::MAX,
            revoke_asked: false,
        };
        for answer in answers {
            worst = match (worst, answer) {
                // A key of which another may be the owner by now outweighs one that merely lapsed.
                (Self::Lost(LostReason::Lapsed), Renewed::Lost(reason)) => Self::Lost(*reason),
                (Self::Lost(reason), _) => Self::Lost(reason),
                (_, Renewed::Lost(reason)) => Self::Lost(*reason),
                (Self::Doubt, _) | (_, Renewed::Unsure) => Self::Doubt,
                (
                    Self::Renewed {
                        rest: r,
                        revoke_asked: a,
                    },
                    Renewed::Renewed { rest, revoke_asked },
                ) => Self::Renewed {
                    rest: r.min(*rest),
                    revoke_asked: a | revoke_asked,
                },
            };
        }
        if answers.is_empty() {
            Self::Doubt
        } else {
            worst
        }
    }
}

/// When the keeper looks at a hold again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    After(Duration),
    Never,
}

/// One hold as its owner sees it.
#[derive(Debug)]
pub(super) struct HoldState {
    timing: Timing,
    renewal: Renewal,
    on_lapse: LapsePolicy,
    unfinished_keep: Duration,
    /// The hard cap, in every mode.
    cap: Moment,
    stop_at: Moment,
    last_move: Moment,
    progress: u64,
    jitter: Jitter,
    pub(super) phase: Phase,
    loss: Option<Loss>,
    marked: bool,
    revoke_asked: bool,
    /// Whether the last beat stayed in doubt: an outage, when the lease runs out over it.
    doubtful: bool,
    beating: bool,
    /// When it lies on the keeper's desk for.
    pub(super) due: Option<Moment>,
}

impl HoldState {
    /// A hold granted by a call that was sent at `sent` and left it `rest`.
    pub(super) fn granted(
        terms: &Terms,
        timing: Timing,
        sent: Moment,
        rest: Duration,
        jitter: Jitter,
    ) -> Self {
        Self {
            timing,
            renewal: terms.renewal(),
            on_lapse: terms.settings().on_lapse,
            unfinished_keep: terms.settings().unfinished_keep,
            cap: sent + terms.max_hold(),
            stop_at: timing.stop_at(sent, rest),
            last_move: sent,
            progress: 0,
            jitter,
            phase: Phase::Open,
            loss: None,
            marked: false,
            revoke_asked: false,
            doubtful: false,
            beating: false,
            due: None,
        }
    }

    /// Whether somebody else may be granted the key once the lease has lapsed. Where nobody may, a slow
    /// store must not make the owner give up: its outcome would be unknown for no reason.
    fn is_takeable(&self) -> bool {
        self.on_lapse == LapsePolicy::TakeOver && !self.marked
    }

    /// When the hold is over for its owner, if nothing renews it.
    pub(super) fn ends_at(&self) -> Moment {
        let by_lease = if self.is_takeable() {
            self.stop_at
        } else {
            self.stop_at
                + self
                    .unfinished_keep
                    .saturating_sub(drift(self.unfinished_keep))
        };
        by_lease.min(self.cap)
    }

    /// Whether the owner may still believe, by comparing clocks. Once lost is lost.
    pub(super) fn check(&mut self, now: Moment) -> Result<(), Loss> {
        if let Some(loss) = self.loss {
            return Err(loss);
        }
        if self.phase != Phase::Open {
            return Err(Loss::Ended);
        }
        if now < self.ends_at() {
            return Ok(());
        }
        let loss = if self.doubtful && now < self.cap {
            Loss::StoreUnreachable
        } else {
            Loss::Expired
        };
        self.loss = Some(loss);
        Err(loss)
    }

    /// The keeper is about to beat: the progress to carry, or nothing when the hold is not to be renewed
    /// any more.
    pub(super) fn begin_beat(&mut self, now: Moment) -> Option<u64> {
        self.check(now).ok()?;
        if let Renewal::Progress { stall_after } = self.renewal
            && now.saturating_since(self.last_move) >= stall_after
        {
            self.loss = Some(Loss::Stalled);
            return None;
        }
        self.beating = true;
        Some(self.progress)
    }

    /// A beat that was sent at `sent` is over.
    pub(super) fn end_beat(&mut self, sent: Moment, beaten: Beaten) -> Next {
        self.beating = false;
        if self.phase != Phase::Open || self.loss.is_some() {
            return Next::Never;
        }
        match beaten {
            Beaten::Renewed { rest, revoke_asked } => {
                self.doubtful = false;
                self.revoke_asked |= revoke_asked;
                self.stop_at = self.stop_at.max(self.timing.stop_at(sent, rest));
                Next::After(self.timing.interval(&mut self.jitter))
            }
            Beaten::Lost(reason) => self.told_lost(reason),
            Beaten::Doubt => {
                self.doubtful = true;
                Next::After(self.timing.retry(&mut self.jitter))
            }
        }
    }

    /// The store says that the hold is over.
    pub(super) fn told_lost(&mut self, reason: LostReason) -> Next {
        let loss = match reason {
            LostReason::Superseded => Loss::Stolen,
            LostReason::Broken => Loss::Broken,
            // Nobody may take over: the owner works on, its finish is accepted by token. It keeps asking,
            // because an operator may settle the record meanwhile.
            LostReason::Lapsed if !self.is_takeable() => {
                return Next::After(self.timing.interval(&mut self.jitter));
            }
            LostReason::Lapsed if self.doubtful => Loss::StoreUnreachable,
            LostReason::Lapsed => Loss::Expired,
        };
        self.loss.get_or_insert(loss);
        Next::Never
    }

    /// When to beat first; never without renewal.
    pub(super) fn first_beat(&mut self) -> Next {
        match self.renewal {
            Renewal::Off => Next::Never,
            Renewal::Always | Renewal::Progress { .. } => {
                Next::After(self.timing.interval(&mut self.jitter))
            }
        }
    }

    /// The work moved.
    pub(super) fn moved(&mut self, now: Moment, progress: Option<u64>) {
        self.last_move = self.last_move.max(now);
        if let Some(progress) = progress {
            self.progress = progress;
        }
    }

    /// The point of no return is in the record. Refused when the owner was told of a loss meanwhile.
    pub(super) fn told_marked(&mut self) -> Result<(), Loss> {
        match self.loss {
            Some(loss) => Err(loss),
            None if self.phase != Phase::Open => Err(Loss::Ended),
            None => {
                self.marked = true;
                Ok(())
            }
        }
    }

    pub(super) fn is_marked(&self) -> bool {
        self.marked
    }

    pub(super) fn is_beating(&self) -> bool {
        self.beating
    }

    pub(super) fn revoke_asked(&self) -> bool {
        self.revoke_asked
    }

    pub(super) fn stop_at(&self) -> Moment {
        self.stop_at
    }

    /// The loss that was recorded, without looking at the clock.
    pub(super) fn loss(&self) -> Option<Loss> {
        self.loss
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const LEASE: Duration = Duration::from_millis(1000);

    fn at(ms: u32) -> Moment {
        Moment::since_start(ms * MS)
    }

    fn hold(
        of: impl FnOnce(super::super::TermsBuilder) -> super::super::TermsBuilder,
    ) -> HoldState {
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
}
