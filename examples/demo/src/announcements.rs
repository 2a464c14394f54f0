//! Announcements: each goes out once per classroom.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use serde_json::{Value, json};
use tower_claim::ConfigError;
use tower_claim::http::{KeyFields, path_segment};
use tower_stage::{Stage, StageHandle};

use crate::reentrant::ReentrantLock;

/// How long the mail server takes. Anything above nothing gives another request the time to get in between.
const MAIL: Duration = Duration::from_millis(2);
const HOUR: Duration = Duration::from_secs(60 * 60);

/// What the pupils have got, by classroom.
#[derive(Debug, Default)]
pub(crate) struct Announcements {
    delivered: Mutex<HashMap<String, Vec<String>>>,
    lock: ReentrantLock,
}

impl Announcements {
    async fn deliver(&self, room: String, text: String) -> usize {
        tokio::time::sleep(MAIL).await;
        let mut delivered = self
            .delivered
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let inbox = delivered.entry(room).or_default();
        inbox.push(text);
        inbox.len()
    }

    fn inbox(&self, room: &str) -> Vec<String> {
        let delivered = self
            .delivered
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        delivered.get(room).cloned().unwrap_or_default()
    }
}

/// The business key: the classroom names the intent, whoever asks and however often. Decoded, as the handler's `Path`
/// is: `/classrooms/%37` is classroom 7.
pub(crate) fn once_per_classroom() -> Result<impl Fn(&Parts) -> Option<KeyFields>, ConfigError> {
    let classroom = path_segment("/classrooms/{room}/announcement")?;
    Ok(move |req: &Parts| Some(KeyFields::new().field("classroom", classroom(req)?)))
}

/// Sends it. Has no idea that it may be asked twice: the layer sees to that.
pub(crate) async fn send(
    State(announcements): State<Arc<Announcements>>,
    Path(room): Path<String>,
    stage: StageHandle,
    text: String,
) -> (StatusCode, Json<Value>) {
    stage.mark(Stage::UpstreamCalled);
    let copies = announcements.deliver(room, text).await;
    stage.mark(Stage::Persisted);
    (StatusCode::CREATED, Json(json!({ "delivered": copies })))
}

/// Sends it as it was once done: behind the lock keyed by thread.
pub(crate) async fn send_behind_reentrant_lock(
    State(announcements): State<Arc<Announcements>>,
    Path(room): Path<String>,
    text: String,
) -> (StatusCode, Json<Value>) {
    if !announcements.lock.try_lock(&room, HOUR) {
        let why = "another thread holds the lock";
        return (StatusCode::CONFLICT, Json(json!({ "refused": why })));
    }
    let copies = announcements.deliver(room, text).await;
    (StatusCode::CREATED, Json(json!({ "delivered": copies })))
}

/// What this classroom has got.
pub(crate) async fn inbox(
    State(announcements): State<Arc<Announcements>>,
    Path(room): Path<String>,
) -> Json<Vec<String>> {
    Json(announcements.inbox(&room))
}
