//! Answers that this layer makes itself.

use std::time::{Duration, UNIX_EPOCH};

use http::header::{HeaderName, HeaderValue, TRAILER};
use http::{HeaderMap, Response};
use http_body::Body;
use tower_claim::http::{RenderRefusal, is_grpc};
use tower_claim::{Code, Refusal};

use crate::body::{ResponseBody, Whole};
use crate::policy::PolicyLink;
use crate::record::KeptResponse;

/// Marks a replayed response: `Idempotent-Replayed: true`, the more common spelling (Stripe's).
pub(crate) const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");

/// When the first run of a replayed response began, as an HTTP date (RFC 9110, 5.6.7).
///
/// Of a run that was taken over the store tells when it was granted its key, and of no run before that: behind two
/// takeovers the second run counts. Of one whose outcome became unknown it tells the last sign of life. From there on a
/// marker carries it, over hooks and operators.
pub(crate) const FIRST_SEEN: HeaderName = HeaderName::from_static("idempotency-first-seen");
/// How an answer came about.
pub(crate) const STATUS: HeaderName = HeaderName::from_static("idempotency-status");

/// How an answer came about. A refusal's status is the name of its code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Status {
    /// By this request's own run.
    Fresh,
    /// By its own run, too, after one that lapsed.
    TakenOver,
    /// From the record.
    Replayed,
    /// The work was done before, and its answer was made anew.
    Rendered,
    /// The reconcile hook told what a lapsed run had come to.
    Reconciled,
    /// By its own run, which no claim protects: the store did not answer.
    Unprotected,
    /// From a row that was there already.
    Existing,
    /// By its own run, and its key was not looked at: who sent it must not believe that a repeat is recognised.
    Ignored,
}

impl Status {
    pub(crate) const ALL: [Self; 8] = [
        Self::Fresh,
        Self::TakenOver,
        Self::Replayed,
        Self::Rendered,
        Self::Reconciled,
        Self::Existing,
        Self::Unprotected,
        Self::Ignored,
    ];

    /// Whether an answer says that it came about under a key of a layer inside.
    pub(crate) fn is_kept_inside(answer: &HeaderMap) -> bool {
        let said = answer.get(&STATUS);
        let kept = [
            Self::Fresh,
            Self::TakenOver,
            Self::Replayed,
            Self::Rendered,
            Self::Reconciled,
            Self::Existing,
        ];
        said.is_some_and(|said| kept.iter().any(|status| said == status.as_str()))
    }

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Fresh => "fresh",
            Self::TakenOver => "taken-over",
            Self::Replayed => "replayed",
            Self::Rendered => "rendered",
            Self::Reconciled => "reconciled",
            Self::Unprotected => "unprotected",
            Self::Existing => "existing",
            Self::Ignored => "ignored",
        }
    }
}

/// An answer that this layer makes itself.
#[derive(Debug)]
pub(crate) enum Reply {
    Refuse(Refusal),
    Replay(KeptResponse),
    /// The work is done, and its response was not kept; perhaps its head was.
    NotKept(Option<KeptResponse>),
    /// The same, answered in other words.
    Rendered(KeptResponse),
    /// What a lapsed run came to.
    Reconciled(KeptResponse),
    /// What a row that was there already stands for.
    Existing(KeptResponse),
}

impl Reply {
    /// How it came about: a [`Status`], or the code of a refusal.
    pub(crate) fn status(&self) -> &'static str {
        match self {
            Self::Refuse(refusal) => refusal.code().name(),
            Self::NotKept(_) => Code::ResponseNotKept.name(),
            Self::Replay(_) => Status::Replayed.as_str(),
            Self::Rendered(_) => Status::Rendered.as_str(),
            Self::Reconciled(_) => Status::Reconciled.as_str(),
            Self::Existing(_) => Status::Existing.as_str(),
        }
    }

    /// Of a response that is kept: it is of a request that was first seen then, since the Unix epoch, or before.
    pub(crate) fn first_seen_by(mut self, then: Option<Duration>) -> Self {
        if let Self::Replay(kept)
        | Self::NotKept(Some(kept))
        | Self::Rendered(kept)
        | Self::Reconciled(kept)
        | Self::Existing(kept) = &mut self
        {
            kept.first_seen = match (kept.first_seen, then) {
                (Some(kept), Some(then)) => Some(kept.min(then)),
                (kept, then) => kept.or(then),
            };
        }
        self
    }
}

impl From<Code> for Reply {
    fn from(code: Code) -> Self {
        Self::Refuse(Refusal::new(code))
    }
}

impl From<Refusal> for Reply {
    fn from(refusal: Refusal) -> Self {
        Self::Refuse(refusal)
    }
}

