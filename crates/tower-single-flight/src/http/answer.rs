//! What comes out of a flight: the leader's own response, and what the others may have of it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, SET_COOKIE};
use http::response::Parts;
use http::{Extensions, HeaderMap, HeaderName, Response, StatusCode, Version};
use http_body::Body;
use tower_claim::Clock;

use super::body::FlightBody;
use super::gather::{Bounds, Gathered, gather};
use super::request::{Asked, KeyRule};
use super::response::{copied, depersonalize, is_personal, varies_by};

/// The inner service's response with what is needed to share it.
pub(super) struct Led<B> {
    pub(super) response: Response<B>,
    pub(super) asked: Asked,
    /// The request was HEAD: `Content-Length` is not that of the body.
    pub(super) head: bool,
}

/// The inner service's error. The leader takes it; nobody else needs it.
pub(super) struct Slot<T>(Mutex<Option<T>>);

impl<T> Slot<T> {
    pub(super) fn new(value: T) -> Self {
        Self(Mutex::new(Some(value)))
    }

    pub(super) fn take(&self) -> Option<T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// A flight that somebody joined, at its end.
pub(super) struct Answer<B: Body> {
    /// Untouched, however shareable: N callers of an unshareable answer are N calls, not N + 1.
    pub(super) own: Slot<Response<FlightBody<B>>>,
    pub(super) for_others: ForOthers,
}

pub(super) enum ForOthers {
    Master(Box<Master>),
    /// Every caller needs a call of its own.
    Alone,
    /// The body broke off.
    Broken,
}

/// What followers' responses are copied from.
pub(super) struct Master {
    status: StatusCode,
    version: Version,
    headers: HeaderMap,
    extensions: Extensions,
    data: Option<Bytes>,
    trailers: Option<HeaderMap>,
    /// Equal values of these request headers are needed to share it.
    pub(super) varies_by: Vec<HeaderName>,
    asked: Asked,
}

type Predicate = Arc<dyn Fn(&Parts) -> bool + Send + Sync>;
type CopyExtension = Arc<dyn Fn(&Extensions, &mut Extensions) + Send + Sync>;

/// What may be shared.
#[derive(Clone)]
pub(super) struct ShareRule {
    pub(super) max_body: usize,
    /// How long bodies of known and of unknown length are collected.
    pub(super) sized_wait: Duration,
    pub(super) unsized_wait: Duration,
    pub(super) predicate: Option<Predicate>,
    pub(super) extensions: Vec<CopyExtension>,
    pub(super) clock: Arc<dyn Clock>,
}

impl ShareRule {
    /// Makes a response shareable that somebody waits for.
    pub(super) async fn share<B: Body<Data = Bytes>>(&self, led: Led<B>) -> Arc<Answer<B>> {
        let (parts, body) = led.response.into_parts();
        let answer = |parts, body, for_others| {
            Arc::new(Answer {
                own: Slot::new(Response::from_parts(parts, body)),
                for_others,
            })
        };
        if is_personal(&parts) || self.predicate.as_ref().is_some_and(|p| !p(&parts)) {
            return answer(parts, FlightBody::inner(body), ForOthers::Alone);
        }
        let promised = (!led.head && !is_bodiless(parts.status))
            .then(|| content_length(&parts.headers))
            .flatten();
        let hint = body.size_hint();
        let least = promised.unwrap_or_default().max(hint.lower());
        if usize::try_from(least).map_or(true, |least| least > self.max_body) {
            return answer(parts, FlightBody::inner(body), ForOthers::Alone);
        }
        let wait = match promised.or(hint.exact()) {
            Some(_) => self.sized_wait,
            None => self.unsized_wait,
        };
        let bounds = Bounds {
            most: self.max_body,
            promised: promised.or(hint.exact()),
            time_up: self.clock.sleep_until(self.clock.now() + wait),
        };
        match gather(body, bounds).await {
            Gathered::Unfit(body) => answer(parts, body, ForOthers::Alone),
            Gathered::Broken(body) => answer(parts, body, ForOthers::Broken),
            Gathered::Whole(data, trailers) => {
                let personal = |trailers: &HeaderMap| trailers.contains_key(SET_COOKIE);
                if trailers.as_ref().is_some_and(personal) {
                    return answer(parts, FlightBody::whole(data, trailers), ForOthers::Alone);
                }
                let master = self.master(&parts, data.clone(), trailers.clone(), led.asked);
                let body = FlightBody::whole(data, trailers);
                answer(parts, body, ForOthers::Master(Box::new(master)))
            }
        }
    }

    fn master(
        &self,
        parts: &Parts,
        data: Option<Bytes>,
        mut trailers: Option<HeaderMap>,
        asked: Asked,
    ) -> Master {
        if let Some(trailers) = &mut trailers {
            depersonalize(trailers);
        }
        let mut extensions = Extensions::new();
        for copy in &self.extensions {
            copy(&parts.extensions, &mut extensions);
        }
        Master {
            status: parts.status,
            version: parts.version,
            headers: copied(&parts.headers),
            extensions,
            data,
            trailers,
            varies_by: varies_by(parts),
            asked,
        }
    }
}

impl Master {
    /// Whether a follower with these headers would have got this response, too.
    pub(super) fn serves(&self, rule: &KeyRule, follower: &HeaderMap) -> bool {
        let same = |name| rule.same(&self.asked, follower, name);
        self.varies_by.iter().all(same)
    }

    pub(super) fn copy<B: Body>(&self) -> Response<FlightBody<B>> {
        let body = FlightBody::whole(self.data.clone(), self.trailers.clone());
        let mut response = Response::new(body);
        *response.status_mut() = self.status;
        *response.version_mut() = self.version;
        *response.headers_mut() = self.headers.clone();
        *response.extensions_mut() = self.extensions.clone();
        response
    }
}

fn is_bodiless(status: StatusCode) -> bool {
    matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED)
}

fn content_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}
