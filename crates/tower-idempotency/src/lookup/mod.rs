//! *What became of my key?* A service that answers it.

mod builder;
mod cors;
mod document;

use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::Full;
use tower_claim::http::KeySource;
use tower_claim::store::{DoneRecord, RecordView, State};
use tower_claim::{Key, Refusal, StoreError, Token};
use tower_service::Service;

use crate::admit::lead;
use crate::layer::IdempotencyLayer;
use crate::record::{KeptResponse, Marker, is_withdrawn};
use crate::shared::Shared;
use crate::stage::Row;
use crate::way::{LONGEST_WAY, too_long};

pub use builder::KeyLookupBuilder;

const PREFER: HeaderName = HeaderName::from_static("prefer");
const PREFERENCE_APPLIED: HeaderName = HeaderName::from_static("preference-applied");
/// How often a record that nobody works at is looked at while somebody waits: a lapsed run ends by a takeover, and
/// no watch tells of that.
const LOOK_AGAIN: Duration = Duration::from_millis(500);
/// For a record that changes between two looks at it.
const CHANGED: Duration = Duration::from_millis(20);
/// How often it may: no record does, but a store may be fooled.
const MOST_CHANGES: u32 = 50;

/// Tells a client what became of its key: a client that lost its connection, or was told `in-progress`, asks here
/// instead of sending its request again. Mount it where you like, **inside of the same authentication as the
/// layer**. It never runs anything, and never writes a record.
///
/// Ask with `GET`, under the header that the layer takes its keys from (or [otherwise](KeyLookupBuilder)). The
/// layer's own [scope](crate::IdempotencyBuilder::scope) is asked about the asking request, so the key of another
/// tenant was never seen. Within a scope, who knows a key may read its response: that of another payload, too.
///
/// | State | Status | Members beside `state` |
/// |---|---|---|
/// | `running` | 202, `Retry-After` | `since_ms`, `attempt`, `expires_in_ms` (of the lease), `lapsed` |
/// | `done` | 200 | `finished_ms` (ago), `expires_in_ms` (of the record), `response`: `status`, `headers`, `body` or `body_base64` (neither where only the head was kept), and `trailers` where there are any; `null` where nothing was kept |
/// | `unknown` | 409 | `since_ms`, `expires_in_ms`: it began, and nobody knows how it ended |
/// | `never-seen` | 404 | none: no such key, or it ended without an outcome, or its keep has passed. A request would run |
///
/// **To wait for the end**, ask with `Prefer: wait=20` (RFC 7240), in seconds: the answer comes as soon as the run is
/// over, or after that time with what is true then; `Preference-Applied` tells how long it would have waited.
/// Who waits counts under [`max_waiters`](crate::IdempotencyBuilder::max_waiters) and shares its watch with the
/// repeats that wait; over the bound it is answered at once.
///
/// What cannot be answered is refused by a problem document (RFC 9457), as by the layer: `key-missing`,
/// `key-invalid`, `scope-missing` 400, `store-unavailable` 503; other methods 405. Nothing may be cached.
///
/// ```
/// use http::{Request, Response, StatusCode};
/// use http_body_util::{BodyExt, Full};
/// use tower::{Layer, ServiceExt};
/// use tower_claim::MemoryStore;
/// use tower_idempotency::{IdempotencyLayer, KeyLookup, RequestBody};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # type Body = Full<bytes::Bytes>;
/// let once = IdempotencyLayer::builder(MemoryStore::new()).build()?;
/// let lookup = KeyLookup::new(&once); // axum: `.route_service("/idempotency-key", lookup)`
/// # let service = once.layer(tower::service_fn(async |_: Request<RequestBody<Body>>| {
/// #     Ok::<_, std::convert::Infallible>(Response::new(Body::from("ordered")))
/// # }));
///
/// let ask = || Request::get("/idempotency-key").header("idempotency-key", "8e03978e").body(());
/// let never = lookup.clone().oneshot(ask()?).await?;
/// assert_eq!(never.status(), StatusCode::NOT_FOUND);
///
/// let order = Request::post("/orders").header("idempotency-key", "8e03978e");
/// service.oneshot(order.body(Body::from("one coffee"))?).await?;
/// let done = lookup.oneshot(ask()?).await?.into_body().collect().await?.to_bytes();
/// assert!(std::str::from_utf8(&done)?.contains(r#""response":{"status":200,"#));
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct KeyLookup {
    inner: Arc<Inner>,
}

