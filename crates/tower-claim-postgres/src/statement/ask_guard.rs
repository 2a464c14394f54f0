//! From requests to statements: what a guard is asked.

use tower_claim::{Nonce, Token};

use super::ask::call;
use super::param::{Param, bytes, nonce, shown, token};
use super::{Call, Statements};

impl Statements {
    /// Admits a write at a guard, by itself: for one whose data lie elsewhere. Read the answer by
    /// [`admission`](super::answer::admission).
    pub fn fence(&self, resource: &str, at: Token, by: Nonce) -> Call {
        self.fence_by(false, resource, at, by)
    }

    /// Admits a write at a guard within the transaction that writes: the mark's row stays locked until it
    /// commits, so no newer token overtakes it. Read the answer by
    /// [`admission`](super::answer::admission).
    pub fn fence_in(&self, resource: &str, at: Token, by: Nonce) -> Call {
        self.fence_by(true, resource, at, by)
    }

    fn fence_by(&self, stay: bool, resource: &str, at: Token, by: Nonce) -> Call {
        call(
            &self.texts.fence_admit,
            vec![
                bytes(resource),
                shown(resource),
                token(at),
                nonce(by),
                Param::Flag(stay),
                Param::Small(self.lock_ms),
            ],
        )
    }

    /// Raises a guard's floor. Read the answer by [`mark`](super::answer::high).
    pub fn raise_floor(&self, resource: &str, floor: Token) -> Call {
        call(
            &self.texts.fence_raise,
            vec![
                bytes(resource),
                shown(resource),
                token(floor),
                Param::Small(self.lock_ms),
            ],
        )
    }

    /// A guard's high-water mark. Read the answer by [`high`](super::answer::high).
    pub fn high_water(&self, resource: &str) -> Call {
        call(&self.texts.fence_high, vec![bytes(resource)])
    }
}
