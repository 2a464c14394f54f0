//! What several test files use.
#![allow(dead_code, unused_imports, reason = "each test file uses a part")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test"
)]

mod deadline;
mod http;

pub(crate) use deadline::*;
pub(crate) use http::*;
