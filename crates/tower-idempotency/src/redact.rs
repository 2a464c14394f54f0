//! Taking what is secret out of an answer before it is kept.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, Response};

use crate::body::UploadFate;
use crate::headers::HeaderRules;
use crate::record::{self, Head, Record};

/// Without it a kept answer of gRPC would be none.
const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");

type ByResponse = Arc<dyn Fn(Response<Bytes>) -> Response<Bytes> + Send + Sync>;
type ByTrailers = Arc<dyn Fn(HeaderMap) -> HeaderMap + Send + Sync>;

/// The user's hooks.
#[derive(Clone, Default)]
pub(crate) struct Redact {
    pub(crate) response: Option<ByResponse>,
    pub(crate) trailers: Option<ByTrailers>,
}

impl Redact {
    pub(crate) fn is_set(&self) -> bool {
        self.response.is_some() || self.trailers.is_some()
    }

    /// `None` where that cannot be done: nothing of the answer is to be kept then.
    pub(crate) fn redacted(&self, record: Record, rules: &HeaderRules) -> Option<Record> {
        if !self.is_set() {
            return Some(record);
        }
        let kept = record::decode(&record.bytes).ok()?;
        let mut response = Response::new(kept.body);
        *response.status_mut() = kept.status;
        *response.headers_mut() = kept.headers;
        let trailers = kept.trailers;
        // A panic here, behind the work, must not free the key.
        let redact = || {
            let response = match &self.response {
                Some(redact) => redact(response),
                None => response,
            };
            (response, trailers.map(|trailers| self.trailers(trailers)))
        };
        let (response, trailers) = catch_unwind(AssertUnwindSafe(redact)).ok()?;
        let (parts, body) = response.into_parts();
        let first_seen = kept.first_seen.unwrap_or_default();
        let upload = kept.upload.map(UploadFate::known).unwrap_or_default();
        let head = Head::new(parts.status, &parts.headers, rules, first_seen).of_upload(&upload);
        Some(if record.is_whole {
            head.with_body([&body].into_iter(), trailers.as_ref(), rules)
        } else {
            head.alone()
        })
    }

    /// Who redacts answers and says nothing of trailers has not thought of them: they are not kept.
    fn trailers(&self, mut trailers: HeaderMap) -> HeaderMap {
        let status = trailers.remove(&GRPC_STATUS);
        let mut left = match &self.trailers {
            Some(redact) => redact(trailers),
            None => HeaderMap::new(),
        };
        if let Some(status) = status {
            left.insert(GRPC_STATUS, status);
        }
        left
    }
}

impl fmt::Debug for Redact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redact")
            .field("response", &self.response.is_some())
            .field("trailers", &self.trailers.is_some())
            .finish()
    }
}
