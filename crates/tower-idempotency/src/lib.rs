//! A business request runs once; its repeats get the first answer.
//!
//! The layer takes the business key of a request, claims it in a store, runs the handler under that claim, and
//! keeps the answer. A repeat is replayed it. One that comes while the first run is going is told so, or waits.
//! A handler that was started runs to its end, also when its caller hangs up, and its outcome is recorded before
//! the last byte of the answer leaves.
//!
//! It does not promise *exactly once*: between an effect and its record a process can die. What then happens is
//! in the table below, and [`IdempotentRun::point_of_no_return`] moves the line. It does not stop a handler.
//!
//! ```
//! use http::{Request, Response};
//! use http_body_util::Full;
//! use tower::{Layer, ServiceExt};
//! use tower_claim::MemoryStore;
//! use tower_idempotency::{IdempotencyLayer, RequestBody};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! type Body = Full<bytes::Bytes>;
//!
//! let once = IdempotencyLayer::builder(MemoryStore::new())
//!     .scope(|req| req.headers.get("x-tenant")?.to_str().ok().map(str::to_owned))
//!     .require_scope() // else who has none, or one that is no ASCII, shares the keys of all such
//!     .build()?;
//! let service = once.layer(tower::service_fn(async |_: Request<RequestBody<Body>>| {
//!     Ok::<_, std::convert::Infallible>(Response::new(Body::from("ordered")))
//! }));
//!
//! let order = || {
//!     let request = Request::post("/orders").header("x-tenant", "acme");
//!     request.header("idempotency-key", "8e03978e").body(Body::from("one coffee"))
//! };
//! let first = service.clone().oneshot(order()?).await?;
//! let again = service.clone().oneshot(order()?).await?;
//! assert!(!first.headers().contains_key("idempotent-replayed"));
//! assert_eq!(again.headers()["idempotent-replayed"], "true");
//! assert_eq!(once.counts().runs, 1);
//! # Ok(()) }
//! ```
//!
//! # After a crash here, the next caller sees …
//!
//! | The process dies | The next caller sees |
//! |---|---|
//! | while the request is read | a free key: it runs |
//! | after the claim, before the point of no return | `in-progress` for one lease at most; then it runs, and [knows](IdempotentRun::took_over) that it took over. Under [`Hold`](tower_claim::LapsePolicy::Hold): `outcome-unknown` |
//! | after the point of no return | `in-progress` for one lease at most; then `outcome-unknown`, until an operator resolves it or its unfinished keep has passed |
//! | after the outcome was recorded, before the answer went out | the answer |
//!
//! With a [reconcile hook](IdempotencyBuilder::reconcile), wherever the table says `outcome-unknown` after a lapse, and instead
//! of a takeover, the hook is asked what happened. What it cannot tell, an [`Operator`] resolves.
//!
//! A runtime that shuts down in the midst of a run (a [`drain`](IdempotencyLayer::drain) that timed out) leaves what a
//! crash leaves. A run that took over and is no outcome itself (a 5xx) lapses, too, so that the next one knows.
//!
//! A handler that only *pauses* past its lease is in the second row too: when nobody took over meanwhile, its
//! outcome is accepted; else its caller is answered like a repeat.
//!
//! # How a request goes
//!
//! 1. By its head: method, key, scope. A request that is none of the layer's business passes to the inner
//!    service, unboxed and untouched.
//! 2. Its body is read, up to a limit: a broken or oversized upload leaves nothing behind. (With
//!    [`stream_uploads`](IdempotencyBuilder::stream_uploads) a large body is not: it streams to the handler while it is
//!    hashed.)
//! 3. The key is claimed, with a fingerprint of method, original path, query, content type and body. Another
//!    payload is refused (422) before a run that is going is told of (409).
//! 4. The handler runs in a task of its own. It finds an [`IdempotentRun`] in the extensions.
//! 5. Its answer is an outcome to keep, or not ([`default_outcome`], [`NoEffect`]; never a refusal of a layer inside). What is kept is recorded
//!    first and sent then; a body of unknown length streams out while it is kept, and only its end waits.
//!
//! A handler may write in a transaction that this layer commits, with the answer in it: see
//! [`tower_claim::transaction`], and the PostgreSQL crates, which lend it.
//!
#![doc = include_str!("postgres_modes.md")]
//!
//! # Refusals
//!
//! Problem documents (RFC 9457), trailers where the request is gRPC: `key-missing`, `key-invalid`,
//! `scope-missing`, `body-broken` 400 · `in-progress`, `outcome-unknown`, `response-not-kept` 409 ·
//! `body-too-large` 413 · `key-reused` 422 · `quota-exceeded` 429 · `handler-panicked` 500 · `store-unavailable`, `overloaded`,
//! `shutting-down` 503. Without its store the layer fails closed, unless it is told
//! [to run unprotected](IdempotencyBuilder::on_store_down). The semantics of the header follow the IETF draft on the `Idempotency-Key` field (07).
//!
//! # Looking from outside
//!
//! [`KeyLookup`] tells a client what became of its key. [`IdempotencyLayer::counts`] and its neighbours tell an
//! operator, and so do the features `metrics`, `tracing` and `stage`.
//!
#![doc = include_str!("telemetry.md")]
//!
//! # The policy
//!
//! A server has to publish how its keys are to be used, and when they expire. [`IdempotencyLayer::policy`] makes that from
//! how the layer was built, as JSON, as a page and as a fragment of OpenAPI; [`PolicyService`] serves it.
//!
//! # The client's side
//!
//! [`IdempotencyKeyLayer`] sends each logical call under one key, over all its retries, and not once the server may
//! have forgotten it.
//!
//! # Behind other layers
//!
//! Outside in: tracing, CORS, limits, authentication, **this layer**, the handler. The inner service gets
//! another request body type, [`RequestBody`]. Where a layer inside wants the host's own, as
//! `axum::middleware::from_fn` does, put a `tower::util::MapRequestLayer` with
//! `|request: Request<RequestBody<axum::body::Body>>| request.map(axum::body::Body::new)` between the two
//! (an example is at [`RequestBody`]).
//!
//! An axum *extractor* that authenticates runs inside every layer, so a replay skips it. Authenticate in a
//! middleware outside, and [scope](IdempotencyBuilder::scope) by what it found.
//!
//! The service must be called on a tokio runtime with time enabled.

