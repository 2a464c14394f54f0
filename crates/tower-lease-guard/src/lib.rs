//! A dead, paused or cut-off owner can neither block nor write: leases, heartbeats, fencing tokens.

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
