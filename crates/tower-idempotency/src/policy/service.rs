//! Serves the policy.

use std::convert::Infallible;
use std::fmt;
use std::future::{Ready, ready};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{
    ACCEPT, ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, IF_NONE_MATCH, VARY,
    X_CONTENT_TYPE_OPTIONS,
};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::Full;
use sha2::{Digest, Sha256};
use tower_claim::http::Mode;
use tower_service::Service;

use super::{Policy, html};
use crate::json::base64;
use crate::layer::IdempotencyLayer;
use crate::shared::Shared;

/// Serves the [`Policy`] of a layer. Mount it where clients find it, and tell the layer where that is
/// ([`policy_at`](crate::IdempotencyBuilder::policy_at)), so that refusals link to it.
///
/// | Asked with | Answered with |
/// |---|---|
/// | `?format=html`, or `Accept: text/html`, or neither | a page for people |
/// | `?format=json`, or `Accept: application/json` | JSON |
/// | `?format=openapi`, or `Accept: application/vnd.oai.openapi+json` | a fragment of OpenAPI 3.1 |
///
/// `GET` and `HEAD`; 304 to a client that has it already (`ETag`), 405 to other methods, 404 to another `format`. It asks
/// no store, and needs no authentication: there is nothing in it that a client may not know.
///
/// ```
/// use http::{Request, StatusCode};
/// use http_body_util::BodyExt;
/// use tower::ServiceExt;
/// use tower_claim::MemoryStore;
/// use tower_idempotency::{IdempotencyLayer, PolicyService};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let once = IdempotencyLayer::builder(MemoryStore::new())
///     .policy_at("/idempotency-policy")
///     .build()?;
/// let policy = PolicyService::new(&once); // axum: `.route_service("/idempotency-policy", policy)`
///
/// let ask = Request::get("/idempotency-policy").header("accept", "application/json");
/// let answer = policy.oneshot(ask.body(())?).await?;
/// assert_eq!(answer.status(), StatusCode::OK);
/// let json = answer.into_body().collect().await?.to_bytes();
/// assert!(json.starts_with(br#"{"policy":"idempotency","#));
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct PolicyService {
    shared: Arc<Shared>,
    documents: Arc<Mutex<(Mode, Documents)>>,
}

/// All three, ready to be sent.
#[derive(Clone)]
struct Documents {
    html: Document,
    json: Document,
    openapi: Document,
    style: HeaderValue,
}

#[derive(Clone)]
struct Document {
    media_type: &'static str,
    body: Bytes,
    tag: HeaderValue,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Html,
    Json,
    OpenApi,
}

impl PolicyService {
    /// The policy of this layer.
    pub fn new(layer: &IdempotencyLayer) -> Self {
        let shared = Arc::clone(layer.shared());
        let mode = shared.entry.gate.switched();
        let documents = Documents::of(&Policy::of(&shared));
        Self {
            shared,
            documents: Arc::new(Mutex::new((mode, documents))),
        }
    }

    /// Nothing but the gate's switch changes while a layer lives.
    fn documents(&self) -> Documents {
        let mode = self.shared.entry.gate.switched();
        let mut known = self
            .documents
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if known.0 != mode {
            *known = (mode, Documents::of(&Policy::of(&self.shared)));
        }
        known.1.clone()
    }

    fn answer(&self, parts: &Parts) -> Response<Full<Bytes>> {
        if parts.method != Method::GET && parts.method != Method::HEAD {
            let mut response = problem(
                StatusCode::METHOD_NOT_ALLOWED,
                "method-not-allowed",
                "Ask with GET",
            );
            let allow = HeaderValue::from_static("GET, HEAD");
            response.headers_mut().insert(ALLOW, allow);
            return response;
        }
        let Some(format) = Format::asked(parts) else {
            return problem(
                StatusCode::NOT_FOUND,
                "format-unknown",
                "The formats are html, json and openapi",
            );
        };
        let documents = self.documents();
        let (document, policy) = match format {
            Format::Html => (documents.html, documents.style),
            Format::Json => (documents.json, NOTHING),
            Format::OpenApi => (documents.openapi, NOTHING),
        };
        let is_known = knows(&parts.headers, &document.tag);
        let body = if is_known {
            Bytes::new()
        } else {
            document.body
        };
        let mut response = Response::new(Full::new(body));
        let headers = response.headers_mut();
        if is_known {
            *response.status_mut() = StatusCode::NOT_MODIFIED;
        } else {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(document.media_type));
        }
        let headers = response.headers_mut();
        headers.insert(ETAG, document.tag);
        headers.insert(VARY, HeaderValue::from_name(ACCEPT));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        headers.insert(CONTENT_SECURITY_POLICY, policy);
        headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        response
    }
}

