//! Hashes an upload while the handler reads it, and holds it against its digest where it brought one along.

use std::error::Error as StdError;
use std::fmt;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Frame, SizeHint};
use sha2::{Digest, Sha256};
use tower_claim::Fingerprint;

use super::fate::UploadFate;
use super::response::BoxError;
use crate::fingerprint::Secret;

/// Why an upload that was streamed to the handler ended with an error of this layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum UploadError {
    /// It is not what its `Content-Digest` says. Its last bytes were not given out.
    NotItsDigest,
    /// It is over the limit of [`stream_uploads`](crate::IdempotencyBuilder::stream_uploads).
    TooLarge,
}

impl fmt::Display for UploadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotItsDigest => "the body is not what its Content-Digest says",
            Self::TooLarge => "the body is over the limit for streamed uploads",
        })
    }
}

impl StdError for UploadError {}

/// What an upload must be.
#[derive(Debug)]
enum Expected {
    /// This. One frame is held back, so that the last bytes are not given out before all of it has been found right: a
    /// handler never sees a whole body that is a wrong one.
    Digest([u8; 32]),
    /// Whatever comes; what it was is told behind its end, under this secret.
    Anything(Option<Secret>),
}

/// An upload on its way to the handler.
#[derive(Debug)]
pub(crate) struct Check {
    hash: Sha256,
    expected: Expected,
    left: u64,
    fate: UploadFate,
    /// Was read before it was known that it streams.
    ahead: Option<Bytes>,
    held: Option<Bytes>,
    end: Option<End>,
}

#[derive(Debug)]
enum End {
    /// Found right; these are still to be given out, if there are any.
    Right(Option<HeaderMap>),
    Over,
}

impl Check {
    /// Of an upload with this digest.
    pub(crate) fn of(digest: [u8; 32], limit: u64, fate: UploadFate) -> Self {
        Self::new(Expected::Digest(digest), None, limit, fate)
    }

    /// Of any upload, of which these bytes were read before.
    pub(crate) fn of_any(
        ahead: Bytes,
        secret: Option<Secret>,
        limit: u64,
        fate: UploadFate,
    ) -> Self {
        let ahead = (!ahead.is_empty()).then_some(ahead);
        Self::new(Expected::Anything(secret), ahead, limit, fate)
    }

    fn new(expected: Expected, ahead: Option<Bytes>, limit: u64, fate: UploadFate) -> Self {
        Self {
            hash: Sha256::new(),
            expected,
            left: limit,
            fate,
            ahead,
            held: None,
            end: None,
        }
    }

