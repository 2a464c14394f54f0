//! Hostile hours: what happens to real servers, networks and processes, and what must hold all the same.
//!
//! Written once over an [`Engine`]. In every hour: what the guard has accepted never goes back, every call
//! and every waiter is answered in bounded time, a repeat has the effect of one, and what was dropped leaves
//! nothing behind. The other promises may break only where `capabilities()` names the event, and
//! [`named`](scene::named) compares both ways: what is named is shown to happen, what is not is shown not to.
//!
//! | Hour | Redis | PostgreSQL | etcd | redb |
//! |---|---|---|---|---|
//! | server stopped for a part of a lease, for more than one | yes | yes | yes | its server is the owner's process |
//! | server killed and started again | yes | yes | yes | yes: the owner's process |
//! | wiped in mid-lease | `FLUSHALL` | `TRUNCATE` | all keys deleted | another file in its place; an old copy |
//! | leader or primary lost | replica without the last writes | the same; and a synchronous replica | leader of three killed | has no replica |
//! | wall clock an hour ahead, an hour back | yes | yes | asks the kernel, and nobody's wall clock counts | yes, over reopening too |
//! | black hole in mid-lease | yes | yes | yes | no network |
//! | connection cut between commit and reply; no reply at all | yes | yes | yes | no network |
//! | claims dropped under way | yes | yes | yes | no network |
//! | owner's runtime blocked for two leases | yes | yes | yes | yes |
//! | the same, and the keeper has the user's connection alone | yes | a pool opens others | yes | no connection |
//! | connections refused for a third of a lease | yes | yes | yes | no network |
//! | owner's process killed | yes | yes | yes | its server as well: see above |
//! | owner killed under `Hold`, or past its point of no return | with a disk that it waits for | yes | yes | yes: and its server |
//! | the engine's own guard: server killed and started again | without a disk, and with one | yes | yes | yes: the owner's process |
//! | owner's process paused until another has written | yes | yes | yes | two processes share no file |
//! | everything has ended: nothing is kept | yes | yes | yes | yes |
//! | row locked by a stranger for three leases; a pool of one | no rows | yes | no rows | no rows |
//!
//! That the hours can fail is tested as well: `liars` break one rule each, and the hour goes red.

mod clock;
mod embedded;
mod engines;
mod failover;
mod guards;
#[cfg(feature = "redis")]
mod liar;
#[cfg(feature = "redis")]
mod liars;
mod losses;
mod network;
mod outages;
mod past_return;
#[cfg(feature = "postgres")]
mod postgres_only;
mod processes;
mod retention;
mod scene;

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use system_tests::servers::MovedClock;
use tower_claim::DynClaimStore;
use tower_claim::store::DynFenceStore;

/// An engine under test, and how to open a store on it.
pub trait Engine: Send + Sync + Sized + 'static {
    /// Starts one of its own.
    fn start() -> BoxFuture<'static, Self>;

    /// How anybody opens a store on the one at this address: `HOST:PORT`, or a path.
    fn connect(address: String) -> BoxFuture<'static, Arc<dyn DynClaimStore>>;

    /// Where it is.
    fn address(&self) -> String;

    /// A lease of which a third is long for the engine, and for a busy machine.
    fn lease() -> Duration {
        Duration::from_secs(4)
    }

    /// Rows, keys or records that it keeps just now.
    fn kept(&self) -> BoxFuture<'_, usize>;

    /// Whether a claim whose first reply is lost has read, and no more.
    fn reads_first() -> bool {
        false
    }

    /// How long after its end a lapse is seen, at the latest.
    fn lapses_late() -> Duration {
        Duration::ZERO
    }

    /// When it has forgotten what has ended, at the latest.
    fn forgets_within() -> Duration {
        Duration::from_secs(30)
    }
}

/// An engine that keeps a guard's marks as well.
pub trait Guarded: Engine {
    /// The guard at this address, with connections of its own.
    fn guard(address: String) -> BoxFuture<'static, Arc<dyn DynFenceStore>>;
}

/// An engine with a server of its own: what may happen to that.
pub trait Server: Engine {
    /// SIGSTOP: it neither answers nor closes.
    fn stop(&self);

    /// SIGCONT.
    fn go_on(&self);

    /// SIGKILL.
    fn kill(&mut self);

    /// Starts it again, over the same folder and port.
    fn run(&mut self);

    /// Wipes every record, as an operator may.
    fn wipe(&self) -> BoxFuture<'_, ()>;
}

/// An engine of another's server: only its store is its own.
pub trait Behind: Engine {
    /// Whose server it is.
    type Of: Server;

    fn server(&mut self) -> &mut Self::Of;

    fn server_ref(&self) -> &Self::Of;
}

impl<B: Behind> Server for B {
    fn stop(&self) {
        self.server_ref().stop();
    }

    fn go_on(&self) {
        self.server_ref().go_on();
    }

    fn kill(&mut self) {
        self.server().kill();
    }

    fn run(&mut self) {
        self.server().run();
    }

    fn wipe(&self) -> BoxFuture<'_, ()> {
        self.server_ref().wipe()
    }
}

/// An engine whose server takes the time from a C library.
pub trait Clocked: Server {
    /// Starts a server under a clock that can be moved.
    fn start_under(clock: &MovedClock) -> BoxFuture<'_, Self>;
}

