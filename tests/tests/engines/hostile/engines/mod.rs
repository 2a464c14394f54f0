//! The engines that go through the hours.

#[cfg(feature = "etcd")]
pub mod etcd;
#[cfg(feature = "postgres")]
pub mod postgres;
pub mod redb;
#[cfg(feature = "redis")]
pub mod redis;
