//! Nonces that are never to be granted, beside the last one.

use std::mem::size_of;

use hashbrown::HashMap;

use crate::Nonce;
use crate::store::StoreTime;

/// How many nonces a record remembers one by one.
const EACH: usize = 4096;
/// So many are not worth a search for those that have passed.
const FEW: usize = 16;

/// Spent or refused nonces, each until a copy of its claim can no longer be applied.
///
/// Bounded: beyond [`EACH`] those with the earliest `not_after` fold into an instant, and from then on no
/// claim whose `not_after` is at or before that instant is granted. That is safe, since each copy of a
/// folded nonce's claim carries such a `not_after`; a stranger who is refused by it draws a new nonce and
/// with it a later `not_after`. (Where owners with call timeouts far apart share a key, a stranger with
/// a short one is refused while others claim it [`EACH`] times within their longer one.) A nonce without one ([`StoreTime::NEVER`]) cannot fold without closing
/// the key for good: of these, half are forgotten.
#[derive(Debug, Clone, Default)]
pub(super) struct Spent(Option<Box<List>>);

/// Folded, latest, and each nonce behind its `not_after`.
pub(super) type SpentParts = (StoreTime, StoreTime, Vec<(StoreTime, Nonce)>);

#[derive(Debug, Clone, Default)]
struct List {
    nonces: HashMap<Nonce, StoreTime>,
    folded: StoreTime,
    /// The latest `not_after` of all: once it has passed, the list says nothing any more.
    latest: StoreTime,
    /// At how many nonces to look for those that have passed: so each remembering pays for a constant few.
    crowd: usize,
}

impl Spent {
    pub(super) fn remember(&mut self, nonce: Nonce, not_after: StoreTime, now: StoreTime) {
        if self.latest().is_some_and(|latest| now > latest) {
            self.0 = None;
        }
        if now > not_after {
            return;
        }
        let list = self.0.get_or_insert_default();
        list.latest = list.latest.max(not_after);
        let known = list.nonces.entry(nonce).or_insert(not_after);
        *known = (*known).max(not_after);
        let count = list.nonces.len();
        if count > list.crowd.max(FEW) {
            list.nonces.retain(|_, not_after| now <= *not_after);
            // With room for a few only, the next search would follow at once.
            if count > EACH && list.nonces.len() > EACH / 4 * 3 {
                list.fold();
            }
            list.crowd = (list.nonces.len() * 2).min(EACH);
        }
    }

    pub(super) fn contains(&self, nonce: Nonce, now: StoreTime) -> bool {
        let known = self.0.as_ref().and_then(|list| list.nonces.get(&nonce));
        known.is_some_and(|not_after| now <= *not_after)
    }

    /// Whether a claim with this `not_after` may be a copy of a folded nonce's.
    pub(super) fn may_be_folded(&self, not_after: StoreTime) -> bool {
        let folded = self.0.as_ref().map(|list| list.folded);
        folded.is_some_and(|folded| folded > StoreTime::default() && not_after <= folded)
    }

    /// Until when the list says something.
    pub(super) fn latest(&self) -> Option<StoreTime> {
        self.0.as_ref().map(|list| list.latest)
    }

    /// What the list says, in one order.
    pub(super) fn parts(&self) -> Option<SpentParts> {
        let list = self.0.as_ref()?;
        let nonces = list.nonces.iter();
        let mut nonces: Vec<_> = nonces.map(|(nonce, at)| (*at, *nonce)).collect();
        nonces.sort_unstable();
        Some((list.folded, list.latest, nonces))
    }

    /// `None` where no list says this.
    pub(super) fn from_parts((folded, latest, nonces): SpentParts) -> Option<Self> {
        let count = nonces.len();
        let last = nonces.last().map(|(not_after, _)| *not_after);
        let in_bounds = count <= EACH && last.is_none_or(|last| last <= latest);
        let swap = |(not_after, nonce)| (nonce, not_after);
        let nonces: HashMap<_, _> = nonces.into_iter().map(swap).collect();
        (in_bounds && nonces.len() == count).then(|| {
            Self(Some(Box::new(List {
                nonces,
                folded,
                latest,
                crowd: (count * 2).min(EACH),
            })))
        })
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.0
            .as_ref()
            .map_or(0, |list| size_of::<List>() + list.nonces.allocation_size())
    }
}

impl List {
    /// Folds the earlier half.
    fn fold(&mut self) {
        let mut ends: Vec<StoreTime> = self.nonces.values().copied().collect();
        let (_, middle, _) = ends.select_nth_unstable(EACH / 2);
        if *middle < StoreTime::NEVER {
            self.folded = self.folded.max(*middle);
            self.nonces.retain(|_, not_after| *not_after > *middle);
            return;
        }
        let mut room = EACH / 2;
        let early = ends.iter().filter(|at| **at < StoreTime::NEVER).max();
        self.folded = self.folded.max(early.copied().unwrap_or_default());
        self.nonces.retain(|_, not_after| {
            let stays = *not_after == StoreTime::NEVER && room > 0;
            room -= usize::from(stays);
            stays
        });
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
        let all = 3 * EACH + 100;
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
        assert!(spent.heap_bytes() < 512 << 10);
    }

    #[test]
    fn a_full_list_is_not_searched_again_and_again() {
        let mut spent = Spent::default();
        let mut searches = 0;
        let all = 8 * EACH;
        for n in 0..all {
            let before = spent.0.as_ref().map_or(0, |list| list.nonces.len());
            // Of so many, always a little fewer than the bound stand.
            spent.remember(nonce(n), at(n + EACH - 8), at(n));
            let list = spent.0.as_ref().expect("some stand");
            searches += usize::from(list.nonces.len() <= before);
        }
        assert!(searches <= 4 * all / EACH, "{searches} searches");
    }

    #[test]
    fn nonces_without_an_end_never_close_the_key() {
        let mut spent = Spent::default();
        spent.remember(nonce(0), at(7), at(0));
        for n in 1..=EACH {
            spent.remember(nonce(n), StoreTime::NEVER, at(0));
        }
        assert!(spent.may_be_folded(at(7)), "the one with an end folds");
        assert!(!spent.may_be_folded(at(8)));
        assert!(!spent.may_be_folded(StoreTime::NEVER));
        let known = (1..=EACH).filter(|n| spent.contains(nonce(*n), at(0)));
        assert_eq!(known.count(), EACH / 2);
    }
}
