//! When is a response over, and did it end well?

use bytes::Buf;
use http::header::CONTENT_LENGTH;
use http::{HeaderMap, Method, StatusCode};
use http_body::Frame;

/// How a response ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum End {
    /// The peer was given all of it.
    Whole,
    /// The body ended before the bytes its `Content-Length` announced; the host breaks the connection.
    Short,
    /// The body answered an error.
    Failed,
    /// The body was dropped in mid-stream: the peer hung up, or something between cut it off.
    Cut,
    /// The connection left HTTP (101, or 2xx to `CONNECT`). What follows is no response body.
    Upgraded,
}

impl End {
    /// Whether the peer was given the whole response. An upgrade is apart, and answers `false`.
    pub fn is_well(self) -> bool {
        matches!(self, End::Whole)
    }
}

/// Follows one response from its head to its end. Pure: it is told what happens and never polls.
///
/// "Was `None` seen?" is not the question to ask. Hosts drop a body as soon as they need no more of it:
/// hyper polls no body at all for `HEAD`, stops when the announced bytes are out, and leaves when
/// `is_end_stream()` holds or trailers came (`tower-rs/tower-http #625`: a drop there is no hang-up).
///
/// Feed it every polled frame, the `None` and the error; ask [`over`](Self::over) after each, and
/// [`dropped`](Self::dropped) when the body is dropped. The first end that is seen stays.
///
/// ```
/// use bytes::Bytes;
/// use http::{HeaderMap, HeaderValue, Method, StatusCode};
/// use http_body::Frame;
/// use tower_claim::http::{End, ResponseEnd};
///
/// let mut head = HeaderMap::new();
/// head.insert("content-length", HeaderValue::from_static("5"));
///
/// let mut end = ResponseEnd::new(&Method::GET, StatusCode::OK, &head);
/// end.frame(&Frame::data(Bytes::from("he")));
/// assert_eq!(end.over(false), None);
/// assert_eq!(end.dropped(false), End::Cut);
///
/// end.frame(&Frame::data(Bytes::from("llo")));
/// assert_eq!(end.dropped(false), End::Whole);
/// assert_eq!(end.bytes(), 5);
/// ```
#[derive(Debug, Clone)]
pub struct ResponseEnd {
    announced: Option<u64>,
    bytes: u64,
    trailers: bool,
    end: Option<End>,
}

impl ResponseEnd {
    /// Of the response with this head to a request of this method.
    pub fn new(method: &Method, status: StatusCode, headers: &HeaderMap) -> Self {
        let announced = content_length(headers);
        let end = if status == StatusCode::SWITCHING_PROTOCOLS
            || (method == Method::CONNECT && status.is_success())
        {
            Some(End::Upgraded)
        } else if method == Method::HEAD
            || status == StatusCode::NO_CONTENT
            || status == StatusCode::NOT_MODIFIED
            || announced == Some(0)
        {
            Some(End::Whole)
        } else {
            None
        };
        Self {
            announced,
            bytes: 0,
            trailers: false,
            end,
        }
    }

    /// What the body's size hint says exactly, where the head has no `Content-Length`: hosts announce that
    /// length themselves, and poll no further than it (`tower-rs/tower-http #625`).
    #[must_use]
    pub fn announcing(mut self, exact: Option<u64>) -> Self {
        self.announced = self.announced.or(exact);
        if self.end.is_none() && self.announced == Some(0) {
            self.end = Some(End::Whole);
        }
        self
    }

    /// The body gave this frame.
    pub fn frame<D: Buf>(&mut self, frame: &Frame<D>) {
        if let Some(data) = frame.data_ref() {
            self.data(data.remaining() as u64);
        } else if frame.is_trailers() {
            self.trailers();
        }
    }

    /// The body gave this many bytes.
    pub fn data(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.announced.is_some_and(|all| self.bytes >= all) {
            self.ended(End::Whole);
        }
    }

    /// The body gave its trailers, which are the last thing it gives.
    pub fn trailers(&mut self) {
        self.trailers = true;
        self.ended(self.at_its_end());
    }

    /// The body answered `None`.
    pub fn none(&mut self) {
        self.ended(self.at_its_end());
    }

    /// The body answered an error.
    pub fn error(&mut self) {
        self.ended(End::Failed);
    }

    /// The end, if it has come. `is_end_stream` is what the body says of itself now.
    ///
    /// Ask right after the head too: a `HEAD` response or an empty body is over before it is polled.
    /// Trailers may still follow the announced bytes (a gRPC status does).
    pub fn over(&self, is_end_stream: bool) -> Option<End> {
        self.end
            .or_else(|| is_end_stream.then(|| self.at_its_end()))
    }

    /// The end of a body that is dropped now.
    pub fn dropped(&self, is_end_stream: bool) -> End {
        self.over(is_end_stream).unwrap_or(End::Cut)
    }

    /// Bytes of data that the body gave.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The length in the head's `Content-Length`, if there is exactly one and it is a number.
    pub fn announced(&self) -> Option<u64> {
        self.announced
    }

    /// Whether trailers were seen.
    pub fn saw_trailers(&self) -> bool {
        self.trailers
    }

    fn at_its_end(&self) -> End {
        match self.announced {
            Some(all) if self.bytes < all => End::Short,
            _ => End::Whole,
        }
    }

