//! The private servers themselves: they start, and they end with the test.

#[cfg(feature = "etcd")]
use system_tests::servers::Etcd;
#[cfg(feature = "postgres")]
use system_tests::servers::Postgres;
#[cfg(feature = "redis")]
use system_tests::servers::Redis;

#[cfg(feature = "redis")]
#[test]
fn redis_starts_again_on_its_port() {
    let mut redis = Redis::start();
    let pid = redis.process().pid();
    redis.kill();
    redis.run();
    assert_ne!(redis.process().pid(), pid);
}

#[cfg(feature = "postgres")]
#[test]
fn postgres_starts_again_on_its_port() {
    let mut postgres = Postgres::start();
    postgres.kill();
    postgres.run();
}

#[cfg(feature = "etcd")]
#[test]
fn etcd_starts_with_three_nodes() {
    let etcd = Etcd::with_nodes(3);
    assert_eq!(etcd.addresses().len(), 3);
}
