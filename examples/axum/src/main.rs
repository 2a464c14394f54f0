//! The shortest useful axum program with all layers: `cargo run -p example-axum`, then
//! `curl -i localhost:3000/accounts/7/transfers -H 'Idempotency-Key: 1' -H 'X-Tenant: acme' -d 25`, twice.

use std::time::Duration;

use axum::Router;
use axum::extract::Path;
use axum::http::HeaderName;
use axum::http::header::CONTENT_TYPE;
use axum::http::request::Parts;
use axum::routing::{get, post};
use tokio::net::TcpListener;
use tower::ServiceBuilder;
use tower_claim::MemoryStore;
use tower_claim::http::path_segment;
use tower_idempotency::IdempotencyLayer;
use tower_lease_guard::{Lease, LeaseGuardLayer, LeaseLost};
use tower_single_flight::SingleFlightLayer;
use tower_stage::{Board, Filter, Stage, StageHandle, StageLayer};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let claims = MemoryStore::new();
    let board = Board::new();
    // What is written to: one transfer per account at a time. Decoded: `/accounts/%37` is account 7, too.
    let account = path_segment("/accounts/{id}/transfers")?;

    let once = IdempotencyLayer::builder(claims.clone()).scope(tenant);
    let writes = ServiceBuilder::new()
        .layer(StageLayer::new(board.clone()))
        .layer(once.build()?)
        .layer(LeaseGuardLayer::new(claims, account));
    let merged = SingleFlightLayer::builder().key_header(HeaderName::from_static("x-tenant"));
    let reads = ServiceBuilder::new()
        .layer(StageLayer::new(board.clone()))
        .layer(merged.build()?);
    let json = [(CONTENT_TYPE, "application/json")];

    let app = Router::new()
        .route("/accounts/{id}/transfers", post(transfer).layer(writes))
        .route("/catalogue/{id}", get(catalogue).layer(reads))
        .route(
            "/board",
            get(async move || (json, board.json(&Filter::new()))),
        );
    axum::serve(TcpListener::bind("127.0.0.1:3000").await?, app).await?;
    Ok(())
}

async fn transfer(lease: Lease, stage: StageHandle, amount: String) -> Result<String, LeaseLost> {
    stage.mark(Stage::Validated);
    lease.check()?; // still ours?
    // The database keeps the largest token it has seen, and refuses a smaller one.
    let receipt = format!("moved {amount} under {}\n", lease.fence());
    stage.mark(Stage::Persisted);
    Ok(receipt)
}

async fn catalogue(Path(id): Path<u64>) -> String {
    tokio::time::sleep(Duration::from_secs(1)).await; // a hundred readers: this runs once
    format!("item {id}\n")
}

/// Who asks. In earnest: what an authentication layer outside has verified.
fn tenant(req: &Parts) -> Option<String> {
    Some(req.headers.get("x-tenant")?.to_str().ok()?.to_owned())
}
