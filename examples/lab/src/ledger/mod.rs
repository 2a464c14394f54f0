//! `/ledger/{id}`: what a leased write reaches, behind the fence.

mod books;
#[cfg(feature = "etcd")]
mod etcd;
mod named;
mod outcome;
mod postgres;
mod redis;

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, put};
use axum::{Extension, Json, Router};
use http::StatusCode;
use serde_json::{Value, json};
use tower::{ServiceBuilder, ServiceExt};
use tower_claim::http::path_segment;
use tower_claim::store::Admission;
use tower_claim::{Code, ConfigError, FenceStore, Namespace, Refusal, StoreError, Token};
use tower_lease_guard::{FenceError, FenceLayer, FencingToken, Lease};

pub(crate) use books::{Books, Entry, MemoryBooks};
#[cfg(feature = "etcd")]
pub(crate) use etcd::EtcdBooks;
use named::{Named, name};
use outcome::Outcome;
pub(crate) use postgres::PostgresBooks;
pub(crate) use redis::{PREFIX as REDIS_PREFIX, RedisBooks};

/// The ledgers of one namespace. Clones share them.
#[derive(Debug, Clone)]
pub(crate) struct Ledger {
    fence: Named,
    books: Arc<dyn Books>,
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
        // Decoded, as `Path` is below: `7` and `%37` are one ledger, with one mark.
        let id = path_segment("/ledger/{id}")?;
        let fence = FenceLayer::builder(self.fence.clone(), id).build()?;
        let layers = ServiceBuilder::new()
            .layer(from_fn_with_state(self.clone(), tell_what_happened))
            .layer(fence);
        let route = put(write)
            .layer(layers)
            .merge(get(read))
            .with_state(self.clone());
        Ok(Router::new().route("/ledger/{id}", route))
    }

    async fn write(self, id: String, token: FencingToken) -> Result<Token, Refusal> {
        let entry = Entry::new(token.token(), token.nonce());
        match self.books.write(&id, &entry).await {
            Ok(Admission::Admitted) => Ok(token.token()),
            Ok(Admission::Stale { high }) => Err(FenceError::Stale { high }.refusal()),
            Ok(Admission::Collision { high }) => Err(FenceError::Collision { high }.refusal()),
            Ok(_) => Err(unavailable(&StoreError::Unsupported(
                "an answer of a newer version",
            ))),
            Err(error) => Err(unavailable(&error)),
        }
    }
}

async fn write(
    State(ledger): State<Ledger>,
    Path(id): Path<String>,
    Extension(token): Extension<FencingToken>,
    Extension(outcome): Extension<Outcome>,
) -> Response {
    outcome.begin(ledger.write(id, token)).await
}

async fn read(State(ledger): State<Ledger>, Path(id): Path<String>) -> Response {
    // The mark is raised before its entry is written; read the other way round it could lie below the newest.
    let read = async {
        let book = ledger.books.read(&id).await?;
        Ok::<_, StoreError>((ledger.fence.high_water(&id).await?, book))
    };
    match read.await {
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

/// Answers what became of the write, also where the fence has cut its call off for a newer one; counts the
/// writes that were turned away as stale.
async fn tell_what_happened(
    State(ledger): State<Ledger>,
    Path(id): Path<String>,
    mut request: Request,
    next: Next,
) -> Response {
    let outcome = Outcome::default();
    request.extensions_mut().insert(outcome.clone());
    let mut response = next.run(request).await;
    if response.status() == StatusCode::PRECONDITION_FAILED {
        response = outcome.told().await.unwrap_or(response);
    }
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

/// Writes to the ledger of this name, spelt as in a path, as the owner of a lease would from another process: by a request
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
