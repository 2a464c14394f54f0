//! The laws of the layer, in paused time.
#![expect(clippy::unwrap_used, clippy::panic, reason = "tests")]

#[cfg(feature = "stage")]
mod board;
mod busy;
mod cancel;
mod client;
mod derived;
mod hosts;
mod keys;
mod lapse;
mod lax;
mod lookup;
mod outage;
mod payload;
mod quota;
mod replay;
mod run;
mod sockets;
mod support;
mod uploads;
