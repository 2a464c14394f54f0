//! Concurrent equal requests become one upstream call.
//!
//! While a call runs, whoever asks for the same waits for it instead of making another. What this crate
//! guarantees, and what not:
//!
//! - One call per key at a time, in this process. Not across processes, and nothing is cached: when the
//!   call has ended, the next caller starts a new one.
//! - No caller's fate is another's. The first caller may hang up, stall or panic: once somebody has joined,
//!   the call is a task of its own. Before, it runs inline, and a first caller that leaves takes it along.
//! - Nobody waits for ever: a flight has an age, each follower a patience, and after a time-out a few new
//!   leaders start, never a herd. The first caller has no limit but its own.
//! - Failures are shared with those who wait, and never kept.
//! - On HTTP nothing is shared that may be one user's: requests with credentials pass through, and each
//!   answer is checked again before it is copied. Only `Authorization`, `Proxy-Authorization`, `Cookie`,
//!   `X-Api-Key` and `X-Auth-Token` count as credentials. Whoever tells users apart by anything else
//!   (`X-Tenant`, a client certificate) must name it with [`key_header`](SingleFlightLayerBuilder::key_header)
//!   or [`key`](SingleFlightLayerBuilder::key), or users see each other's answers.
//! - Followers carry `Cache-Status: tower-single-flight; fwd=miss; collapsed`; refused followers do not. A
//!   call that fails (`Err`) gives followers 502; a 5xx *response* is an answer, shared like another.
//!
//! Three storeys, each usable alone: [`SingleFlight`] for any future, [`KeyedFlightLayer`] for any
//! [`tower_service::Service`], [`SingleFlightLayer`] for HTTP.
//!
//! ```
//! use axum::{Router, extract::Path, routing::get};
//! use tower_single_flight::SingleFlightLayer;
//!
//! async fn item(Path(id): Path<u64>) -> String {
//!     // A hundred readers at once: this runs once.
//!     format!("item {id}, slow to make")
//! }
//!
//! let app: Router = Router::new()
//!     .route("/items/{id}", get(item))
//!     .layer(SingleFlightLayer::new());
//! # let _ = app;
//! ```

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod builder;
mod call;
mod caller;
mod carry;
mod core;
mod cores;
mod counts;
mod error;
mod flight;
pub mod http;
mod keyed;
mod oneshot;
mod seats;
mod state;
mod table;
mod task;
mod tasks;

pub use self::core::{Flown, SingleFlight};
pub use self::http::{SingleFlightLayer, SingleFlightLayerBuilder};
pub use builder::SingleFlightBuilder;
pub use counts::Counts;
pub use error::FlightError;
pub use keyed::{KeyedFlight, KeyedFlightBuilder, KeyedFlightLayer, KeyedFuture};
