//! Fencing tokens and owner nonces.

use std::fmt;

use crate::entropy::Entropy;

/// A fencing token: strictly increasing per key over expiry, restart, flush and failover, and below
/// 2^53, so that it is exact as a JSON number and as a double.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(u64);

impl Token {
    /// Below every token a store grants: as a floor it asks for nothing.
    pub const ZERO: Token = Token(0);
    /// The largest token, 2^53 − 1.
    pub const MAX: Token = Token((1 << 53) - 1);

    /// A token; `None` at 2^53 and above.
    pub const fn new(value: u64) -> Option<Self> {
        if value <= Self::MAX.0 {
            Some(Self(value))
        } else {
            None
        }
    }

    /// The number.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The rule every engine with a clock grants by: above the last token and the floor, and not below
    /// the engine's clock (Unix time in milliseconds · 1024), so that tokens still rise after the record
    /// was forgotten. Saturates at [`Token::MAX`], which the clock part reaches in the year 2248.
    #[must_use]
    pub fn next(last: Token, floor: Token, store_unix_ms: u64) -> Token {
        let by_clock = store_unix_ms.saturating_mul(1024);
        Token((last.0 + 1).max(floor.0 + 1).max(by_clock).min(Self::MAX.0))
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The owner nonce: 128 random bits drawn for *each* claim. It is never a thread, task, session, host
/// or process, so claims are not re-entrant.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nonce([u8; 16]);

impl Nonce {
    /// Draws a nonce.
    pub fn draw(entropy: &dyn Entropy) -> Self {
        let mut bytes = [0; 16];
        entropy.fill(&mut bytes);
        Self(bytes)
    }

    /// A nonce read back from the wire or from a store.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The 16 bytes a store keeps.
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl fmt::Debug for Nonce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Nonce({}…)", crate::hex::encode(&self.0[..4]))
    }
}

impl fmt::Display for Nonce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&crate::hex::encode(&self.0))
    }
}

impl std::str::FromStr for Nonce {
    type Err = crate::hex::InvalidHex;

    fn from_str(s: &str) -> Result<Self, Self::Err> {
        crate::hex::decode(s).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn t(n: u64) -> Token {
        Token::new(n).unwrap()
    }

    #[test]
    fn the_next_token_is_above_last_floor_and_clock() {
        assert_eq!(Token::next(t(7), Token::ZERO, 0), t(8));
        assert_eq!(Token::next(t(7), t(20), 0), t(21));
        assert_eq!(Token::next(t(7), t(20), 1), t(1024));
        assert_eq!(
            Token::next(t(5000), Token::ZERO, 1),
            t(5001),
            "a clock that steps back changes nothing"
        );
    }

    #[test]
    fn tokens_stay_below_two_to_the_53() {
        assert_eq!(Token::new(1 << 53), None);
        assert_eq!(Token::next(Token::MAX, Token::MAX, u64::MAX), Token::MAX);
    }
}
