//! `/ledger/{id}`: what a leased write reaches, behind the fence.

mod books;
#[cfg(feature = "etcd")]
mod etcd;
mod named;
mod postgres;
mod redis;

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, put};
use axum::{Extension, Json, Router};
use http::{StatusCode, Uri};
use serde_json::{Value, json};
use tower::{ServiceBuilder, ServiceExt};
use tower_claim::store::Admission;
use tower_claim::{Code, ConfigError, FenceStore, Namespace, Refusal, StoreError};
use tower_lease_guard::{FenceError, FenceLayer, FencingToken, Lease};

pub(crate) use books::{Books, Entry, MemoryBooks};
#[cfg(feature = "etcd")]
pub(crate) use etcd::EtcdBooks;
use named::{Named, name};
pub(crate) use postgres::PostgresBooks;
pub(crate) use redis::RedisBooks;

/// The ledgers of one namespace. Clones share them.
#[derive(Debug, Clone)]
pub(crate) struct Ledger {
    fence: Named,
    books: Arc<dyn Books>,
}

/// The ledger a path names, as it was sent: decoded, one name could be spelt in two ways.
fn id_of(uri: &Uri) -> Option<String> {
    uri.path().strip_prefix("/ledger/").map(str::to_owned)
}

impl Ledger {
    pub(crate) fn new(
        fence: Arc<dyn tower_claim::DynFenceStore>,
        books: Arc<dyn Books>,
        namespace: &Namespace,
    ) -> Self {
        let fence = Named::new(fence, namespace);
        Self { fence, books }
    }

    /// `/ledger/{id}`: reads are open, writes pass the fence.
    pub(crate) fn routes(&self) -> Result<Router, ConfigError> {
        let fence = FenceLayer::builder(self.fence.clone(), |parts: &http::request::Parts| {
            id_of(&parts.uri)
        })
        .build()?;
        let layers = ServiceBuilder::new()
            .layer(from_fn_with_state(self.clone(), count_refusals))
            .layer(fence);
        let route = put(write)
            .layer(layers)
            .merge(get(read))
            .with_state(self.clone());
        Ok(Router::new().route("/ledger/{id}", route))
    }
}

async fn write(
    State(ledger): State<Ledger>,
    uri: Uri,
    Extension(token): Extension<FencingToken>,
) -> Response {
    let id = id_of(&uri).unwrap_or_default();
    let entry = Entry::new(token.token(), token.nonce());
    let refusal = match ledger.books.write(&id, &entry).await {
        Ok(Admission::Admitted) => {
            return Json(json!({ "high_water": entry.token })).into_response();
        }
        Ok(Admission::Stale { high }) => FenceError::Stale { high }.refusal(),
        Ok(Admission::Collision { high }) => FenceError::Collision { high }.refusal(),
        Ok(_) => unavailable(&StoreError::Unsupported("an answer of a newer version")),
        Err(error) => unavailable(&error),
    };
    refusal.to_response(false).map(Body::from)
}

async fn read(State(ledger): State<Ledger>, uri: Uri) -> Response {
    let id = id_of(&uri).unwrap_or_default();
    match tokio::try_join!(ledger.fence.high_water(&id), ledger.books.read(&id)) {
        Ok((high_water, book)) => Json::<Value>(json!({
            "high_water": high_water.get(),
            "admitted": book.admitted,
            "refused": book.refused,
        }))
        .into_response(),
        Err(error) => unavailable(&error).to_response(false).map(Body::from),
    }
}

fn unavailable(error: &StoreError) -> Refusal {
    tracing::warn!(
        error = error as &dyn std::error::Error,
        "the ledger does not answer"
    );
    Refusal::new(Code::StoreUnavailable).with_detail("the ledger does not answer")
}

/// Counts the writes that were turned away as stale.
async fn count_refusals(State(ledger): State<Ledger>, request: Request, next: Next) -> Response {
    let id = id_of(request.uri()).unwrap_or_default();
    let response = next.run(request).await;
    if response.status() == StatusCode::PRECONDITION_FAILED
        && let Err(error) = ledger.books.count_refusal(&id).await
    {
        tracing::warn!(
            error = &error as &dyn std::error::Error,
            "a refusal was not counted"
        );
    }
    response
}

/// Writes to the ledger of this name as the owner of a lease would from another process: by a request
/// that carries the lease's token. `Err` is the fence's refusal.
pub(crate) async fn write_under(routes: Router, id: &str, lease: &Lease) -> Result<(), Response> {
    let request = http::Request::put(format!("/ledger/{id}"))
        .header("fencing-token", lease.fence().to_header_value())
        .body(Body::empty())
        .map_err(|bad| (StatusCode::BAD_REQUEST, bad.to_string()).into_response())?;
    match routes.oneshot(request).await {
        Ok(response) if response.status().is_success() => Ok(()),
        Ok(refusal) => Err(refusal),
        Err(never) => match never {},
    }
}
