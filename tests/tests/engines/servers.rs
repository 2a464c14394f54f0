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

#[cfg(any(feature = "redis", feature = "postgres"))]
const HOUR: i64 = 3600;

#[cfg(any(feature = "redis", feature = "postgres"))]
fn unix_now() -> i64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    i64::try_from(now.expect("after 1970").as_secs()).expect("before the end of time")
}

/// The server tells the moved time, at once, both ways.
#[cfg(any(feature = "redis", feature = "postgres"))]
fn follows(clock: &system_tests::servers::MovedClock, tells: impl Fn() -> i64) {
    for offset in [0, HOUR, -HOUR, 0] {
        clock.set(offset);
        // A server may have read its clock just before.
        std::thread::sleep(std::time::Duration::from_millis(150));
        let off = tells() - unix_now();
        assert!((off - offset).abs() <= 1, "off by {off} s, not {offset} s");
    }
}

#[cfg(feature = "redis")]
#[test]
fn the_clock_of_redis_moves() {
    let clock = system_tests::servers::MovedClock::new();
    let redis = Redis::under(&clock);
    follows(&clock, || {
        let told = redis.ask("TIME");
        let seconds = told.lines().nth(2).expect("an array of two texts");
        seconds.parse().expect("seconds")
    });
}

#[cfg(feature = "postgres")]
#[test]
fn the_clock_of_postgres_moves() {
    let clock = system_tests::servers::MovedClock::new();
    let postgres = Postgres::under(&clock);
    follows(&clock, || {
        let told = postgres.sql("select extract(epoch from clock_timestamp())::bigint");
        told.parse().expect("seconds")
    });
}
