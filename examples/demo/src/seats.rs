//! Seats: one job per classroom at a time writes to a ledger that refuses a stale owner.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::Json;
use axum::extract::{Path, Query, State};
use axum::http::request::Parts;
use axum::http::{Method, Request, StatusCode};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tower::{Layer, ServiceExt, service_fn};
use tower_claim::ConfigError;
use tower_claim::http::path_segment;
use tower_lease_guard::{FencingToken, Lease, StampLayer};
use tower_stage::{Stage, StageHandle};

use crate::client::{self, BoxError};

/// What a request works on, or writes to: the seats of the classroom in its path. Decoded, as the handler's `Path` is:
/// `/seats/%37/jobs` works on the seats of classroom 7.
pub(crate) fn resource(
    path: &str,
) -> Result<impl Fn(&Parts) -> Option<String> + use<>, ConfigError> {
    let room = path_segment(path)?;
    Ok(move |req: &Parts| room(req).map(|room| format!("seats/{room}")))
}

/// Who sits in a classroom, and under which token it was written.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Seat {
    pupil: String,
    token: u64,
}

/// The ledger: another service, in truth. Jobs write to it over HTTP.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    seats: Mutex<HashMap<String, Vec<Seat>>>,
}

impl Ledger {
    fn seats(&self) -> MutexGuard<'_, HashMap<String, Vec<Seat>>> {
        self.seats.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Gives a seat away. Behind the fence, which has let the token in.
pub(crate) async fn write(
    State(ledger): State<Arc<Ledger>>,
    Path(room): Path<String>,
    axum::Extension(fence): axum::Extension<FencingToken>,
    pupil: String,
) -> (StatusCode, Json<Seat>) {
    let token = fence.token().get();
    let seat = Seat { pupil, token };
    ledger.seats().entry(room).or_default().push(seat.clone());
    (StatusCode::CREATED, Json(seat))
}

/// Who sits where.
pub(crate) async fn read(
    State(ledger): State<Arc<Ledger>>,
    Path(room): Path<String>,
) -> Json<Vec<Seat>> {
    Json(ledger.seats().get(&room).cloned().unwrap_or_default())
}

/// Jobs that were paused, and where the ledger is.
#[derive(Debug)]
pub(crate) struct Jobs {
    ledger: SocketAddr,
    paused: Mutex<HashMap<u64, Wake>>,
    next: AtomicU64,
}

/// Wakes a job; takes where to report to.
type Wake = oneshot::Sender<oneshot::Sender<Written>>;

/// What became of a write.
#[derive(Debug)]
struct Written {
    status: StatusCode,
    body: Value,
}

impl Jobs {
    pub(crate) fn new(ledger: SocketAddr) -> Self {
        Self {
            ledger,
            paused: Mutex::default(),
            next: AtomicU64::new(1),
        }
    }

    fn paused(&self) -> MutexGuard<'_, HashMap<u64, Wake>> {
        self.paused.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// `?paused=true`: the job stands still before its write.
#[derive(Debug, Deserialize)]
pub(crate) struct Pause {
    #[serde(default)]
    paused: bool,
}

/// Starts a job that gives a seat to a pupil, under the lease on the classroom's seats.
pub(crate) async fn start(
    State(jobs): State<Arc<Jobs>>,
    Path(room): Path<String>,
    Query(pause): Query<Pause>,
    lease: Lease,
    stage: StageHandle,
    pupil: String,
) -> Response {
    if let Err(lost) = lease.check() {
        return lost.into_response();
    }
    let token = lease.token().get();
    if !pause.paused {
        stage.mark(Stage::UpstreamCalled);
        let written = give(jobs.ledger, &room, &lease, pupil).await;
        stage.mark(Stage::Persisted);
        return report(token, written);
    }
    let job = jobs.next.fetch_add(1, Ordering::Relaxed);
    let (wake, woken) = oneshot::channel::<oneshot::Sender<Written>>();
    jobs.paused().insert(job, wake);
    let ledger = jobs.ledger;
    // A task of its own, as a process of its own would be: when the lease is lost nobody can drop it. It
    // stands still between its check and its write, where no check helps any more.
    tokio::spawn(async move {
        if let Ok(tell) = woken.await {
            let _ = tell.send(give(ledger, &room, &lease, pupil).await);
        }
    });
    let body = json!({ "job": job, "token": token, "state": "paused" });
    (StatusCode::ACCEPTED, Json(body)).into_response()
}

/// Wakes a paused job, and says what became of its write.
pub(crate) async fn wake(
    State(jobs): State<Arc<Jobs>>,
    Path((_room, job)): Path<(String, u64)>,
) -> Response {
    let (tell, told) = oneshot::channel();
    let wake = jobs.paused().remove(&job);
    if wake.is_none_or(|wake| wake.send(tell).is_err()) {
        let body = json!({ "failed": "there is no such paused job" });
        return (StatusCode::NOT_FOUND, Json(body)).into_response();
    }
    match told.await {
        Ok(written) => (written.status, Json(written.body)).into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

/// Writes to the ledger over HTTP. `StampLayer` shows the lease's fencing token.
async fn give(ledger: SocketAddr, room: &str, lease: &Lease, pupil: String) -> Written {
    let send = service_fn(move |request: Request<Bytes>| client::send(ledger, request));
    let client = StampLayer::new().layer(send);
    let answer = async {
        let mut request = client::request(Method::PUT, &format!("/ledger/{room}"), &pupil)?;
        request.extensions_mut().insert(lease.clone());
        client.oneshot(request).await
    };
    match answer.await {
        Ok(answer) => Written {
            status: answer.status,
            body: answer.json(),
        },
        Err(error) => Written {
            status: StatusCode::BAD_GATEWAY,
            body: json!({ "failed": error_text(&error) }),
        },
    }
}

fn report(token: u64, written: Written) -> Response {
    let body = json!({ "token": token, "ledger": written.body });
    (written.status, Json(body)).into_response()
}

fn error_text(error: &BoxError) -> String {
    format!("the ledger did not answer: {error}")
}
