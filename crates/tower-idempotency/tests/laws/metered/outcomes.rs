//! Each outcome is counted by its name.

use std::collections::{BTreeMap, BTreeSet};

use http::{Request, Response};
use metrics_util::debugging::DebuggingRecorder;
use tower::Layer;
use tower::util::BoxCloneSyncService;
use tower_claim::http::{Gate, Mode, Switch};
use tower_claim::testing::{Fault, Operation};
use tower_claim::transaction::UniqueViolation;
use tower_claim::{LapsePolicy, Renewal};
use tower_http::cors::CorsLayer;
use tower_idempotency::{
    Counts, IdempotencyBuilder, IdempotencyLayer, OnStoreDown, Reconciled, RequestBody,
};

use super::Seen;
use crate::support::*;

/// The counts that are not zero, by their names.
fn by_name(counts: &Counts) -> BTreeMap<String, u64> {
    let mut named = all_by_name(counts);
    named.retain(|_, count| *count > 0);
    named
}

fn all_by_name(counts: &Counts) -> BTreeMap<String, u64> {
    let shown = format!("{counts:?}");
    let fields = shown.trim_start_matches("Counts { ").trim_end_matches(" }");
    let fields = fields
        .split(", ")
        .map(|field| field.split_once(": ").unwrap());
    fields
        .map(|(name, count)| (name.to_owned(), count.parse().unwrap()))
        .collect()
}

/// What a recorder counted of this layer.
fn recorded(seen: &Seen, layer: &str) -> BTreeMap<String, u64> {
    let begin = format!("idempotency_outcomes_total{{layer={layer},outcome=");
    let counters = seen.counters.iter();
    counters
        .filter_map(|(name, count)| {
            let outcome = name.strip_prefix(&begin)?.strip_suffix('}')?;
            Some((outcome.to_owned(), *count))
        })
        .collect()
}

struct Scene {
    app: App,
    layer: IdempotencyLayer,
    service: Service,
}

fn scene(name: &str, set: impl FnOnce(IdempotencyBuilder) -> IdempotencyBuilder) -> Scene {
    on(App::new(), name, set)
}

fn on(app: App, name: &str, set: impl FnOnce(IdempotencyBuilder) -> IdempotencyBuilder) -> Scene {
    let builder = app.builder().lease(ms(200)).renewal(Renewal::Off);
    let layer = set(builder.named(name)).build().unwrap();
    Scene {
        service: app.under(&layer),
        layer,
        app,
    }
}

impl Scene {
    async fn send(&self, ask: Ask) -> Answer {
        ask.send(&self.service).await
    }

    fn spawn(&self, ask: Ask) -> tokio::task::JoinHandle<Answer> {
        let service = self.service.clone();
        tokio::spawn(async move { ask.send(&service).await })
    }
}

fn order() -> Ask {
    post("/orders").key("an-order-8e03978e")
}

async fn plain() -> Scene {
    let scene = scene("plain", |b| b);
    let first = scene.spawn(order().flags("delay=50"));
    tokio::time::sleep(ms(1)).await;
    for _ in 0..3 {
        scene.send(order()).await;
    }
    first.await.unwrap();
    for _ in 0..4 {
        scene.send(order()).await;
    }
    for _ in 0..2 {
        scene.send(order().body("another")).await;
    }
    scene.send(post("/orders").key("a,b")).await;
    scene.send(post("/orders").key("1234")).await;
    for _ in 0..5 {
        let failing = post("/orders").key("failing-8e03978e");
        scene.send(failing.flags("status=503")).await;
    }
    scene
}

async fn zombie() -> Scene {
    let scene = scene("zombie", |b| b);
    let first = scene.spawn(order().flags("delay=1000"));
    tokio::time::sleep(ms(300)).await;
    scene.send(order()).await;
    first.await.unwrap();
    scene
}

async fn lost() -> Scene {
    let scene = scene("lost", |b| b);
    scene.send(order().flags("commit&panic")).await;
    for _ in 0..2 {
        scene.send(order()).await;
    }
    scene
}

async fn big() -> Scene {
    let scene = scene("big", |b| b.max_response_body(10));
    scene.send(order().flags("size=50")).await;
    for _ in 0..3 {
        scene.send(order()).await;
    }
    scene
}

async fn worded() -> Scene {
    let scene = scene("worded", |b| {
        b.max_response_body(10)
            .on_not_kept(async |_| Some(Response::new("see there".into())))
    });
    scene.send(order().flags("size=50")).await;
    scene.send(order()).await;
    scene
}

async fn down() -> Scene {
    let scene = scene("down", |b| b);
    let faults = scene.app.store.faults();
    faults.set_for(Operation::Finish, Fault::Down);
    scene.send(order()).await.assert_fresh(201);
    faults.set(Fault::Down);
    for _ in 0..2 {
        scene.send(order()).await;
    }
    scene
}

