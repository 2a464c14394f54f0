//! What it costs, measured. The store's docs tell the orders of magnitude.

use std::time::{Duration, Instant};

use futures_util::stream::{self, StreamExt};
use tower_claim::ClaimStore;
use tower_claim::store::{Beat, Owner, Renewed};

use super::bench::{hold, key, store};

/// `cargo test --release -p system-tests --test engines --features etcd -- --ignored --nocapture etcd::cost`
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement"]
async fn claims_in_a_second_and_a_renewal_of_ten_thousand_holds() {
    let store = store().await;
    let lease = Duration::from_secs(120);
    let claims = |count: usize, at_once: usize| {
        let store = store.clone();
        async move {
            let began = Instant::now();
            let all = stream::iter(0..count).map(|_| hold(&store, key(), lease));
            let owners: Vec<Owner> = all.buffer_unordered(at_once).collect().await;
            (owners, count as f64 / began.elapsed().as_secs_f64())
        }
    };
    let (_, alone) = claims(200, 1).await;
    println!("claims, one after the other: {alone:.0} a second");
    let (owners, together) = claims(10_000, 64).await;
    println!("claims, 64 at once: {together:.0} a second");

    let beat = |owner| Beat { owner, progress: 0 };
    let beats: Vec<_> = owners.into_iter().map(beat).collect();
    // The first moves each record off the lease of its claim.
    for round in ["first", "second", "third"] {
        let began = Instant::now();
        let answers = store.renew(&beats).await.expect("renewed");
        let took = began.elapsed();
        let yes = |answer: &&Renewed| matches!(answer, Renewed::Renewed { .. });
        let renewed = answers.iter().filter(yes).count();
        println!("{round} renewal of 10,000 holds: {took:?}, {renewed} renewed");
        assert!(renewed > 0);
    }
}
