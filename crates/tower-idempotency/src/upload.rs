//! The request body: read before anything is claimed, or streamed to the handler by its digest.

use std::error::Error as StdError;

use bytes::Bytes;
use http::HeaderMap;
use http::request::Parts;
use http_body::Body;
use tower_claim::{Code, Fingerprint, Refusal};

use crate::body::{
    Check, ReadError, RequestBody, UploadFailed, Whole, read_request, read_to_the_end,
};
use crate::entry::Ticket;
use crate::fingerprint;
use crate::shared::Shared;

/// The body of a request with a key.
pub(crate) enum Upload<B> {
    /// In memory.
    Read {
        data: Bytes,
        trailers: Option<HeaderMap>,
        /// Which HTTP can tell from an empty one.
        absent: bool,
    },
    /// Still to come. What it will be is known by the digest that the client sent along.
    Streamed {
        body: B,
        digest: [u8; 32],
        limit: u64,
        failed: UploadFailed,
    },
}

impl<B> Upload<B>
where
    B: Body<Data = Bytes>,
    B::Error: Into<Box<dyn StdError + Send + Sync>>,
{
    /// The whole body before anything is claimed: a broken upload leaves nothing behind, and a repeat with
    /// another payload is told so also while the first run is going. Only where the head says what the body is,
    /// both can be had without it.
    pub(crate) async fn of(
        shared: &Shared,
        parts: &Parts,
        body: B,
        ticket: &Ticket,
    ) -> Result<Self, Refusal> {
        let absent = fingerprint::has_no_body(parts, &body);
        if let Some(limit) = shared.stream_uploads
            && let Ticket::Keyed(_) = ticket
            && let Some(digest) = fingerprint::claimed_digest(&shared.entry.bound, parts)
            && !absent
        {
            if body.size_hint().lower() > limit {
                return Err(refusal(ReadError::TooLarge));
            }
            return Ok(Self::Streamed {
                body,
                digest,
                limit,
                failed: UploadFailed::not_yet(),
            });
        }
        let read = read_request(body, shared.max_request_body).await;
        let (data, trailers) = read.map_err(refusal)?;
        Ok(Self::Read {
            data,
            trailers,
            absent,
        })
    }

    /// What was read of it.
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::Read { data, .. } => data,
            Self::Streamed { .. } => &[],
        }
    }

    /// The same, to keep; nothing of one that streams.
    pub(crate) fn shared_bytes(&self) -> Option<Bytes> {
        match self {
            Self::Read { data, .. } => Some(data.clone()),
            Self::Streamed { .. } => None,
        }
    }

    pub(crate) fn print(&self, shared: &Shared, parts: &Parts) -> Result<Fingerprint, Refusal> {
        let plain = match self {
            Self::Read { data, absent, .. } => {
                let body = (!absent).then_some(&data[..]);
                fingerprint::of(&shared.entry.bound, parts, body)?
            }
            Self::Streamed { digest, .. } => fingerprint::of_digest(parts, digest),
        };
        let secret = shared.fingerprint_secret.as_ref();
        Ok(secret.map_or(plain, |secret| secret.of(&plain)))
    }

    /// Tells whether it failed while the handler read it.
    pub(crate) fn failed(&self) -> UploadFailed {
        match self {
            Self::Read { .. } => UploadFailed::default(),
            Self::Streamed { failed, .. } => failed.clone(),
        }
    }

    pub(crate) fn into_body(self) -> RequestBody<B> {
        match self {
            Self::Read { data, trailers, .. } => RequestBody::read(Whole::of(data, trailers)),
            Self::Streamed {
                body,
                digest,
                limit,
                failed,
            } => RequestBody::checked(body, Check::new(digest, limit, failed)),
        }
    }

    /// Reads what is not read yet, and tells whether it is what its head says. What was read before is: its
    /// fingerprint was made of it.
    pub(crate) async fn verified(self) -> Result<(), Refusal> {
        match self {
            Self::Read { .. } => Ok(()),
            streamed => verify(streamed.into_body()).await,
        }
    }
}

/// The same of the body that was to be the handler's.
pub(crate) async fn verify<B>(body: RequestBody<B>) -> Result<(), Refusal>
where
    B: Body<Data = Bytes>,
    B::Error: Into<Box<dyn StdError + Send + Sync>>,
{
    read_to_the_end(body).await.map_err(refusal)
}

fn refusal(error: ReadError) -> Refusal {
    match error {
        ReadError::TooLarge => Refusal::new(Code::BodyTooLarge),
        ReadError::Broken => Refusal::new(Code::BodyBroken),
        ReadError::NotItsDigest => fingerprint::not_its_digest(),
    }
}
