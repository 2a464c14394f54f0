//! Nonces that are never to be granted, beside the last one.

use std::mem::size_of;

use crate::Nonce;
use crate::store::StoreTime;

/// How many nonces a record remembers one by one.
const EACH: usize = 128;

/// Spent or refused nonces, each until a copy of its claim can no longer be applied.
///
/// Bounded: beyond [`EACH`] the one with the earliest `not_after` folds into an instant, and from then on
/// no claim whose `not_after` is at or before that instant is granted. That is safe, since each copy of a
/// folded nonce's claim carries such a `not_after`; a stranger who is refused by it draws a new nonce and
/// with it a later `not_after`. A nonce without one ([`StoreTime::NEVER`]) cannot fold without closing
/// the key for good: of these the oldest is forgotten.
#[derive(Debug, Clone, Default)]
pub(super) struct Spent(Option<Box<List>>);

#[derive(Debug, Clone, Default)]
struct List {
    nonces: Vec<(Nonce, StoreTime)>,
    folded: Option<StoreTime>,
}

impl Spent {
    pub(super) fn remember(&mut self, nonce: Nonce, not_after: StoreTime, now: StoreTime) {
        self.prune(now);
        if now > not_after {
            return;
        }
        let list = self.0.get_or_insert_default();
        if let Some((_, known)) = list.nonces.iter_mut().find(|(known, _)| *known == nonce) {
            *known = (*known).max(not_after);
            return;
        }
        list.nonces.push((nonce, not_after));
        if list.nonces.len() > EACH {
            list.fold();
        }
    }

    pub(super) fn contains(&self, nonce: Nonce, now: StoreTime) -> bool {
        let mut nonces = self.0.iter().flat_map(|list| &list.nonces);
        nonces.any(|(known, not_after)| *known == nonce && now <= *not_after)
    }

    /// Whether a claim with this `not_after` may be a copy of a folded nonce's.
    pub(super) fn may_be_folded(&self, not_after: StoreTime) -> bool {
        let folded = self.0.as_ref().and_then(|list| list.folded);
        folded.is_some_and(|folded| not_after <= folded)
    }

    /// Until when the list says something.
    pub(super) fn latest(&self) -> Option<StoreTime> {
        let list = self.0.as_ref()?;
        let nonces = list.nonces.iter().map(|(_, not_after)| *not_after);
        nonces.chain(list.folded).max()
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.0.as_ref().map_or(0, |list| {
            size_of::<List>() + list.nonces.capacity() * size_of::<(Nonce, StoreTime)>()
        })
    }

    fn prune(&mut self, now: StoreTime) {
        let Some(list) = &mut self.0 else { return };
        list.nonces.retain(|(_, not_after)| now <= *not_after);
        list.folded = list.folded.filter(|folded| now <= *folded);
        if list.nonces.is_empty() && list.folded.is_none() {
            self.0 = None;
        }
    }
}

impl List {
    fn fold(&mut self) {
        let earliest = self
            .nonces
            .iter()
            .enumerate()
            .min_by_key(|(_, (_, at))| *at);
        if let Some((index, &(_, not_after))) = earliest {
            self.nonces.remove(index);
            if not_after < StoreTime::NEVER {
                self.folded = self.folded.max(Some(not_after));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nonce(n: usize) -> Nonce {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&n.to_be_bytes());
        Nonce::from_bytes(bytes)
    }

    fn at(n: usize) -> StoreTime {
        StoreTime::from_micros(n as u64)
    }

    #[test]
    fn a_nonce_is_remembered_as_long_as_its_claim_may_arrive() {
        let mut spent = Spent::default();
        spent.remember(nonce(1), at(10), at(0));
        assert!(spent.contains(nonce(1), at(10)));
        assert!(!spent.contains(nonce(1), at(11)));
        spent.remember(nonce(2), at(20), at(11));
        assert_eq!(spent.latest(), Some(at(20)));
        spent.remember(nonce(3), at(15), at(21));
        assert_eq!(spent.latest(), None, "all have passed");
        assert_eq!(spent.heap_bytes(), 0);
    }

    #[test]
    fn beyond_the_bound_every_folded_nonce_is_still_refused() {
        let mut spent = Spent::default();
        let all = 3 * EACH;
        for n in 0..all {
            spent.remember(nonce(n), at(1000 + n), at(0));
        }
        for n in 0..all {
            assert!(
                spent.contains(nonce(n), at(0)) || spent.may_be_folded(at(1000 + n)),
                "nonce {n} would be granted again"
            );
        }
        assert!(!spent.may_be_folded(at(1000 + all)), "a newcomer passes");
        assert!(spent.heap_bytes() < 2 * EACH * 24 + 64);
    }

    #[test]
    fn nonces_without_an_end_never_close_the_key() {
        let mut spent = Spent::default();
        for n in 0..2 * EACH {
            spent.remember(nonce(n), StoreTime::NEVER, at(0));
        }
        assert!(!spent.may_be_folded(StoreTime::NEVER));
        assert!(spent.contains(nonce(2 * EACH - 1), at(0)));
        assert!(spent.contains(nonce(EACH), at(0)));
    }
}
