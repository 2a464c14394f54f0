//! The laws of the layer, in paused time.
#![expect(clippy::unwrap_used, clippy::panic, reason = "tests")]

#[cfg(feature = "stage")]
mod board;
mod busy;
mod cancel;
mod client;
mod codings;
mod compression;
mod cors;
mod counted;
mod crash_stays;
mod derived;
#[cfg(all(feature = "tracing", feature = "aead"))]
mod events;
mod first_seen;
mod grpc;
mod herd;
mod hosts;
mod keys;
mod lapse;
mod lax;
mod lookup;
mod made;
#[cfg(feature = "metrics")]
mod metered;
mod operator;
mod order;
mod outage;
mod outcomes;
mod payload;
mod policy;
mod purge;
mod quota;
mod readiness;
mod reconcile;
mod reconcile_by_hand;
mod replay;
mod rolled_back;
mod run;
mod secrets;
mod sockets;
mod stand_down;
mod support;
mod unguarded;
mod unprotected;
mod uploads;
mod uploads_hashed;
