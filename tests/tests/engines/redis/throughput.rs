//! Beside the driver: the same trips by the store, and by hand over a connection of the same kind.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Value as Raw};
use system_tests::servers::Redis;
use tower_claim::engine::span_micros;
use tower_claim::store::{
    ClaimRequest, Claimed, Finish, FinishRequest, Owner, Release, ReleaseRequest, StoreTime, Value,
};
use tower_claim::{ClaimStore, Key, Nonce, Settings, Token};
use tower_claim_redis::RedisStore;

use super::{key, nonce};

/// One thing that a layer does, in trips.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Work {
    /// A lease is acquired: 1 trip.
    Acquire,
    /// And released: 2 trips.
    AcquireAndRelease,
    /// A first request with a result of 400 bytes: 2 trips.
    First,
    /// The same request again, its result replayed: 1 trip.
    Replay,
}

const RESULT: &[u8] = &[b'x'; 400];
const FAR: StoreTime = StoreTime::from_micros(1 << 52);
const KEEP: Duration = Duration::from_secs(60);

macro_rules! script {
    ($name:literal) => {
        concat!(
            include_str!("../../../../crates/tower-claim-redis/src/lua/record.lua"),
            include_str!("../../../../crates/tower-claim-redis/src/lua/spent.lua"),
            include_str!("../../../../crates/tower-claim-redis/src/lua/moves.lua"),
            include_str!(concat!(
                "../../../../crates/tower-claim-redis/src/lua/",
                $name,
                ".lua"
            )),
        )
    };
}

/// By the store.
struct Ours {
    store: RedisStore,
    settings: Settings,
    result: Bytes,
}

impl Ours {
    async fn run(&self, work: Work, key: Key, nonce: Nonce) {
        let request = ClaimRequest {
            key,
            nonce,
            fingerprint: None,
            settings: &self.settings,
            floor: Token::ZERO,
            not_after: FAR,
        };
        let token = match (work, self.store.claim(request).await.unwrap()) {
            (Work::Replay, Claimed::Done(done)) => {
                assert!(matches!(done.value, Value::Kept(body) if body.len() == RESULT.len()));
                return;
            }
            (Work::Acquire, Claimed::Granted(_)) => return,
            (_, Claimed::Granted(grant)) => grant.token,
            (_, other) => panic!("{other:?}"),
        };
        if work == Work::First {
            let request = FinishRequest {
                owner: Owner { key, nonce, token },
                value: Value::Kept(self.result.clone()),
                keep: KEEP,
            };
            assert_eq!(self.store.finish(request).await.unwrap(), Finish::Finished);
        } else {
            let request = ReleaseRequest {
                key,
                nonce,
                token: Some(token),
                not_after: FAR,
            };
            assert_eq!(
                self.store.release(request).await.unwrap(),
                Release::Released
            );
        }
    }
}

/// By hand: names and nonces are made before, and an answer is looked at only where the next call needs it.
struct Theirs {
    connection: MultiplexedConnection,
    claim: String,
    finish: String,
    release: String,
    settings: Settings,
}

impl Theirs {
    async fn run(&self, work: Work, name: &str, nonce: &str) {
        let mut connection = self.connection.clone();
        let mut claim = redis::cmd("EVALSHA");
        claim.arg(&self.claim).arg(1).arg(name).arg(nonce).arg("");
        claim.arg(FAR.as_micros()).arg(0);
        claim
            .arg(span_micros(self.settings.lease))
            .arg(span_micros(self.settings.cooling))
            .arg(span_micros(self.settings.min_hold))
            .arg("take_over")
            .arg(span_micros(self.settings.unfinished_keep))
            .arg(&*self.settings.label);
        let told: Raw = claim.query_async(&mut connection).await.unwrap();
        if matches!(work, Work::Acquire | Work::Replay) {
            return;
        }
        let Raw::Array(told) = told else {
            panic!("{told:?}")
        };
        let Raw::Int(token) = told[3] else {
            panic!("{told:?}")
        };
        let mut end = redis::cmd("EVALSHA");
        if work == Work::First {
            end.arg(&self.finish).arg(1).arg(name).arg(nonce).arg(token);
            end.arg(span_micros(KEEP)).arg(RESULT);
        } else {
            end.arg(&self.release)
                .arg(1)
                .arg(name)
                .arg(nonce)
                .arg(token);
            end.arg(FAR.as_micros());
        }
        let _: Raw = end.query_async(&mut connection).await.unwrap();
    }
}

