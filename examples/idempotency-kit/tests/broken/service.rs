//! An idempotent service in one file, right in every way the kit looks at; and wrong in one, if it is told so.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::request::Parts;
use http::{HeaderValue, Method, StatusCode};
use http_body_util::BodyExt;

use crate::flaw::Flaw;
use crate::handler::{Answer, fresh_nonce, respond, work};
use crate::reading::{Fingerprint, fingerprint, key};

const LARGEST_KEPT: usize = 1 << 20;
const ROUTES: [&str; 4] = ["/orders", "/refunds", "/v1/orders", "/v2/orders"];

/// How it is to be.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Plan {
    pub(crate) flaw: Option<Flaw>,
    /// How long concurrent repeats wait.
    pub(crate) waits: Option<Duration>,
    /// Of a timeout outside.
    pub(crate) outer_timeout: Option<Duration>,
    /// A flag of X-Lab that is answered 501.
    pub(crate) unknown: Option<&'static str>,
    /// The POST answers a body without an end.
    pub(crate) endless: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Service {
    plan: Plan,
    pub(crate) effects: Mutex<BTreeMap<String, u64>>,
    records: Mutex<HashMap<String, Record>>,
    pub(crate) nonces: Mutex<HashSet<Vec<u8>>>,
    in_replay: Mutex<HashSet<String>>,
}

#[derive(Debug, Clone)]
enum Record {
    Running(Fingerprint),
    Done(Fingerprint, Option<Answer>),
}

