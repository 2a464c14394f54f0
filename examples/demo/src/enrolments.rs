//! Enrolments: paid, so a double click must not be charged twice.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tower_idempotency::IdempotentRun;
use tower_stage::{Stage, StageHandle};

const PAYMENT: Duration = Duration::from_millis(20);

/// The database: shared by all processes of the school.
#[derive(Debug, Default)]
pub(crate) struct Book {
    pages: Mutex<Pages>,
}

#[derive(Debug, Default)]
struct Pages {
    /// Handlers that began, by pupil.
    begun: Vec<String>,
    receipts: Vec<Receipt>,
}

impl Book {
    fn begin(&self, pupil: &str) {
        self.pages().begun.push(pupil.to_owned());
    }

    fn charge(&self, enrolment: Enrolment, attempt: u32) -> Receipt {
        let mut pages = self.pages();
        let receipt = Receipt {
            receipt: pages.receipts.len() + 1,
            enrolment,
            attempt,
        };
        pages.receipts.push(receipt.clone());
        receipt
    }

    /// How often a handler began to enrol this pupil.
    pub(crate) fn begun(&self, pupil: &str) -> usize {
        self.pages().begun.iter().filter(|p| *p == pupil).count()
    }

    /// How often this pupil was charged.
    pub(crate) fn charged(&self, pupil: &str) -> usize {
        let pages = self.pages();
        let of = |receipt: &&Receipt| receipt.enrolment.pupil == pupil;
        pages.receipts.iter().filter(of).count()
    }

    fn pages(&self) -> std::sync::MutexGuard<'_, Pages> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One process's line to the bank.
#[derive(Debug, Clone)]
pub(crate) struct Bank {
    open: Arc<watch::Sender<bool>>,
}

impl Default for Bank {
    fn default() -> Self {
        Self {
            open: Arc::new(watch::Sender::new(true)),
        }
    }
}

impl Bank {
    /// Answers nobody from now on.
    pub(crate) fn fall_silent(&self) {
        self.open.send_replace(false);
    }

    async fn pay(&self) {
        tokio::time::sleep(PAYMENT).await;
        // The sender is ours, so that the channel cannot close under us.
        let _ = self.open.subscribe().wait_for(|open| *open).await;
    }
}

/// What the handlers of one process work with.
#[derive(Debug, Clone)]
pub(crate) struct Enrolments {
    pub(crate) book: Arc<Book>,
    pub(crate) bank: Bank,
}

/// Who wants to learn what.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Enrolment {
    pupil: String,
    course: String,
}

/// The proof that it was paid.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Receipt {
    receipt: usize,
    #[serde(flatten)]
    enrolment: Enrolment,
    attempt: u32,
}

/// Enrols one pupil, and charges for it.
pub(crate) async fn enrol(
    State(enrolments): State<Enrolments>,
    run: IdempotentRun,
    stage: StageHandle,
    Json(enrolment): Json<Enrolment>,
) -> (StatusCode, Json<Receipt>) {
    enrolments.book.begin(&enrolment.pupil);
    stage.mark(Stage::Validated);
    stage.mark(Stage::UpstreamCalled);
    enrolments.bank.pay().await;
    let receipt = enrolments.book.charge(enrolment, run.attempt());
    stage.mark(Stage::Persisted);
    (StatusCode::CREATED, Json(receipt))
}

/// Everything that was charged.
pub(crate) async fn receipts(State(enrolments): State<Enrolments>) -> Json<Vec<Receipt>> {
    Json(enrolments.book.pages().receipts.clone())
}
