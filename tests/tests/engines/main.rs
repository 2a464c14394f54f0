//! The engines under real servers: one suite for all, each engine's own, and hostile hours.
#![expect(clippy::expect_used, reason = "a test may")]

mod hostile;
mod idempotency;
mod redb;
mod relay;
#[allow(dead_code, reason = "each engine uses what it can")]
mod suite;

#[cfg(feature = "etcd")]
mod etcd;
#[cfg(feature = "postgres")]
mod in_transaction;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "redis")]
mod redis;
mod servers;
#[cfg(feature = "postgres")]
mod sqlx;
