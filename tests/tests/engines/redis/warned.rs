//! What connecting warns of, and what it does not.

use std::fmt::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use system_tests::servers::{MovedClock, Redis};
use tower_claim::ClaimStore;
use tower_claim_redis::RedisStore;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use super::{builder, granted, key};

/// Keeps the warnings of this thread.
#[derive(Clone, Default)]
struct Ear(Arc<Mutex<Vec<String>>>);

struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        let _ = write!(self.0, "{}={value:?} ", field.name());
    }
}

impl Subscriber for Ear {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() == Level::WARN && metadata.target().starts_with("tower_claim_redis")
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut text = Text(String::new());
        event.record(&mut text);
        self.0.lock().unwrap().push(text.0);
    }
}

/// The warnings while it connects.
async fn warnings(redis: &Redis) -> (RedisStore, Vec<String>) {
    let ear = Ear::default();
    let listening = tracing::subscriber::set_default(ear.clone());
    let store = RedisStore::connect(redis.url()).await.unwrap();
    drop(listening);
    let told = std::mem::take(&mut *ear.0.lock().unwrap());
    (store, told)
}

#[tokio::test]
async fn a_server_as_it_should_be_is_no_cause_for_a_warning() {
    let (_, told) = warnings(&Redis::start()).await;
    assert!(told.is_empty(), "{told:?}");
}

#[tokio::test]
async fn a_clock_that_is_off_is_warned_of_and_the_servers_own_counts() {
    const HOUR: i64 = 3600;
    let clock = MovedClock::new();
    for offset in [HOUR, -HOUR] {
        clock.set(offset);
        let redis = Redis::under(&clock);
        let (store, told) = warnings(&redis).await;
        assert!(
            matches!(&told[..], [one] if one.contains("clocks") && one.contains("offset=3")),
            "{told:?}"
        );
        let here = std::time::SystemTime::now();
        let here = here.duration_since(std::time::UNIX_EPOCH).unwrap();
        let off = i128::from(store.now().as_micros()) - i128::try_from(here.as_micros()).unwrap();
        let wrong = off - i128::from(offset) * 1_000_000;
        assert!(wrong.abs() < 60_000_000, "{off} µs off");
        granted(&store, key()).await;
    }
}

#[tokio::test]
async fn what_cannot_be_seen_and_what_would_evict_later_is_warned_of() {
    let hidden = Redis::with(&[
        "--save", "", "--user", "default", "on", "nopass", "~*", "&*", "+@all", "-info",
    ]);
    let (_, told) = warnings(&hidden).await;
    assert!(
        matches!(&told[..], [one] if one.contains("INFO") && one.contains("noeviction")),
        "{told:?}"
    );
    let later = Redis::with(&["--save", "", "--maxmemory-policy", "allkeys-lru"]);
    let (_, told) = warnings(&later).await;
    assert!(
        matches!(&told[..], [one] if one.contains("allkeys-lru") && one.contains("noeviction")),
        "{told:?}"
    );
}

#[tokio::test]
async fn a_setting_that_is_not_said_is_the_stated_default() {
    let all = format!("{:?}", RedisStore::builder());
    for default in [
        "prefix: \"claim:\"",
        "hash_tag: None",
        "call_timeout: 2s",
        "poll_step: 500ms",
    ] {
        assert!(all.contains(default), "{all}");
    }
    let store = RedisStore::connect(super::server().url()).await.unwrap();
    assert!(store.name_of(&key()).starts_with("claim:"));
    let quick = builder().call_timeout(Duration::from_millis(250));
    assert!(format!("{quick:?}").contains("250ms"));
}
