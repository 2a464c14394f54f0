//! The followers' wakers: one seat each, taken and freed in constant time.

use std::task::Waker;

/// A follower's place. It is freed exactly once, by its owner.
#[derive(Clone, Copy)]
pub(crate) struct Seat(usize);

enum Place {
    Taken(Option<Waker>),
    /// The next free place, if any.
    Free(Option<usize>),
}

#[derive(Default)]
pub(crate) struct Seats {
    places: Vec<Place>,
    free: Option<usize>,
    taken: usize,
}

impl Seats {
    pub(crate) fn taken(&self) -> usize {
        self.taken
    }

    pub(crate) fn take(&mut self) -> Seat {
        self.taken += 1;
        if let Some(index) = self.free
            && let Some(place) = self.places.get_mut(index)
            && let Place::Free(next) = *place
        {
            self.free = next;
            *place = Place::Taken(None);
            return Seat(index);
        }
        self.places.push(Place::Taken(None));
        Seat(self.places.len() - 1)
    }

    pub(crate) fn set(&mut self, Seat(index): Seat, waker: &Waker) {
        match self.places.get_mut(index) {
            Some(Place::Taken(Some(old))) => old.clone_from(waker),
            Some(place) => *place = Place::Taken(Some(waker.clone())),
            None => {}
        }
    }

    pub(crate) fn free(&mut self, Seat(index): Seat) {
        if let Some(place) = self.places.get_mut(index)
            && let Place::Taken(_) = place
        {
            *place = Place::Free(self.free);
            self.free = Some(index);
            self.taken -= 1;
        }
    }

    /// Takes every waker out; the seats stay taken.
    pub(crate) fn wakers(&mut self) -> Vec<Waker> {
        let taken = self.places.iter_mut();
        taken
            .filter_map(|place| match place {
                Place::Taken(waker) => waker.take(),
                Place::Free(_) => None,
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_freed_seat_is_used_again() {
        let mut seats = Seats::default();
        for _ in 0..1_000 {
            let (a, b) = (seats.take(), seats.take());
            seats.set(b, Waker::noop());
            seats.free(a);
            seats.free(b);
        }
        assert_eq!((seats.taken(), seats.places.len()), (0, 2));
        assert!(
            seats.wakers().is_empty(),
            "a freed seat's waker is never woken"
        );
    }
}
