//! etcd, one node.

use std::sync::Arc;
use std::time::Duration;

use etcd_client::DeleteOptions;
use futures_util::future::BoxFuture;
use system_tests::servers::Etcd;
use tower_claim::DynClaimStore;
use tower_claim_etcd::EtcdStore;

use crate::hostile::Engine;

pub struct Server(Etcd);

impl Engine for Server {
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
