//! The engines that go through the hours.

#[cfg(feature = "postgres")]
mod postgres;
#[cfg(all(feature = "redis", any()))]
mod redis;

#[cfg(feature = "postgres")]
pub use postgres::{Postgres, PostgresPair};
#[cfg(all(feature = "redis", any()))]
pub use redis::{Redis, RedisPair};
