//! A lease around each request.

mod acquire;
mod body;
mod builder;
mod future;
mod handle;
mod held;
mod layer;
mod live;
mod run;
mod service;

#[cfg(feature = "axum")]
mod extract;

pub use body::LeaseBody;
pub use builder::LeaseGuardBuilder;
#[cfg(feature = "axum")]
pub use extract::MissingLease;
pub use future::ResponseFuture;
pub use handle::{Lease, LeaseLost};
pub use layer::LeaseGuardLayer;
pub use service::LeaseGuard;
