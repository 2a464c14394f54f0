//! What no client and no store should ever send: each is refused, and nothing runs.

mod crowd;
mod requests;
#[cfg(any(feature = "redis", feature = "postgres"))]
mod stores;

use system_tests::client::get;
use system_tests::programs::Lab;

/// All effects of a lab.
async fn all_effects(lab: &Lab) -> u64 {
    let all = get(lab.address(), "/effects").send().await.json();
    all["total"].as_u64().expect("a number")
}
