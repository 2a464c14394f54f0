//! Quotas: a flood of random keys is its own tenant's trouble.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, join_all};
use http::{Request, Response};
use tower::Layer;
use tower::util::BoxCloneSyncService;
use tower_claim::store::{Finish, FinishRequest};
use tower_claim::testing::{Fault, FaultStore, Operation};
use tower_claim::transaction::{CommitError, OpenTransaction, TransactionSlot};
use tower_claim::{ClaimStore, MemoryStore, RunOn};
use tower_idempotency::{IdempotencyLayer, OnBusy, RequestBody};

use crate::support::*;

fn order(tenant: &str, key: &str) -> Ask {
    post("/orders").key(key).header("x-tenant", tenant)
}

fn limits(answer: &Answer) -> (u16, Option<&str>) {
    let text = answer.text();
    let reason = text.split_once("\"reason\":\"").map(|(_, rest)| rest);
    let reason = reason.and_then(|rest| rest.split('"').next());
    (answer.status.as_u16(), reason)
}

#[tokio::test(start_paused = true)]
async fn a_flood_degrades_only_its_own_tenant() {
    // A store of a hundred records, which all share.
    let app = App::new();
    let store = MemoryStore::builder().clock(app.clock.clone());
    let store = store.max_records(100).build().unwrap();
    let slow = FaultStore::with_clock(store.clone(), app.clock.clone());
    let layer = IdempotencyLayer::builder(slow.clone())
        .clock(app.clock.clone())
        .run_on(RunOn::Task)
        .scope(|req| Some(req.headers.get("x-tenant")?.to_str().ok()?.to_owned()))
        .max_records_per_tenant(20)
        .build()
        .unwrap();
    let service = app.under(&layer);
    let before = order("b", "before").send(&service).await;
    before.assert_fresh(201);

    // First many at once, then one after the other.
    let flood: Vec<_> = (0..500).map(|n| order("a", &format!("key-{n}"))).collect();
    slow.faults().set(Fault::Delay(ms(5)));
    let mut answers = join_all(flood.iter().map(|ask| ask.send(&service))).await;
    slow.faults().set(Fault::Ok);
    for n in 500..1000 {
        answers.push(order("a", &format!("key-{n}")).send(&service).await);
    }
    let ran: Vec<_> = answers.iter().filter(|a| a.status == 201).collect();
    assert_eq!(ran.len(), 20);
    for refused in answers.iter().filter(|a| a.status != 201) {
        refused.assert_refused(429, "quota-exceeded");
        assert_eq!(limits(refused), (429, Some("records")));
        assert!((1..=60).contains(&refused.retry_after().unwrap()));
    }
    assert_eq!(layer.counts().over_quota, 980);
    assert_eq!(store.stats().records, 21, "nothing was left behind");

    // Neighbours run and are replayed, as if nothing were.
    order("b", "before")
        .send(&service)
        .await
        .assert_replay_of(&before);
    for n in 0..19 {
        let ask = order("b", &format!("b-{n}"));
        let first = ask.send(&service).await;
        ask.send(&service)
            .await
            .assert_replay_of(first.assert_fresh(201));
    }
    assert_eq!(app.effects(), 1 + 20 + 19);
    // And so are the flooder's own keys that are there.
    let done = (0..500).find(|&n| answers[n].status == 201).unwrap();
    flood[done]
        .send(&service)
        .await
        .assert_replay_of(&answers[done]);
    flood[done]
        .clone()
        .body("other")
        .send(&service)
        .await
        .assert_refused(422, "key-reused");
}

