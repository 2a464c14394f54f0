//! The bodies of this layer, and how they are read.

mod read;
mod request;
mod response;

pub(crate) use read::{ReadError, read_request};
pub use request::RequestBody;
pub(crate) use request::Whole;
pub use response::{BoxError, CutOff, ResponseBody};
pub(crate) use response::{Fed, Feed};
