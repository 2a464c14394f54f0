use std::convert::Infallible;

use futures_util::FutureExt;
use http_body_util::BodyExt;
use tower_claim::Token;

use super::*;
use crate::fence::drain::Turn;
use crate::fence::registry::Registry;

fn token(n: u64) -> Token {
    Token::new(n).unwrap()
}

/// Ends after one frame; while it is asked whether it has ended, a newer call is admitted.
struct Asked<F>(Mutex<Option<F>>, bool);

impl<F: FnOnce() + Unpin> Body for Asked<F> {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let first = !std::mem::replace(&mut self.1, true);
        Poll::Ready(first.then(|| Ok(Frame::data(Bytes::from_static(b"a")))))
    }

    fn is_end_stream(&self) -> bool {
        if let Some(admit) = self.0.lock().unwrap().take() {
            admit();
        }
        false
    }
}

#[test]
fn a_stream_that_is_looked_at_while_it_is_cut_does_not_stay() {
    let registry = Arc::new(Registry::default());
    let old = registry.enter("a".into(), token(1));
    let new = Arc::new(registry.enter("a".into(), token(2)));
    let admit = {
        let new = new.clone();
        move || new.admit()
    };
    let body = FenceBody::stream(Asked(Mutex::new(Some(admit)), false), old);
    assert!(!body.is_end_stream());
    assert_eq!(new.turn_now(), Turn::Run, "nobody polls the old one again");
}

#[test]
fn a_body_that_has_ended_stays_ended() {
    let registry = Arc::new(Registry::default());
    let enter = |n| registry.enter("a".into(), token(n));
    let stream = |ticket| FenceBody::stream(Asked(Mutex::new(Some(|| ())), false), ticket);
    let next = |body: &mut FenceBody<_>| body.frame().now_or_never().expect("it waits for ever");

    let mut whole = stream(enter(1));
    assert!(next(&mut whole).unwrap().is_ok() && next(&mut whole).is_none());
    assert!(next(&mut whole).is_none() && whole.is_end_stream());

    let mut cut = stream(enter(1));
    let new = enter(2);
    new.admit();
    assert!(!cut.is_end_stream() && next(&mut cut).unwrap().is_err());
    assert!(next(&mut cut).is_none() && cut.is_end_stream());
}
