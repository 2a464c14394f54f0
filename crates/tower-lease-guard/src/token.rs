//! What a write shows to the guard, and how it looks on the wire.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use http::{HeaderMap, HeaderName, HeaderValue};
use tower_claim::{FenceStore, Nonce, Token};

use crate::fence::FenceError;

/// `Fencing-Token`: one token per line, or several in one line, separated by commas.
pub static FENCING_TOKEN: HeaderName = HeaderName::from_static("fencing-token");

/// The longest name of a resource, in bytes.
pub const MAX_RESOURCE: usize = 255;

/// Proof that a write belongs to a lease: which resource, under which token, by which nonce.
///
/// On the wire: `Fencing-Token: <resource>;t=<token>;o=<nonce>`. The resource is percent-encoded where it
/// has other than visible ASCII, or one of `%`, `;`, `,`, `"`, `\`; the token is decimal, below 2^53; the
/// nonce is 32 hex digits.
///
/// ```
/// use tower_lease_guard::FencingToken;
///
/// let token: FencingToken = "account 7;t=42;o=000102030405060708090a0b0c0d0e0f"
///     .replace(' ', "%20")
///     .parse()?;
/// assert_eq!(token.resource(), "account 7");
/// assert_eq!(token.token().get(), 42);
/// assert_eq!(token.to_string(), "account%207;t=42;o=000102030405060708090a0b0c0d0e0f");
/// # Ok::<(), tower_lease_guard::InvalidFencingToken>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct FencingToken {
    resource: Arc<str>,
    token: Token,
    nonce: Nonce,
}

impl FencingToken {
    /// A token for `resource`: what [`Lease::fence`](crate::Lease::fence) does for you.
    ///
    /// # Errors
    ///
    /// [`InvalidFencingToken::Malformed`] unless the resource has 1 to 255 bytes and no control character.
    pub fn new(
        resource: impl Into<Arc<str>>,
        token: Token,
        nonce: Nonce,
    ) -> Result<Self, InvalidFencingToken> {
        let resource = resource.into();
        if !is_resource(&resource) {
            return Err(InvalidFencingToken::Malformed);
        }
        Ok(Self::from_valid(resource, token, nonce))
    }

    pub(crate) fn from_valid(resource: Arc<str>, token: Token, nonce: Nonce) -> Self {
        debug_assert!(is_resource(&resource));
        Self {
            resource,
            token,
            nonce,
        }
    }

    /// The resource, as the lease's key function named it.
    pub fn resource(&self) -> &str {
        &self.resource
    }

    /// The token of the grant.
    pub const fn token(&self) -> Token {
        self.token
    }

    /// The nonce that was granted it.
    pub const fn nonce(&self) -> Nonce {
        self.nonce
    }

    /// The header's value.
    pub fn to_header_value(&self) -> HeaderValue {
        // `Display` writes visible ASCII only, so the conversion cannot fail.
        HeaderValue::try_from(self.to_string()).unwrap_or_else(|_| HeaderValue::from_static(""))
    }

    /// Checks one write by hand, where the write happens: the guard's store refuses what is older than it
    /// has seen, and remembers this token otherwise.
    ///
    /// The check and the write must be **one step** for this to hold against a pause between them: keep the
    /// mark with the data and do both in one transaction, or let [`FenceLayer`](crate::FenceLayer) drain
    /// older calls.
    ///
    /// # Errors
    ///
    /// [`FenceError`]: stale, a collision, or the store did not answer (then do not write). It converts
    /// into a [`Refusal`](tower_claim::Refusal).
    pub async fn admit<S: FenceStore + ?Sized>(&self, store: &S) -> Result<(), FenceError> {
        let answer = store.admit(&self.resource, self.token, self.nonce).await;
        FenceError::judge(answer)
    }

