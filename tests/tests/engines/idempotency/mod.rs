//! What `tower-idempotency` says of a run and its repeats, where the repeats come to another process.
//!
//! Two values of one engine's store are two processes' worth: they have nothing in common but the engine. Where a
//! process must die, it is one. On redb, whose file one process owns, the two layers have one store; they know of each
//! other by its records alone.

mod busy;
mod engines;
#[cfg(feature = "grpc")]
pub mod grpc;
mod kept;
#[cfg(any(feature = "redis", feature = "postgres", feature = "etcd"))]
mod lapse;
mod lookup;
mod operator;
mod quota;
mod scene;

/// Each law on every engine.
macro_rules! on_each_engine {
    ($($law:ident),+ $(,)?) => {
        mod redb {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $law() {
                let _turn = $crate::idempotency::scene::turn().await;
                super::$law::<$crate::idempotency::engines::Redb>().await;
            })+
        }
        #[cfg(feature = "redis")]
        mod redis {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $law() {
                let _turn = $crate::idempotency::scene::turn().await;
                super::$law::<$crate::idempotency::engines::Redis>().await;
            })+
        }
        #[cfg(feature = "postgres")]
        mod postgres {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $law() {
                let _turn = $crate::idempotency::scene::turn().await;
                super::$law::<$crate::idempotency::engines::Postgres>().await;
            })+
        }
        #[cfg(feature = "etcd")]
        mod etcd {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $law() {
                let _turn = $crate::idempotency::scene::turn().await;
                super::$law::<$crate::idempotency::engines::Etcd>().await;
            })+
        }
    };
}
use on_each_engine;
