//! A shop that is killed at any point between claim and answer: as many orders as keys, always.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::pin::pin;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use futures_util::StreamExt;
use futures_util::future::{Either, join_all, select};
use http::StatusCode;
use rustix::process::{Pid, Signal, kill_process};
use system_tests::client::post;
use system_tests::servers::{Leash, PgBouncer};

use super::{SECOND, Shop, until};

/// Requests under way when their process is killed.
const ABORTED: usize = 500;
/// Of these at each kill.
const AT_ONCE: usize = 25;
const URL: &str = "SHOP_URL";
const SCHEMA: &str = "SHOP_SCHEMA";
/// Where its claims go by another way.
const STORE_URL: &str = "SHOP_STORE_URL";
const VICTIM: &str = "in_transaction::crash::the_shop_to_be_killed";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "the other process of a test"]
async fn the_shop_to_be_killed() {
    let (Ok(url), Ok(schema)) = (std::env::var(URL), std::env::var(SCHEMA)) else {
        return;
    };
    let mut shop = Shop::at(url, schema.clone()).await;
    if let Ok(url) = std::env::var(STORE_URL) {
        shop.store = super::store(&url, &schema).await;
    }
    let app = shop.orders(shop.layer().lease(SECOND));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await;
    let listener = listener.expect("a port");
    println!("\nat {}", listener.local_addr().expect("bound"));
    axum::serve(listener, app).await.expect("it serves");
}

fn some_keys(name: &str) -> Vec<String> {
    (0..AT_ONCE).map(|n| format!("{name}-{n}")).collect()
}

/// A shop in a process of its own.
struct Victim {
    /// Also where the test fails.
    _leash: Leash,
    process: Child,
    address: SocketAddr,
}

impl Victim {
    fn start(shop: &Shop) -> Self {
        Self::claiming_at(shop, &shop.url)
    }

    fn claiming_at(shop: &Shop, store: &str) -> Self {
        let mut process = Command::new(std::env::current_exe().expect("this test"))
            .args([VICTIM, "--exact", "--ignored", "--nocapture"])
            .env(URL, &shop.url)
            .env(STORE_URL, store)
            .env(SCHEMA, &shop.schema)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("it starts");
        let lines = BufReader::new(process.stdout.take().expect("a pipe")).lines();
        let address = lines.map_while(Result::ok).find_map(|line| {
            let address = line.strip_prefix("at ")?;
            address.parse().ok()
        });
        let address = address.expect("it says where it listens");
        Self {
            _leash: Leash::on(process.id()),
            process,
            address,
        }
    }

    /// While its answers are waited for.
    fn shoot(&self) {
        let id = i32::try_from(self.process.id()).ok();
        let id = id.and_then(Pid::from_raw).expect("a process");
        kill_process(id, Signal::KILL).expect("it runs");
    }

    /// The answer, if there was one.
    async fn order(&self, key: &str) -> Option<(StatusCode, String)> {
        let call = post(self.address, "/orders").key(key);
        let answer = call
            .header("content-type", "text/plain")
            .try_send()
            .await
            .ok()?;
        let body = String::from_utf8_lossy(&answer.body).into_owned();
        answer.complete.then_some((answer.status, body))
    }

    async fn order_all(&self, keys: &[String]) -> Vec<Option<(StatusCode, String)>> {
        join_all(keys.iter().map(|key| self.order(key))).await
    }

