//! Answers that this layer makes itself.

use http::header::{HeaderName, HeaderValue, TRAILER};
use http::{HeaderMap, Response};
use http_body::Body;
use tower_claim::http::{RenderRefusal, is_grpc};
use tower_claim::{Code, Refusal};

use crate::body::{ResponseBody, Whole};
use crate::record::KeptResponse;

/// Marks a replayed response: `Idempotent-Replayed: true`, the more common spelling (Stripe's).
pub(crate) const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");

/// An answer that this layer makes itself.
#[derive(Debug)]
pub(crate) enum Reply {
    Refuse(Refusal),
    Replay(KeptResponse),
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
}

impl Responder {
    pub(crate) fn to(headers: &HeaderMap, render: Option<&RenderRefusal>) -> Self {
        Self {
            grpc: is_grpc(headers),
            render: render.cloned(),
        }
    }

    pub(crate) fn is_grpc(&self) -> bool {
        self.grpc
    }

    pub(crate) fn respond<R: Body>(&self, reply: impl Into<Reply>) -> Response<ResponseBody<R>> {
        match reply.into() {
            Reply::Refuse(refusal) => self.refuse(&refusal),
            Reply::Replay(kept) => replay(kept),
        }
    }

    fn refuse<R: Body>(&self, refusal: &Refusal) -> Response<ResponseBody<R>> {
        let response = refusal.to_response_by(self.render.as_ref(), self.grpc);
        response.map(|bytes| ResponseBody::whole(Whole::of(bytes, None)))
    }
}

fn replay<R: Body>(kept: KeptResponse) -> Response<ResponseBody<R>> {
    let trailer = kept.trailers.as_ref().and_then(announced);
    let mut response = Response::new(ResponseBody::whole(Whole::of(kept.body, kept.trailers)));
    *response.status_mut() = kept.status;
    *response.headers_mut() = kept.headers;
    response
        .headers_mut()
        .insert(REPLAYED, HeaderValue::from_static("true"));
    if let Some(names) = trailer.filter(|_| !is_grpc(response.headers())) {
        response.headers_mut().insert(TRAILER, names);
    }
    response
}

/// On HTTP/1 only trailers go out that the head announces.
fn announced(trailers: &HeaderMap) -> Option<HeaderValue> {
    let names: Vec<_> = trailers.keys().map(HeaderName::as_str).collect();
    (!names.is_empty())
        .then(|| HeaderValue::from_str(&names.join(", ")).ok())
        .flatten()
}