/// Serves it on a free port.
pub(crate) async fn start(plan: Plan) -> SocketAddr {
    let service = Service {
        plan,
        ..Service::default()
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let app = Router::new()
        .fallback(outermost)
        .with_state(Arc::new(service));
    tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
    address
}

async fn outermost(State(service): State<Arc<Service>>, request: Request) -> Response {
    match service.plan.outer_timeout {
        Some(limit) => tokio::time::timeout(limit, handle(service, request))
            .await
            .unwrap_or_else(|_| StatusCode::GATEWAY_TIMEOUT.into_response()),
        None => handle(service, request).await,
    }
}

impl Service {
    pub(crate) fn has(&self, flaw: Flaw) -> bool {
        self.plan.flaw == Some(flaw)
    }

    fn set(&self, name: &str, record: Option<Record>) {
        let mut records = self.records.lock().unwrap();
        match record {
            Some(record) => records.insert(name.to_owned(), record),
            None => records.remove(name),
        };
    }
}

async fn handle(service: Arc<Service>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    let path = head.uri.path();
    if path == "/effects" {
        let by = service.effects.lock().unwrap().clone();
        return serde_json::json!({ "by": by }).to_string().into_response();
    }
    if !ROUTES.contains(&path) {
        return StatusCode::NOT_FOUND.into_response();
    }
    if service.plan.endless {
        let chunks =
            futures_util::stream::repeat_with(|| Ok::<_, std::io::Error>(vec![b'x'; 1 << 16]));
        return Body::from_stream(chunks).into_response();
    }
    let flags = head
        .headers
        .get("x-lab")
        .and_then(|flags| flags.to_str().ok());
    if let (Some(flags), Some(unknown)) = (flags, service.plan.unknown)
        && flags.contains(unknown)
    {
        return StatusCode::NOT_IMPLEMENTED.into_response();
    }
    if head.headers.contains_key("x-deny") && !service.has(Flaw::ReplaysWithoutAuth) {
        return StatusCode::FORBIDDEN.into_response();
    }
    if service.has(Flaw::ChecksNoncesOutside) && !fresh_nonce(&service, &head) {
        return StatusCode::FORBIDDEN.into_response();
    }
    let safe = head.method != Method::POST && !service.has(Flaw::ReplaysSafeMethods);
    let key = match key(&service, &head.headers) {
        _ if safe => None,
        Err(()) if service.has(Flaw::SkipsOddKeys) => None,
        Err(()) => return StatusCode::BAD_REQUEST.into_response(),
        Ok(key) => key,
    };
    let name = key.map(|key| match service.has(Flaw::ForgetsTheCaller) {
        true => key,
        false => format!("{:?} {key}", head.headers.get("x-tenant")),
    });
    if let Some(name) = name
        .as_ref()
        .filter(|_| service.has(Flaw::ClaimsBeforeTheUpload))
    {
        let records = service.records.lock().unwrap().clone();
        if !records.contains_key(name) {
            service.set(name, Some(Record::Running(Vec::new())));
        } else if matches!(records[name], Record::Running(_)) {
            return busy();
        }
    }
    let Ok(body) = body.collect().await.map(|body| body.to_bytes()) else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    let Some(name) = name else {
        return respond(work(service, head).await, || ());
    };
    if service.has(Flaw::ClaimsBeforeTheUpload)
        && matches!(
            service.records.lock().unwrap().get(&name),
            Some(Record::Running(_))
        )
    {
        service.set(&name, None);
    }
    once(service, name, head, body).await
}

/// The heart: claim, run, keep; or replay.
async fn once(service: Arc<Service>, name: String, head: Parts, body: Bytes) -> Response {
    let fingerprint = fingerprint(&service, &head, &body);
    let begun = tokio::time::Instant::now();
    let mut naps = 0;
    loop {
        let found = {
            let mut records = service.records.lock().unwrap();
            let found = records.get(&name).cloned();
            if found.is_none() && !service.has(Flaw::LocksNothing) {
                records.insert(name.clone(), Record::Running(fingerprint.clone()));
            }
            found
        };
        match found {
            None => return run(service, name, head, fingerprint).await,
            Some(Record::Running(_)) if service.has(Flaw::RunsTwiceAtOnce) => {
                return run(service, name, head, fingerprint).await;
            }
            Some(Record::Running(of)) => {
                if of != fingerprint && !service.has(Flaw::HidesMismatchBehindBusy) {
                    return StatusCode::UNPROCESSABLE_ENTITY.into_response();
                }
                match service.plan.waits {
                    Some(_) if service.has(Flaw::NapsOnce) && naps > 0 => return busy(),
                    Some(limit) if begun.elapsed() < limit => {
                        naps += 1;
                        let nap = if service.has(Flaw::NapsOnce) { 200 } else { 5 };
                        tokio::time::sleep(Duration::from_millis(nap)).await;
                    }
                    _ if service.has(Flaw::BreaksForTheLoser) => {
                        return StatusCode::SERVICE_UNAVAILABLE.into_response();
                    }
                    _ => return busy(),
                }
            }
            Some(Record::Done(of, _)) if of != fingerprint => {
                return StatusCode::UNPROCESSABLE_ENTITY.into_response();
            }
            Some(Record::Done(_, None)) => {
                return (StatusCode::CONFLICT, r#"{"code":"response-not-kept"}"#).into_response();
            }
            Some(Record::Done(_, Some(answer))) => return replay(&service, &name, answer).await,
        }
    }
}

fn busy() -> Response {
    (StatusCode::CONFLICT, [("retry-after", "1")]).into_response()
}

/// Runs in a task of its own: hyper drops the future of a caller that hangs up.
async fn run(service: Arc<Service>, name: String, head: Parts, of: Fingerprint) -> Response {
    let inline = service.has(Flaw::StopsWithTheCaller);
    let mut guard = Guard::of(&service, &name, inline);
    let job = work(service.clone(), head);
    let done = {
        let (service, name, of) = (service.clone(), name.clone(), of.clone());
        async move {
            let answer = match tokio::spawn(job).await {
                Ok(answer) => answer,
                Err(_) if service.has(Flaw::StaysBusyAfterPanic) => {
                    return Err(StatusCode::INTERNAL_SERVER_ERROR);
                }
                Err(_) => {
                    service.set(&name, None);
                    return Err(StatusCode::INTERNAL_SERVER_ERROR);
                }
            };
            if !(service.has(Flaw::KeepsAtTheEndOnly) && answer.chunks > 1) {
                keep(&service, &name, of, &answer);
            }
            Ok(answer)
        }
    };
    let done = match inline {
        true => done.await,
        false => tokio::spawn(done).await.unwrap(),
    };
    guard.armed = false;
    match done {
        Ok(answer) if service.has(Flaw::KeepsAtTheEndOnly) && answer.chunks > 1 => {
            guard.armed = true;
            let kept = answer.clone();
            respond(answer, move || {
                let mut guard = guard;
                guard.armed = false;
                keep(&service, &name, of, &kept);
            })
        }
        Ok(answer) => respond(answer, || ()),
        Err(status) => status.into_response(),
    }
}

/// What a caller that hangs up frees in a service that is wrong.
struct Guard {
    service: Arc<Service>,
    name: String,
    armed: bool,
}

impl Guard {
    fn of(service: &Arc<Service>, name: &str, armed: bool) -> Self {
        Self {
            service: service.clone(),
            name: name.to_owned(),
            armed,
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if self.armed {
            self.service.set(&self.name, None);
        }
    }
}

fn keep(service: &Service, name: &str, of: Fingerprint, answer: &Answer) {
    let failed = answer.status.is_server_error() && !service.has(Flaw::KeepsFailures);
    let rejected = answer.no_effect && !service.has(Flaw::KeepsRejections);
    let committed = answer.committed && !service.has(Flaw::ForgetsTheMark);
    let large = answer.body.len() > LARGEST_KEPT;
    let name = match service.has(Flaw::KeepsUnderAnotherKey) {
        true => format!("{name}, rewritten"),
        false => name.to_owned(),
    };
    let record = match () {
        () if committed => Some(Record::Done(of, Some(answer.clone()))),
        () if failed || rejected || answer.fails => None,
        () if large && service.has(Flaw::ForgetsLargeResponses) => None,
        () if large => Some(Record::Done(of, None)),
        () => Some(Record::Done(of, Some(answer.clone()))),
    };
    service.set(&name, record);
}

async fn replay(service: &Service, name: &str, mut answer: Answer) -> Response {
    const ONCE: [&str; 10] = [
        "date",
        "set-cookie",
        "www-authenticate",
        "proxy-authenticate",
        "traceparent",
        "x-request-id",
        "ratelimit-remaining",
        "x-ratelimit-remaining",
        "connection",
        "x-kit-hop",
    ];
    if service.has(Flaw::RefusesReplaysAtOnce) {
        if !service.in_replay.lock().unwrap().insert(name.to_owned()) {
            return StatusCode::TOO_MANY_REQUESTS.into_response();
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
        service.in_replay.lock().unwrap().remove(name);
    }
    if !service.has(Flaw::ReplaysCookies) {
        for once in ONCE {
            answer.headers.remove(once);
        }
    }
    if service.has(Flaw::DropsTheSecondLine) {
        let first = answer.headers.keys().cloned().collect::<Vec<_>>();
        for name in first {
            let value = answer.headers[&name].clone();
            answer.headers.insert(name, value);
        }
    }
    if service.has(Flaw::DropsRawHeaders) {
        answer.headers = std::mem::take(&mut answer.headers)
            .into_iter()
            .filter_map(|(name, value)| Some((name?, value)))
            .filter(|(_, value)| value.to_str().is_ok())
            .collect();
    }
    if service.has(Flaw::DropsLocation) {
        answer.headers.remove("location");
    }
    if service.has(Flaw::RepliesOk) {
        answer.status = StatusCode::OK;
    }
    answer.chunks = 1;
    answer.pause = Duration::ZERO;
    let marker = HeaderValue::from_static("true");
    answer.headers.insert("idempotent-replayed", marker);
    respond(answer, || ())
}