async fn open() -> Scene {
    let scene = scene("open", |b| b.on_store_down(OnStoreDown::RunUnprotected));
    scene.app.store.faults().set(Fault::Down);
    for _ in 0..2 {
        scene.send(order()).await;
    }
    scene
}

async fn quota() -> Scene {
    let scene = scene("quota", |b| b.max_records_per_tenant(1));
    let of = |key: &str| post("/orders").header("x-tenant", "a").key(key);
    for key in ["one-8e03978e", "two-8e03978e", "three-8e03978e"] {
        scene.send(of(key)).await;
    }
    scene
}

async fn asked() -> Scene {
    let app = App::new();
    let crashing = on(app.clone(), "crashing", |b| b.on_lapse(LapsePolicy::Hold));
    let _crashed = crashing.spawn(order().flags("delay=100000000"));
    tokio::time::sleep(ms(300)).await;
    let store = app.store.inner().clone();
    let scene = on(app, "asked", |b| {
        b.reconcile(store, async |_| {
            Reconciled::Done(Response::new("done".into()))
        })
    });
    scene.send(order()).await;
    scene
}

async fn existing() -> Scene {
    let scene = scene("existing", |b| {
        b.on_unique_violation("orders_key", async |_| {
            Some(Response::new("of the row that is there".into()))
        })
    });
    let handler = tower::service_fn(async |_: Request<RequestBody<Body>>| {
        let mut response = Response::new(body_of("twice"));
        *response.status_mut() = http::StatusCode::CONFLICT;
        let violation = UniqueViolation::new("orders_key");
        response.extensions_mut().insert(violation);
        Ok::<_, std::io::Error>(response)
    });
    let service = scene.layer.layer(BoxCloneSyncService::new(handler));
    order().send(&service).await;
    scene
}

async fn around() -> Scene {
    let scene = scene("around", |b| b);
    let handler = tower::service_fn(async |_: Request<RequestBody<Body>>| {
        Ok::<_, std::io::Error>(Response::new(body_of("ok")))
    });
    let _service = scene.layer.layer(CorsLayer::permissive().layer(handler));
    scene
}

async fn observed() -> Scene {
    let observe = Gate::new().switch(Switch::new(Mode::Observe));
    let scene = scene("observed", |b| b.gate(observe));
    for _ in 0..3 {
        scene.send(order()).await;
    }
    scene.send(post("/orders").key("a,b")).await;
    scene
}

#[tokio::test(start_paused = true)]
async fn each_outcome_is_recorded_to_the_exact_number_by_the_name_of_its_count() {
    let recorder = DebuggingRecorder::new();
    let _recording = metrics::set_default_local_recorder(&recorder);
    let mut scenes = Vec::new();
    scenes.push((
        "plain",
        plain().await,
        "runs 7, in_progress 3, kept 2, replays 4, key_reused 2, other_refusals 1, weak_keys 1, released 5",
    ));
    scenes.push((
        "zombie",
        zombie().await,
        "runs 2, takeovers 1, kept 1, superseded 1, replays 1",
    ));
    scenes.push((
        "lost",
        lost().await,
        "runs 1, panics 1, released 1, outcome_unknown 2",
    ));
    scenes.push(("big", big().await, "runs 1, tombstones 1, not_kept 3"));
    scenes.push(("worded", worded().await, "runs 1, tombstones 1, rendered 1"));
    scenes.push((
        "down",
        down().await,
        "runs 1, unconfirmed 1, store_failures 2",
    ));
    scenes.push(("open", open().await, "unprotected 2"));
    scenes.push(("quota", quota().await, "runs 1, kept 1, over_quota 2"));
    scenes.push(("asked", asked().await, "reconciled 1, kept 1"));
    scenes.push(("existing", existing().await, "runs 1, existing 1, kept 1"));
    scenes.push(("around", around().await, "misorders 1"));
    scenes.push((
        "observed",
        observed().await,
        "observed 3, observed_refusals 1",
    ));

    let seen = Seen::of(&recorder.snapshotter());
    let mut names = BTreeSet::new();
    for (name, scene, expected) in &scenes {
        let expected: BTreeMap<_, _> = expected
            .split(", ")
            .map(|count| count.split_once(' ').unwrap())
            .map(|(outcome, count)| (outcome.to_owned(), count.parse().unwrap()))
            .collect();
        assert_eq!(recorded(&seen, name), expected, "{name}");
        assert_eq!(by_name(&scene.layer.counts()), expected, "{name}");
        names.extend(expected.into_keys());
    }
    let all: BTreeSet<_> = all_by_name(&Counts::default()).into_keys().collect();
    assert_eq!(names, all, "a count that no scene has");
}