    /// Its first run may have died a moment ago; on a busy machine the store may be late.
    async fn order_in_the_end(&self, key: &str) {
        until(key, async || match self.order(key).await {
            Some((StatusCode::CREATED, _)) => true,
            Some((StatusCode::CONFLICT | StatusCode::SERVICE_UNAVAILABLE, _)) => false,
            other => panic!("{key}: {other:?}"),
        })
        .await;
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_five_hundred_killed_requests_each_ordered_once() {
    let shop = Shop::open().await;
    let mut answered = Vec::new();
    let mut cut_off = Vec::new();
    let mut kills = 0_u64;
    while cut_off.len() < ABORTED {
        let victim = Victim::start(&shop);
        // It has connections, and is as fast as it will be.
        let undisturbed = Instant::now();
        let keys = some_keys(&format!("before-{kills}"));
        let first = keys.clone().into_iter().zip(victim.order_all(&keys).await);
        // At each point of a request: from before it is read until after it is answered.
        let delay = undisturbed.elapsed().mul_f64(kills as f64 * 0.618 % 1.2);
        let keys = some_keys(&format!("killed-{kills}"));
        let orders = victim.order_all(&keys);
        let answers = match select(pin!(orders), pin!(tokio::time::sleep(delay))).await {
            Either::Left((answers, _)) => answers,
            Either::Right(((), orders)) => {
                victim.shoot();
                orders.await
            }
        };
        drop(victim);
        for (key, answer) in first.chain(keys.into_iter().zip(answers)) {
            match answer {
                Some((StatusCode::CREATED, body)) => answered.push((key, body)),
                // On a busy machine the store may not have answered in time.
                None | Some((StatusCode::SERVICE_UNAVAILABLE, _)) => cut_off.push(key),
                Some(other) => panic!("{key}: {other:?}"),
            }
        }
        kills += 1;
        assert!(
            kills < 400,
            "too few requests were cut off: {}",
            cut_off.len()
        );
    }

    let survivor = Victim::start(&shop);
    for (key, body) in &answered {
        let again = survivor.order(key).await;
        assert_eq!(again, Some((StatusCode::CREATED, body.clone())), "{key}");
    }
    let done_before = shop.rows().await.len() - answered.len();
    let patient = cut_off.iter().map(|key| survivor.order_in_the_end(key));
    let patient = futures_util::stream::iter(patient).buffer_unordered(16);
    patient.collect::<Vec<()>>().await;
    drop(survivor);

    let mut rows = shop.rows().await;
    rows.sort_unstable();
    let mut keys: Vec<String> = answered.into_iter().map(|(key, _)| key).collect();
    let unheard = keys.len();
    keys.append(&mut cut_off);
    keys.sort_unstable();
    println!(
        "{kills} kills: {unheard} orders answered, {} cut off, of these {done_before} committed",
        keys.len() - unheard
    );
    assert_eq!(rows, keys, "as many orders as keys");
    assert!(done_before > 0, "no kill came after a commit");
}

/// A session of a pooler outlives its client; no claim of ours is bound to one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_owner_behind_a_pooler_keeps_its_key_for_its_lease_and_no_longer() {
    let shop = Shop::open().await;
    let pooler = tokio::task::spawn_blocking(|| PgBouncer::before(super::server(), 2)).await;
    let pooler = pooler.expect("it starts");
    let victim = Victim::claiming_at(&shop, &pooler.url());
    let survivor = Victim::claiming_at(&shop, &pooler.url());
    // Its handler waits for this row until it is killed.
    let mut blocks = shop.pool.begin().await.expect("a transaction");
    let lock = sqlx::query("lock table orders in exclusive mode");
    lock.execute(&mut *blocks).await.expect("locked");
    let killed = victim.order("key");
    let held = async {
        until("the key is claimed", async || {
            let count = sqlx::query_scalar("select count(*) from claim");
            count.fetch_one(&shop.pool).await.ok() == Some(1_i64)
        })
        .await;
        let busy = survivor.order("key").await.expect("an answer");
        assert_eq!(busy.0, StatusCode::CONFLICT, "{}", busy.1);
        victim.shoot();
    };
    let (answer, ()) = tokio::join!(killed, held);
    assert_eq!(answer, None, "it was killed before it could answer");
    let since = Instant::now();
    blocks.rollback().await.expect("unlocked");
    survivor.order_in_the_end("key").await;
    assert!(since.elapsed() < 8 * SECOND, "{:?}", since.elapsed());
    assert_eq!(shop.rows().await, ["key"]);
}
