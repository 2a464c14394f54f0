//! Reads a request body, up to a limit.

use std::error::Error as StdError;
use std::pin::{Pin, pin};

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http_body::Body;
use http_body_util::{BodyExt, LengthLimitError};

use super::check::UploadError;
use super::response::BoxError;

/// Why a request body could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReadError {
    /// Over the limit, ours or one that a layer outside put on the body.
    TooLarge,
    /// The upload broke off.
    Broken,
    /// It is not what its digest says.
    NotItsDigest,
}

/// What a body came to.
pub(crate) enum Reading {
    Whole(Bytes, Option<HeaderMap>),
    /// It is over the limit: this was read of it.
    Over(Bytes),
}

/// Reads a body to its end. A body of one chunk is not copied.
///
/// # Cancellation
///
/// A drop leaves nothing behind: nothing was claimed yet.
pub(crate) async fn read_request<B>(
    body: B,
    limit: usize,
) -> Result<(Bytes, Option<HeaderMap>), ReadError>
where
    B: Body<Data = Bytes>,
    B::Error: Into<Box<dyn StdError + Send + Sync>>,
{
    match read_up_to(pin!(body), limit).await? {
        Reading::Whole(data, trailers) => Ok((data, trailers)),
        Reading::Over(_) => Err(ReadError::TooLarge),
    }
}

/// The same of a body of which the rest may be wanted.
pub(crate) async fn read_up_to<B>(mut body: Pin<&mut B>, limit: usize) -> Result<Reading, ReadError>
where
    B: Body<Data = Bytes>,
    B::Error: Into<Box<dyn StdError + Send + Sync>>,
{
    // An honest length is known before the upload, also before `100 Continue`.
    if body.size_hint().lower() > limit as u64 {
        return Ok(Reading::Over(Bytes::new()));
    }
    let mut first = Bytes::new();
    let mut joined = BytesMut::new();
    let mut trailers = None;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| judge(error.into().as_ref()))?;
        match frame.into_data() {
            Ok(data) => {
                let is_over = data.len() > limit - (first.len() + joined.len());
                if first.is_empty() && joined.is_empty() {
                    first = data;
                } else {
                    joined.extend_from_slice(&std::mem::take(&mut first));
                    joined.extend_from_slice(&data);
                }
                if is_over {
                    return Ok(Reading::Over(whole(first, joined)));
                }
            }
            Err(frame) => trailers = frame.into_trailers().ok(),
        }
    }
    Ok(Reading::Whole(whole(first, joined), trailers))
}

fn whole(first: Bytes, joined: BytesMut) -> Bytes {
    if joined.is_empty() {
        first
    } else {
        joined.freeze()
    }
}

/// Reads a checked body to its end and lets it go, for its check.
pub(crate) async fn read_to_the_end<B>(body: B) -> Result<(), ReadError>
where
    B: Body<Data = Bytes, Error = BoxError>,
{
    let mut body = pin!(body);
    while let Some(frame) = body.frame().await {
        frame.map_err(|error| match error.downcast_ref() {
            Some(UploadError::NotItsDigest) => ReadError::NotItsDigest,
            Some(UploadError::TooLarge) => ReadError::TooLarge,
            None => judge(error.as_ref()),
        })?;
    }
    Ok(())
}

/// A limit that stands outside of us shows as an error of the body: that is 413 all the same.
fn judge(error: &(dyn StdError + Send + Sync + 'static)) -> ReadError {
    let mut cause: Option<&(dyn StdError + 'static)> = Some(error);
    while let Some(error) = cause {
        if error.is::<LengthLimitError>() {
            return ReadError::TooLarge;
        }
        cause = error.source();
    }
    ReadError::Broken
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures_util::{FutureExt, stream};
    use http::HeaderValue;
    use http_body::Frame;
    use http_body_util::{Full, Limited, StreamBody};

    use super::*;

    fn frames(sizes: &[usize]) -> impl Body<Data = Bytes, Error = Infallible> {
        let frames: Vec<_> = sizes
            .iter()
            .map(|n| Ok(Frame::data(Bytes::from(vec![b'x'; *n]))))
            .collect();
        StreamBody::new(stream::iter(frames))
    }

    fn read<B>(body: B, limit: usize) -> Result<(Bytes, Option<HeaderMap>), ReadError>
    where
        B: Body<Data = Bytes>,
        B::Error: Into<Box<dyn StdError + Send + Sync>>,
    {
        read_request(body, limit).now_or_never().unwrap()
    }

    #[test]
    fn chunk_borders_do_not_matter() {
        for sizes in [&[6][..], &[1, 2, 3], &[0, 6, 0], &[3, 0, 3]] {
            let (whole, trailers) = read(frames(sizes), 6).unwrap();
            assert_eq!(&whole[..], b"xxxxxx", "{sizes:?}");
            assert_eq!(trailers, None);
        }
    }

    #[test]
    fn the_limit_itself_is_allowed_and_one_more_is_not() {
        for sizes in [&[7][..], &[6, 1], &[1, 1, 5]] {
            assert_eq!(read(frames(sizes), 6).unwrap_err(), ReadError::TooLarge);
        }
        let full = Full::new(Bytes::from_static(b"1234567"));
        assert_eq!(read(full, 6).unwrap_err(), ReadError::TooLarge);
    }

    #[test]
    fn a_limit_outside_is_told_apart_from_a_broken_upload() {
        let limited = Limited::new(frames(&[4, 4]), 6);
        assert_eq!(read(limited, 100).unwrap_err(), ReadError::TooLarge);
        let broken = StreamBody::new(stream::iter([
            Ok(Frame::data(Bytes::from_static(b"a"))),
            Err(std::io::Error::other("reset")),
        ]));
        assert_eq!(read(broken, 100).unwrap_err(), ReadError::Broken);
    }

    #[test]
    fn trailers_survive() {
        let mut trailers = HeaderMap::new();
        trailers.insert("x-sum", HeaderValue::from_static("1"));
        let body = StreamBody::new(stream::iter([
            Ok::<_, Infallible>(Frame::data(Bytes::from_static(b"a"))),
            Ok(Frame::trailers(trailers.clone())),
        ]));
        let (whole, read) = read(body, 1).unwrap();
        assert_eq!((&whole[..], read), (&b"a"[..], Some(trailers)));
    }
}
