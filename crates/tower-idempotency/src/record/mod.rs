//! A response as bytes, as the store keeps it.
//!
//! ```text
//! version    u8       2, or 3 for a request whose upload was hashed while its handler read it
//! first seen u64      milliseconds since the Unix epoch: when the first run began
//! kept       u8       1: the whole response, 0: its head only (trailers and body are empty then)
//! status     u16
//! headers    u32      how many, then for each: name (u16, bytes), value (u32, bytes)
//! trailers   u32      0 for none, else one more than how many, then as above
//! upload     32 bytes version 3 only: the digest of the request's body
//! body       u64      length, then its bytes, up to the end
//! ```
//!
//! Numbers are big-endian. The body comes last, so that a replay shares the store's bytes.
//!
//! Version 1 had neither the second nor the third field; it is read still. Other first bytes: a record that was
//! [sealed](crate::seal), the [`Marker`] of a key whose work goes on under another, and the word that a run was
//! [withdrawn].

mod marker;
mod withdrawn;

#[cfg(test)]
mod tests;

use std::fmt;
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use crate::body::{UploadDigest, UploadFate};
use crate::headers::HeaderRules;
use crate::seal::{SEALED, SealError};
pub(crate) use marker::{Before, Marker, MovedTo};
pub(crate) use withdrawn::{is_withdrawn, withdrawn};

const VERSION: u8 = 2;
/// With the digest of an upload, which its fingerprint does not know.
const WITH_UPLOAD: u8 = 3;
/// Without a first time, and whole.
const VERSION_1: u8 = 1;
/// Where the head says whether the body follows.
const WHOLE_AT: usize = 9;

/// A response that can be kept and replayed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeptResponse {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) trailers: Option<HeaderMap>,
    /// When the first run began, since the Unix epoch.
    pub(crate) first_seen: Option<Duration>,
    /// Of a tombstone only the head was kept.
    pub(crate) is_whole: bool,
    /// Of a request whose upload was hashed while its handler read it, to its end.
    pub(crate) upload: Option<UploadDigest>,
}

/// A record to keep.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) bytes: Bytes,
    pub(crate) is_whole: bool,
}

/// The first half of a record: status and headers, written before the head is sent.
#[derive(Debug)]
pub(crate) struct Head {
    out: BytesMut,
    upload: UploadFate,
}

impl Head {
    /// Writes a head down, without the headers that were true of its exchange only.
    pub(crate) fn new(
        status: StatusCode,
        headers: &HeaderMap,
        rules: &HeaderRules,
        first_seen: Duration,
    ) -> Self {
        let mut out = BytesMut::with_capacity(40 + 48 * headers.len());
        out.put_u8(VERSION);
        out.put_u64(u64::try_from(first_seen.as_millis()).unwrap_or(u64::MAX));
        out.put_u8(1);
        out.put_u16(status.as_u16());
        put_headers(&mut out, 0, rules.select(headers));
        Self {
            out,
            upload: UploadFate::default(),
        }
    }

    /// Of a request with this upload, which may still come.
    pub(crate) fn of_upload(mut self, upload: &UploadFate) -> Self {
        self.upload = upload.clone();
        self
    }

    /// The record.
    pub(crate) fn with_body<'a>(
        self,
        body: impl Iterator<Item = &'a Bytes> + Clone,
        trailers: Option<&HeaderMap>,
        rules: &HeaderRules,
    ) -> Record {
        let Self { mut out, upload } = self;
        match trailers {
            None => out.put_u32(0),
            Some(trailers) => put_headers(&mut out, 1, rules.select(trailers)),
        }
        put_upload(&mut out, &upload);
        let length: usize = body.clone().map(Bytes::len).sum();
        out.reserve(8 + length);
        out.put_u64(length as u64);
        for chunk in body {
            out.put_slice(chunk);
        }
        Record {
            bytes: out.freeze(),
            is_whole: true,
        }
    }

    /// The record of an answer that is not kept: what it was, without its body.
    pub(crate) fn alone(self) -> Record {
        let Self { mut out, upload } = self;
        if let Some(whole) = out.get_mut(WHOLE_AT) {
            *whole = 0;
        }
        out.put_u32(0);
        put_upload(&mut out, &upload);
        out.put_u64(0);
        Record {
            bytes: out.freeze(),
            is_whole: false,
        }
    }
}

fn put_upload(out: &mut BytesMut, upload: &UploadFate) {
    if let Some(digest) = upload.digest()
        && let Some(version) = out.first_mut()
    {
        *version = WITH_UPLOAD;
        out.put_slice(&digest);
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
    let (first_seen, is_whole) = match version {
        VERSION_1 => (None, true),
        VERSION | WITH_UPLOAD => {
            let first_seen = input.try_get_u64().map_err(|_| Unreadable::Cut)?;
            let is_whole = match input.try_get_u8().map_err(|_| Unreadable::Cut)? {
                0 => false,
                1 => true,
                _ => return Err(Unreadable::NoResponse),
            };
            (Some(Duration::from_millis(first_seen)), is_whole)
        }
        SEALED => return Err(Unreadable::Sealed(SealError::NoKeys)),
        _ if Marker::read(bytes).is_some() => return Err(Unreadable::Moved),
        version => return Err(Unreadable::Version(version)),
    };
    let status = input.try_get_u16().map_err(|_| Unreadable::Cut)?;
    let status = StatusCode::from_u16(status).map_err(|_| Unreadable::NoResponse)?;
    let count = input.try_get_u32().map_err(|_| Unreadable::Cut)?;
    let headers = get_headers(&mut input, count)?;
    let trailers = match input.try_get_u32().map_err(|_| Unreadable::Cut)? {
        0 => None,
        one_more => Some(get_headers(&mut input, one_more - 1)?),
    };
    let mut upload = None;
    if version == WITH_UPLOAD {
        let mut digest = [0; 32];
        input
            .try_copy_to_slice(&mut digest)
            .map_err(|_| Unreadable::Cut)?;
        upload = Some(digest);
    }
    let length = input.try_get_u64().map_err(|_| Unreadable::Cut)?;
    if length != input.len() as u64 {
        return Err(Unreadable::Cut);
    }
    Ok(KeptResponse {
        status,
        headers,
        body: input,
        trailers,
        first_seen,
        is_whole,
        upload,
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
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Unreadable {
    /// Written by another version of this crate.
    Version(u8),
    /// Too short or too long.
    Cut,
    /// A status or a header that HTTP does not have.
    NoResponse,
    /// The work goes on under another key.
    Moved,
    /// It cannot be unsealed.
    Sealed(SealError),
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version(v) => write!(
                f,
                "the record has version {v}, this crate reads {WITH_UPLOAD}"
            ),
            Self::Cut => f.write_str("the record is too short or too long"),
            Self::NoResponse => f.write_str("the record holds no response"),
            Self::Moved => f.write_str("the record says that the work goes on under another key"),
            Self::Sealed(why) => why.fmt(f),
        }
    }
}
