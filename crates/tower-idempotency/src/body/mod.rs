//! The bodies of this layer, and how they are read.

mod check;
mod fate;
mod held;
mod read;
mod request;
mod response;

pub(crate) use check::Check;
pub use check::UploadError;
pub(crate) use fate::{UploadDigest, UploadFate};
pub(crate) use held::{Ended, Held, Holder};
pub(crate) use read::{ReadError, Reading, read_request, read_to_the_end, read_up_to};
pub use request::RequestBody;
pub(crate) use request::Whole;
pub use response::{BoxError, CutOff, ResponseBody};
pub(crate) use response::{Fed, Feed};
