//! The school's routes, and which layer guards which.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::response::Html;
use axum::routing::{get, post, put};
use tower::ServiceBuilder;
use tower_claim::{ConfigError, DynClaimStore, MemoryFenceStore};
use tower_idempotency::{IdempotencyLayer, OnBusy, Outcome};
use tower_lease_guard::{FenceLayer, LeaseGuardLayer, Renewal};
use tower_single_flight::SingleFlightLayer;
use tower_stage::{Board, Stage, StageLayer};

use crate::announcements::{self, Announcements};
use crate::board;
use crate::catalogue::{self, Upstream};
use crate::enrolments::{self, Bank, Book, Enrolments};
use crate::seats::{self, Jobs, Ledger};

/// Short, so that nobody watches a demo for half a minute to see it lapse.
pub(crate) const LEASE: Duration = Duration::from_secs(1);
const STUCK: Duration = Duration::from_millis(500);
const PATIENCE: Duration = Duration::from_secs(30);

/// What outlives a process: the claims, and the enrolments' database.
#[derive(Debug, Clone)]
pub(crate) struct Storage {
    pub(crate) claims: Arc<dyn DynClaimStore>,
    /// Schools of two namespaces over one store do not meet.
    pub(crate) namespace: String,
    pub(crate) book: Arc<Book>,
}

impl Storage {
    /// With a database that is still empty.
    pub(crate) fn new(claims: Arc<dyn DynClaimStore>, namespace: impl Into<String>) -> Self {
        Self {
            claims,
            namespace: namespace.into(),
            book: Arc::default(),
        }
    }
}

/// One process of the school.
#[derive(Debug, Clone)]
pub(crate) struct App {
    pub(crate) router: Router,
    pub(crate) board: Board,
    pub(crate) upstream: Arc<Upstream>,
    pub(crate) bank: Bank,
    pub(crate) merge: SingleFlightLayer,
    once: IdempotencyLayer,
    paid: IdempotencyLayer,
    leases: LeaseGuardLayer,
}

impl App {
    /// `upstream`: how long the upstream takes. `address`: where it will listen; the ledger is reached there.
    pub(crate) fn new(
        storage: &Storage,
        upstream: Duration,
        address: SocketAddr,
    ) -> Result<Self, ConfigError> {
        let board = Board::builder()
            .stuck_after_in(Stage::UpstreamCalled, STUCK)
            .build()?;
        let stage = StageLayer::new(board.clone());
        // The classroom is the key: whoever asks, and whatever the text, it is the same announcement.
        let once = IdempotencyLayer::builder(storage.claims.clone())
            .namespace(&storage.namespace)
            .derived_key(announcements::once_per_classroom()?)
            .one_tenant()
            .first_payload_wins()
            .on_busy(OnBusy::Wait(PATIENCE))
            .build()?;
        // The client's `Idempotency-Key` is the key: one per click on "enrol".
        let paid = IdempotencyLayer::builder(storage.claims.clone())
            .namespace(&storage.namespace)
            .require_key()
            // Enrolling never answers so: `Json` does, before anything was done. The right body may come under the key.
            .outcome_if(|answer| {
                matches!(answer.status.as_u16(), 400 | 415 | 422).then_some(Outcome::Release)
            })
            .lease(LEASE)
            .on_busy(OnBusy::Wait(PATIENCE))
            .build()?;
        let merge = SingleFlightLayer::builder()
            .key(catalogue::same_item)
            .flight_wait(PATIENCE)
            .build()?;
        // Without renewal: a job that does not end within its lease is taken for dead.
        let room = seats::resource("/seats/{room}/jobs")?;
        let leases = LeaseGuardLayer::builder(storage.claims.clone(), room)
            .namespace(&storage.namespace)
            .lease(LEASE)
            .renewal(Renewal::Off)
            .build()?;
        // The ledger's data is in this process, so its marks are, too: they protect what lives where they live.
        let fence = FenceLayer::new(MemoryFenceStore::new(), seats::resource("/ledger/{room}")?);

        let upstream = Arc::new(Upstream::new(upstream));
        let bank = Bank::default();
        let enrolments = Enrolments {
            book: storage.book.clone(),
            bank: bank.clone(),
        };
        let router = Router::new()
            .merge(announcing(stage.clone(), once.clone()))
            .merge(enrolling(enrolments, stage.clone(), paid.clone()))
            .merge(browsing(upstream.clone(), stage.clone(), merge.clone()))
            .merge(seating(Jobs::new(address), stage, leases.clone(), fence))
            .route("/board", get(board::show).with_state(board.clone()))
            .route("/health", get(|| async { "well\n" }))
            .route("/", get(|| async { Html(include_str!("page.html")) }));
        Ok(Self {
            router,
            board,
            upstream,
            bank,
            merge,
            once,
            paid,
            leases,
        })
    }

    /// The end has begun: nothing may hang on.
    pub(crate) fn shut_down(&self) {
        self.board.shutting_down();
        self.upstream.go_on();
    }

    /// Waits for what runs apart from its request, `limit` at most.
    pub(crate) async fn drain(&self, limit: Duration) -> bool {
        let (once, paid, leases, flights) = tokio::join!(
            self.once.drain(limit),
            self.paid.drain(limit),
            self.leases.drain(limit),
            self.merge.drain(limit),
        );
        once && paid && leases && flights
    }
}

// In each part `StageLayer` is outermost, so that the board sees what the layers inside it do.

fn announcing(stage: StageLayer, once: IdempotencyLayer) -> Router {
    let guarded = ServiceBuilder::new().layer(stage.clone()).layer(once);
    let path = "/classrooms/{room}/announcement";
    Router::new()
        .route(path, post(announcements::send).layer(guarded))
        .route(
            "/classrooms/{room}/announcement/behind-reentrant-lock",
            post(announcements::send_behind_reentrant_lock).layer(stage),
        )
        .route("/classrooms/{room}/inbox", get(announcements::inbox))
        .with_state(Arc::new(Announcements::default()))
}

fn enrolling(enrolments: Enrolments, stage: StageLayer, paid: IdempotencyLayer) -> Router {
    let guarded = ServiceBuilder::new().layer(stage).layer(paid);
    Router::new()
        .route("/enrolments", post(enrolments::enrol).layer(guarded))
        .route("/receipts", get(enrolments::receipts))
        .with_state(enrolments)
}

fn browsing(upstream: Arc<Upstream>, stage: StageLayer, merge: SingleFlightLayer) -> Router {
    let merged = ServiceBuilder::new().layer(stage).layer(merge);
    Router::new()
        .route("/catalogue/{item}", get(catalogue::item).layer(merged))
        .route("/catalogue/{item}/unlayered", get(catalogue::item))
        .route("/upstream", get(catalogue::calls))
        .route("/upstream/go-on", post(catalogue::go_on))
        .with_state(upstream)
}

fn seating(jobs: Jobs, stage: StageLayer, leases: LeaseGuardLayer, fence: FenceLayer) -> Router {
    let leased = ServiceBuilder::new().layer(stage.clone()).layer(leases);
    let fenced = ServiceBuilder::new().layer(stage).layer(fence);
    let jobs = Router::new()
        .route("/seats/{room}/jobs", post(seats::start).layer(leased))
        .route("/seats/{room}/jobs/{job}/wake", post(seats::wake))
        .with_state(Arc::new(jobs));
    let ledger = Router::new()
        .route("/ledger/{room}", put(seats::write).layer(fenced))
        .route("/ledger/{room}", get(seats::read))
        .with_state(Arc::new(Ledger::default()));
    jobs.merge(ledger)
}
