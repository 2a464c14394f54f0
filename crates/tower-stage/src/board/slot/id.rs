//! The name of a row.

use std::fmt;

/// Names a row for ever: a slot, and which of its requests.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct RowId {
    index: u32,
    generation: u32,
}

impl RowId {
    pub(super) fn new(index: u32, generation: u32) -> Self {
        Self { index, generation }
    }
}

impl fmt::Display for RowId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.index, self.generation.div_ceil(2))
    }
}

impl fmt::Debug for RowId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RowId({self})")
    }
}
