//! The network: the copies of each call that are under way.
//!
//! A call under way arrives at any later time, or never: a lost call is one whose arrival the search does
//! not choose. Its reply is heard at once or lost; the reply to a claim that grants, where the
//! configuration says so, also late.

use super::bits::Bits;
use super::rules::Rules;

/// No copy.
pub(super) const NONE: u8 = 7;

/// The calls of one claim (one nonce).
#[derive(Debug, Clone, Copy)]
pub(super) struct Calls {
    /// Ticks to the latest `not_after` sent.
    pub(super) not_after: u8,
    /// The token, once an answer has told it; 0 before.
    pub(super) token: u8,
    pub(super) claim_sent: u8,
    /// Copies of the claim that the owner has no answer to.
    pub(super) claim_open: u8,
    /// Age of each copy under way.
    pub(super) claims: [u8; 2],
    /// A grant on its way back: the ticks for which the owner may believe when it hears it.
    pub(super) late_grant: u8,
    pub(super) renew_sent: u8,
    pub(super) renews: [u8; 2],
    pub(super) mark_sent: u8,
    pub(super) marks: u8,
    pub(super) finish_sent: u8,
    pub(super) finishes: u8,
    pub(super) release_sent: u8,
    pub(super) releases: u8,
}

impl Default for Calls {
    fn default() -> Self {
        Self {
            not_after: 0,
            token: 0,
            claim_sent: 0,
            claim_open: 0,
            claims: [NONE; 2],
            late_grant: NONE,
            renew_sent: 0,
            renews: [NONE; 2],
            mark_sent: 0,
            marks: 0,
            finish_sent: 0,
            finishes: 0,
            release_sent: 0,
            releases: 0,
        }
    }
}

/// Puts a copy under way. The copies are kept in order, so that equal networks are equal states.
pub(super) fn send(copies: &mut [u8; 2]) {
    debug_assert_eq!(copies[1], NONE, "a third copy");
    *copies = [0, copies[0]];
}

/// Takes a copy from the way: it arrives.
pub(super) fn take(copies: &mut [u8; 2], index: usize) -> u8 {
    let age = copies[index];
    if index == 0 {
        copies[0] = copies[1];
    }
    copies[1] = NONE;
    age
}

fn grow(copies: &mut [u8; 2], cap: u8) {
    for age in copies.iter_mut().filter(|age| **age != NONE) {
        *age = (*age + 1).min(cap);
    }
}

impl Calls {
    /// One tick passes. Beyond `cap` an age makes no difference.
    pub(super) fn tick(&mut self, rules: &Rules, cap: u8) {
        self.not_after = self.not_after.saturating_sub(1);
        grow(&mut self.claims, cap);
        grow(&mut self.renews, cap);
        if self.late_grant != NONE && rules.deadline_from_sending {
            self.late_grant = self.late_grant.saturating_sub(1);
        }
    }

    pub(super) fn claim_under_way(&self) -> bool {
        self.claims[0] != NONE
    }

    fn owned_under_way(&self) -> bool {
        self.renews[0] != NONE || self.marks + self.finishes + self.releases > 0
    }

    /// Whether any call may still arrive.
    pub(super) fn under_way(&self) -> bool {
        self.claim_under_way() || self.owned_under_way()
    }

    /// Nobody waits for the claim's answer any more: its age is of no account, and neither is a copy that the
    /// store will refuse for its time alone.
    pub(super) fn claims_are_not_heard(&mut self, rules: &Rules) {
        self.late_grant = NONE;
        if !rules.one_not_after {
            return;
        }
        for age in self.claims.iter_mut().filter(|age| **age != NONE) {
            *age = if self.not_after == 0 && rules.not_after {
                NONE
            } else {
                0
            };
        }
    }

    /// Nobody waits for the answer to a renewal any more.
    pub(super) fn beats_are_not_heard(&mut self) {
        for age in self.renews.iter_mut().filter(|age| **age != NONE) {
            *age = 0;
        }
    }

    /// The claim is over: forgets what no later step can read.
    pub(super) fn settle(&mut self) {
        self.claim_sent = 0;
        self.renew_sent = 0;
        self.mark_sent = 0;
        self.finish_sent = 0;
        self.claim_open = self.claim_open.min(1);
        if self.claim_open == 0 {
            self.release_sent = 0;
            if !self.owned_under_way() {
                self.token = 0;
            }
            if !self.claim_under_way() && self.releases == 0 {
                self.not_after = 0;
            }
        }
    }

    #[inline(always)]
    pub(super) fn code<const WRITE: bool>(&mut self, bits: &mut Bits<WRITE>) {
        let [claim_a, claim_b] = &mut self.claims;
        let [renew_a, renew_b] = &mut self.renews;
        for field in [
            &mut self.not_after,
            &mut self.token,
            &mut self.late_grant,
            claim_a,
            claim_b,
            renew_a,
            renew_b,
        ] {
            bits.number(field, 3);
        }
        for field in [
            &mut self.claim_sent,
            &mut self.claim_open,
            &mut self.renew_sent,
            &mut self.mark_sent,
            &mut self.marks,
            &mut self.finish_sent,
            &mut self.finishes,
            &mut self.release_sent,
            &mut self.releases,
        ] {
            bits.number(field, 2);
        }
    }
}
