//! Hostile hours: what happens to real servers, networks and processes, and what must hold all the same.
//!
//! Written once over an [`Engine`]. In every hour: what the guard has accepted never goes back, every call
//! and every waiter is answered in bounded time, a repeat has the effect of one, and what was dropped leaves
//! nothing behind. The other promises may break only where `capabilities()` names the event, and there the
//! test shows that they do: a name without an effect would be a lie, too.

mod clock;
mod engines;
mod failover;
mod network;
mod outages;
mod processes;
mod scene;

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use system_tests::servers::MovedClock;
use tower_claim::DynClaimStore;

/// An engine under test: one private server and how to open a store on it.
pub trait Engine: Send + Sync + Sized + 'static {
    /// Starts a server.
    fn start() -> BoxFuture<'static, Self>;

    /// How another process of this test opens a store on the server at `HOST:PORT`.
    fn connect(address: String) -> BoxFuture<'static, Arc<dyn DynClaimStore>>;

    /// The server's `HOST:PORT`.
    fn address(&self) -> String;

    /// A lease of which a third is long for the engine, and for a busy machine.
    fn lease() -> Duration {
        Duration::from_secs(2)
    }

    /// SIGSTOP: the server neither answers nor closes.
    fn stop(&self);

    /// SIGCONT.
    fn go_on(&self);

    /// SIGKILL.
    fn kill(&mut self);

    /// Starts the server again, over the same folder and port.
    fn run(&mut self);

    /// Wipes every record, as an operator may.
    fn wipe(&self) -> BoxFuture<'_, ()>;
}

/// An engine whose server takes the time from a C library.
pub trait Clocked: Engine {
    /// Starts a server under a clock that can be moved.
    fn start_under(clock: &MovedClock) -> BoxFuture<'_, Self>;
}

/// The hours that every engine goes through.
macro_rules! every_hour {
    ($name:ident) => {
        mod $name {
            use super::*;

            type E = engines::$name::Server;

            #[tokio::test(flavor = "multi_thread")]
            async fn a_hold_outlives_a_brief_pause_of_the_server() {
                outages::brief_pause::<E>().await;
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn a_long_pause_ends_the_hold_in_time_and_keeps_nobody_waiting() {
                outages::long_pause::<E>().await;
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn a_restart_forgets_only_what_it_may() {
                outages::restart::<E>().await;
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn a_wiped_record_gives_no_stale_owner_a_write() {
                outages::wipe::<E>().await;
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn an_owner_cut_off_knows_before_the_next_one_writes() {
                network::black_hole::<E>().await;
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn a_grant_whose_answer_was_lost_is_never_taken_up_after_its_lease() {
                network::lost_grant::<E>().await;
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn a_keeper_whose_answers_are_lost_leaves_the_key_claimable() {
                network::lost_answers_to_a_keeper::<E>().await;
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn a_dropped_claim_leaves_the_key_free_within_moments() {
                network::dropped_claims::<E>().await;
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn a_blocked_runtime_costs_no_lease_of_a_keeper_with_its_own_connections() {
                processes::blocked_runtime::<E>().await;
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn a_paused_process_wakes_up_knowing_and_is_refused() {
                processes::zombie::<E>(concat!(
                    "hostile::",
                    stringify!($name),
                    "::the_process_to_be_paused"
                ))
                .await;
            }

            #[tokio::test(flavor = "multi_thread")]
            #[ignore = "the other process of a test"]
            async fn the_process_to_be_paused() {
                processes::to_be_paused::<E>().await;
            }
        }
    };
}

/// The hours of engines whose wall clock can be moved, and whose replicas may be behind.
macro_rules! clock_and_failover {
    ($name:ident) => {
        mod $name {
            use super::super::*;

            type E = engines::$name::Server;

            #[tokio::test(flavor = "multi_thread")]
            async fn an_hour_ahead_lapses_holds_and_no_stale_owner_writes() {
                clock::ahead::<E>().await;
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn an_hour_back_keeps_dead_holds_and_a_fallen_token_heals() {
                clock::back::<E>().await;
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn a_replica_without_the_last_writes_gives_no_stale_owner_a_write() {
                failover::lost_writes::<engines::$name::Pair>().await;
            }
        }
    };
}

#[cfg(feature = "redis")]
every_hour!(redis);
#[cfg(feature = "postgres")]
every_hour!(postgres);
#[cfg(feature = "etcd")]
every_hour!(etcd);

/// Not etcd: it asks the kernel for the time itself, and a minority of its nodes cannot be promoted.
mod forgetful {
    #[cfg(feature = "redis")]
    clock_and_failover!(redis);
    #[cfg(feature = "postgres")]
    clock_and_failover!(postgres);
}
