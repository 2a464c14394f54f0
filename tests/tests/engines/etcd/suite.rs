//! The laws of the claim protocol, plain and behind each trouble.

use std::time::Duration;

use tokio::sync::Semaphore;
use tower_claim::conformance::{Suite, Time, Trouble};
use tower_claim_etcd::{EtcdFenceStore, EtcdStore};

use super::bench::{endpoints, prefix, server, store_on};
use crate::suite::{behind_the_relay, laws, lost_answers_of_a_reader};

/// etcd counts whole seconds, and notices an end up to a second late.
fn suite() -> Suite {
    let time = Time::Real {
        unit: Duration::from_secs(3),
        tolerance: Duration::from_secs(1),
    };
    Suite::new(time).at_once(400)
}

/// etcd notices an end late when it is busy: the laws of two suites keep it busy enough.
static TWO_SUITES: Semaphore = Semaphore::const_new(2);

/// A store that takes no call for lost while all laws ask at once.
async fn patient(endpoints: Vec<String>) -> EtcdStore {
    let builder = EtcdStore::builder().endpoints(endpoints).prefix(prefix());
    let builder = builder.call_timeout(Duration::from_secs(30));
    builder.connect().await.expect("etcd answers")
}

async fn store() -> EtcdStore {
    patient(endpoints(server())).await
}

async fn run(suite: Suite) {
    let _turn = TWO_SUITES.acquire().await;
    laws(suite, &store).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_law_holds() {
    run(suite()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_law_of_a_guard_holds() {
    let _turn = TWO_SUITES.acquire().await;
    let make = async || EtcdFenceStore::new(&store().await);
    suite().fence_store(make).await.assert();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_law_holds_where_calls_are_refused() {
    run(suite().behind(Trouble::Refuse)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_law_holds_where_calls_are_slow() {
    run(suite().behind(Trouble::Delay)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_law_holds_where_replies_are_lost() {
    run(suite().behind(Trouble::LoseReply)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_law_holds_where_calls_arrive_twice() {
    run(suite().behind(Trouble::Repeat)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_law_holds_behind_the_relay() {
    let _turn = TWO_SUITES.acquire().await;
    let open = async |address: String| patient(vec![format!("http://{address}")]).await;
    behind_the_relay(suite(), &server().addresses()[0], open).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_answer_is_told_honestly_and_its_repeat_is_harmless() {
    let _turn = TWO_SUITES.acquire().await;
    let prefix = prefix();
    let server = &server().addresses()[0];
    let through = async |address: String| {
        let builder = EtcdStore::builder().endpoints([format!("http://{address}")]);
        let builder = builder.prefix(&prefix).call_timeout(Duration::from_secs(2));
        builder.connect().await.expect("etcd answers")
    };
    let direct = store_on(endpoints(super::bench::server()), &prefix).await;
    lost_answers_of_a_reader(server, through, direct).await;
}
