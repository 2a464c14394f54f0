//! The handler behind every route: counts an effect, then misbehaves as its flags say.

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::header::{CONTENT_TYPE, ETAG, LINK, LOCATION, SET_COOKIE, VARY};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode};
use http_body_util::BodyExt;
use serde_json::{Map, Value, json};
use tower_claim::store::TookOver;
use tower_idempotency::{IdempotentRun, NoEffect};
use tower_lease_guard::Lease;
use tower_stage::StageHandle;

use crate::effects::Effects;
use crate::filler::{Content, Filler};
use crate::flags::Flags;

/// What a route adds to the common handler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Route {
    /// Idempotent by client key: `Location`, `ETag`, repeated and non-UTF-8 headers.
    Orders,
    /// Idempotent by derived key.
    Classrooms,
    /// A real origin behind single flight: conditional and range requests.
    Items,
    /// Leased.
    Accounts,
}

/// What the handler answers with, before the head is made.
pub(crate) struct Answer {
    pub(crate) parts: Parts,
    pub(crate) flags: Flags,
    pub(crate) status: StatusCode,
    pub(crate) json: Map<String, Value>,
}

/// Reads, counts, waits, blocks, hangs and panics; `Err` is an answer that ends it early.
pub(crate) async fn behave(
    effects: &Effects,
    route: Route,
    request: Request<Body>,
) -> Result<Answer, Response> {
    let (parts, body) = request.into_parts();
    let flags = parts.extensions.get::<Flags>().cloned().unwrap_or_default();

    if !flags.ignore_upload && body.collect().await.is_err() {
        return Err((StatusCode::BAD_REQUEST, "the request body broke off").into_response());
    }
    if let Some(status) = flags.reject {
        let mut response = (status, "rejected before any effect").into_response();
        response.extensions_mut().insert(NoEffect);
        return Err(response);
    }
    let n = effects.count(&parts);
    if flags.commit
        && let Some(run) = parts.extensions.get::<IdempotentRun>()
        && let Err(refused) = run.point_of_no_return().await
    {
        return Err(refused.into_response());
    }
    wait(&parts, &flags).await;
    if !flags.block.is_zero() {
        std::thread::sleep(flags.block);
    }
    if flags.hang {
        beat(&parts, &flags, std::future::pending()).await;
    }
    #[expect(clippy::panic, reason = "asked for by the flag")]
    if flags.panic {
        panic!("the handler panics on command");
    }

    let status = flags.status.unwrap_or(match route {
        Route::Orders | Route::Classrooms if parts.method == Method::POST => StatusCode::CREATED,
        _ => StatusCode::OK,
    });
    let json = describe(route, &parts, &flags, n);
    Ok(Answer {
        parts,
        flags,
        status,
        json,
    })
}

/// Marks the stages a tenth of `delay` apart, then waits for the rest of it.
async fn wait(parts: &Parts, flags: &Flags) {
    let stage = parts.extensions.get::<StageHandle>();
    let pause = flags.delay / 10;
    let work = async {
        let mut left = flags.delay;
        for (i, mark) in flags.marks.iter().enumerate() {
            if i > 0 {
                tokio::time::sleep(pause.min(left)).await;
                left = left.saturating_sub(pause);
            }
            if let Some(stage) = stage {
                stage.mark(*mark);
            }
        }
        if !left.is_zero() {
            tokio::time::sleep(left).await;
        }
    };
    beat(parts, flags, work).await;
}

/// Calls `progress()` at once and then periodically while `work` goes on.
async fn beat(parts: &Parts, flags: &Flags, work: impl Future<Output = ()>) {
    let (Some(every), Some(lease)) = (flags.progress, parts.extensions.get::<Lease>()) else {
        return work.await;
    };
    let progress = async {
        for n in 1.. {
            lease.progress(n);
            tokio::time::sleep(every).await;
        }
    };
    tokio::select! {
        () = work => {}
        () = progress => {}
    }
}