struct Inner {
    shared: Arc<Shared>,
    source: Asked,
    max_wait: Duration,
    with_responses: bool,
}

/// Where the key is that somebody asks about.
#[derive(Debug, Clone, Default)]
enum Asked {
    /// Where the layer finds its keys.
    #[default]
    LikeTheLayer,
    By(KeySource),
    /// As a client's own key.
    InPath(KeySource),
}

impl KeyLookup {
    /// A lookup with the defaults that the settings of [`builder`](Self::builder) state.
    pub fn new(layer: &IdempotencyLayer) -> Self {
        Self::builder(layer).defaults()
    }

    /// Starts a lookup with settings.
    pub fn builder(layer: &IdempotencyLayer) -> KeyLookupBuilder {
        KeyLookupBuilder::new(layer.shared())
    }
}

impl<B> Service<Request<B>> for KeyLookup {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = LookupFuture;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> LookupFuture {
        let (parts, _) = request.into_parts();
        let inner = Arc::clone(&self.inner);
        LookupFuture {
            answer: Box::pin(async move { inner.answer(parts).await }),
        }
    }
}

impl fmt::Debug for KeyLookup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyLookup")
            .field("source", &self.inner.source)
            .field("max_wait", &self.inner.max_wait)
            .field("with_responses", &self.inner.with_responses)
            .finish_non_exhaustive()
    }
}

/// The future of a question.
///
/// # Cancellation
///
/// A drop leaves nothing behind; who waited gives its place back.
pub struct LookupFuture {
    answer: BoxFuture<'static, Response<Full<Bytes>>>,
}

impl Future for LookupFuture {
    type Output = Result<Response<Full<Bytes>>, Infallible>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.answer.as_mut().poll(cx).map(Ok)
    }
}

impl fmt::Debug for LookupFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LookupFuture").finish_non_exhaustive()
    }
}

/// What became of a key.
enum Fate {
    NeverSeen,
    Running(RecordView),
    Unknown(RecordView),
    Done(DoneRecord),
}

impl Inner {
    async fn answer(&self, parts: Parts) -> Response<Full<Bytes>> {
        if parts.method != Method::GET && parts.method != Method::HEAD {
            return not_allowed();
        }
        let row = Row::of(&parts.extensions);
        let wait = wait_of(&parts.headers).map(|wait| wait.min(self.max_wait));
        let answered = match self.key(&parts).await {
            Ok(key) => match self.fate(key, wait, &row).await {
                Ok((key, fate)) => self.document(key, &fate),
                Err(error) => Err(self.shared.store_refusal(&error)),
            },
            Err(refusal) => Err(refusal),
        };
        let mut response = answered.unwrap_or_else(|refusal| {
            row.rejected();
            let render = self.shared.render.as_ref();
            let mut response = refusal.to_response_by(render, false).map(Full::new);
            if let Some(policy) = &self.shared.policy_link {
                policy.add_to(response.headers_mut());
            }
            response
        });
        let headers = response.headers_mut();
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if let Some(wait) = wait {
            let applied = HeaderValue::try_from(format!("wait={}", wait.as_secs()));
            headers.extend(applied.ok().map(|applied| (PREFERENCE_APPLIED, applied)));
        }
        response
    }

    async fn key(&self, parts: &Parts) -> Result<Key, Refusal> {
        let source = match &self.source {
            Asked::LikeTheLayer => None,
            Asked::By(source) | Asked::InPath(source) => Some(source),
        };
        let shared = &self.shared;
        let asked = shared.entry.asked(source, parts, shared.clock());
        let entry = asked.map_err(|refusal| shared.refused(refusal))?;
        if let Some(last) = &entry.last {
            let counts = shared.still_counts(last, None).await;
            if counts.map_err(|error| shared.store_refusal(&error))? {
                return Ok(last.key);
            }
        }
        Ok(entry.key)
    }