/// Turns replies into responses: knows how the request wants to be answered.
#[derive(Clone)]
pub(crate) struct Responder {
    grpc: bool,
    render: Option<RenderRefusal>,
    tells_status: bool,
    policy: Option<PolicyLink>,
}

impl Responder {
    pub(crate) fn to(
        headers: &HeaderMap,
        render: Option<&RenderRefusal>,
        tells_status: bool,
        policy: Option<&PolicyLink>,
    ) -> Self {
        Self {
            grpc: is_grpc(headers),
            render: render.cloned(),
            tells_status,
            policy: policy.cloned(),
        }
    }

    pub(crate) fn is_grpc(&self) -> bool {
        self.grpc
    }

    pub(crate) fn respond<R: Body>(&self, reply: impl Into<Reply>) -> Response<ResponseBody<R>> {
        match reply.into() {
            Reply::Refuse(refusal) => self.refuse(&refusal),
            Reply::Replay(kept) => self.replay(kept, Status::Replayed),
            Reply::Rendered(kept) => self.replay(kept, Status::Rendered),
            Reply::Reconciled(kept) => self.replay(kept, Status::Reconciled),
            Reply::Existing(kept) => self.replay(kept, Status::Existing),
            Reply::NotKept(_) => self.refuse(&Refusal::new(Code::ResponseNotKept)),
        }
    }

    fn refuse<R: Body>(&self, refusal: &Refusal) -> Response<ResponseBody<R>> {
        let response = refusal.to_response_by(self.render.as_ref(), self.grpc);
        let mut response = response.map(|bytes| ResponseBody::whole(Whole::of(bytes, None)));
        if let Some(policy) = &self.policy {
            policy.add_to(response.headers_mut());
        }
        if self.tells_status {
            let code = HeaderValue::from_static(refusal.code().name());
            response.headers_mut().insert(STATUS, code);
        }
        response
    }

    /// A response that this request did not bring about.
    pub(crate) fn replay<R: Body>(
        &self,
        kept: KeptResponse,
        status: Status,
    ) -> Response<ResponseBody<R>> {
        let trailer = kept.trailers.as_ref().and_then(announced);
        let mut response = Response::new(ResponseBody::whole(Whole::of(kept.body, kept.trailers)));
        *response.status_mut() = kept.status;
        *response.headers_mut() = kept.headers;
        let headers = response.headers_mut();
        headers.insert(REPLAYED, HeaderValue::from_static("true"));
        if let Some(date) = kept.first_seen.and_then(http_date) {
            headers.insert(FIRST_SEEN, date);
        }
        self.tell(headers, status);
        if let Some(names) = trailer.filter(|_| !is_grpc(headers)) {
            headers.insert(TRAILER, names);
        }
        response
    }

    /// Says how an answer came about, where the layer is told to, or where it must be known.
    pub(crate) fn tell(&self, headers: &mut HeaderMap, status: Status) {
        if status == Status::Ignored {
            if self.tells_status {
                tell_ignored(headers);
            }
        } else if self.tells_status || status == Status::Unprotected {
            headers.insert(STATUS, HeaderValue::from_static(status.as_str()));
        }
    }
}

/// Says that nobody here looked at the key; but another layer inside may have.
pub(crate) fn tell_ignored(headers: &mut HeaderMap) {
    let ignored = HeaderValue::from_static(Status::Ignored.as_str());
    headers.entry(STATUS).or_insert(ignored);
}

fn http_date(since_epoch: Duration) -> Option<HeaderValue> {
    // Foreign bytes may name any year; HTTP dates end with 9999.
    const YEAR_10000: Duration = Duration::from_secs(253_402_300_800);
    let at = (since_epoch < YEAR_10000).then(|| UNIX_EPOCH.checked_add(since_epoch))??;
    HeaderValue::from_str(&httpdate::fmt_http_date(at)).ok()
}

/// On HTTP/1 only trailers go out that the head announces.
fn announced(trailers: &HeaderMap) -> Option<HeaderValue> {
    let names: Vec<_> = trailers.keys().map(HeaderName::as_str).collect();
    (!names.is_empty())
        .then(|| HeaderValue::from_str(&names.join(", ")).ok())
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_time_of_a_foreign_record_is_a_date_or_none() {
        let date = |secs| http_date(Duration::from_secs(secs));
        assert_eq!(date(784_111_777).unwrap(), "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(
            date(253_402_300_799).unwrap(),
            "Fri, 31 Dec 9999 23:59:59 GMT"
        );
        assert_eq!(date(253_402_300_800), None);
        assert_eq!(date(u64::MAX), None);
    }
}
