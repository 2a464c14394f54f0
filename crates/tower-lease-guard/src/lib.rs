//! A dead, paused or cut-off owner can neither block nor write: leases, heartbeats, fencing tokens.

pub mod fence;
mod keys;
mod refuse;
mod report;
mod token;

#[doc(inline)]
pub use fence::{Fence, FenceBuilder, FenceError, FenceLayer, MissingToken};
pub use keys::{IntoLeaseKey, IntoLeaseKeys};
pub use token::{FENCING_TOKEN, FencingToken, InvalidFencingToken, MAX_RESOURCE};

/// The error of response bodies: the inner body's own, or ours.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;
