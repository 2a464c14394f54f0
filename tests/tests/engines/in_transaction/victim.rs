//! A shop in a process of its own, which can be killed, paused, or told to die at a certain point.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post as on_post;
use futures_util::future::join_all;
use rustix::process::{Pid, Signal, kill_process};
use system_tests::client::post;
use system_tests::servers::Leash;
use tower_claim_sqlx::RunTransaction;
use tower_idempotency::IdempotentRun;

use super::{Mode, SECOND, Shop, order, order_apart, until};

const URL: &str = "SHOP_URL";
const SCHEMA: &str = "SHOP_SCHEMA";
const MODE: &str = "SHOP_MODE";
/// Where its claims go by another way.
const STORE_URL: &str = "SHOP_STORE_URL";
/// Set where a handler is to abort its process when it has written its row.
const ABORTS: &str = "SHOP_ABORTS";
const VICTIM: &str = "in_transaction::victim::the_shop_to_be_killed";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "the other process of a test"]
async fn the_shop_to_be_killed() {
    let (Ok(url), Ok(schema)) = (std::env::var(URL), std::env::var(SCHEMA)) else {
        return;
    };
    let mode = std::env::var(MODE).expect("a mode");
    let mode = Mode::ALL.into_iter().find(|m| format!("{m:?}") == mode);
    let mode = mode.expect("a mode");
    let mut shop = Shop::at(url, schema.clone()).await;
    if let Ok(url) = std::env::var(STORE_URL) {
        shop.store = super::store(&url, &schema).await;
    }
    let lease = match mode {
        Mode::Inside | Mode::Outside => SECOND,
        // An answer is sent also where the store has not confirmed it in a sixth of this: the order of a caller who
        // heard of it would be doubled by a kill right then.
        Mode::Separate => 12 * SECOND,
    };
    let layer = super::asking_for_the_order(&shop, shop.layer_of(mode).lease(lease));
    let app: Router = match (mode, std::env::var(ABORTS)) {
        (_, Err(_)) => shop.orders_of(mode, layer),
        (Mode::Separate, Ok(_)) => shop.app(layer, on_post(abort_apart)),
        (Mode::Inside | Mode::Outside, Ok(_)) => shop.app(layer, on_post(abort_in_transaction)),
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await;
    let listener = listener.expect("a port");
    println!("\nat {}", listener.local_addr().expect("bound"));
    axum::serve(listener, app).await.expect("it serves");
}

async fn abort_apart(shop: State<Shop>, run: IdempotentRun, item: String) -> StatusCode {
    order_apart(shop, run, item).await.expect("a row");
    std::process::abort()
}

async fn abort_in_transaction(run: IdempotentRun, tx: RunTransaction, item: String) -> StatusCode {
    order(run, tx, item).await;
    std::process::abort()
}

/// A shop in a process of its own.
pub struct Victim {
    /// Also where the test fails.
    _leash: Leash,
    process: Child,
    address: SocketAddr,
}

impl Victim {
    pub fn start(shop: &Shop, mode: Mode) -> Self {
        Self::with(shop, mode, &[])
    }

    /// Its claims of [`Mode::Outside`] go to another port.
    pub fn claiming_at(shop: &Shop, store: &str) -> Self {
        Self::with(shop, Mode::Outside, &[(STORE_URL, store)])
    }

    /// Its handler aborts the process when it has written.
    pub fn that_aborts(shop: &Shop, mode: Mode) -> Self {
        Self::with(shop, mode, &[(ABORTS, "yes")])
    }

    fn with(shop: &Shop, mode: Mode, more: &[(&str, &str)]) -> Self {
        let mut process = Command::new(std::env::current_exe().expect("this test"))
            .args([VICTIM, "--exact", "--ignored", "--nocapture"])
            .env(URL, &shop.url)
            .env(SCHEMA, &shop.schema)
            .env(MODE, format!("{mode:?}"))
            .envs(more.iter().copied())
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
    pub fn shoot(&self) {
        self.send(Signal::KILL);
    }

    /// Not one instruction more, until it goes [on](Self::go_on).
    pub fn pause(&self) {
        system_tests::servers::stop(self.id());
    }

    pub fn go_on(&self) {
        self.send(Signal::CONT);
    }

    fn send(&self, signal: Signal) {
        kill_process(self.id(), signal).expect("it is there");
    }

    fn id(&self) -> Pid {
        let id = i32::try_from(self.process.id()).ok();
        id.and_then(Pid::from_raw).expect("a process")
    }

    /// The answer, if there was one. The item is the key: one order for each.
    pub async fn order(&self, key: &str) -> Option<(StatusCode, String)> {
        let call = post(self.address, "/orders").key(key).body(key.to_owned());
        let answer = call
            .header("content-type", "text/plain")
            .try_send()
            .await
            .ok()?;
        let body = String::from_utf8_lossy(&answer.body).into_owned();
        answer.complete.then_some((answer.status, body))
    }

    pub async fn order_all(&self, keys: &[String]) -> Vec<Option<(StatusCode, String)>> {
        join_all(keys.iter().map(|key| self.order(key))).await
    }

    /// Its first run may have died a moment ago; on a busy machine the store may be late.
    pub async fn order_in_the_end(&self, key: &str) {
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