fn describe(route: Route, parts: &Parts, flags: &Flags, n: u64) -> Map<String, Value> {
    let header = |name: &str| parts.headers.get(name).map_or(Value::Null, text);
    let lease = parts.extensions.get::<Lease>();
    let tenant = match route {
        Route::Orders | Route::Classrooms => {
            json!(tenant(&parts.headers).unwrap_or("anonymous".to_owned()))
        }
        Route::Items | Route::Accounts => Value::Null,
    };
    let run = parts.extensions.get::<IdempotentRun>();
    let took_over = lease
        .and_then(Lease::took_over)
        .or(run.and_then(IdempotentRun::took_over));
    let fields = json!({
        "n": n,
        "pid": std::process::id(),
        "tenant": tenant,
        "token": lease.map(|lease| lease.token().get()),
        "nonce": lease.map(|lease| lease.nonce().to_string()),
        "took_over": took_over.map(|before: &TookOver| before.token.get()),
        "vary": flags.vary.as_ref().map_or(Value::Null, |name| header(name.as_str())),
        "cookie": header("cookie"),
        "authorization": header("authorization"),
    });
    match fields {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}

fn text(value: &HeaderValue) -> Value {
    json!(String::from_utf8_lossy(value.as_bytes()))
}

/// The scope of a request: `X-Tenant`, if there is one, with each byte as one character: two names that
/// are not UTF-8 must not become one.
pub(crate) fn tenant(headers: &HeaderMap) -> Option<String> {
    let value = headers.get("x-tenant")?;
    Some(
        value
            .as_bytes()
            .iter()
            .map(|byte| char::from(*byte))
            .collect(),
    )
}

impl Answer {
    /// Head and body as the flags say.
    pub(crate) fn into_response(self, route: Route) -> Response {
        let mut response = self.head(route);
        if !has_no_body(self.status) {
            self.fill(&mut response, self.content());
        }
        response
    }

    /// The head, as yet without a body.
    pub(crate) fn head(&self, route: Route) -> Response {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        if route == Route::Orders {
            business_headers(headers, &self.parts, &self.json);
        }
        for (name, value) in &self.flags.headers {
            headers.append(name, value.clone());
        }
        if let Some(name) = &self.flags.vary {
            headers.append(VARY, HeaderValue::from(name.clone()));
        }
        response
    }

    /// What the whole body is of.
    pub(crate) fn content(&self) -> Content {
        match self.flags.size {
            Some(size) => Content::Filler(size),
            None => Content::Bytes(serde_json::to_vec(&self.json).unwrap_or_default().into()),
        }
    }

    /// Puts the content into a response, in the frames the flags ask for.
    pub(crate) fn fill(&self, response: &mut Response, content: Content) {
        let ctype = self.flags.ctype.clone();
        let ctype = ctype.unwrap_or(HeaderValue::from_static(match content {
            Content::Filler(_) => "application/octet-stream",
            Content::Bytes(_) => "application/json",
        }));
        response.headers_mut().insert(CONTENT_TYPE, ctype);
        *response.body_mut() = body(content, &self.flags);
    }
}

/// The body in the frames the flags ask for.
fn body(content: Content, flags: &Flags) -> Body {
    let filler = Filler::new(content, flags.chunks, flags.chunk_delay).failing(flags.body_error);
    Body::new(if flags.nolen {
        filler.without_len()
    } else {
        filler
    })
}

fn has_no_body(status: StatusCode) -> bool {
    status.is_informational()
        || status == StatusCode::NO_CONTENT
        || status == StatusCode::NOT_MODIFIED
}

/// Headers that a careless replay loses: repeated ones, and one that is not UTF-8.
fn business_headers(headers: &mut HeaderMap, parts: &Parts, json: &Map<String, Value>) {
    let n = json.get("n").and_then(Value::as_u64).unwrap_or_default();
    let path = tower_claim::http::original_uri(&parts.extensions, &parts.uri).path();
    let put = |headers: &mut HeaderMap, name, value: &str| {
        if let Ok(value) = HeaderValue::from_str(value) {
            headers.append(name, value);
        }
    };
    put(headers, LOCATION, &format!("{path}/{n}"));
    put(headers, ETAG, &format!("\"{n}\""));
    put(headers, LINK, &format!("<{path}/{n}>; rel=\"self\""));
    put(headers, LINK, "</docs>; rel=\"help\"");
    put(headers, SET_COOKIE, &format!("order={n}; Path=/"));
    put(headers, SET_COOKIE, "seen=1; Path=/");
    if let Ok(latin1) = HeaderValue::from_bytes(b"caf\xE9") {
        headers.insert("x-name", latin1);
    }
}
