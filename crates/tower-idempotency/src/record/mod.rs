//! A response as bytes, as the store keeps it.
//!
//! ```text
//! version    u8       1
//! status     u16
//! headers    u32      how many, then for each: name (u16, bytes), value (u32, bytes)
//! trailers   u32      0 for none, else one more than how many, then as above
//! body       u64      length, then its bytes, up to the end
//! ```
//!
//! Numbers are big-endian. The body comes last, so that a replay shares the store's bytes.

#[cfg(test)]
mod tests;

use std::fmt;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use crate::headers::HeaderRules;

const VERSION: u8 = 1;

/// A response that can be kept and replayed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeptResponse {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) trailers: Option<HeaderMap>,
}

/// The first half of a record: status and headers, written before the head is sent.
#[derive(Debug)]
pub(crate) struct Head(BytesMut);

impl Head {
    /// Writes a head down, without the headers that were true of its exchange only.
    pub(crate) fn new(status: StatusCode, headers: &HeaderMap, rules: &HeaderRules) -> Self {
        let mut out = BytesMut::with_capacity(32 + 48 * headers.len());
        out.put_u8(VERSION);
        out.put_u16(status.as_u16());
        put_headers(&mut out, 0, rules.select(headers));
        Self(out)
    }

    /// The record.
    pub(crate) fn with_body<'a>(
        self,
        body: impl Iterator<Item = &'a Bytes> + Clone,
        trailers: Option<&HeaderMap>,
    ) -> Bytes {
        let Self(mut out) = self;
        match trailers {
            None => out.put_u32(0),
            Some(trailers) => put_headers(&mut out, 1, trailers.iter()),
        }
        let length: usize = body.clone().map(Bytes::len).sum();
        out.reserve(8 + length);
        out.put_u64(length as u64);
        for chunk in body {
            out.put_slice(chunk);
        }
        out.freeze()
    }
}

/// The count, `plus` a bias, is written when the lines are known.
fn put_headers<'a>(
    out: &mut BytesMut,
    plus: u32,
    headers: impl Iterator<Item = (&'a HeaderName, &'a HeaderValue)>,
) {
    let at = out.len();
    out.put_u32(plus);
    let mut count = plus;
    for (name, value) in headers {
        let (name, value) = (name.as_str().as_bytes(), value.as_bytes());
        let (Ok(name_len), Ok(value_len)) = (u16::try_from(name.len()), u32::try_from(value.len()))
        else {
            continue; // no header map holds such a line
        };
        out.put_u16(name_len);
        out.put_slice(name);
        out.put_u32(value_len);
        out.put_slice(value);
        count += 1;
    }
    out[at..at + 4].copy_from_slice(&count.to_be_bytes());
}

/// Reads a response. The bytes come from a store that others may write to: anything may be wrong.
///
/// # Errors
///
/// [`Unreadable`] for another version, or bytes that are cut, too many or no response.
pub(crate) fn decode(bytes: &Bytes) -> Result<KeptResponse, Unreadable> {
    let mut input = bytes.clone();
    let version = input.try_get_u8().map_err(|_| Unreadable::Cut)?;
    if version != VERSION {
        return Err(Unreadable::Version(version));
    }
    let status = input.try_get_u16().map_err(|_| Unreadable::Cut)?;
    let status = StatusCode::from_u16(status).map_err(|_| Unreadable::NoResponse)?;
    let count = input.try_get_u32().map_err(|_| Unreadable::Cut)?;
    let headers = get_headers(&mut input, count)?;
    let trailers = match input.try_get_u32().map_err(|_| Unreadable::Cut)? {
        0 => None,
        one_more => Some(get_headers(&mut input, one_more - 1)?),
    };
    let length = input.try_get_u64().map_err(|_| Unreadable::Cut)?;
    if length != input.len() as u64 {
        return Err(Unreadable::Cut);
    }
    Ok(KeptResponse {
        status,
        headers,
        body: input,
        trailers,
    })
}

fn get_headers(input: &mut Bytes, count: u32) -> Result<HeaderMap, Unreadable> {
    // Never reserve by a number that was read: a foreign record could ask for gigabytes.
    let mut headers = HeaderMap::new();
    for _ in 0..count {
        let name_len = input.try_get_u16().map_err(|_| Unreadable::Cut)?;
        let name = take(input, usize::from(name_len))?;
        let value_len = input.try_get_u32().map_err(|_| Unreadable::Cut)?;
        let value = take(input, value_len as usize)?;
        let name = HeaderName::from_bytes(&name).map_err(|_| Unreadable::NoResponse)?;
        let value = HeaderValue::from_maybe_shared(value).map_err(|_| Unreadable::NoResponse)?;
        headers
            .try_append(name, value)
            .map_err(|_| Unreadable::NoResponse)?;
    }
    Ok(headers)
}

fn take(input: &mut Bytes, length: usize) -> Result<Bytes, Unreadable> {
    (length <= input.len())
        .then(|| input.split_to(length))
        .ok_or(Unreadable::Cut)
}

/// Why a record cannot be replayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unreadable {
    /// Written by another version of this crate.
    Version(u8),
    /// Too short or too long.
    Cut,
    /// A status or a header that HTTP does not have.
    NoResponse,
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version(v) => write!(f, "the record has version {v}, this crate reads {VERSION}"),
            Self::Cut => f.write_str("the record is too short or too long"),
            Self::NoResponse => f.write_str("the record holds no response"),
        }
    }
}