/// The hours that every engine goes through.
macro_rules! every_hour {
    ($name:ident) => {
        mod $name {
            use super::*;

            type E = engines::$name::One;

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
                losses::restart::<E>().await;
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn a_wiped_record_gives_no_stale_owner_a_write() {
                losses::wipe::<E>().await;
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
            async fn when_everything_has_ended_nothing_is_kept_and_tokens_still_rise() {
                retention::nothing_is_kept::<E>().await;
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn a_dropped_claim_leaves_the_key_free_within_moments() {
                network::dropped_claims::<E>().await;
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn a_blocked_runtime_costs_no_lease_of_a_keeper_with_its_own_connections() {
                processes::blocked_runtime::<E>(E::connect).await;
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn the_engines_own_guard_forgets_over_a_kill_only_what_it_may() {
                guards::killed::<E>().await;
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn connections_refused_for_a_third_of_a_lease_cost_no_hold() {
                network::refused::<E>().await;
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn a_killed_process_keeps_its_key_for_lease_and_cooling_and_no_longer() {
                processes::killed::<E>(concat!(
                    "hostile::",
                    stringify!($name),
                    "::the_process_to_be_paused"
                ))
                .await;
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

/// The hours of engines that do not forget what they answered.
macro_rules! past_return {
    ($name:ident, $engine:ty) => {
        mod $name {
            use super::super::processes::Manner;
            use super::super::*;

            type E = $engine;

            const OTHER: &str = concat!(
                "hostile::never_twice::",
                stringify!($name),
                "::the_process_that_holds"
            );

            #[tokio::test(flavor = "multi_thread")]
            async fn a_process_killed_under_hold_leaves_the_outcome_unknown() {
                past_return::killed::<E>(OTHER, Manner::Hold).await;
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn a_process_killed_past_its_point_of_no_return_leaves_the_outcome_unknown() {
                past_return::killed::<E>(OTHER, Manner::Marked).await;
            }

            #[tokio::test(flavor = "multi_thread")]
            #[ignore = "the other process of a test"]
            async fn the_process_that_holds() {
                processes::to_be_paused::<E>().await;
            }
        }
    };
}

/// The hours of engines whose wall clock can be moved.
macro_rules! clock {
    ($name:ident) => {
        mod $name {
            use super::super::*;

            type E = engines::$name::One;

            #[tokio::test(flavor = "multi_thread")]
            async fn an_hour_ahead_lapses_holds_and_no_stale_owner_writes() {
                clock::ahead::<E>().await;
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn an_hour_back_keeps_dead_holds_and_a_fallen_token_heals() {
                clock::back::<E>().await;
            }
        }
    };
}

/// The loss of a primary or leader.
macro_rules! failover {
    ($name:ident, $pair:ty) => {
        #[tokio::test(flavor = "multi_thread")]
        async fn $name() {
            failover::of::<$pair>().await;
        }
    };
}

#[cfg(feature = "redis")]
every_hour!(redis);
#[cfg(feature = "postgres")]
every_hour!(postgres);
#[cfg(feature = "etcd")]
every_hour!(etcd);

/// What is begun is never begun a second time.
mod never_twice {
    #[cfg(feature = "redis")]
    past_return!(redis, engines::redis::Durable);
    #[cfg(feature = "postgres")]
    past_return!(postgres, engines::postgres::One);
    #[cfg(feature = "etcd")]
    past_return!(etcd, engines::etcd::One);
}

/// A keeper that has the user's connection alone. Not PostgreSQL: a keeper on a user's pool opens connections
/// where it runs itself, and may beat on.
mod shared_connection {
    #[cfg(any(feature = "redis", feature = "etcd"))]
    use super::{engines, processes::blocked_runtime};

    #[cfg(feature = "redis")]
    #[tokio::test(flavor = "multi_thread")]
    async fn redis_stops_a_blocked_owner_before_the_next_one_writes() {
        blocked_runtime::<engines::redis::One>(engines::redis::of_the_users).await;
    }

    #[cfg(feature = "etcd")]
    #[tokio::test(flavor = "multi_thread")]
    async fn etcd_stops_a_blocked_owner_before_the_next_one_writes() {
        blocked_runtime::<engines::etcd::One>(engines::etcd::of_the_users).await;
    }
}

/// Redis with a disk that it waits for.
#[cfg(feature = "redis")]
mod durable_redis {
    use super::{engines::redis::Durable, guards, losses};

    #[tokio::test(flavor = "multi_thread")]
    async fn a_restart_forgets_nothing() {
        losses::restart::<Durable>().await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_guards_marks_outlive_a_kill() {
        guards::killed::<Durable>().await;
    }
}

/// Not etcd: it asks the kernel for the time itself.
mod moved_clock {
    #[cfg(feature = "redis")]
    clock!(redis);
    #[cfg(feature = "postgres")]
    clock!(postgres);
}

mod new_primary {
    use super::*;

    #[cfg(feature = "redis")]
    failover!(
        redis_without_the_last_writes_forgets_only_what_it_may,
        engines::redis::Pair
    );
    #[cfg(feature = "postgres")]
    failover!(
        postgres_without_the_last_writes_forgets_only_what_it_may,
        engines::postgres::AsyncPair
    );
    #[cfg(feature = "postgres")]
    failover!(
        postgres_with_a_synchronous_replica_forgets_nothing,
        engines::postgres::SyncPair
    );
    #[cfg(feature = "etcd")]
    failover!(
        etcd_whose_leader_dies_forgets_nothing,
        engines::etcd::Cluster
    );
}
