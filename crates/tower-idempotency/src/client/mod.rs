//! The client's side: one key for one logical call, however often it is sent.

mod builder;
mod busy;
mod call;
mod error;
mod future;
mod layer;
mod read;
mod repeat;
mod service;

pub use builder::IdempotencyKeyBuilder;
pub use call::LogicalCall;
pub use error::CallError;
pub use future::CallFuture;
pub use layer::IdempotencyKeyLayer;
pub use read::ReadBody;
pub use repeat::{Cloned, ClonedBy, NoRepeat, ReadFirst, RepeatBody};
pub use service::IdempotencyKey;