/// What may be loaded and run.
const NOTHING: HeaderValue = HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'");

impl Documents {
    fn of(policy: &Policy) -> Self {
        let style = base64(&Sha256::digest(html::STYLE));
        let style = format!(
            "default-src 'none'; style-src 'sha256-{style}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        );
        Self {
            html: Document::new("text/html; charset=utf-8", policy.to_html()),
            json: Document::new("application/json", policy.to_json()),
            openapi: Document::new(
                "application/vnd.oai.openapi+json;version=3.1",
                policy.to_openapi(),
            ),
            style: HeaderValue::try_from(style).unwrap_or(NOTHING),
        }
    }
}

impl Document {
    fn new(media_type: &'static str, text: String) -> Self {
        let tag = base64(&Sha256::digest(&text)[..12]);
        Self {
            media_type,
            body: Bytes::from(text),
            tag: HeaderValue::try_from(format!("\"{tag}\""))
                .unwrap_or(HeaderValue::from_static("\"\"")),
        }
    }
}

impl Format {
    const ALL: [(Self, &'static str, &'static [&'static str]); 3] = [
        (Self::Html, "html", &["text/html", "text/*", "*/*"]),
        (
            Self::Json,
            "json",
            &["application/json", "application/*", "*/*"],
        ),
        (
            Self::OpenApi,
            "openapi",
            &["application/vnd.oai.openapi+json", "application/*", "*/*"],
        ),
    ];

    /// `None`: one that there is not.
    fn asked(parts: &Parts) -> Option<Self> {
        let query = parts.uri.query().unwrap_or_default();
        let mut fields = query.split('&');
        if let Some(name) = fields.find_map(|field| field.strip_prefix("format=")) {
            let mut all = Self::ALL.into_iter();
            return all.find_map(|(format, n, _)| (n == name).then_some(format));
        }
        Some(Self::accepted(&parts.headers))
    }

    /// The one that is liked best (RFC 9110, 12.5.1); the page among equals, and where none is liked.
    fn accepted(headers: &HeaderMap) -> Self {
        let ranges: Vec<_> = headers
            .get_all(ACCEPT)
            .iter()
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(','))
            .map(|range| {
                let mut parts = range.split(';').map(str::trim);
                let name = parts.next().unwrap_or_default().to_ascii_lowercase();
                let quality =
                    parts.find_map(|p| p.strip_prefix("q=").or_else(|| p.strip_prefix("Q=")));
                (
                    name,
                    quality.map_or(1.0, |q| q.parse::<f32>().unwrap_or(0.0)),
                )
            })
            .collect();
        let mut best = (Self::Html, 0.0);
        for (format, _, names) in Self::ALL {
            // The most precise of the ranges that hold it decides.
            let named = names.iter();
            let quality = named.filter_map(|name| ranges.iter().find(|(range, _)| range == name));
            let quality = quality.map(|(_, quality)| *quality).next().unwrap_or(0.0);
            if quality > best.1 {
                best = (format, quality);
            }
        }
        best.0
    }
}

fn knows(headers: &HeaderMap, tag: &HeaderValue) -> bool {
    let tag = tag.to_str().unwrap_or_default();
    let tags = headers.get_all(IF_NONE_MATCH).iter();
    let mut tags = tags
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(str::trim);
    tags.any(|known| known == "*" || known.strip_prefix("W/").unwrap_or(known) == tag)
}

fn problem(status: StatusCode, code: &str, title: &str) -> Response<Full<Bytes>> {
    let problem = crate::json::Object::new()
        .text("type", "about:blank")
        .text("title", title)
        .raw("status", status.as_u16())
        .text("code", code);
    let mut response = Response::new(Full::new(Bytes::from(problem.end())));
    *response.status_mut() = status;
    let media_type = HeaderValue::from_static("application/problem+json");
    response.headers_mut().insert(CONTENT_TYPE, media_type);
    response
}

impl<B> Service<Request<B>> for PolicyService {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = PolicyFuture;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> PolicyFuture {
        let (parts, _) = request.into_parts();
        PolicyFuture(ready(Ok(self.answer(&parts))))
    }
}

impl fmt::Debug for PolicyService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PolicyService").finish_non_exhaustive()
    }
}

/// The future of [`PolicyService`], which is ready.
pub struct PolicyFuture(Ready<Result<Response<Full<Bytes>>, Infallible>>);

impl Future for PolicyFuture {
    type Output = Result<Response<Full<Bytes>>, Infallible>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(cx)
    }
}

impl fmt::Debug for PolicyFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PolicyFuture").finish_non_exhaustive()
    }
}
