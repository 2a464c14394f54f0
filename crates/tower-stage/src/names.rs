//! A bounded, append-only list of names, so that a custom stage or wait reason is one small number.

use std::fmt;
use std::sync::{Mutex, OnceLock, PoisonError};

/// Longest name, in bytes.
const LONGEST: usize = 32;

#[derive(Debug)]
pub(crate) struct Names<const N: usize> {
    names: [OnceLock<&'static str>; N],
    used: Mutex<usize>,
}

impl<const N: usize> Names<N> {
    pub(crate) const fn new() -> Self {
        Self {
            names: [const { OnceLock::new() }; N],
            used: Mutex::new(0),
        }
    }

    /// The number of `name`; the same one when it is registered again.
    pub(crate) fn register(&self, name: &'static str) -> Result<u8, NameError> {
        check(name)?;
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(index) = self.find(name) {
            return Ok(index);
        }
        let (Some(place), Ok(index)) = (self.names.get(*used), u8::try_from(*used)) else {
            return Err(NameError::Full { limit: N });
        };
        let _ = place.set(name);
        *used += 1;
        Ok(index)
    }

    pub(crate) fn find(&self, name: &str) -> Option<u8> {
        let mut known = self.names.iter().map_while(OnceLock::get);
        known
            .position(|known| *known == name)
            .and_then(|index| u8::try_from(index).ok())
    }

    pub(crate) fn name(&self, index: u8) -> &'static str {
        self.names
            .get(usize::from(index))
            .and_then(|place| place.get().copied())
            .unwrap_or("unknown")
    }
}

fn check(name: &'static str) -> Result<(), NameError> {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
    if name.is_empty() || name.len() > LONGEST || !name.bytes().all(plain) {
        return Err(NameError::Malformed { name });
    }
    Ok(())
}

/// Why a custom name was not registered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum NameError {
    /// Not 1 to 32 characters of `a-z`, `0-9` and `_`.
    Malformed {
        /// The name as given.
        name: &'static str,
    },
    /// The process has registered as many as there may be. Names are for kinds of work, not for
    /// single requests.
    Full {
        /// How many there may be.
        limit: usize,
    },
}

impl fmt::Display for NameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed { name } => {
                write!(f, "{name:?} is not 1 to {LONGEST} of a-z, 0-9 and _")
            }
            Self::Full { limit } => write!(f, "all {limit} custom names are taken"),
        }
    }
}

impl std::error::Error for NameError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_registered_twice_is_one() {
        let names = Names::<2>::new();
        assert_eq!(names.register("a"), Ok(0));
        assert_eq!(names.register("b"), Ok(1));
        assert_eq!(names.register("a"), Ok(0));
        assert_eq!((names.name(1), names.find("b")), ("b", Some(1)));
    }

    #[test]
    fn names_are_bounded_in_number_and_in_form() {
        let names = Names::<1>::new();
        for bad in [
            "",
            "Upper",
            "with space",
            "a-b",
            "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
        ] {
            assert_eq!(names.register(bad), Err(NameError::Malformed { name: bad }));
        }
        assert_eq!(names.register("a"), Ok(0));
        assert_eq!(names.register("b"), Err(NameError::Full { limit: 1 }));
        assert_eq!(names.find("b"), None);
    }
}
