//! A dead, paused or cut-off owner can neither block nor write: leases, heartbeats, fencing tokens.
//!
//! [`LeaseGuardLayer`] takes a **lease** on what a request works on: one owner at a time, renewed while the
//! work moves, ended before it can lapse under running work. [`FenceLayer`] (or [`FencingToken::admit`] in
//! the write's own transaction) stands at the resource and refuses the write of an owner that was paused
//! and woke up too late. No lock service can do without the second: the first tells owners what to
//! believe, only the second stops them.
//!
//! | What happens | The next caller sees | The owner sees |
//! |---|---|---|
//! | the response has ended, no clone of the [`Lease`] is left | a free resource, *before* the last byte leaves | – |
//! | a task still holds a clone | 423 `leased`, until the clone is gone | its lease, renewed |
//! | the client hangs up, the handler panics or fails | a free resource, once the work is dropped | its future dropped |
//! | the process dies | 423 `leased` until the lease lapses, then 423 `cooling` if set, then a larger token | – |
//! | the owner is paused past its lease, and writes | its own lease, with a larger token | [`Lease::check`] fails; the guard refuses the write, 412 `token-stale` |
//! | the store is cut off | 503 `store-unavailable` | 409 `lease-lost`, `store-unreachable`, before the lease can lapse |
//! | the work hangs (`Renewal::Progress`), or passes `max_hold` | the resource, with a larger token | its future dropped, 409 `lease-lost`, `stalled` or `expired` |
//! | the same thread, task or client asks again | 423 `leased`: an owner is *one claim*, never a thread | – |
//! | the very request asks again, nested, or a call with a copy of its extensions | 423 `leased-by-caller`, at once | – |
//! | the request goes through a protocol upgrade (101, `CONNECT`) | a free resource: the task behind it needs a clone of the [`Lease`] | – |
//!
//! **Not promised.** A lease is not idempotence: when it is free again, the same work can be done again.
//! Waiters are not served in order. Dropping a future does not stop what it gave to a thread
//! (`spawn_blocking`) or to a task of its own: ask [`Lease::check`] there, and fence the write. The draining
//! of [`FenceLayer`] is per process. [`LeaseGuardLayer`] must be called on a tokio runtime with time enabled.
//!
//! ```
//! use std::convert::Infallible;
//!
//! use bytes::Bytes;
//! use http::{Request, Response};
//! use http_body_util::Full;
//! use tower::{Layer, ServiceExt, service_fn};
//! use tower_claim::http::path_segment;
//! use tower_claim::{MemoryFenceStore, MemoryStore, Refusal};
//! use tower_lease_guard::{Lease, LeaseGuardLayer};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! let ledger = MemoryFenceStore::new();
//! let account = path_segment("/accounts/{id}").expect("a path with one name");
//! let leases = LeaseGuardLayer::new(MemoryStore::new(), account);
//!
//! let handler = service_fn(move |req: Request<()>| {
//!     let ledger = ledger.clone();
//!     async move {
//!         let written = async {
//!             let lease = req.extensions().get::<Lease>().expect("the layer is around us");
//!             lease.check()?;                        // still ours?
//!             lease.fence().admit(&ledger).await?;   // the resource refuses a stale token
//!             Ok::<_, Refusal>(Response::new(Full::from("written")))
//!         };
//!         Ok::<_, Infallible>(match written.await {
//!             Ok(response) => response,
//!             Err(refusal) => refusal.to_response(false).map(Full::from),
//!         })
//!     }
//! });
//!
//! let request = Request::put("/accounts/7").body(()).expect("a request");
//! let response = leases.layer(handler).oneshot(request).await.expect("infallible");
//! assert_eq!(response.status(), 200);
//! # }
//! ```
//!
//! Under axum (feature `axum`) a handler takes `lease: Lease` as an argument and answers
//! `Result<_, LeaseLost>`, `Result<_, FenceError>`, or `Result<_, Refusal>`, into which both convert.
//!
//! A key function sees the request as it was sent: escapes in the path are not decoded, so `/accounts/7` and
//! `/accounts/%37` would be two resources, and in nested axum routers the path is cut. Read names by
//! [`path_segment`](tower_claim::http::path_segment), which knows both; or begin at
//! [`original_uri`](tower_claim::http::original_uri).
//!
//! In a stack, outside in: stage, tenant, idempotency, **lease guard**, handler; the fence stands at the
//! resource. A layer outside that answers by itself (a replay) then takes no lease.

pub mod fence;
mod keys;
pub mod lease;
mod refuse;
mod report;
mod stamp;
mod token;

#[doc(inline)]
pub use fence::{Fence, FenceBuilder, FenceError, FenceLayer, MissingToken};
pub use keys::{IntoLeaseKey, IntoLeaseKeys};
#[doc(inline)]
pub use lease::{Lease, LeaseGuard, LeaseGuardBuilder, LeaseGuardLayer, LeaseLost};
pub use stamp::{Stamp, StampLayer};
pub use token::{FENCING_TOKEN, FencingToken, InvalidFencingToken, MAX_RESOURCE};
pub use tower_claim::{Loss, Renewal};

/// The error of response bodies: the inner body's own, or ours.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Compiles the example of the README.
#[cfg(all(doctest, feature = "axum"))]
#[doc = include_str!("../README.md")]
struct Readme;
