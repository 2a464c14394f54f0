//! What is told to `tracing`: the table in `src/telemetry.md`, row by row. Everything that could be secret here has
//! `s3cret` in it.

mod runs;
mod scenes;
mod stores;
mod whole;

use crate::support::*;

/// A request that is full of secrets.
fn order() -> Ask {
    post("/orders?card=s3cret-query")
        .key("s3cret-key-8e03978e")
        .header("x-tenant", "s3cret-tenant")
        .header("authorization", "Bearer s3cret-token")
        .body("{\"card\":\"s3cret-body\"}")
}

/// What is told while `scene` is played.
async fn told<T>(scene: impl Future<Output = T>) -> (Log, T) {
    let log = Log::default();
    let listening = log.listen();
    let out = scene.await;
    drop(listening);
    (log, out)
}

/// The event of this row, which names its layer and its run.
#[track_caller]
fn assert_of_a_run(log: &Log, level: &str, message: &str) -> Told {
    let told = log.one(message);
    assert_eq!(
        (told.level.as_str(), told.field("layer")),
        (level, "orders")
    );
    assert_eq!(told.target, "tower_idempotency::run");
    assert_names_a_run(&told);
    told
}

#[track_caller]
fn assert_names_a_run(told: &Told) {
    let (key, token) = (told.field("key"), told.field("token"));
    let is_prefix = key.len() == 8 && key.bytes().all(|b| b.is_ascii_hexdigit());
    assert!(is_prefix, "{told:?}");
    assert!(token.parse::<u64>().is_ok_and(|t| t > 0), "{told:?}");
}
