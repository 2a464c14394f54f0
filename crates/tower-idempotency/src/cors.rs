//! What a browser's cross-origin requests need: header names, for any CORS layer.

use http::HeaderName;
use http::header::{LINK, RETRY_AFTER};

use crate::entry::{EntryRules, Source};
use crate::fingerprint::{BodyRules, Bound};
use crate::layer::IdempotencyLayer;
use crate::reply::{FIRST_SEEN, REPLAYED, STATUS};

const CONTENT_DIGEST: HeaderName = HeaderName::from_static("content-digest");

/// # Cross-origin requests
impl IdempotencyLayer {
    /// The request headers that a browser's script must be allowed to send, by how the layer was built: the key's, those
    /// of [fields](crate::RequestFields::header), `Content-Digest` where it counts. A preflight that does not allow them
    /// kills the request, and each retry of it. Add what your handlers and your scope need, such as `Content-Type` or
    /// `Authorization`.
    ///
    /// Put the CORS layer *outside* of this one: a preflight (`OPTIONS`) is none of this layer's business, and refusals
    /// need its headers as well as answers do. A [`KeyLookup`](crate::KeyLookup) has lists of its own.
    ///
    /// ```
    /// use http::header::{AUTHORIZATION, CONTENT_TYPE};
    /// use tower_claim::MemoryStore;
    /// use tower_http::cors::CorsLayer;
    /// use tower_idempotency::IdempotencyLayer;
    ///
    /// let once = IdempotencyLayer::new(MemoryStore::new());
    /// let mut allow = once.cors_allow_headers();
    /// allow.extend([AUTHORIZATION, CONTENT_TYPE]);
    /// let cors = CorsLayer::new()
    ///     .allow_headers(allow)
    ///     .expose_headers(once.cors_expose_headers());
    /// # let _ = cors;
    /// ```
    pub fn cors_allow_headers(&self) -> Vec<HeaderName> {
        let entry = &self.shared().entry;
        let mut names = headers_of_keys(entry);
        match &entry.bound {
            Bound::Fields(fields) => names.extend(fields.headers().cloned()),
            Bound::Payload(BodyRules {
                content_digest: true,
                ..
            }) => names.push(CONTENT_DIGEST),
            Bound::Payload(_) | Bound::Target => {}
        }
        without_repeats(names)
    }

    /// The response headers that a browser's script must be let see, by how the layer was built: the markers of replays,
    /// `Retry-After`, and `Link` where refusals [link to the policy](crate::IdempotencyBuilder::policy_at). An example is
    /// at [`cors_allow_headers`](Self::cors_allow_headers).
    pub fn cors_expose_headers(&self) -> Vec<HeaderName> {
        let shared = self.shared();
        let mut names = vec![REPLAYED, FIRST_SEEN, RETRY_AFTER];
        if shared.may_tell_status() {
            names.push(STATUS);
        }
        if shared.policy_link.is_some() {
            names.push(LINK);
        }
        names
    }
}

/// Those that keys are read from.
pub(crate) fn headers_of_keys(entry: &EntryRules) -> Vec<HeaderName> {
    match &entry.source {
        Source::Head(source) => source.header_name().cloned().into_iter().collect(),
        Source::Fields(derived) => derived.fields.headers().cloned().collect(),
    }
}

pub(crate) fn without_repeats(mut names: Vec<HeaderName>) -> Vec<HeaderName> {
    names.sort_unstable_by(|a, b| a.as_str().cmp(b.as_str()));
    names.dedup();
    names
}
