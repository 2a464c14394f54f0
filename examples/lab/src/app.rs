//! The layers, and which routes they stand around.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Query;
use axum::middleware::{from_fn, from_fn_with_state};
use http::StatusCode;
use http::request::Parts;
use tokio::runtime::Handle;
use tower::ServiceBuilder;
use tower_claim::http::{KeyFields, KeySyntax, path_segment};
use tower_claim::testing::FaultStore;
use tower_claim::{Code, ConfigError, DynClaimMany, LapsePolicy, Refusal, Renewal};
use tower_http::catch_panic::CatchPanicLayer;
use tower_idempotency::{IdempotencyBuilder, IdempotencyLayer, OnBusy, OnStoreDown, PolicyService};
use tower_lease_guard::LeaseGuardLayer;
use tower_single_flight::SingleFlightLayer;
use tower_stage::{Board, StageLayer};

use crate::around::Around;
use crate::effects::Effects;
use crate::handler::tenant;
use crate::ledger::Ledger;
use crate::options::{self, Keys, OnLapse, Options, Print, StoreDown};
use crate::routes::{account, announcement, business, heads_fit, items, take_flags};
use crate::store::Opened;
use crate::{metrics, operators, workers};

/// The claims as the layers meet them.
type Claims = FaultStore<Arc<dyn DynClaimMany>>;

/// The whole lab, ready to be served.
pub(crate) struct App {
    pub(crate) router: Router,
    pub(crate) board: Board,
    orders: IdempotencyLayer,
    announcements: IdempotencyLayer,
    flights: SingleFlightLayer,
    leases: LeaseGuardLayer,
}

impl App {
    pub(crate) fn build(
        options: &Options,
        store: &Opened,
        workers: &Handle,
    ) -> Result<Self, ConfigError> {
        let effects = Effects::default();
        let metrics = metrics::Requests::new()?;
        let sink = metrics.clone();
        let board = Board::builder()
            .stuck_after(options.stuck_after)
            .on_finish(move |finished| sink.record(finished))
            .build()?;
        // Before the claims only: neither the ledger nor operators meet the faults.
        let claims = Claims::new(store.claims.clone());
        let faults = claims.faults();
        let namespace = options.namespace.as_str();

        // Announcements have keys of their own making, without a syntax.
        let orders = idempotency(options, claims.clone())
            .named("orders")
            .key_syntax(match options.keys {
                Keys::Lenient => KeySyntax::Lenient,
                Keys::Strict => KeySyntax::Strict,
            });
        let orders = match options.fingerprint {
            Print::Raw => orders,
            Print::Json => orders.canonical_json(),
        };
        let orders = orders.build()?;
        let room = path_segment("/classrooms/{id}/announcement")?;
        let announcements = idempotency(options, claims.clone())
            .named("announcements")
            .derived_key(move |parts| Some(KeyFields::new().field("classroom", room(parts)?)))
            .first_payload_wins()
            .build()?;
        let flights = SingleFlightLayer::builder()
            .without_authority()
            .flight_age(options.flight_age)
            .flight_wait(options.flight_wait)
            .max_waiters(options.max_waiters)
            .build()?;
        let leases = LeaseGuardLayer::builder_many(claims, accounts()?)
            .lease(options.lease)
            .renewal(renewal(options))
            .namespace(namespace)
            .build()?;

        let ledger = Ledger::new(store.fence.clone(), store.books.clone(), &options.namespace);
        let ledger_routes = ledger.routes()?;
        let around = Around::of(options);
        let business = business(&effects, &orders, &around);
        let tracked = Router::new()
            .merge(business.clone())
            .nest("/v1", business.clone())
            .nest("/v2", business)
            .route(
                "/classrooms/{id}/announcement",
                announcement(&effects, &announcements, &around),
            )
            .route("/items/{id}", items(&effects, &flights))
            .route("/accounts/{id}", account(&effects, &leases, &ledger_routes))
            .fallback(|| async { StatusCode::NOT_FOUND })
            .layer(
                ServiceBuilder::new()
                    .layer(from_fn_with_state(workers.clone(), workers::run))
                    .layer(CatchPanicLayer::custom(handler_panicked))
                    .layer(StageLayer::new(board.clone()))
                    .layer(from_fn(take_flags)),
            );
        let desk = operators::Desk {
            effects,
            board: board.clone(),
            faults,
            store: store.admin.clone(),
            runs: orders.operator(store.admin.clone()),
            metrics,
            token: options.operator_token().map(Into::into),
        };
        let router = Router::new()
            .merge(operators::routes(desk))
            .route_service("/policy", PolicyService::new(&orders))
            .merge(ledger_routes)
            .merge(tracked)
            .layer(from_fn(heads_fit));
        Ok(Self {
            router,
            board,
            orders,
            announcements,
            flights,
            leases,
        })
    }

    /// Waits for work that outlives its callers.
    pub(crate) async fn drain(&self, timeout: Duration) {
        let (orders, announcements) = (
            self.orders.drain(timeout),
            self.announcements.drain(timeout),
        );
        let (flights, leases) = (self.flights.drain(timeout), self.leases.drain(timeout));
        let _ = tokio::join!(orders, announcements, flights, leases);
    }
}

fn renewal(options: &Options) -> Renewal {
    if options.renew.is_on() {
        Renewal::Always
    } else {
        Renewal::Off
    }
}

/// What both idempotency layers share.
fn idempotency(options: &Options, claims: Claims) -> IdempotencyBuilder {
    let builder = IdempotencyLayer::builder(claims)
        .scope(|parts: &Parts| tenant(&parts.headers))
        .namespace(options.namespace.as_str())
        .lease(options.lease)
        .renewal(renewal(options))
        .retention(options.retention)
        .on_busy(match options.on_busy {
            options::OnBusy::Reject => OnBusy::Reject,
            options::OnBusy::Wait(limit) => OnBusy::Wait(limit),
        })
        .on_lapse(match options.on_lapse {
            OnLapse::Takeover => LapsePolicy::TakeOver,
            OnLapse::Hold => LapsePolicy::Hold,
        })
        .on_store_down(match options.store_down {
            StoreDown::Closed => OnStoreDown::Refuse,
            StoreDown::Open => OnStoreDown::RunUnprotected,
        })
        .max_request_body(options.max_body)
        .max_response_body(options.max_response)
        // The lab has every setting on every engine; on one that may forget it says so at its start.
        .trust_forgetful_store();
    let builder = if options.require_key.is_on() {
        builder.require_key()
    } else {
        builder
    };
    if options.require_tenant.is_on() {
        builder.require_scope()
    } else {
        builder
    }
}

/// The account of the path, and the one of `also`; decoded, so that one account has one lease however it is spelt.
fn accounts() -> Result<impl Fn(&Parts) -> Vec<String>, ConfigError> {
    let of_path = path_segment("/accounts/{id}")?;
    Ok(move |parts: &Parts| {
        let pairs = Query::<Vec<(String, String)>>::try_from_uri(&parts.uri);
        let pairs = pairs.map_or_else(|_| Vec::new(), |Query(pairs)| pairs);
        let also = pairs.into_iter().filter(|(name, _)| name == "also");
        let also = also.map(|(_, account)| account);
        of_path(parts).into_iter().chain(also).collect()
    })
}

fn handler_panicked(_: Box<dyn std::any::Any + Send>) -> http::Response<Body> {
    Refusal::new(Code::HandlerPanicked)
        .to_response(false)
        .map(Body::from)
}
