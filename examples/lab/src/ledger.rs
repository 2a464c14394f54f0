//! `/ledger/{id}`: what a leased write reaches, behind the fence.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use axum::body::Body;
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, put};
use axum::{Extension, Json, Router};
use http::{StatusCode, Uri};
use serde_json::{Value, json};
use tower::{ServiceBuilder, ServiceExt};
use tower_claim::{ConfigError, MemoryFenceStore};
use tower_lease_guard::{FenceLayer, FencingToken, Lease};

/// The ledgers of this process. Clones share them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ledger(Arc<Mutex<HashMap<String, Book>>>);

#[derive(Debug, Default)]
struct Book {
    admitted: Vec<Value>,
    high_water: u64,
    refused: u64,
}

/// The ledger a path names, as it was sent: decoded, one name could be spelt in two ways.
fn id_of(uri: &Uri) -> Option<String> {
    uri.path().strip_prefix("/ledger/").map(str::to_owned)
}

impl Ledger {
    fn book<T>(&self, id: &str, look: impl FnOnce(&mut Book) -> T) -> T {
        let mut books = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        look(books.entry(id.to_owned()).or_default())
    }

    /// `/ledger/{id}`: reads are open, writes pass the fence.
    pub(crate) fn routes(&self) -> Result<Router, ConfigError> {
        let fence = FenceLayer::builder(MemoryFenceStore::new(), |parts: &http::request::Parts| {
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
) -> Json<Value> {
    let high_water = token.token().get();
    ledger.book(&id_of(&uri).unwrap_or_default(), |book| {
        book.high_water = high_water;
        book.admitted.push(json!({
            "token": high_water,
            "nonce": token.nonce().to_string(),
            "pid": std::process::id(),
        }));
    });
    Json(json!({ "high_water": high_water }))
}

async fn read(State(ledger): State<Ledger>, uri: Uri) -> Json<Value> {
    Json(ledger.book(&id_of(&uri).unwrap_or_default(), |book| {
        json!({ "high_water": book.high_water, "admitted": book.admitted, "refused": book.refused })
    }))
}

/// Counts the writes that the fence turned away as stale.
async fn count_refusals(State(ledger): State<Ledger>, request: Request, next: Next) -> Response {
    let id = id_of(request.uri()).unwrap_or_default();
    let response = next.run(request).await;
    if response.status() == StatusCode::PRECONDITION_FAILED {
        ledger.book(&id, |book| book.refused += 1);
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
