//! Waiting: woken by etcd's own watch, or by the poll where that is mute.

use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::join_all;
use system_tests::relay::{Relay, Way};
use system_tests::servers::Etcd;
use tower_claim::store::{
    Broken, Finish, FinishRequest, Owner, Release, ReleaseRequest, Value, Watched,
};
use tower_claim::{ClaimAdmin, ClaimStore};
use tower_claim_etcd::{EtcdStore, EtcdStoreBuilder};

use super::bench::{endpoints, hold, key, prefix, server, store_on, until};
use super::trips::metric;

const SECOND: Duration = Duration::from_secs(1);
/// Beyond every test.
const NO_POLL: Duration = Duration::from_secs(60);
const LEASE: Duration = Duration::from_secs(100);

fn builder(endpoints: Vec<String>, prefix: &str) -> EtcdStoreBuilder {
    let builder = EtcdStore::builder().endpoints(endpoints).prefix(prefix);
    builder.poll(NO_POLL)
}

fn through(relay: &Relay) -> String {
    format!("http://{}", relay.address())
}

async fn finish(store: &EtcdStore, owner: Owner) {
    let request = FinishRequest {
        owner,
        value: Value::Kept(Bytes::from_static(b"result")),
        keep: LEASE,
    };
    assert_eq!(store.finish(request).await.ok(), Some(Finish::Finished));
}

async fn listeners(server: &Etcd, count: u64) {
    until(&format!("{count} watches"), async || {
        metric(server, "etcd_debugging_mvcc_watcher_total") == count
    })
    .await;
}

/// What a wait comes to that lasts a third of the poll at most.
async fn woken(store: &EtcdStore, owner: Owner) -> Watched {
    let watch = store.watch(owner.key, owner.token);
    let watched = tokio::time::timeout(NO_POLL / 3, watch).await;
    let watched = watched.expect("woken long before the poll");
    watched.expect("etcd answers")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_end_of_a_hold_wakes_who_waits_long_before_the_poll() {
    let (server, prefix) = (Etcd::start(), prefix());
    let worker = store_on(endpoints(&server), &prefix).await;
    let waiter = builder(endpoints(&server), &prefix).connect().await;
    let waiter = waiter.expect("etcd answers");
    // The first is there to have the watch begun: that, too, wakes all who wait.
    for way in ["finish", "finish", "release", "break"] {
        let owner = hold(&worker, key(), LEASE).await;
        let all = join_all((0..20).map(|_| woken(&waiter, owner)));
        let end = async {
            listeners(&server, 1).await;
            match way {
                "finish" => finish(&worker, owner).await,
                "release" => {
                    let release = ReleaseRequest {
                        key: owner.key,
                        nonce: owner.nonce,
                        token: Some(owner.token),
                        not_after: worker.now(),
                    };
                    let released = worker.release(release).await;
                    assert_eq!(released.ok(), Some(Release::Released));
                }
                _ => {
                    let broken = worker.break_claim(owner.key, owner.token).await;
                    assert!(matches!(broken, Ok(Broken::Broken { .. })), "{broken:?}");
                }
            }
        };
        let (all, ()) = tokio::join!(all, end);
        for watched in all {
            let finished = matches!(watched, Watched::Done(_));
            assert_eq!(finished, way == "finish", "{way}: {watched:?}");
        }
    }
    drop(waiter);
    listeners(&server, 0).await;
}

/// The hold ends while nobody listens: the next watch makes who waits look.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_cut_watch_has_missed_is_looked_for() {
    let (server, prefix) = (Etcd::start(), prefix());
    let worker = store_on(endpoints(&server), &prefix).await;
    let relay = Relay::to(server.addresses()[0].clone());
    let waiter = builder(vec![through(&relay)], &prefix).connect().await;
    let waiter = waiter.expect("etcd answers");
    let owner = hold(&worker, key(), LEASE).await;
    let trouble = async {
        listeners(&server, 1).await;
        relay.set(Way::Refuse);
        relay.cut();
        listeners(&server, 0).await;
        finish(&worker, owner).await;
        relay.set(Way::Pass);
    };
    let (watched, ()) = tokio::join!(woken(&waiter, owner), trouble);
    assert!(matches!(watched, Watched::Done(_)), "{watched:?}");
}

/// Its connection stands still, and nobody has noticed yet.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mute_watch_costs_one_poll_step() {
    let prefix = prefix();
    let worker = store_on(endpoints(server()), &prefix).await;
    // Two ways to one server: the watch goes the one, looks go the other once the first stands still.
    let relays = [(); 2].map(|()| Relay::to(server().addresses()[0].clone()));
    let limit = SECOND * 20;
    let builder = builder(relays.iter().map(through).collect(), &prefix);
    let builder = builder.poll(SECOND / 10).call_timeout(limit);
    let waiter = builder.connect().await.expect("etcd answers");
    let [used] = relays
        .iter()
        .filter(|relay| relay.requests() > 0)
        .collect::<Vec<_>>()[..]
    else {
        panic!("one member is asked until it fails");
    };
    let owner = hold(&worker, key(), LEASE).await;
    let trouble = async {
        let before = used.requests();
        // The watch, and a look at least.
        until("it listens", async || used.requests() >= before + 4).await;
        let still = Instant::now();
        used.set(Way::Freeze);
        // Looks have found the other way.
        waiter.peek(owner.key).await.expect("etcd answers");
        finish(&worker, owner).await;
        still
    };
    let (watched, still) = tokio::join!(waiter.watch(owner.key, owner.token), trouble);
    assert!(matches!(watched, Ok(Watched::Done(_))), "{watched:?}");
    // A dead connection is found out, and a watch begun anew, a call timeout after its last sign at the soonest.
    assert!(still.elapsed() < limit, "{:?}", still.elapsed());
}
