//! The request body: read before anything is claimed, or streamed to the handler while it is hashed.

use std::error::Error as StdError;
use std::pin::Pin;

use bytes::Bytes;
use http::HeaderMap;
use http::request::Parts;
use http_body::Body;
use tower_claim::{Code, Fingerprint, Refusal};

use crate::body::{
    Check, ReadError, Reading, RequestBody, UploadDigest, UploadFate, Whole, read_request,
    read_to_the_end, read_up_to,
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
        /// By its head.
        absent: bool,
    },
    /// Still to come, if only the rest.
    Streamed {
        body: Pin<Box<B>>,
        known_by: KnownBy,
        limit: u64,
        fate: UploadFate,
    },
}

/// How an upload that streams is told from another one.
pub(crate) enum KnownBy {
    /// The digest that the client sent along.
    Digest([u8; 32]),
    /// Its digest, when all of it was there. These bytes were read to see that it is large.
    Hash(Bytes),
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
            && !absent
        {
            return Self::streamed(shared, parts, Box::pin(body), limit).await;
        }
        let read = read_request(body, shared.max_request_body).await;
        let (data, trailers) = read.map_err(refusal)?;
        Ok(Self::Read {
            data,
            trailers,
            absent,
        })
    }

    /// By its digest at once; without one when it is too large to be read first.
    async fn streamed(
        shared: &Shared,
        parts: &Parts,
        mut body: Pin<Box<B>>,
        limit: u64,
    ) -> Result<Self, Refusal> {
        if body.size_hint().lower() > limit {
            return Err(refusal(ReadError::TooLarge));
        }
        let known_by = match fingerprint::claimed_digest(&shared.entry.bound, parts) {
            Some(digest) => KnownBy::Digest(digest),
            None => match read_up_to(body.as_mut(), shared.max_request_body).await {
                Ok(Reading::Over(ahead)) => KnownBy::Hash(ahead),
                Ok(Reading::Whole(data, trailers)) => {
                    return Ok(Self::Read {
                        data,
                        trailers,
                        absent: false,
                    });
                }
                Err(error) => return Err(refusal(error)),
            },
        };
        Ok(Self::Streamed {
            body,
            known_by,
            limit,
            fate: UploadFate::open(),
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
            Self::Streamed { known_by, .. } => match known_by {
                KnownBy::Digest(digest) => fingerprint::of_digest(parts, digest),
                KnownBy::Hash(_) => fingerprint::of_large_upload(&shared.entry.bound, parts),
            },
        };
        let secret = shared.fingerprint_secret.as_ref();
        Ok(secret.map_or(plain, |secret| secret.of(&plain)))
    }

    /// Tells what becomes of it while the handler reads it.
    pub(crate) fn fate(&self) -> UploadFate {
        match self {
            Self::Read { .. } => UploadFate::default(),
            Self::Streamed { fate, .. } => fate.clone(),
        }
    }

    pub(crate) fn into_body(self, shared: &Shared) -> RequestBody<B> {
        match self {
            Self::Read { data, trailers, .. } => RequestBody::read(Whole::of(data, trailers)),
            Self::Streamed {
                body,
                known_by,
                limit,
                fate,
            } => {
                let check = match known_by {
                    KnownBy::Digest(digest) => Check::of(digest, limit, fate),
                    KnownBy::Hash(ahead) => {
                        Check::of_any(ahead, shared.fingerprint_secret.clone(), limit, fate)
                    }
                };
                RequestBody::checked(body, check)
            }
        }
    }

    /// Reads what is not read yet, and tells whether it is what its head says. What was read before is: its
    /// fingerprint was made of it. Answers the digest of a body that its fingerprint does not know.
    pub(crate) async fn verified(self, shared: &Shared) -> Result<Option<UploadDigest>, Refusal> {
        let fate = self.fate();
        if let Self::Streamed { .. } = self {
            verify(self.into_body(shared)).await?;
        }
        Ok(fate.digest())
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
