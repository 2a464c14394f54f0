//! The laws of the lease and of the fence, in paused time where no socket is involved.
#![allow(
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot go on fails"
)]

#[cfg(feature = "stage")]
mod board;
mod body;
mod drain;
mod ending;
mod fence;
mod handle;
#[cfg(feature = "axum")]
mod hosts;
#[cfg(feature = "axum")]
mod http2;
mod layer;
mod losing;
mod marks;
mod owners;
mod several;
mod support;
mod waiting;
mod world;