    /// Looks, and waits for the end of a run where that is asked for. The key is the one that the record is under:
    /// behind an unknown outcome the work may have been led on to another.
    async fn fate(
        &self,
        key: Key,
        wait: Option<Duration>,
        row: &Row,
    ) -> Result<(Key, Fate), StoreError> {
        let (shared, clock) = (&self.shared, self.shared.clock());
        let store = shared.keeper.store();
        let deadline = wait.map(|wait| clock.now() + wait);
        let mut waiting = None;
        let mut watched = Token::ZERO;
        let mut key = key;
        let mut led_by = None;
        let (mut steps, mut changes) = (0, 0);
        loop {
            let record = match store.dyn_peek(key).await? {
                Some(record) if record.state != State::Free => record,
                // Led on to where nothing has begun: the next repeat finds out.
                _ => return Ok((key, led_by.map_or(Fate::NeverSeen, Fate::Unknown))),
            };
            let (token, pause) = match record.state {
                State::Unknown => return Ok((key, Fate::Unknown(record))),
                State::Done => {
                    if let Some(done) = shared.finished(key, record.token).await? {
                        if is_withdrawn(&done) {
                            return Ok((key, Fate::Running(record)));
                        }
                        let Some(marker) = lead(&done) else {
                            return Ok((key, Fate::Done(done)));
                        };
                        steps += 1;
                        if steps > LONGEST_WAY {
                            return Err(too_long(key));
                        }
                        key = marker.leads_to(key, done.token).key;
                        // Where a run was allowed, and none has begun, there is nothing in doubt.
                        led_by = matches!(marker, Marker::Ask(_)).then_some(record);
                        continue;
                    }
                    // It changed meanwhile: look again, though not at the speed of a store that is fooled.
                    changes += 1;
                    if changes > MOST_CHANGES {
                        return Err(StoreError::unavailable("a finished record is not told"));
                    }
                    clock.sleep_until(clock.now() + CHANGED).await;
                    continue;
                }
                _ => (record.token, record.lapsed || record.token == watched),
            };
            let Some(deadline) = deadline.filter(|deadline| *deadline > clock.now()) else {
                return Ok((key, Fate::Running(record)));
            };
            let Some(following) = shared.followers.follow(key, token, None, 0) else {
                return Ok((key, Fate::Running(record)));
            };
            waiting.get_or_insert_with(|| row.waits_for(key));
            watched = token;
            let over = async {
                if pause {
                    clock.sleep_until(clock.now() + LOOK_AGAIN).await;
                }
                following.over().await
            };
            tokio::select! {
                biased;
                seen = over => match seen {
                    Ok(Some(done)) if !is_withdrawn(&done) => return Ok((key, Fate::Done(done))),
                    Ok(_) => {}
                    // What the watch could not tell, the next look does, or fails as well.
                    Err(_) => clock.sleep_until(clock.now() + CHANGED).await,
                },
                () = clock.sleep_until(deadline) => {}
            }
        }
    }

    fn document(&self, key: Key, fate: &Fate) -> Result<Response<Full<Bytes>>, Refusal> {
        let kept: Option<KeptResponse> = match fate {
            Fate::Done(done) if self.with_responses => self.shared.kept_response(key, done)?,
            _ => None,
        };
        Ok(document::of(fate, kept.as_ref()))
    }
}

/// The wait that is asked for: the first `wait` of the `Prefer` fields (RFC 7240), in whole seconds.
fn wait_of(headers: &HeaderMap) -> Option<Duration> {
    let preferences = headers.get_all(PREFER).iter();
    let mut preferences = preferences
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','));
    preferences.find_map(|preference| {
        let preference = preference.split(';').next()?;
        let (name, value) = preference.split_once('=')?;
        if !name.trim().eq_ignore_ascii_case("wait") {
            return None;
        }
        let seconds = value.trim().trim_matches('"').parse::<u32>().ok()?;
        Some(Duration::from_secs(u64::from(seconds)))
    })
}

fn not_allowed() -> Response<Full<Bytes>> {
    const PROBLEM: &[u8] =
        br#"{"type":"about:blank","title":"Ask with GET","status":405,"code":"method-not-allowed"}"#;
    let mut response = Response::new(Full::new(Bytes::from_static(PROBLEM)));
    *response.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
    let headers = response.headers_mut();
    headers.insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
    headers.insert(
        CONTENT_TYPE,
        HeaderValue::from_static("application/problem+json"),
    );
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_is_read_as_rfc_7240_writes_it() {
        let of = |values: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(PREFER, HeaderValue::from_static(value));
            }
            wait_of(&headers).map(|wait| wait.as_secs())
        };
        assert_eq!(of(&["wait=20"]), Some(20));
        assert_eq!(of(&["respond-async, Wait = \"5\"; x=1"]), Some(5));
        assert_eq!(of(&["return=minimal", "wait=7", "wait=9"]), Some(7));
        assert_eq!(of(&["wait=0"]), Some(0));
        for none in ["", "wait", "wait=", "wait=-1", "wait=1.5", "await=3"] {
            assert_eq!(of(&[none]), None, "{none:?}");
        }
        assert_eq!(of(&[]), None);
    }
}
