//! See where every request is stuck: stages, wait reasons, a live board, a watchdog.
//!
//! A `StageLayer` gives every request a row on a `Board`, from the call to the end of the response's
//! body. Layers and handlers say where the request is ([`mark`]) and what it waits for ([`wait_on`]).
//!
//! **Promised:** one request, one row, which ends exactly once, however the request ends: a hang-up, a
//! panic, a body that fails in mid-stream. The times of its stages sum up to its total, to the nanosecond.
//! Every gauge is counted from the rows when it is read, so none can drift. Readers block no mark. What is
//! kept is bounded, and pins nothing of what the client sent.
//!
//! **Not promised:** a row ends when the last frame is handed to the host, not when it is on the wire. A
//! timeout layer *outside* cannot be told from a client that left. A client that leaves while its request
//! body is unread may not be noticed on HTTP/1: its row stays, and gets stuck. An outcome is what the
//! server saw, never proof that the client has it. A handler that `tower-idempotency` carries on after its
//! caller has gone has no row; `in_flight()` of its layer counts it.
//!
//! Without the feature `layer` (on by default) only the marking half is left, for libraries: it needs
//! `http` alone, and does nothing where there is no layer. With the feature `axum`, [`StageHandle`] is an
//! extractor and rows show axum's route templates.
#![cfg_attr(
    feature = "axum",
    doc = r##"
```
use axum::{Router, http::header::CONTENT_TYPE, routing::get};
use tower_stage::{Board, Filter, Stage, StageHandle, StageLayer, mark};

async fn item(stage: StageHandle) -> &'static str {
    stage.mark(Stage::Validated);
    load().await
}

async fn load() -> &'static str {
    mark(Stage::UpstreamCalled); // deep code needs no handle
    "an item"
}

let board = Board::new();
let shown = board.clone();
let json = [(CONTENT_TYPE, "application/json")];
let app: Router = Router::new()
    .route("/items/{id}", get(item))
    .layer(StageLayer::new(board))
    // Added after the layer, so it is not tracked. Not for everybody's eyes.
    .route("/board", get(async move || (json, shown.json(&Filter::new()))));
```
"##
)]

/// Compiles the example of the README.
#[cfg(all(doctest, feature = "axum"))]
#[doc = include_str!("../README.md")]
struct Readme;

#[cfg(feature = "layer")]
mod board;
#[cfg(feature = "layer")]
mod body;
mod current;
#[cfg(feature = "axum")]
mod extract;
#[cfg(feature = "layer")]
mod future;
#[cfg(feature = "layer")]
mod grpc;
mod handle;
#[cfg(feature = "layer")]
mod layer;
mod names;
mod outcome;
#[cfg(feature = "layer")]
mod queue_aware;
#[cfg_attr(not(feature = "layer"), path = "row_inert.rs")]
mod row;
#[cfg(feature = "layer")]
mod service;
mod stage;
#[cfg(feature = "layer")]
mod tracked;
mod wait;
#[cfg(feature = "layer")]
mod watchdog;

#[cfg(feature = "layer")]
pub use board::{
    BadFilter, Board, BoardBuilder, Filter, Finished, Live, RowId, StageTimes, Totals, Wait,
};
#[cfg(feature = "layer")]
pub use body::StageBody;
#[cfg(feature = "layer")]
pub use future::ResponseFuture;
pub use handle::{StageHandle, mark, wait_on};
#[cfg(feature = "layer")]
pub use layer::{StageLayer, StageLayerBuilder};
pub use names::NameError;
pub use outcome::{Cause, Outcome};
#[cfg(feature = "layer")]
pub use queue_aware::{QueueAwareFuture, QueueAwareLayer, QueueAwareService};
#[cfg(feature = "layer")]
pub use service::StageService;
pub use stage::{CustomStage, Stage};
pub use wait::{Blocker, CustomReason, WaitReason, Waiting};
#[cfg(feature = "layer")]
pub use watchdog::{Motion, Report, Watchdog};