    fn ended(&mut self, end: End) {
        self.end.get_or_insert(end);
    }
}

fn content_length(headers: &HeaderMap) -> Option<u64> {
    let mut values = headers.get_all(CONTENT_LENGTH).iter();
    let only = values.next()?;
    if values.next().is_some() {
        return None;
    }
    // `u64::from_str` takes a sign, the header does not.
    let digits = only.to_str().ok()?;
    (!digits.starts_with('+')).then(|| digits.parse().ok())?
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http::HeaderValue;
    use proptest::prelude::*;

    use super::*;

    fn end_of(method: Method, status: u16, length: &[&'static str]) -> ResponseEnd {
        let mut headers = HeaderMap::new();
        for value in length {
            headers.append(CONTENT_LENGTH, HeaderValue::from_static(value));
        }
        ResponseEnd::new(&method, StatusCode::from_u16(status).unwrap(), &headers)
    }

    fn stream() -> ResponseEnd {
        end_of(Method::GET, 200, &[])
    }

    #[test]
    fn an_exact_size_hint_is_announced_by_the_host() {
        let of = |hint| stream().announcing(hint);
        let mut end = of(Some(5));
        end.data(5);
        end.error();
        assert_eq!(
            end.dropped(false),
            End::Whole,
            "nobody polls for what comes after"
        );
        assert_eq!(of(Some(0)).over(false), Some(End::Whole));
        assert_eq!(of(None).dropped(false), End::Cut);
        let mut end = of(Some(5));
        end.data(4);
        end.none();
        assert_eq!(end.dropped(false), End::Short);
    }

    #[test]
    fn responses_without_a_body_are_over_at_the_head() {
        for (method, status, length) in [
            (Method::HEAD, 200, &["7"][..]),
            (Method::GET, 204, &[]),
            (Method::GET, 304, &["7"]),
            (Method::POST, 200, &["0"]),
        ] {
            assert_eq!(
                end_of(method, status, length).over(false),
                Some(End::Whole),
                "{status}"
            );
        }
    }

    #[test]
    fn an_upgrade_is_neither_well_nor_ill() {
        for (method, status) in [(Method::GET, 101), (Method::CONNECT, 200)] {
            let end = end_of(method, status, &[]).dropped(true);
            assert_eq!(end, End::Upgraded);
            assert!(!end.is_well());
        }
        assert_eq!(end_of(Method::CONNECT, 403, &[]).dropped(false), End::Cut);
    }

    #[test]
    fn a_drop_after_the_announced_bytes_is_no_hang_up() {
        let mut end = end_of(Method::GET, 200, &["4"]);
        end.data(3);
        assert_eq!(end.dropped(false), End::Cut);
        end.data(1);
        assert_eq!(end.dropped(false), End::Whole);
    }

    #[test]
    fn a_drop_in_mid_stream_is_a_cut() {
        let mut end = stream();
        assert_eq!(end.dropped(false), End::Cut);
        end.data(9);
        assert_eq!(end.over(false), None);
        assert_eq!(end.dropped(false), End::Cut);
        assert_eq!(end.bytes(), 9);
    }

    #[test]
    fn a_body_that_says_it_is_at_its_end_need_not_be_polled() {
        assert_eq!(stream().dropped(true), End::Whole);
        assert_eq!(
            end_of(Method::GET, 200, &["3"]).dropped(true),
            End::Short,
            "it announced three bytes and gave none"
        );
    }

    #[test]
    fn trailers_are_the_last_thing() {
        let mut end = stream();
        end.frame(&Frame::data(Bytes::from_static(b"ab")));
        end.frame::<Bytes>(&Frame::trailers(HeaderMap::new()));
        assert!(end.saw_trailers());
        assert_eq!(end.dropped(false), End::Whole);
    }

    #[test]
    fn a_body_shorter_than_announced_did_not_end_well() {
        let mut end = end_of(Method::GET, 200, &["4"]);
        end.data(3);
        end.none();
        assert_eq!(end.dropped(true), End::Short);
    }

    #[test]
    fn lengths_that_cannot_be_trusted_are_not() {
        for odd in [&["3", "4"][..], &["3", "3"], &["+3"], &["-1"], &["x"]] {
            assert_eq!(end_of(Method::GET, 200, odd).announced(), None, "{odd:?}");
        }
    }

    #[derive(Debug, Clone)]
    enum Step {
        Data(u64),
        Trailers,
        None,
        Error,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (0..5_u64).prop_map(Step::Data),
            1 => Just(Step::Trailers),
            1 => Just(Step::None),
            1 => Just(Step::Error),
        ]
    }

    proptest! {
        #[test]
        fn the_first_end_stays(steps in prop::collection::vec(step(), 0..12), announced in prop::option::of(1..9_u64)) {
            let mut end = stream();
            end.announced = announced;
            let mut first = None;
            for step in steps {
                match step {
                    Step::Data(n) => end.data(n),
                    Step::Trailers => end.trailers(),
                    Step::None => end.none(),
                    Step::Error => end.error(),
                }
                first = first.or(end.over(false));
                prop_assert_eq!(end.over(false), first);
                prop_assert_eq!(end.dropped(false), first.unwrap_or(End::Cut));
            }
        }
    }
}
