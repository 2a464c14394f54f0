//! A business request runs once; its repeats get the first answer.

mod admit;
#[cfg(feature = "axum")]
mod axum;
mod body;
mod builder;
mod counts;
mod entry;
mod execute;
mod fingerprint;
mod future;
mod headers;
mod keep;
mod layer;
mod open;
mod outcome;
mod record;
mod refused;
mod reply;
mod run;
mod scope;
mod service;
mod shared;
mod stage;
mod wait;

pub use admit::OnBusy;
pub use body::{RequestBody, ResponseBody};
pub use builder::IdempotencyBuilder;
pub use counts::Counts;
pub use future::ResponseFuture;
pub use layer::IdempotencyLayer;
pub use outcome::{NoEffect, Outcome, default_outcome};
pub use refused::PointRefused;
pub use run::IdempotentRun;
pub use scope::IntoScope;
pub use service::Idempotency;
