//! A server that grants no lease as short as it is asked for: what it granted counts.

use std::time::{Duration, Instant};

use etcd_client::Client;
use system_tests::relay::Relay;
use system_tests::servers::Etcd;
use tower_claim::store::{Beat, Claimed, Grant, Renewed};
use tower_claim::{Attempt, Claim, ClaimStore, Keeper, Key, Settings, Terms, Token};
use tower_claim_etcd::EtcdStore;

use super::bench::{ask, endpoints, hold, key, nonce, prefix, server, store_on, until};

/// The shortest lease of [`slow_server`]: one and a half election timeouts, in whole seconds.
const LEAST: Duration = Duration::from_secs(4);

fn slow_server() -> Etcd {
    Etcd::with_settings(["--heartbeat-interval", "250", "--election-timeout", "2500"])
}

async fn granted(store: &EtcdStore, one: Key, settings: &Settings) -> Grant {
    match ask(store, one, nonce(), settings).await {
        Claimed::Granted(grant) => grant,
        other => panic!("a free key was not granted: {other:?}"),
    }
}

/// What etcd itself says of the lease that keeps a hold from lapsing.
async fn granted_by_etcd(server: &Etcd, prefix: &str, one: Key) -> Duration {
    let mut client = Client::connect(endpoints(server), None)
        .await
        .expect("etcd");
    let live = client.get(format!("{prefix}/k/{one}/live"), None).await;
    let lease = live.expect("etcd answers").kvs()[0].lease();
    let left = client.lease_time_to_live(lease, None).await;
    let secs = left.expect("it lives").granted_ttl();
    Duration::from_secs(u64::try_from(secs).expect("a span"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_is_as_long_as_it_was_granted_and_the_key_busy_until_then() {
    let (server, prefix) = (slow_server(), prefix());
    let store = store_on(endpoints(&server), &prefix).await;
    let (one, terms) = (key(), Settings::new(Duration::from_secs(1)));
    let began = Instant::now();
    let grant = granted(&store, one, &terms).await;
    assert_eq!(grant.lease, LEAST);
    assert_eq!(granted_by_etcd(&server, &prefix, one).await, LEAST);
    until("the lapse", async || {
        match ask(&store, one, nonce(), &terms).await {
            Claimed::Busy(_) => false,
            Claimed::Granted(next) => next.token > grant.token,
            other => panic!("{other:?}"),
        }
    })
    .await;
    assert!(began.elapsed() >= LEAST, "{:?}", began.elapsed());

    let owner = hold(&store, key(), terms.lease).await;
    let beats = [Beat { owner, progress: 0 }];
    let answers = store.renew(&beats).await.expect("renewed");
    let [Renewed::Renewed { rest, .. }] = answers[..] else {
        panic!("{answers:?}");
    };
    assert_eq!(rest, LEAST);
    assert_eq!(granted_by_etcd(&server, &prefix, owner.key).await, LEAST);
}

/// Its members were given a longer election timeout while the store ran.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_learns_of_a_longer_least_lease() {
    let (slow, prefix) = (slow_server(), prefix());
    let relay = Relay::to(server().addresses()[0].clone());
    let store = store_on(vec![format!("http://{}", relay.address())], &prefix).await;
    let terms = Settings::new(Duration::from_secs(1));
    let grant = granted(&store, key(), &terms).await;
    assert!(grant.lease < LEAST, "the server before grants shorter ones");
    relay.lead_to(slow.addresses()[0].clone());
    relay.cut();
    until("the other server", async || store.peek(key()).await.is_ok()).await;
    let one = key();
    let grant = granted(&store, one, &terms).await;
    assert_eq!(grant.lease, LEAST);
    assert_eq!(granted_by_etcd(&slow, &prefix, one).await, LEAST);
}

/// Asks until it is granted: a keeper's call may take a sixth of the lease only.
async fn taken(keeper: &Keeper, one: Key, terms: &Terms) -> (Instant, Claim) {
    let end = Instant::now() + Duration::from_secs(30);
    loop {
        let began = Instant::now();
        match keeper.claim(one, None, terms, Token::ZERO).await {
            Ok(Attempt::Granted(claim)) => return (began, claim),
            other => assert!(Instant::now() < end, "{other:?}"),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_keeper_counts_by_what_was_granted_and_holds_for_three_leases() {
    let server = slow_server();
    let store = store_on(endpoints(&server), &prefix()).await;
    let keeper = Keeper::new(store.clone());
    let asked = Duration::from_secs(3);
    let terms = Terms::builder(asked).build().expect("a lease long enough");
    let one = key();
    let (began, claim) = taken(&keeper, one, &terms).await;
    // Its stop point is a little before the lapse: not by half a second.
    let counted = claim.remaining() + began.elapsed();
    assert!(counted > LEAST - asked / 4, "{counted:?} from the claim on");
    let rival = Settings::new(asked);
    while began.elapsed() < LEAST * 3 {
        let answer = ask(&store, one, nonce(), &rival).await;
        assert!(matches!(answer, Claimed::Busy(_)), "{answer:?}");
        assert_eq!(claim.check(), Ok(()));
        assert!(claim.remaining() <= LEAST);
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
}