    /// The next frame to give out. `poll` asks the upload for its next one.
    pub(super) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
        mut poll: impl FnMut(&mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        while self.end.is_none() {
            if let Some(ahead) = self.ahead.take() {
                if let Some(data) = self.take_in(ahead)? {
                    return Poll::Ready(Some(Ok(Frame::data(data))));
                }
                continue;
            }
            match ready!(poll(cx)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => {
                        if let Some(before) = self.take_in(data)? {
                            return Poll::Ready(Some(Ok(Frame::data(before))));
                        }
                    }
                    Err(frame) => self.end_with(frame.into_trailers().ok())?,
                },
                Some(Err(error)) => return Poll::Ready(Some(Err(self.fail(error)))),
                None => self.end_with(None)?,
            }
        }
        if let Some(last) = self.held.take() {
            return Poll::Ready(Some(Ok(Frame::data(last))));
        }
        let trailers = match self.end.replace(End::Over) {
            Some(End::Right(trailers)) => trailers,
            _ => None,
        };
        Poll::Ready(trailers.map(|trailers| Ok(Frame::trailers(trailers))))
    }

    /// Answers what may be given out.
    fn take_in(&mut self, data: Bytes) -> Result<Option<Bytes>, BoxError> {
        if data.is_empty() {
            return Ok(None);
        }
        self.left = match self.left.checked_sub(data.len() as u64) {
            Some(left) => left,
            None => return Err(self.fail(UploadError::TooLarge.into())),
        };
        self.hash.update(&data);
        Ok(match self.expected {
            Expected::Digest(_) => self.held.replace(data),
            Expected::Anything(_) => Some(data),
        })
    }

    /// Nothing comes any more. A reader that knows the length does not ask for the end.
    pub(super) fn nothing_comes(&mut self) {
        if self.end.is_none()
            && self.ahead.is_none()
            && matches!(self.expected, Expected::Anything(_))
        {
            let _ = self.end_with(None);
        }
    }

    fn end_with(&mut self, trailers: Option<HeaderMap>) -> Result<(), BoxError> {
        let digest: [u8; 32] = std::mem::take(&mut self.hash).finalize().into();
        match &self.expected {
            Expected::Digest(expected) if digest != *expected => {
                return Err(self.fail(UploadError::NotItsDigest.into()));
            }
            Expected::Digest(_) => {}
            Expected::Anything(None) => self.fate.is(digest),
            Expected::Anything(Some(secret)) => {
                let print = secret.of(&Fingerprint::from_bytes(digest));
                self.fate.is(*print.as_bytes());
            }
        }
        self.end = Some(End::Right(trailers));
        Ok(())
    }

    fn fail(&mut self, error: BoxError) -> BoxError {
        self.fate.fails();
        self.held = None;
        self.ahead = None;
        self.end = Some(End::Over);
        error
    }

    pub(super) fn is_over(&self) -> bool {
        self.held.is_none() && matches!(self.end, Some(End::Over | End::Right(None)))
    }

    /// `rest` is what the upload says of itself.
    pub(super) fn size_hint(&self, rest: &SizeHint) -> SizeHint {
        let here = self.held.iter().chain(&self.ahead);
        let held = here.map(|bytes| bytes.len() as u64).sum();
        let mut hint = SizeHint::new();
        hint.set_lower(rest.lower().saturating_add(held));
        if let Some(upper) = rest.upper() {
            hint.set_upper(upper.saturating_add(held));
        }
        hint
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::task::Waker;

    use futures_util::FutureExt;
    use http_body_util::BodyExt;

    use super::super::fate::UploadDigest;
    use super::*;

    type Given = Vec<Result<String, String>>;

    /// What is given out of these frames, and whether it failed.
    fn run(
        digest_of: &str,
        limit: u64,
        frames: &[Result<&'static str, &'static str>],
    ) -> (Given, bool) {
        let fate = UploadFate::open();
        let digest = Sha256::digest(digest_of).into();
        let mut check = Check::of(digest, limit, fate.clone());
        let mut frames: VecDeque<_> = frames.iter().copied().collect();
        let mut given = Vec::new();
        let mut cx = Context::from_waker(Waker::noop());
        loop {
            let next = check.poll_frame(&mut cx, |_| {
                Poll::Ready(frames.pop_front().map(|frame| match frame {
                    Ok("trailers") => Ok(Frame::trailers(HeaderMap::new())),
                    Ok(data) => Ok(Frame::data(Bytes::from_static(data.as_bytes()))),
                    Err(error) => Err(error.into()),
                }))
            });
            match next {
                Poll::Pending => panic!("nothing waits here"),
                Poll::Ready(None) => break,
                Poll::Ready(Some(Err(error))) => given.push(Err(error.to_string())),
                Poll::Ready(Some(Ok(frame))) => given.push(Ok(match frame.into_data() {
                    Ok(data) => String::from_utf8(data.to_vec()).unwrap(),
                    Err(_) => "trailers".to_owned(),
                })),
            }
        }
        assert!(check.is_over());
        (given, fate.has_failed())
    }

    fn ok(given: &[&str]) -> (Given, bool) {
        (given.iter().map(|g| Ok((*g).to_owned())).collect(), false)
    }

    #[test]
    fn what_is_right_is_given_out_whole() {
        let frames = [Ok("a"), Ok(""), Ok("b"), Ok("c")];
        assert_eq!(run("abc", 3, &frames), ok(&["a", "b", "c"]));
        assert_eq!(
            run("a", 3, &[Ok("a"), Ok("trailers")]),
            ok(&["a", "trailers"])
        );
        assert_eq!(run("", 3, &[]), ok(&[]));
    }

    #[test]
    fn the_last_bytes_of_a_wrong_one_are_not_given_out() {
        let wrong = UploadError::NotItsDigest.to_string();
        let frames = [Ok("a"), Ok("b")];
        let expected = vec![Ok("a".to_owned()), Err(wrong.clone())];
        assert_eq!(run("abc", 9, &frames), (expected, true));
        assert_eq!(run("abc", 9, &[]), (vec![Err(wrong)], true));
    }

    #[test]
    fn of_one_that_is_not_known_the_digest_is_told_behind_its_end_and_under_the_secret() {
        let upload = || futures_util::stream::iter([Ok::<_, BoxError>(Frame::data("bc".into()))]);
        let plain: UploadDigest = Sha256::digest("abc").into();
        let secret = Secret::new([1; 32]);
        let under = *secret.of(&Fingerprint::from_bytes(plain)).as_bytes();
        for (secret, expected) in [(None, plain), (Some(secret), under)] {
            let fate = UploadFate::open();
            let check = Check::of_any("a".into(), secret, 3, fate.clone());
            let body = Box::pin(http_body_util::StreamBody::new(upload()));
            let mut body = crate::body::RequestBody::checked(body, check);
            let mut given = Vec::new();
            while let Some(frame) = body.frame().now_or_never().unwrap() {
                assert_eq!(fate.digest(), None, "told before the end");
                given.extend(frame.unwrap().into_data().unwrap());
            }
            assert_eq!((&given[..], fate.digest()), (&b"abc"[..], Some(expected)));
        }
    }

    #[test]
    fn too_long_or_broken_off_it_has_failed() {
        let long = UploadError::TooLarge.to_string();
        let given = run("abc", 2, &[Ok("ab"), Ok("c")]);
        assert_eq!(given, (vec![Err(long)], true));
        let given = run("abc", 3, &[Ok("ab"), Err("reset")]);
        assert_eq!(given, (vec![Err("reset".to_owned())], true));
    }
}
