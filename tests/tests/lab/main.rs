//! The lab's surface, black box: what its contract says, seen over real sockets.

mod accounts;
mod bad_input;
mod board;
mod classrooms;
mod engines;
mod flags;
#[cfg(any(feature = "redis", feature = "postgres", feature = "etcd"))]
mod hostile;
mod idempotency;
#[cfg(any(feature = "redis", feature = "postgres"))]
mod inside;
mod items;
mod line;
mod operators;
mod orders;
#[cfg(any(feature = "redis", feature = "postgres", feature = "etcd"))]
mod processes;
mod published;
mod published_cases;
mod restart;
mod seen;
mod start;
mod stores;

use serde_json::Value;
use system_tests::client::{Answer, get};
use system_tests::programs::Lab;

/// How often a method and path took effect.
async fn effects(lab: &Lab, of: &str) -> u64 {
    let all = get(lab.address(), "/effects").send().await.json();
    all["by"][of].as_u64().unwrap_or(0)
}

/// The rows of `/board` under `live` or `recent`.
async fn rows(lab: &Lab, which: &str, query: &str) -> Vec<Value> {
    let board = get(lab.address(), format!("/board?{query}"))
        .send()
        .await
        .json();
    board[which].as_array().expect("a list").clone()
}

/// How many live rows are in this stage of this route.
async fn live_on(lab: &Lab, route: &str) -> Vec<Value> {
    let mut rows = rows(lab, "live", "").await;
    rows.retain(|row| row["route"] == route);
    rows
}

/// A number out of a JSON answer.
fn number(answer: &Answer, field: &str) -> u64 {
    answer.json()[field]
        .as_u64()
        .unwrap_or_else(|| panic!("no number {field}: {answer:?}"))
}

/// Waits until so many requests are live on a route.
async fn wait_live(lab: &Lab, route: &str, count: usize) -> Vec<Value> {
    let what = format!("{count} live rows on {route}");
    system_tests::client::until(&what, || live_on(lab, route), |rows| rows.len() == count).await
}
