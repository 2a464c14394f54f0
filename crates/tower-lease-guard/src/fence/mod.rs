//! The check at the resource.

mod body;
mod drain;
mod error;
mod future;
mod layer;
mod registry;
mod service;

pub use body::{FenceBody, Superseded};
pub use error::FenceError;
pub use future::ResponseFuture;
pub use layer::{FenceBuilder, FenceLayer, MissingToken};
pub use service::Fence;
