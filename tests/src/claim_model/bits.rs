//! A state in 256 bits: one description of the layout serves writing and reading.

/// A packed state.
pub(super) type Packed = [u64; 4];

/// Goes through the fields of a state, in one direction or the other.
#[derive(Debug)]
pub(super) struct Bits<const WRITE: bool> {
    words: Packed,
    at: u32,
}

impl Bits<true> {
    pub(super) fn writer() -> Self {
        Self {
            words: [0; 4],
            at: 0,
        }
    }

    pub(super) fn packed(self) -> Packed {
        self.words
    }
}

impl Bits<false> {
    pub(super) fn reader(words: Packed) -> Self {
        Self { words, at: 0 }
    }
}

impl<const WRITE: bool> Bits<WRITE> {
    /// One number of `width` bits. Never split over two words.
    #[inline(always)]
    pub(super) fn number(&mut self, value: &mut u8, width: u32) {
        if self.at % 64 + width > 64 {
            self.at = self.at.next_multiple_of(64);
        }
        let (word, shift) = ((self.at / 64) as usize, self.at % 64);
        if WRITE {
            debug_assert!(u32::from(*value) < 1 << width, "{value} in {width} bits");
            self.words[word] |= u64::from(*value) << shift;
        } else {
            *value = ((self.words[word] >> shift) & ((1 << width) - 1)) as u8;
        }
        self.at += width;
    }

    /// One yes or no.
    #[inline(always)]
    pub(super) fn flag(&mut self, value: &mut bool) {
        let mut number = u8::from(*value);
        self.number(&mut number, 1);
        *value = number != 0;
    }
}