/// Nanoseconds on a processor, of all threads of this process.
fn processor() -> u64 {
    let threads = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    threads
        .filter_map(|thread| std::fs::read_to_string(thread.path().join("schedstat")).ok())
        .filter_map(|told| told.split(' ').next()?.parse::<u64>().ok())
        .sum()
}

/// What a side took: time on the wall, and on processors.
async fn taken(each: usize, tasks: Vec<impl Future<Output = ()> + Send + 'static>) -> (f64, f64) {
    let trips = (each * tasks.len()) as f64;
    let (since, before) = (Instant::now(), processor());
    for task in tasks.into_iter().map(tokio::spawn).collect::<Vec<_>>() {
        task.await.unwrap();
    }
    let wall = since.elapsed().as_secs_f64() * 1e6 / trips;
    (wall, (processor() - before) as f64 / 1e3 / trips)
}

fn median(mut of: Vec<f64>) -> f64 {
    of.sort_by(f64::total_cmp);
    of[of.len() / 2]
}

/// `cargo test --release … -- --ignored --nocapture redis::throughput`: figures, none of which a busy machine
/// can promise.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "prints figures"]
async fn throughput_beside_the_raw_driver() {
    const ROUNDS: usize = 15;
    let redis = Redis::start();
    let client = redis::Client::open(redis.url()).unwrap();
    let config = AsyncConnectionConfig::new()
        .set_response_timeout(None)
        .set_pipeline_buffer_size(1024);
    let mut connection = client
        .get_multiplexed_async_connection_with_config(&config)
        .await
        .unwrap();
    let mut load = async |text: &str| -> String {
        let mut load = redis::cmd("SCRIPT");
        load.arg("LOAD").arg(text);
        load.query_async(&mut connection).await.unwrap()
    };
    let (claim, finish, release) = (
        load(script!("claim")).await,
        load(script!("finish")).await,
        load(script!("release")).await,
    );
    let settings = Settings::new(Duration::from_secs(20));
    let ours = Arc::new(Ours {
        store: RedisStore::connect(redis.url()).await.unwrap(),
        settings: settings.clone(),
        result: Bytes::from_static(RESULT),
    });
    let theirs = Arc::new(Theirs {
        connection,
        claim,
        finish,
        release,
        settings,
    });
    for (at_once, each) in [(1, 1000), (32, 100)] {
        for work in [
            Work::Acquire,
            Work::AcquireAndRelease,
            Work::First,
            Work::Replay,
        ] {
            let done = key();
            ours.run(Work::First, done, nonce()).await;
            let key_for = || if work == Work::Replay { done } else { key() };
            let by_store = || {
                let tasks = (0..at_once).map(|_| {
                    let inputs: Vec<_> = (0..each).map(|_| (key_for(), nonce())).collect();
                    let ours = Arc::clone(&ours);
                    async move {
                        for (key, nonce) in inputs {
                            ours.run(work, key, nonce).await;
                        }
                    }
                });
                taken(each, tasks.collect())
            };
            let by_hand = || {
                let tasks = (0..at_once).map(|_| {
                    let input = || (ours.store.name_of(&key_for()), nonce().to_string());
                    let inputs: Vec<_> = (0..each).map(|_| input()).collect();
                    let theirs = Arc::clone(&theirs);
                    async move {
                        for (name, nonce) in &inputs {
                            theirs.run(work, name, nonce).await;
                        }
                    }
                });
                taken(each, tasks.collect())
            };
            let (mut walls, mut processors) = (Vec::new(), Vec::new());
            let (mut a, mut b) = ((0.0, 0.0), (0.0, 0.0));
            for round in 0..ROUNDS {
                // Each goes first as often as the other.
                if round % 2 == 0 {
                    a = by_store().await;
                    b = by_hand().await;
                } else {
                    b = by_hand().await;
                    a = by_store().await;
                }
                walls.push(b.0 / a.0);
                processors.push(a.1 - b.1);
            }
            println!(
                "{work:?}, {at_once} at once: {:.3} of the driver's throughput (last round {:.1} µs, {:.1} µs by \
                 hand); {:+.2} µs on a processor (of {:.1})",
                median(walls),
                a.0,
                b.0,
                median(processors),
                b.1,
            );
        }
    }
}
