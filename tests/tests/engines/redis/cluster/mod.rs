//! A cluster of three private primaries.

mod failover;
mod laws;
mod moving;

use std::ops::RangeInclusive;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use redis::cluster_routing::Slot;
use system_tests::servers::{Redis, free_port};
use tower_claim::Key;
use tower_claim_redis::{RedisStore, RedisStoreBuilder};

use super::{fresh, key};

struct Cluster {
    nodes: Vec<Redis>,
}

impl Cluster {
    fn urls(&self) -> Vec<String> {
        self.nodes
            .iter()
            .map(|node| format!("redis://{}", node.address()))
            .collect()
    }

    fn builder(&self) -> RedisStoreBuilder {
        RedisStore::builder().cluster(self.urls()).prefix(fresh())
    }
}

async fn connect(node: &Redis) -> MultiplexedConnection {
    let client = redis::Client::open(format!("redis://{}", node.address())).unwrap();
    client.get_multiplexed_async_connection().await.unwrap()
}

/// The slots of each primary.
const SLOTS: [RangeInclusive<u16>; 3] = [0..=5460, 5461..=10922, 10923..=16383];

/// A node with an empty disk, and the port of its bus.
fn node() -> (Redis, String) {
    let bus = free_port().to_string();
    let node = Redis::with(&[
        "--save",
        "",
        "--cluster-enabled",
        "yes",
        "--cluster-port",
        &bus,
        "--cluster-node-timeout",
        "1000",
        // The slots of a primary that is down are its own trouble.
        "--cluster-require-full-coverage",
        "no",
        "--repl-diskless-sync-delay",
        "0",
    ]);
    (node, bus)
}

async fn wait_for(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(30);
    while !is_so().await {
        assert!(Instant::now() < until, "in vain: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The first line of an answer in plain text.
fn told(node: &Redis, question: &str) -> String {
    let answer = node.ask(question);
    let mut lines = answer.lines();
    let first = lines.next().unwrap_or_default();
    let text = match first.strip_prefix('$') {
        Some(_) => lines.next().unwrap_or_default(),
        None => first,
    };
    text.to_owned()
}

impl Cluster {
    /// Three primaries, and `replicas` of the first.
    async fn start(replicas: usize) -> Self {
        let (nodes, buses): (Vec<_>, Vec<_>) = (0..3 + replicas).map(|_| node()).unzip();
        for (node, slots) in nodes.iter().zip(SLOTS) {
            let (first, last) = slots.into_inner();
            let added = told(node, &format!("CLUSTER ADDSLOTSRANGE {first} {last}"));
            assert_eq!(added, "+OK");
            // Two that take slots at the same epoch would have to quarrel first.
            let epoch = format!("CLUSTER SET-CONFIG-EPOCH {}", first + 1);
            assert_eq!(told(node, &epoch), "+OK");
        }
        for node in &nodes[1..] {
            let meet = format!("CLUSTER MEET 127.0.0.1 {} {}", nodes[0].port(), buses[0]);
            assert_eq!(told(node, &meet), "+OK");
        }
        let known = format!("cluster_known_nodes:{}", nodes.len());
        for node in &nodes {
            wait_for("all nodes meet", async || {
                let info = node.ask("CLUSTER INFO");
                info.contains("cluster_state:ok") && info.contains(&known)
            })
            .await;
        }
        let first = told(&nodes[0], "CLUSTER MYID");
        for replica in &nodes[3..] {
            let follow = format!("CLUSTER REPLICATE {first}");
            assert_eq!(told(replica, &follow), "+OK");
            let up = async || {
                let info = replica.ask("INFO replication");
                info.contains("master_link_status:up")
            };
            wait_for("the replica follows", up).await;
            // Who votes must know that it is one.
            let id = told(replica, "CLUSTER MYID");
            for node in &nodes {
                let seen = async || {
                    let all = node.ask("CLUSTER NODES");
                    let line = all.lines().find(|line| line.starts_with(&id));
                    line.is_some_and(|line| line.contains("slave"))
                };
                wait_for("all know the replica", seen).await;
            }
        }
        Self { nodes }
    }
}

/// The slot of a key's record.
fn slot(store: &RedisStore, key: &Key) -> u16 {
    let slot = Slot::for_key(store.name_of(key));
    (0..=16383)
        .find(|number| Slot::new(*number) == Some(slot))
        .expect("it has a number")
}

/// A key whose record lies with the primary of these slots.
fn key_in(store: &RedisStore, slots: &RangeInclusive<u16>) -> Key {
    loop {
        let key = key();
        if slots.contains(&slot(store, &key)) {
            return key;
        }
    }
}

/// One cluster for all its tests.
async fn cluster() -> &'static Cluster {
    static CLUSTER: OnceLock<Cluster> = OnceLock::new();
    static STARTING: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
    let _one = STARTING.lock().await;
    if let Some(cluster) = CLUSTER.get() {
        return cluster;
    }
    let cluster = Cluster::start(0).await;
    CLUSTER.get_or_init(|| cluster)
}
