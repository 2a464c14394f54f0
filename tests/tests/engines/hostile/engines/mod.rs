//! The engines that go through the hours.

#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "redis")]
mod redis;

#[cfg(feature = "postgres")]
pub use postgres::{Postgres, PostgresPair};
#[cfg(feature = "redis")]
pub use redis::{Redis, RedisPair};
