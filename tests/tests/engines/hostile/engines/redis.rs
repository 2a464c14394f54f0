//! Redis without a disk, alone and with a replica; and with a disk that it waits for.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use system_tests::relay::{Relay, Way};
use system_tests::servers::{self, MovedClock};
use tower_claim::DynClaimStore;
use tower_claim::store::DynFenceStore;
use tower_claim_redis::RedisStore;

use crate::hostile::{Behind, Clocked, Engine, Guarded, Server, failover};

pub struct One(servers::Redis);

impl Engine for One {
    fn start() -> BoxFuture<'static, Self> {
        Box::pin(async { Self(servers::Redis::start()) })
    }

    fn connect(address: String) -> BoxFuture<'static, Arc<dyn DynClaimStore>> {
        Box::pin(async move {
            let store = RedisStore::connect(format!("redis://{address}/0")).await;
            Arc::new(store.expect("the server runs")) as Arc<dyn DynClaimStore>
        })
    }

    fn address(&self) -> String {
        self.0.address()
    }

    /// What was live stays a day longer, for clocks that jump forth and back: only that is not counted.
    fn kept(&self) -> BoxFuture<'_, usize> {
        const COUNT: &str = "local kept = 0 \
            for _, key in ipairs(redis.call('KEYS', '*')) do \
                local left = redis.call('PTTL', key) \
                if left < 43200000 or left > 86400000 then kept = kept + 1 end \
            end \
            return kept";
        Box::pin(async {
            let told = self.0.ask(&format!("EVAL \"{COUNT}\" 0"));
            let number = told.lines().next().and_then(|line| line.strip_prefix(':'));
            let number = number.and_then(|number| number.parse().ok());
            number.unwrap_or_else(|| panic!("no number: {told}"))
        })
    }
}

/// Opens a store on a connection of the user's own, and no other.
pub fn of_the_users(address: String) -> BoxFuture<'static, Arc<dyn DynClaimStore>> {
    Box::pin(async move {
        let client = redis::Client::open(format!("redis://{address}/0")).expect("a URL");
        let connection = client.get_multiplexed_async_connection().await;
        let connection = connection.expect("the server runs");
        let store = RedisStore::builder().connection(connection).connect().await;
        Arc::new(store.expect("the server runs")) as Arc<dyn DynClaimStore>
    })
}

impl Guarded for One {
    fn guard(address: String) -> BoxFuture<'static, Arc<dyn DynFenceStore>> {
        Box::pin(async move {
            let store = RedisStore::connect(format!("redis://{address}/0")).await;
            Arc::new(store.expect("the server runs")) as Arc<dyn DynFenceStore>
        })
    }
}

impl Server for One {
    fn stop(&self) {
        self.0.process().stop();
    }

    fn go_on(&self) {
        self.0.process().go_on();
    }

    fn kill(&mut self) {
        self.0.kill();
    }

    fn run(&mut self) {
        self.0.run();
    }

    fn wipe(&self) -> BoxFuture<'_, ()> {
        Box::pin(async { assert!(self.0.ask("FLUSHALL").starts_with("+OK")) })
    }
}

/// Answers when its disk has it.
pub struct Durable(One);

impl Engine for Durable {
    fn start() -> BoxFuture<'static, Self> {
        const DISK: [&str; 6] = [
            "--save",
            "",
            "--appendonly",
            "yes",
            "--appendfsync",
            "always",
        ];
        Box::pin(async { Self(One(servers::Redis::with(&DISK))) })
    }

    fn connect(address: String) -> BoxFuture<'static, Arc<dyn DynClaimStore>> {
        Box::pin(async move {
            let builder = RedisStore::builder().url(format!("redis://{address}/0"));
            let store = builder.durable_single_node().connect().await;
            Arc::new(store.expect("the server runs")) as Arc<dyn DynClaimStore>
        })
    }

    fn address(&self) -> String {
        self.0.address()
    }

    fn kept(&self) -> BoxFuture<'_, usize> {
        self.0.kept()
    }
}

impl Guarded for Durable {
    fn guard(address: String) -> BoxFuture<'static, Arc<dyn DynFenceStore>> {
        One::guard(address)
    }
}

impl Behind for Durable {
    type Of = One;

    fn server(&mut self) -> &mut One {
        &mut self.0
    }

    fn server_ref(&self) -> &One {
        &self.0
    }
}

impl Clocked for One {
    fn start_under(clock: &MovedClock) -> BoxFuture<'_, Self> {
        Box::pin(async { Self(servers::Redis::under(clock)) })
    }
}

/// A primary, a replica, and the line between them.
pub struct Pair {
    primary: servers::Redis,
    line: Relay,
    replica: servers::Redis,
}

impl failover::Pair for Pair {
    type Engine = One;

    fn start() -> BoxFuture<'static, Self> {
        Box::pin(async {
            let primary = servers::Redis::with(&["--save", "", "--repl-diskless-sync-delay", "0"]);
            let line = Relay::to(primary.address());
            let replica = servers::Redis::start();
            replica.ask(&format!("REPLICAOF 127.0.0.1 {}", line.port()));
            let pair = Self {
                primary,
                line,
                replica,
            };
            pair.wait_until(|_, replica| replica.contains("master_link_status:up"));
            pair
        })
    }

    fn primary(&self) -> String {
        self.primary.address()
    }

    fn cut_replication(&mut self) {
        self.wait_until(|primary, replica| {
            let offset = |info: &str| {
                let line = info
                    .lines()
                    .find(|line| line.starts_with("master_repl_offset:"));
                line.map(str::to_owned)
            };
            offset(primary).is_some() && offset(primary) == offset(replica)
        });
        self.line.set(Way::Freeze);
    }

    fn promote(&mut self) -> String {
        self.primary.kill();
        // What stands in the line is lost with the primary.
        self.line.cut();
        assert!(self.replica.ask("REPLICAOF NO ONE").starts_with("+OK"));
        self.replica.address()
    }
}

impl Pair {
    fn wait_until(&self, ready: impl Fn(&str, &str) -> bool) {
        let until = std::time::Instant::now() + Duration::from_secs(30);
        loop {
            let primary = self.primary.ask("INFO replication");
            let replica = self.replica.ask("INFO replication");
            if ready(&primary, &replica) {
                return;
            }
            assert!(std::time::Instant::now() < until, "{primary}\n{replica}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