    /// The token for `resource` among a request's headers, `None` when there is no token at all.
    ///
    /// # Errors
    ///
    /// [`InvalidFencingToken`] when any token is malformed, when there are tokens but none for `resource`,
    /// or two different ones for it.
    pub fn find(headers: &HeaderMap, resource: &str) -> Result<Option<Self>, InvalidFencingToken> {
        let mut found: Option<Self> = None;
        let mut others = false;
        for line in headers.get_all(&FENCING_TOKEN) {
            let line = line.to_str().map_err(|_| InvalidFencingToken::Malformed)?;
            // An intermediary may join lines with commas (RFC 9110, 5.3); a comma in a name is encoded.
            for element in line.split(',') {
                let token: Self = element.trim_matches([' ', '\t']).parse()?;
                if token.resource() != resource {
                    others = true;
                } else if found.as_ref().is_some_and(|before| *before != token) {
                    return Err(InvalidFencingToken::Ambiguous);
                } else {
                    found = Some(token);
                }
            }
        }
        match found {
            None if others => Err(InvalidFencingToken::OtherResource),
            found => Ok(found),
        }
    }
}

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use fmt::Write as _;
        for &byte in self.resource.as_bytes() {
            if byte.is_ascii_graphic() && !matches!(byte, b'%' | b';' | b',' | b'"' | b'\\') {
                f.write_char(char::from(byte))?;
            } else {
                write!(f, "%{byte:02X}")?;
            }
        }
        write!(f, ";t={};o={}", self.token, self.nonce)
    }
}

impl FromStr for FencingToken {
    type Err = InvalidFencingToken;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse(text).ok_or(InvalidFencingToken::Malformed)
    }
}

fn parse(text: &str) -> Option<FencingToken> {
    let mut parts = text.split(';');
    let resource = decode(parts.next()?)?;
    let token = parse_token(parts.next()?.strip_prefix("t=")?)?;
    let nonce = parts.next()?.strip_prefix("o=")?.parse().ok()?;
    if parts.next().is_some() || !is_resource(&resource) {
        return None;
    }
    Some(FencingToken::from_valid(resource.into(), token, nonce))
}

/// Plain digits only: `u64::from_str` alone would also take `+7` and `007`, and one token has one spelling.
fn parse_token(digits: &str) -> Option<Token> {
    let canonical = digits == "0" || !digits.starts_with('0');
    if !canonical || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    Token::new(digits.parse().ok()?)
}

fn decode(text: &str) -> Option<String> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        match byte {
            b'%' => {
                let mut digit = || char::from(bytes.next()?).to_digit(16);
                let (high, low) = (digit()?, digit()?);
                out.push(u8::try_from(high << 4 | low).ok()?);
            }
            b if b.is_ascii_graphic() => out.push(b),
            _ => return None,
        }
    }
    String::from_utf8(out).ok()
}

/// Whether `name` can name a resource: 1 to [`MAX_RESOURCE`] bytes without control characters.
pub(crate) fn is_resource(name: &str) -> bool {
    (1..=MAX_RESOURCE).contains(&name.len()) && !name.chars().any(char::is_control)
}

/// A fencing token that no guard can use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum InvalidFencingToken {
    /// Not `<resource>;t=<token>;o=<nonce>`.
    Malformed,
    /// Well formed, for another resource than the one that is written.
    OtherResource,
    /// Two different tokens for one resource.
    Ambiguous,
    /// So far ahead of the guard's clock that no store can have granted it.
    Inflated,
}

impl InvalidFencingToken {
    /// The `reason` member of the refusal.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::OtherResource => "other-resource",
            Self::Ambiguous => "ambiguous",
            Self::Inflated => "inflated",
        }
    }
}

impl fmt::Display for InvalidFencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Malformed => "a fencing token is `<resource>;t=<token>;o=<32 hex digits>`",
            Self::OtherResource => "the fencing token is for another resource",
            Self::Ambiguous => "there are two fencing tokens for one resource",
            Self::Inflated => "the fencing token is ahead of the guard's clock",
        })
    }
}

impl std::error::Error for InvalidFencingToken {}

#[cfg(test)]
mod tests;
