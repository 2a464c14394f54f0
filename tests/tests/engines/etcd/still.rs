//! A member that stands still: its kernel takes connections, and nothing answers.

use std::time::Duration;

use system_tests::relay::Relay;
use system_tests::servers::Etcd;
use tower_claim::store::{Claimed, Owner, Renewed};
use tower_claim::{ClaimStore, Settings, Token};
use tower_claim_etcd::EtcdStore;

use super::bench::{endpoints, hold, key, nonce, prefix, store_on};
use super::failover::{claim, leader, persist, renewed};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_stands_still_costs_time_only() {
    let server = Etcd::with_nodes(3);
    let store = store_on(endpoints(&server), &prefix()).await;
    let lease = Duration::from_secs(20);
    let owner = hold(&store, key(), lease).await;
    let still = leader(&server).await;
    server.process(still).stop();
    let beat = renewed(&store, owner, lease).await;
    assert!(matches!(beat, Renewed::Renewed { .. }), "{beat:?}");
    server.process(still).go_on();
    let beat = renewed(&store, owner, lease).await;
    assert!(matches!(beat, Renewed::Renewed { .. }), "{beat:?}");
    let terms = Settings::new(lease);
    let other = persist(|| claim(&store, owner, &terms)).await;
    assert!(matches!(other, Claimed::Busy(_)), "{other:?}");
}

/// So many claims in a row, each of a key of its own: how many failed.
async fn in_a_row(store: &EtcdStore, count: usize) -> usize {
    let terms = Settings::new(Duration::from_secs(20));
    let mut failed = 0;
    for _ in 0..count {
        match claim(store, of_a_new_key(), &terms).await {
            Ok(answer) => assert!(matches!(answer, Claimed::Granted(_)), "{answer:?}"),
            Err(error) => {
                assert!(error.is_retryable(), "{error:?}");
                failed += 1;
            }
        }
    }
    failed
}

fn of_a_new_key() -> Owner {
    Owner {
        key: key(),
        nonce: nonce(),
        token: Token::ZERO,
    }
}

/// Whoever is asked when it stops: it costs one attempt, not each call its share.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_stands_still_costs_one_attempt_and_a_leader_an_election() {
    let server = Etcd::with_nodes(3);
    let relays: Vec<_> = server.addresses().into_iter().map(Relay::to).collect();
    let ways = relays
        .iter()
        .map(|relay| format!("http://{}", relay.address()));
    let store = store_on(ways.collect(), &prefix()).await;
    let terms = Settings::new(Duration::from_secs(20));
    assert_eq!(in_a_row(&store, 50).await, 0, "of a cluster that is well");

    let led = leader(&server).await;
    let followers = (0..3).filter(|nth| *nth != led);
    for still in followers.chain([led]) {
        server.process(still).stop();
        if still == led {
            // Until there is a new one, a claim under way is in doubt and others fail.
            persist(|| claim(&store, of_a_new_key(), &terms)).await;
        }
        let before = relays[still].requests();
        let failed = in_a_row(&store, 50).await;
        let met = relays[still].requests() - before;
        server.process(still).go_on();
        println!("member {still}, leader {led}: {failed} of 50 failed, {met} pieces sent to it");
        assert_eq!(failed, 0, "of 50: the others are a majority");
        // One look or three grants at once, in a piece or two each, and signs of life. Its share of all
        // calls would be dozens.
        assert!(
            met <= 16,
            "{met} pieces were sent to a member that stands still"
        );
        // It is well again, and the next one finds a leader.
        persist(|| store.peek(key())).await;
        leader(&server).await;
    }
}

/// A member that is down refuses connections: that costs less still.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_is_down_fails_no_call() {
    let mut server = Etcd::with_nodes(3);
    let led = leader(&server).await;
    let down = (led + 1) % 3;
    server.kill(down);
    for _ in 0..3 {
        // Whichever of them is asked first.
        let store = store_on(endpoints(&server), &prefix()).await;
        assert_eq!(in_a_row(&store, 20).await, 0);
    }
}