mod accepts;
mod admit;
#[cfg(feature = "axum")]
mod axum;
mod body;
mod builder;
mod client;
mod cors;
mod counts;
mod derived;
mod entry;
mod execute;
mod existing;
mod fields;
mod fingerprint;
mod future;
mod headers;
mod inside;
mod json;
mod keep;
mod known;
mod layer;
mod lookup;
mod made;
mod open;
mod operator;
mod order;
mod outcome;
mod policy;
mod quota;
mod reconcile;
mod record;
mod redact;
mod refused;
mod reply;
mod rerender;
mod run;
mod running;
mod scope;
mod seal;
mod service;
mod shared;
mod shown;
mod stage;
mod store_down;
mod telemetry;
mod transaction;
mod unguarded;
mod upload;
mod wait;
mod way;
mod weak;

pub use admit::OnBusy;
pub use body::{BoxError, CutOff, RequestBody, ResponseBody, UploadError};
pub use builder::IdempotencyBuilder;
pub use client::{
    CallError, CallFuture, Cloned, ClonedBy, IdempotencyKey, IdempotencyKeyBuilder,
    IdempotencyKeyLayer, LogicalCall, NoRepeat, ReadBody, ReadFirst, RepeatBody,
};
pub use counts::Counts;
pub use existing::ExistingRow;
pub use fields::RequestFields;
pub use future::ResponseFuture;
pub use layer::IdempotencyLayer;
pub use lookup::{KeyLookup, KeyLookupBuilder, LookupFuture};
pub use operator::{
    Explanation, ListedRecord, ListedState, Operator, RecordPage, SeenRecord, UnknownOutcome,
    UnknownPage,
};
pub use order::Misorder;
pub use outcome::{NoEffect, Outcome, default_grpc_outcome, default_outcome};
pub use policy::{Policy, PolicyFuture, PolicyService};
pub use quota::TenantUsage;
pub use reconcile::{LapsedRun, Reconciled};
pub use refused::PointRefused;
pub use rerender::NotKept;
pub use run::IdempotentRun;
pub use scope::IntoScope;
#[cfg(feature = "aead")]
pub use seal::KeyRing;
pub use service::Idempotency;
pub use store_down::OnStoreDown;
pub use weak::OnWeakKey;

/// The example of the README is compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
