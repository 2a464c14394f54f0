//! The followers' wakers: one seat each, taken and freed in constant time.

use std::mem;
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

    /// Answers the waker that was there before, if it is another.
    pub(crate) fn set(&mut self, Seat(index): Seat, waker: &Waker) -> Option<Waker> {
        match self.places.get_mut(index) {
            Some(Place::Taken(place)) => replace(place, waker),
            _ => None,
        }
    }

    pub(crate) fn free(&mut self, Seat(index): Seat) -> Option<Waker> {
        let place = self.places.get_mut(index)?;
        if let Place::Free(_) = place {
            return None;
        }
        let Place::Taken(waker) = mem::replace(place, Place::Free(self.free)) else {
            return None;
        };
        self.free = Some(index);
        self.taken -= 1;
        waker
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

/// Answers the waker that was there before, if it is another.
pub(crate) fn replace(place: &mut Option<Waker>, waker: &Waker) -> Option<Waker> {
    match place {
        Some(old) if old.will_wake(waker) => None,
        _ => place.replace(waker.clone()),
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
