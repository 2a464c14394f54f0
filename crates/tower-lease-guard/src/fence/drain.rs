//! Which calls are at one resource, and whose turn it is. Pure: no clock, no task, no request.
//!
//! A mark that is checked at the door only is not enough: an older call may have passed it, stand still
//! inside, and write after a newer one. So a newer call, once its token is in the mark, **cancels every
//! older call and waits until their futures are gone**; only then it runs.
//!
//! The order is what makes it hold:
//!
//! 1. [`enter`](Calls::enter) *before* the store is asked. A call that the store admitted before ours is
//!    then already in the list when we look.
//! 2. The store admits: the mark is raised. A call that asks from now on with an older token is refused
//!    by the store.
//! 3. [`admit`](Calls::admit) cancels all that are older; [`turn`](Calls::turn) says `Run` once they are
//!    gone.
//!
//! Draining before the mark is raised would leave a gap in which an older call gets in; entering after the
//! store was asked, one in which it is not seen. The tests walk through every order of steps, and refute
//! each of these variants.

use tower_claim::Token;

/// One call at the resource.
pub(crate) type CallId = u64;

/// What a call may do now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Turn {
    /// No older call is left.
    Run,
    /// Older calls were cancelled, some of them are still there.
    Wait,
    /// A newer call was admitted: end, and leave.
    Cancelled,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Call {
    id: CallId,
    token: Token,
    cancelled: bool,
}

/// The calls at one resource, from before the store is asked until their futures are gone.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(crate) struct Calls {
    calls: Vec<Call>,
}

impl Calls {
    /// A call arrives. `id` must be new.
    pub(crate) fn enter(&mut self, id: CallId, token: Token) {
        self.calls.push(Call {
            id,
            token,
            cancelled: false,
        });
    }

    /// The store has admitted this call. Cancels every older one; answers whom it cancelled.
    pub(crate) fn admit(&mut self, id: CallId) -> Vec<CallId> {
        let Some(token) = self.token(id) else {
            return Vec::new();
        };
        let older = |call: &&mut Call| call.token < token && !call.cancelled;
        self.calls
            .iter_mut()
            .filter(older)
            .map(|call| {
                call.cancelled = true;
                call.id
            })
            .collect()
    }

    /// Whether an admitted call may run.
    ///
    /// It waits for cancelled calls only. An older one that entered after our admission is not cancelled:
    /// the store refuses it, so a stream of stale calls cannot keep a newer one waiting.
    pub(crate) fn turn(&self, id: CallId) -> Turn {
        let Some(me) = self.calls.iter().find(|call| call.id == id) else {
            return Turn::Cancelled;
        };
        if me.cancelled {
            Turn::Cancelled
        } else if self.calls.iter().any(|c| c.cancelled && c.token < me.token) {
            Turn::Wait
        } else {
            Turn::Run
        }
    }

    /// The call's future is gone; nothing of it can write any more. Answers whether it was cancelled, and
    /// others may have waited for this.
    pub(crate) fn leave(&mut self, id: CallId) -> bool {
        let at = self.calls.iter().position(|call| call.id == id);
        at.is_some_and(|at| self.calls.swap_remove(at).cancelled)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    fn token(&self, id: CallId) -> Option<Token> {
        self.calls.iter().find(|c| c.id == id).map(|c| c.token)
    }
}

#[cfg(test)]
mod tests;
