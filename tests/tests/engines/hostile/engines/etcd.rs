//! etcd, one node and three.

use std::sync::Arc;
use std::time::Duration;

use etcd_client::{DeleteOptions, GetOptions};
use futures_util::future::BoxFuture;
use system_tests::servers::Etcd;
use tower_claim::DynClaimStore;
use tower_claim::store::DynFenceStore;
use tower_claim_etcd::{EtcdFenceStore, EtcdStore};

use crate::hostile::{Engine, Guarded, Server, failover};

pub struct One(Etcd);

impl Engine for One {
    fn start() -> BoxFuture<'static, Self> {
        Box::pin(async { Self(Etcd::start()) })
    }

    fn connect(address: String) -> BoxFuture<'static, Arc<dyn DynClaimStore>> {
        Box::pin(async move {
            let store = EtcdStore::connect(&format!("http://{address}")).await;
            Arc::new(store.expect("the server runs")) as Arc<dyn DynClaimStore>
        })
    }

    fn address(&self) -> String {
        self.0.addresses().remove(0)
    }

    /// etcd counts whole seconds, and notices an end up to a second late.
    fn lease() -> Duration {
        Duration::from_secs(5)
    }

    fn reads_first() -> bool {
        true
    }

    fn kept(&self) -> BoxFuture<'_, usize> {
        Box::pin(async {
            let client = etcd_client::Client::connect(self.0.addresses(), None).await;
            let mut client = client.expect("the server runs");
            let all = GetOptions::new().with_all_keys().with_count_only();
            let counted = client.get("", Some(all)).await.expect("it is answered");
            usize::try_from(counted.count()).expect("a number")
        })
    }

    /// A nonce is remembered for a minute at least.
    fn forgets_within() -> Duration {
        Duration::from_secs(120)
    }
}

/// Opens a store on a client of the user's own, and no other.
pub fn of_the_users(address: String) -> BoxFuture<'static, Arc<dyn DynClaimStore>> {
    Box::pin(async move {
        let client = etcd_client::Client::connect([address], None).await;
        let builder = EtcdStore::builder().client(client.expect("the server runs"));
        let store = builder.connect().await.expect("the server runs");
        Arc::new(store) as Arc<dyn DynClaimStore>
    })
}

impl Guarded for One {
    fn guard(address: String) -> BoxFuture<'static, Arc<dyn DynFenceStore>> {
        Box::pin(async move {
            let store = EtcdStore::connect(&format!("http://{address}")).await;
            let guard = EtcdFenceStore::new(&store.expect("the server runs"));
            Arc::new(guard) as Arc<dyn DynFenceStore>
        })
    }
}

impl Server for One {
    fn stop(&self) {
        self.0.process(0).stop();
    }

    fn go_on(&self) {
        self.0.process(0).go_on();
    }

    fn kill(&mut self) {
        self.0.kill(0);
    }

    fn run(&mut self) {
        self.0.run(0);
    }

    fn wipe(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            let client = etcd_client::Client::connect(self.0.addresses(), None).await;
            let mut client = client.expect("the server runs");
            // From the first key on.
            let all = DeleteOptions::new().with_all_keys();
            client.delete("", Some(all)).await.expect("it is answered");
        })
    }
}

/// Three nodes, of which the leader dies.
pub struct Cluster {
    nodes: Etcd,
    leader: usize,
}

impl failover::Pair for Cluster {
    type Engine = One;

    fn start() -> BoxFuture<'static, Self> {
        Box::pin(async {
            let nodes = Etcd::with_nodes(3);
            let leader = crate::etcd::leader(&nodes).await;
            Self { nodes, leader }
        })
    }

    fn primary(&self) -> String {
        self.nodes.addresses().remove(self.leader)
    }

    /// A majority has what is answered.
    fn cut_replication(&mut self) {}

    fn promote(&mut self) -> String {
        self.nodes.kill(self.leader);
        self.nodes.addresses().remove((self.leader + 1) % 3)
    }
}
