//! Handlers run on worker threads of their own: one that blocks its thread must neither keep the server from
//! its sockets nor the board from being read.

use std::panic::resume_unwind;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use tokio::runtime::{Handle, Runtime};
use tokio::task::JoinHandle;

/// How often an idle worker is woken. See [`pulse`].
const PULSE: Duration = Duration::from_millis(10);

/// The workers; as many as there are cores, or `TOKIO_WORKER_THREADS`.
pub(crate) fn start() -> std::io::Result<Runtime> {
    let workers = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    tokio::spawn(pulse(workers.handle().clone()));
    Ok(workers)
}

/// Keeps the workers' timers going. The worker that waits for timers may be the one whose handler then
/// blocks; another takes its place only when it has been woken (tokio-rs/tokio #4730).
async fn pulse(workers: Handle) {
    loop {
        tokio::time::sleep(PULSE).await;
        workers.spawn(async {});
    }
}

/// Runs the rest of the stack on a worker. It ends when the caller leaves, as it would without this.
pub(crate) async fn run(State(workers): State<Handle>, request: Request, next: Next) -> Response {
    let mut task = Attached(workers.spawn(next.run(request)));
    match (&mut task.0).await {
        Ok(response) => response,
        Err(error) if error.is_panic() => resume_unwind(error.into_panic()),
        Err(_) => StatusCode::SERVICE_UNAVAILABLE.into_response(),
    }
}

struct Attached(JoinHandle<Response>);

impl Drop for Attached {
    fn drop(&mut self) {
        self.0.abort();
    }
}
