//! Holds an upload against its digest while the handler reads it.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Frame, SizeHint};
use sha2::{Digest, Sha256};

use super::response::BoxError;

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

/// Set once an upload has failed: what the handler answers then is no outcome to keep. By default it cannot
/// fail: it was read before.
#[derive(Debug, Clone, Default)]
pub(crate) struct UploadFailed(Option<Arc<AtomicBool>>);

impl UploadFailed {
    /// Of an upload that streams.
    pub(crate) fn not_yet() -> Self {
        Self(Some(Arc::default()))
    }

    pub(crate) fn get(&self) -> bool {
        self.0
            .as_ref()
            .is_some_and(|failed| failed.load(Ordering::Acquire))
    }

    fn set(&self) {
        if let Some(failed) = &self.0 {
            failed.store(true, Ordering::Release);
        }
    }
}

/// What an upload must be. Holds back one frame, so that the last bytes are not given out before all of it
/// has been found right: a handler never sees a whole body that is a wrong one.
#[derive(Debug)]
pub(crate) struct Check {
    hash: Sha256,
    digest: [u8; 32],
    left: u64,
    failed: UploadFailed,
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
    pub(crate) fn new(digest: [u8; 32], limit: u64, failed: UploadFailed) -> Self {
        Self {
            hash: Sha256::new(),
            digest,
            left: limit,
            failed,
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

    /// Answers what was held back before.
    fn take_in(&mut self, data: Bytes) -> Result<Option<Bytes>, BoxError> {
        if data.is_empty() {
            return Ok(None);
        }
        self.left = match self.left.checked_sub(data.len() as u64) {
            Some(left) => left,
            None => return Err(self.fail(UploadError::TooLarge.into())),
        };
        self.hash.update(&data);
        Ok(self.held.replace(data))
    }

    fn end_with(&mut self, trailers: Option<HeaderMap>) -> Result<(), BoxError> {
        let digest: [u8; 32] = std::mem::take(&mut self.hash).finalize().into();
        if digest != self.digest {
            return Err(self.fail(UploadError::NotItsDigest.into()));
        }
        self.end = Some(End::Right(trailers));
        Ok(())
    }

    fn fail(&mut self, error: BoxError) -> BoxError {
        self.failed.set();
        self.held = None;
        self.end = Some(End::Over);
        error
    }

    pub(super) fn is_over(&self) -> bool {
        self.held.is_none() && matches!(self.end, Some(End::Over | End::Right(None)))
    }

    /// `rest` is what the upload says of itself.
    pub(super) fn size_hint(&self, rest: &SizeHint) -> SizeHint {
        let held = self.held.as_ref().map_or(0, |held| held.len() as u64);
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

    use super::*;

    type Given = Vec<Result<String, String>>;

    /// What is given out of these frames, and whether it failed.
    fn run(
        digest_of: &str,
        limit: u64,
        frames: &[Result<&'static str, &'static str>],
    ) -> (Given, bool) {
        let failed = UploadFailed::not_yet();
        let digest = Sha256::digest(digest_of).into();
        let mut check = Check::new(digest, limit, failed.clone());
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
        (given, failed.get())
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
    fn too_long_or_broken_off_it_has_failed() {
        let long = UploadError::TooLarge.to_string();
        let given = run("abc", 2, &[Ok("ab"), Ok("c")]);
        assert_eq!(given, (vec![Err(long)], true));
        let given = run("abc", 3, &[Ok("ab"), Err("reset")]);
        assert_eq!(given, (vec![Err("reset".to_owned())], true));
    }
}
