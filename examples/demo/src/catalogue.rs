//! The catalogue: many readers, one slow upstream.

use std::fmt;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Json;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::watch;
use tower_stage::{Stage, StageHandle};

/// An upstream that hangs is given up after this.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long the upstream waits for a condition of the tour before it answers all the same.
const HELD_AT_MOST: Duration = Duration::from_secs(5);

/// What the upstream shall do with a call.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Mood {
    /// Answers.
    #[default]
    Ok,
    /// Fails.
    Fail,
    /// Panics.
    Panic,
    /// Answers when it is told to go on.
    Hang,
}

/// `?upstream=ok`, `fail`, `panic` or `hang`.
#[derive(Debug, Deserialize)]
pub(crate) struct Ask {
    #[serde(default)]
    upstream: Mood,
}

type Condition = Arc<dyn Fn() -> bool + Send + Sync>;

/// A publisher far away: slow, and every call costs money.
pub(crate) struct Upstream {
    latency: Duration,
    calls: AtomicU64,
    /// How often it was told to go on.
    told: watch::Sender<u64>,
    /// Not before this is true.
    until: Mutex<Option<Condition>>,
}

impl Upstream {
    pub(crate) fn new(latency: Duration) -> Self {
        Self {
            latency,
            calls: AtomicU64::new(0),
            told: watch::Sender::new(0),
            until: Mutex::new(None),
        }
    }

    /// Calls it has got.
    pub(crate) fn calls(&self) -> u64 {
        self.calls.load(Ordering::SeqCst)
    }

    /// It answers no call before this is true.
    pub(crate) fn answer_not_before(&self, condition: impl Fn() -> bool + Send + Sync + 'static) {
        *self.until() = Some(Arc::new(condition));
    }

    /// It answers in its time.
    pub(crate) fn answer_in_time(&self) {
        *self.until() = None;
    }

    /// Calls that hang go on.
    pub(crate) fn go_on(&self) {
        self.told.send_modify(|times| *times += 1);
    }

    async fn ask(&self, mood: Mood) -> Result<u64, &'static str> {
        let mut told = self.told.subscribe();
        let call = self.calls.fetch_add(1, Ordering::SeqCst) + 1;
        tokio::time::sleep(self.latency).await;
        let condition = self.until().clone();
        if let Some(condition) = condition {
            let _ = tokio::time::timeout(HELD_AT_MOST, holds(&*condition)).await;
        }
        match mood {
            Mood::Ok => Ok(call),
            Mood::Fail => Err("the publisher is out of order"),
            // Unwinds as a panic does, without the report on standard error, where it would look like a
            // fault of the demo.
            Mood::Panic => resume_unwind(Box::new("the publisher's client has a bug")),
            Mood::Hang => match tokio::time::timeout(PATIENCE, told.changed()).await {
                Ok(_) => Ok(call),
                Err(_) => Err("the publisher did not answer for a minute"),
            },
        }
    }

    fn until(&self) -> std::sync::MutexGuard<'_, Option<Condition>> {
        self.until.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn holds(condition: &(dyn Fn() -> bool + Send + Sync)) {
    while !condition() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

impl fmt::Debug for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Upstream")
            .field("calls", &self.calls())
            .finish_non_exhaustive()
    }
}

/// What makes two readers equal: the whole target but for `reader`, a number that the page adds, since a
/// browser sends requests that look equal to it one after another.
pub(crate) fn same_item(req: &Parts) -> Option<String> {
    let query = req.uri.query().unwrap_or_default().split('&');
    let query: Vec<_> = query.filter(|q| !q.starts_with("reader=")).collect();
    Some(format!("{}?{}", req.uri.path(), query.join("&")))
}

/// One item. Knows nothing of other readers: the layer merges them.
pub(crate) async fn item(
    State(upstream): State<Arc<Upstream>>,
    Path(item): Path<String>,
    Query(ask): Query<Ask>,
    stage: StageHandle,
) -> (StatusCode, Json<Value>) {
    stage.mark(Stage::UpstreamCalled);
    match upstream.ask(ask.upstream).await {
        Ok(call) => {
            let body = json!({ "item": item, "upstream_call": call });
            (StatusCode::OK, Json(body))
        }
        Err(why) => (StatusCode::BAD_GATEWAY, Json(json!({ "failed": why }))),
    }
}

/// How often the upstream was called.
pub(crate) async fn calls(State(upstream): State<Arc<Upstream>>) -> Json<Value> {
    Json(json!({ "calls": upstream.calls() }))
}

/// Lets an upstream that hangs go on.
pub(crate) async fn go_on(State(upstream): State<Arc<Upstream>>) -> StatusCode {
    upstream.go_on();
    StatusCode::NO_CONTENT
}
