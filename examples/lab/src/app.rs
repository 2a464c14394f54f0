//! The routes and their layers.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodFilter, MethodRouter, get, on, post, put};
use http::request::Parts;
use http::{StatusCode, Uri};
use serde_json::Value;
use tokio::runtime::Handle;
use tower::ServiceBuilder;
use tower::util::MapRequestLayer;
use tower_claim::http::{KeyFields, KeySyntax};
use tower_claim::testing::FaultStore;
use tower_claim::{Code, ConfigError, DynClaimMany, LapsePolicy, Refusal, Renewal};
use tower_http::catch_panic::CatchPanicLayer;
use tower_idempotency::{IdempotencyBuilder, IdempotencyLayer, OnBusy, OnStoreDown};
use tower_lease_guard::{Lease, LeaseGuardLayer};
use tower_single_flight::SingleFlightLayer;
use tower_stage::{Board, StageLayer};

use crate::around::Around;
use crate::effects::Effects;
use crate::flags::{BadFlag, Flags};
use crate::handler::{Route, behave, tenant};
use crate::ledger::{Ledger, write_under};
use crate::options::{self, Keys, OnLapse, Options, Print, StoreDown};
use crate::store::Opened;
use crate::{metrics, operators, origin, problem, workers};

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

        let orders = idempotency(options, claims.clone()).named("orders");
        let orders = match options.fingerprint {
            Print::Raw => orders,
            Print::Json => orders.canonical_json(),
        };
        let orders = orders.build()?;
        let announcements = idempotency(options, claims.clone())
            .named("announcements")
            .derived_key(|parts| {
                let path = tower_claim::http::original_uri(&parts.extensions, &parts.uri).path();
                let room = path
                    .strip_prefix("/classrooms/")?
                    .strip_suffix("/announcement")?;
                Some(KeyFields::new().field("classroom", room))
            })
            .first_payload_wins()
            .build()?;
        let flights = SingleFlightLayer::builder()
            .without_authority()
            .flight_age(options.flight_age)
            .flight_wait(options.flight_wait)
            .max_waiters(options.max_waiters)
            .build()?;
        let leases = LeaseGuardLayer::builder_many(claims, accounts)
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
            .merge(ledger_routes)
            .merge(tracked);
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
        .key_syntax(match options.keys {
            Keys::Lenient => KeySyntax::Lenient,
            Keys::Strict => KeySyntax::Strict,
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

/// The account of the path, and the one of `also`.
fn accounts(parts: &Parts) -> Vec<String> {
    let of_path = parts
        .uri
        .path()
        .strip_prefix("/accounts/")
        .map(str::to_owned);
    let pairs = parts.uri.query().unwrap_or_default().split('&');
    let also = pairs
        .filter_map(|pair| pair.strip_prefix("also="))
        .map(str::to_owned);
    of_path.into_iter().chain(also).collect()
}

fn business(effects: &Effects, layer: &IdempotencyLayer, around: &Around) -> Router {
    let methods = MethodFilter::POST
        .or(MethodFilter::PUT)
        .or(MethodFilter::PATCH)
        .or(MethodFilter::DELETE)
        .or(MethodFilter::GET)
        .or(MethodFilter::HEAD)
        .or(MethodFilter::OPTIONS);
    let layers = ServiceBuilder::new()
        .layer(from_fn(deny))
        .layer(layer.clone())
        .layer(MapRequestLayer::new(|request: http::Request<_>| {
            request.map(Body::new)
        }));
    let route = around.inside(on(methods, order)).layer(layers);
    let route = around.outside(route).with_state(effects.clone());
    Router::new()
        .route("/orders", route.clone())
        .route("/refunds", route)
}

fn announcement(effects: &Effects, layer: &IdempotencyLayer, around: &Around) -> MethodRouter {
    let route = around.inside(post(announce)).layer(layer.clone());
    around.outside(route).with_state(effects.clone())
}

fn items(effects: &Effects, layer: &SingleFlightLayer) -> MethodRouter {
    get(item)
        .post(item)
        .layer(layer.clone())
        .with_state(effects.clone())
}

fn account(effects: &Effects, layer: &LeaseGuardLayer, ledger: &Router) -> MethodRouter {
    let state = (effects.clone(), ledger.clone());
    put(write_account)
        .post(write_account)
        .layer(layer.clone())
        .with_state(state)
}

async fn order(State(effects): State<Effects>, request: Request) -> Response {
    answer(&effects, Route::Orders, request).await
}

async fn announce(State(effects): State<Effects>, request: Request) -> Response {
    answer(&effects, Route::Classrooms, request).await
}

async fn answer(effects: &Effects, route: Route, request: Request) -> Response {
    match behave(effects, route, request).await {
        Ok(answer) => answer.into_response(route),
        Err(early) => early,
    }
}

async fn item(State(effects): State<Effects>, request: Request) -> Response {
    match behave(&effects, Route::Items, request).await {
        Ok(answer) => origin::respond(answer),
        Err(early) => early,
    }
}

async fn write_account(
    State((effects, ledger)): State<(Effects, Router)>,
    uri: Uri,
    lease: Lease,
    request: Request,
) -> Response {
    let mut answer = match behave(&effects, Route::Accounts, request).await {
        Ok(answer) => answer,
        Err(early) => return early,
    };
    let writes = !answer.flags.no_write && answer.status.as_u16() < 400;
    let id = uri.path().strip_prefix("/accounts/").unwrap_or_default();
    if writes && let Err(refusal) = write_under(ledger, id, &lease).await {
        return refusal;
    }
    answer
        .json
        .insert("written".to_owned(), Value::Bool(writes));
    answer.into_response(Route::Accounts)
}

/// Takes the flags off the request, or refuses them, before any layer could store or share anything.
async fn take_flags(request: Request, next: Next) -> Response {
    let (mut parts, body) = request.into_parts();
    match Flags::of(&parts) {
        Ok(flags) => {
            parts.extensions.insert(flags);
            next.run(Request::from_parts(parts, body)).await
        }
        Err(BadFlag(reason)) => problem::bad_request(reason),
    }
}

/// The stub of an authentication layer.
async fn deny(request: Request, next: Next) -> Response {
    if request
        .headers()
        .get("x-deny")
        .is_some_and(|value| value == "1")
    {
        return StatusCode::FORBIDDEN.into_response();
    }
    next.run(request).await
}

fn handler_panicked(_: Box<dyn std::any::Any + Send>) -> http::Response<Body> {
    Refusal::new(Code::HandlerPanicked)
        .to_response(false)
        .map(Body::from)
}
