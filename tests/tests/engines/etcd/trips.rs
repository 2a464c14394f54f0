//! Trips, counted by etcd itself. The store's docs tell the same numbers.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use bytes::Bytes;
use system_tests::servers::Etcd;
use tower_claim::store::{
    Admission, Beat, Claimed, Finish, FinishRequest, Marked, Owner, Release, ReleaseRequest,
    Renewed, Value,
};
use tower_claim::{ClaimStore, FenceStore, LapsePolicy, Settings};
use tower_claim_etcd::{EtcdFenceStore, EtcdStore};

use super::bench::{ask, endpoints, hold, hold_by, key, nonce, prefix, store_on, until};

/// What a call costs, by gRPC method.
type Calls = BTreeMap<String, u64>;

/// What etcd tells of itself, line by line.
fn metrics(server: &Etcd) -> String {
    let mut tcp = TcpStream::connect(&server.addresses()[0]).expect("etcd listens");
    tcp.write_all(b"GET /metrics HTTP/1.0\r\n\r\n")
        .expect("sent");
    let mut text = String::new();
    tcp.read_to_string(&mut text).expect("metrics are text");
    text
}

fn value(line: &str) -> Option<u64> {
    let count = line.rsplit(' ').next()?.parse::<f64>().ok()?;
    Some(count as u64)
}

/// One that has no labels.
pub fn metric(server: &Etcd, name: &str) -> u64 {
    let text = metrics(server);
    let mut lines = text.lines();
    let line = lines.find(|line| line.split(' ').next() == Some(name));
    line.and_then(value).expect("etcd counts it")
}

fn counted(server: &Etcd) -> Calls {
    let mut calls = Calls::new();
    for line in metrics(server)
        .lines()
        .filter(|line| line.starts_with("grpc_server_handled_total{"))
    {
        let method = line
            .split("grpc_method=\"")
            .nth(1)
            .and_then(|rest| rest.split('"').next());
        if let (Some(method), Some(count)) = (method, value(line)) {
            *calls.entry(method.to_owned()).or_default() += count;
        }
    }
    calls
}

struct Counter {
    server: Etcd,
    store: EtcdStore,
}

impl Counter {
    async fn start() -> Self {
        let server = Etcd::start();
        let store = store_on(endpoints(&server), &prefix()).await;
        Self { server, store }
    }