#[tokio::test(start_paused = true)]
async fn the_count_comes_down_when_records_end() {
    let app = App::new();
    let layer = app.builder().retention(Duration::from_secs(160));
    let layer = layer.max_records_per_tenant(2).build().unwrap();
    let service = app.under(&layer);
    let records = || layer.tenant_usage(Some("a")).records;
    for key in ["1", "2"] {
        order("a", key).send(&service).await.assert_fresh(201);
    }
    order("a", "3")
        .send(&service)
        .await
        .assert_refused(429, "quota-exceeded");
    tokio::time::sleep(Duration::from_secs(159)).await;
    order("a", "3")
        .send(&service)
        .await
        .assert_refused(429, "quota-exceeded");
    // A sixteenth of the keep later at most.
    tokio::time::sleep(Duration::from_secs(11)).await;
    assert_eq!(records(), 0);
    order("a", "3").send(&service).await.assert_fresh(201);

    // Given back: counted a moment longer, as long as the store remembers the key.
    order("a", "4")
        .flags("status=503")
        .send(&service)
        .await
        .assert_fresh(503);
    assert_eq!(records(), 2);
    order("a", "5")
        .send(&service)
        .await
        .assert_refused(429, "quota-exceeded");
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(records(), 1);
    for (key, flags) in [("6", "panic"), ("7", "error"), ("8", "reject=400")] {
        let request = order("a", key).flags(flags).request();
        let _ = tower::ServiceExt::oneshot(service.clone(), request).await;
        assert_eq!(records(), 2, "{flags}");
        tokio::time::sleep(Duration::from_secs(20)).await;
        assert_eq!(records(), 1, "{flags}");
    }
    // Unknown: counted as long as it is unknown.
    let unknown = order("a", "9").flags("commit&panic");
    unknown
        .send(&service)
        .await
        .assert_refused(500, "handler-panicked");
    tokio::time::sleep(Duration::from_secs(23 * 3600)).await;
    assert_eq!(records(), 1);
    tokio::time::sleep(Duration::from_secs(3 * 3600)).await;
    assert_eq!(records(), 0);
}

#[tokio::test(start_paused = true)]
async fn repeats_of_one_key_count_once() {
    let app = App::new();
    for on_busy in [OnBusy::Reject, OnBusy::Wait(ms(60_000))] {
        let layer = app.builder().on_busy(on_busy).max_records_per_tenant(1);
        let layer = layer.build().unwrap();
        let service = app.under(&layer);
        let ask = order("a", if on_busy == OnBusy::Reject { "r" } else { "w" });
        let ask = ask.flags("delay=100");
        let all = join_all((0..200).map(|_| ask.send(&service))).await;
        assert!(all.iter().all(|a| a.status != 429), "{all:?}");
        assert_eq!(layer.counts().runs, 1);
        assert_eq!(layer.tenant_usage(Some("a")).records, 1);
        ask.send(&service)
            .await
            .assert_replay_of(all.iter().find(|a| a.status == 201).unwrap());
    }
}

#[tokio::test(start_paused = true)]
async fn a_response_beyond_the_bytes_is_not_kept_and_its_work_is_never_done_twice() {
    let app = App::new();
    let layer = app.builder().max_bytes_per_tenant(4096).build().unwrap();
    let service = app.under(&layer);
    let ask = |key: &str, size: &str| order("a", key).flags(size);
    let small = ask("1", "size=1000").send(&service).await;
    ask("1", "")
        .send(&service)
        .await
        .assert_replay_of(small.assert_fresh(201));
    ask("2", "size=3000").send(&service).await.assert_fresh(201);
    ask("2", "")
        .send(&service)
        .await
        .assert_refused(409, "response-not-kept");
    ask("3", "size=1500").send(&service).await.assert_fresh(201);
    ask("3", "").send(&service).await;
    let usage = layer.tenant_usage(Some("a"));
    assert_eq!(usage.records, 3);
    assert!((2500 + 3 * 256..=4096).contains(&usage.bytes), "{usage:?}");
    // At the limit nothing new runs.
    for n in 4..9 {
        ask(&n.to_string(), "size=0").send(&service).await;
    }
    let refused = ask("10", "").send(&service).await;
    refused.assert_refused(429, "quota-exceeded");
    assert_eq!(limits(&refused), (429, Some("bytes")));
    assert!(layer.tenant_usage(Some("a")).bytes <= 4096);
    order("b", "1")
        .flags("size=3000")
        .send(&service)
        .await
        .assert_fresh(201);
    let effects = app.effects();
    for key in ["1", "2", "3"] {
        ask(key, "").send(&service).await;
    }
    assert_eq!(app.effects(), effects);
}

