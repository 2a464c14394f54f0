//! What may happen in one step, and how it is told.

use std::fmt;

use super::answer::Answer;
use super::config::{NONCES, NonceId, Who};
use super::record::{State, Store};

/// The calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Claim,
    Renew,
    Mark,
    Finish,
    Release,
}

/// What happens in one step.
#[derive(Debug, Clone, Copy)]
pub(super) enum Action {
    Tick,
    Draw(Who),
    Sends(Kind, NonceId),
    HearsLate(NonceId),
    GivesUp(NonceId),
    Acts(NonceId),
    CleansUp(NonceId),
    Crash(Who),
    Arrives {
        kind: Kind,
        nonce: NonceId,
        answer: Answer,
        reply: Reply,
    },
}

/// What becomes of the reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reply {
    Heard,
    Late,
    /// Or nobody waits for it.
    Lost,
}

const NAMES: [&str; NONCES] = ["A1", "A2", "B1", "B2"];

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Action::Tick => write!(f, "a tick passes"),
            Action::Draw(who) => write!(f, "{} draws a nonce, sends Claim", ["A", "B"][who]),
            Action::Sends(kind, nonce) => write!(f, "{} sends {kind:?}", NAMES[nonce]),
            Action::HearsLate(nonce) => write!(f, "{} hears its late grant", NAMES[nonce]),
            Action::GivesUp(nonce) => write!(f, "{} gives up", NAMES[nonce]),
            Action::Acts(nonce) => write!(f, "{} does the work", NAMES[nonce]),
            Action::CleansUp(nonce) => write!(f, "{} sends the clean-up Release", NAMES[nonce]),
            Action::Crash(who) => write!(f, "{} crashes", ["A", "B"][who]),
            Action::Arrives {
                kind,
                nonce,
                answer,
                reply,
            } => write!(
                f,
                "{kind:?} of {} arrives: {answer:?}, {reply:?}",
                NAMES[nonce]
            ),
        }
    }
}

impl fmt::Display for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.state {
            State::Free => write!(f, "free, last token {}", self.token),
            state => {
                let mark = if self.marked { ", marked" } else { "" };
                let owner = NAMES[usize::from(self.nonce)];
                write!(
                    f,
                    "{state:?} by {owner}, token {}, {} left{mark}",
                    self.token, self.left
                )
            }
        }
    }
}