    /// What `work` cost. Leases are given back after the answer: waited for.
    async fn of<T>(&self, expected: &[(&str, u64)], work: impl Future<Output = T>) -> T {
        let before = counted(&self.server);
        let done = work.await;
        let expected: Calls = expected
            .iter()
            .map(|(name, n)| ((*name).to_owned(), *n))
            .collect();
        let mut seen = Calls::new();
        let mut calm = 0;
        until(&format!("{expected:?}"), async || {
            let mut now = counted(&self.server);
            for (method, count) in &before {
                *now.entry(method.clone()).or_default() -= count;
            }
            now.retain(|_, count| *count > 0);
            calm = if now == seen { calm + 1 } else { 0 };
            seen = now;
            // The same for a while: nothing more comes.
            calm > 4
        })
        .await;
        assert_eq!(seen, expected);
        done
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_trips_are_those_of_the_docs() {
    let counter = Counter::start().await;
    let store = &counter.store;
    let terms = Settings::new(Duration::from_secs(60));
    let give_back = |owner: Owner| ReleaseRequest {
        key: owner.key,
        nonce: owner.nonce,
        token: Some(owner.token),
        not_after: store.now().saturating_add(Duration::from_secs(5)),
    };

    // A free key: a read, three leases at once, a transaction.
    let one = key();
    let free = [("LeaseGrant", 3), ("Txn", 2)];
    let owner = counter
        .of(&free, hold(store, one, Duration::from_secs(60)))
        .await;
    let mut cooling = terms.clone();
    cooling.cooling = Duration::from_secs(1);
    cooling.min_hold = Duration::from_secs(1);
    let more = [("LeaseGrant", 5), ("Txn", 2)];
    let granted = counter
        .of(&more, ask(store, key(), nonce(), &cooling))
        .await;
    assert!(matches!(granted, Claimed::Granted(_)));

    let busy = counter
        .of(&[("Txn", 1)], ask(store, one, nonce(), &terms))
        .await;
    assert!(matches!(busy, Claimed::Busy(_)));

    let marked = counter.of(&[("Txn", 2)], store.mark(owner)).await;
    assert_eq!(marked.ok(), Some(Marked::Marked));

    let finish = FinishRequest {
        owner,
        value: Value::Kept(Bytes::from_static(b"result")),
        keep: Duration::from_secs(60),
    };
    let finished = [("LeaseGrant", 1), ("LeaseRevoke", 2), ("Txn", 2)];
    let first = counter.of(&finished, store.finish(finish.clone())).await;
    assert_eq!(first.ok(), Some(Finish::Finished));
    let second = counter.of(&[("Txn", 1)], store.finish(finish)).await;
    assert_eq!(second.ok(), Some(Finish::Finished));
    let done = counter
        .of(&[("Txn", 1)], ask(store, one, nonce(), &terms))
        .await;
    assert!(matches!(done, Claimed::Done(_)));
    counter
        .of(&[("Txn", 1)], store.peek(one))
        .await
        .expect("it is there");

    let owner = hold(store, key(), Duration::from_secs(60)).await;
    let released = [("LeaseRevoke", 2), ("Txn", 2)];
    let answer = counter.of(&released, store.release(give_back(owner))).await;
    assert_eq!(answer.ok(), Some(Release::Released));
    let answer = counter
        .of(&[("Txn", 1)], store.release(give_back(owner)))
        .await;
    assert_eq!(answer.ok(), Some(Release::Already));

    let holds = (0..100).map(|_| hold(store, key(), Duration::from_secs(60)));
    let holds = futures_util::future::join_all(holds).await;
    let beats: Vec<_> = holds
        .iter()
        .map(|owner| Beat {
            owner: *owner,
            progress: 1,
        })
        .collect();
    // One lease for all of them; their own ones go with the first beat.
    let kept = [("LeaseGrant", 1), ("LeaseKeepAlive", 100), ("Txn", 2)];
    let first = [&kept[..], &[("LeaseRevoke", 100)]].concat();
    for expected in [&first[..], &kept[..]] {
        let renewed = counter.of(expected, store.renew(&beats)).await;
        let renewed = renewed.expect("renewed");
        assert_eq!(renewed.len(), 100);
        let yes = |answer: &Renewed| matches!(answer, Renewed::Renewed { .. });
        assert!(renewed.iter().all(yes), "{renewed:?}");
    }
    let mine = [("LeaseTimeToLive", 1), ("Txn", 1)];
    let again = ask(store, holds[0].key, holds[0].nonce, &terms);
    let again = counter.of(&mine, again).await;
    assert!(matches!(again, Claimed::Mine { .. }));

    let guard = EtcdFenceStore::new(store);
    let raise = [("Range", 1), ("Txn", 1)];
    let first = counter
        .of(&raise, guard.admit("r", owner.token, owner.nonce))
        .await;
    assert_eq!(first.ok(), Some(Admission::Admitted));
    let again = [("Range", 1)];
    let second = counter
        .of(&again, guard.admit("r", owner.token, owner.nonce))
        .await;
    assert_eq!(second.ok(), Some(Admission::Admitted));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_trips_after_a_lapse_are_those_of_the_docs() {
    let counter = Counter::start().await;
    let store = &counter.store;
    let terms = Settings::new(Duration::from_secs(1));
    let mut unknown = terms.clone();
    unknown.on_lapse = LapsePolicy::Hold;
    let mut cooling = terms.clone();
    cooling.cooling = Duration::from_secs(60);
    let holds = [&terms, &unknown, &cooling].map(|terms| hold_by(store, key(), terms));
    let holds = futures_util::future::join_all(holds).await;
    let [over, unknown, cools] = holds[..] else {
        panic!("{holds:?}");
    };
    for owner in [over, unknown, cools] {
        until("the lapse", async || {
            let seen = store.peek(owner.key).await.expect("etcd answers");
            seen.is_some_and(|seen| seen.lapsed)
        })
        .await;
    }
    let ask_for = |owner: Owner| ask(store, owner.key, nonce(), &terms);
    let one = counter.of(&[("Txn", 1)], ask_for(unknown)).await;
    assert!(matches!(one, Claimed::Unknown(_)), "{one:?}");
    let one = counter.of(&[("Txn", 1)], ask_for(cools)).await;
    assert!(matches!(one, Claimed::Cooling(_)), "{one:?}");
    let granted = [("LeaseGrant", 3), ("LeaseRevoke", 2), ("Txn", 2)];
    let one = counter.of(&granted, ask_for(over)).await;
    let took_over = matches!(&one, Claimed::Granted(grant) if grant.took_over.is_some());
    assert!(took_over, "{one:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_trips_of_a_record_that_moves_along_are_those_of_the_docs() {
    let counter = Counter::start().await;
    let store = &counter.store;
    let mut terms = Settings::new(Duration::from_secs(60));
    terms.cooling = Duration::from_secs(10);
    terms.unfinished_keep = Duration::from_secs(60);
    let owner = hold_by(store, key(), &terms).await;
    let beats = [Beat { owner, progress: 1 }];
    let kept = [("LeaseGrant", 3), ("Txn", 2)];
    let first = [&kept[..], &[("LeaseRevoke", 3)]].concat();
    for expected in [&first[..], &kept[..]] {
        let renewed = counter.of(expected, store.renew(&beats)).await;
        let renewed = renewed.expect("renewed");
        assert!(matches!(renewed[..], [Renewed::Renewed { .. }]));
    }
}