#[tokio::test(start_paused = true)]
async fn a_flood_over_its_quota_writes_nothing() {
    let app = App::new();
    let layer = app.builder().max_records_per_tenant(1).build().unwrap();
    let service = app.under(&layer);
    order("a", "1").send(&service).await.assert_fresh(201);
    let calls = app.store.faults();
    let claims = calls.calls().of(Operation::Claim);
    for n in 2..50 {
        let ask = order("a", &n.to_string());
        ask.send(&service)
            .await
            .assert_refused(429, "quota-exceeded");
    }
    assert_eq!(calls.calls().of(Operation::Claim), claims);
    assert_eq!((app.records(), app.effects()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_takeover_and_a_superseded_run_are_counted_once() {
    let app = App::new();
    let layer = app
        .builder()
        .lease(ms(200))
        .renewal(tower_claim::Renewal::Off);
    let layer = layer.max_records_per_tenant(1).build().unwrap();
    let service = app.under(&layer);
    let ask = order("a", "k").flags("delay=1000");
    let late = tokio::spawn({
        let (ask, service) = (ask.clone(), service.clone());
        async move { ask.send(&service).await }
    });
    tokio::time::sleep(ms(300)).await;
    let second = ask.send(&service).await;
    second.assert_fresh(201);
    late.await.unwrap();
    assert_eq!(app.effects(), 2);
    assert_eq!(layer.tenant_usage(Some("a")).records, 1);
}

#[tokio::test(start_paused = true)]
async fn a_quota_without_tenants_is_refused_when_it_is_built() {
    let of = |builder: tower_idempotency::IdempotencyBuilder| builder.build().map(drop);
    let plain = || IdempotencyLayer::builder(MemoryStore::new()).run_on(RunOn::Task);
    assert!(of(plain().max_records_per_tenant(5)).is_err());
    assert!(of(plain().max_records_per_tenant(5).one_tenant()).is_ok());
    let app = App::new();
    assert!(of(app.builder().max_records_per_tenant(0)).is_err());
    assert!(of(app.builder().max_bytes_per_tenant(255)).is_err());
    assert!(of(app.builder().max_bytes_per_tenant(256)).is_ok());
}

/// A transaction of the handler's, and how its end goes.
struct Rows {
    store: Arc<MemoryStore>,
    ends: Ends,
}

#[derive(Clone, Copy)]
enum Ends {
    Committed,
    /// Another run had taken over.
    Lost,
    /// The answer is missing, and the store is down.
    InDoubt,
}

impl OpenTransaction for Rows {
    fn commit_with(
        self: Box<Self>,
        finish: FinishRequest,
    ) -> BoxFuture<'static, Result<(), CommitError>> {
        Box::pin(async move {
            match self.ends {
                Ends::Committed => {
                    let finished = self.store.finish(finish).await;
                    assert_eq!(finished.unwrap(), Finish::Finished);
                    Ok(())
                }
                Ends::Lost => Err(CommitError::Lost),
                Ends::InDoubt => Err(CommitError::InDoubt("no answer".into())),
            }
        })
    }

    fn commit(self: Box<Self>) -> BoxFuture<'static, Result<(), CommitError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn roll_back(self: Box<Self>) -> BoxFuture<'static, ()> {
        Box::pin(std::future::ready(()))
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_that_commits_in_a_transaction_is_counted_like_any_other() {
    let (keep, unknown_keep) = (Duration::from_secs(3600), Duration::from_secs(7200));
    for (ends, at_once, after_linger, after_keep) in [
        (Ends::Committed, 1, 1, 0),
        (Ends::Lost, 0, 0, 0),
        (Ends::InDoubt, 1, 1, 1),
    ] {
        let app = App::new();
        let layer = app.builder().retention(keep).unfinished_keep(unknown_keep);
        let layer = layer.max_records_per_tenant(9).build().unwrap();
        let store = app.store.clone();
        let handler = tower::service_fn(move |request: Request<RequestBody<Body>>| {
            let slot = request.extensions().get::<TransactionSlot>().unwrap();
            let rows = Rows {
                store: Arc::clone(store.inner()),
                ends,
            };
            drop(slot.lend(rows).unwrap());
            if let Ends::InDoubt = ends {
                store.faults().set_for(Operation::Release, Fault::Down);
            }
            std::future::ready(Ok::<_, std::io::Error>(Response::new(body_of("ordered"))))
        });
        let service = layer.layer(BoxCloneSyncService::new(handler));
        order("a", "k").send(&service).await;
        let records = || layer.tenant_usage(Some("a")).records;
        assert_eq!(records(), at_once);
        tokio::time::sleep(Duration::from_secs(600)).await;
        assert_eq!(records(), after_linger);
        tokio::time::sleep(keep * 17 / 16).await;
        assert_eq!(records(), after_keep);
        tokio::time::sleep(unknown_keep).await;
        assert_eq!(records(), 0);
    }
}
