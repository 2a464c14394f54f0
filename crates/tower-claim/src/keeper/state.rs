//! One hold as its owner sees it: may it still believe, shall it beat, what does an answer mean. Pure:
//! no clock, no store, no task.

use std::time::Duration;

use super::Loss;
use super::terms::{Renewal, Terms};
use super::timing::{Jitter, Timing, drift};
use crate::store::{LostReason, Renewed};
use crate::{LapsePolicy, Moment};

/// How far the owner has gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// Neither finish nor release was sent.
    Open,
    /// A finish was sent: from now on the owner only repeats it.
    Finishing,
    /// A release was sent, or is about to be.
    Releasing,
    /// Nothing was sent, nor will be: the lease lapses.
    Abandoned,
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
