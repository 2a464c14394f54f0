//! A state in five words: one description of the layout serves writing and reading.

/// A packed state.
pub(super) type Packed = [u64; 5];

/// Goes through the fields of one word, in one direction or the other.
#[derive(Debug, Default)]
pub(super) struct Bits<const WRITE: bool> {
    word: u64,
    at: u32,
}

impl Bits<true> {
    /// The word written.
    #[inline(always)]
    pub(super) fn word(self) -> u64 {
        debug_assert!(self.at <= 64, "a word has 64 bits");
        self.word
    }
}

impl Bits<false> {
    #[inline(always)]
    pub(super) fn reader(word: u64) -> Self {
        Self { word, at: 0 }
    }
}

impl<const WRITE: bool> Bits<WRITE> {
    /// One number of `width` bits.
    #[inline(always)]
    pub(super) fn number(&mut self, value: &mut u8, width: u32) {
        if WRITE {
            debug_assert!(u32::from(*value) < 1 << width, "{value} in {width} bits");
            self.word |= u64::from(*value) << self.at;
        } else {
            *value = ((self.word >> self.at) & ((1 << width) - 1)) as u8;
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
