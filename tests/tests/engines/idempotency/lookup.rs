//! What became of a key, asked in another process than the one that runs it.

use http::Request;
use http_body_util::Full;
use tokio::task::JoinHandle;
use tower_claim::testing::Operation;
use tower_idempotency::KeyLookup;

use super::on_each_engine;
use super::scene::{Answer, Engine, Process, Shop, all, answer, ask, in_time, until};

const CROWD: usize = 100;

on_each_engine!(
    another_process_tells_what_became_of_a_key,
    who_waits_in_another_process_is_told_the_end,
    who_waits_is_told_of_an_end_without_an_outcome,
    who_waits_is_told_of_an_unknown_outcome,
    the_key_of_another_tenant_was_never_seen_in_any_process,
);

struct Desk<E: Engine> {
    process: Process<E>,
    lookup: KeyLookup,
}

impl<E: Engine> Desk<E> {
    async fn of(place: &E, shop: &Shop) -> Self {
        let process = Process::of(place, shop).await;
        Self {
            lookup: KeyLookup::new(&process.layer),
            process,
        }
    }

    fn start(&self, key: &str, prefer: Option<&str>) -> JoinHandle<Answer> {
        let request = Request::get("/idempotency-key").header("idempotency-key", key);
        let request = match prefer {
            Some(prefer) => request.header("prefer", prefer),
            None => request,
        };
        let request = request.body(Full::default()).expect("a good request");
        tokio::spawn(answer(self.lookup.clone(), request))
    }

    async fn told(&self, key: &str) -> (u16, serde_json::Value) {
        told(
            in_time("an answer", self.start(key, None))
                .await
                .expect("no panic"),
        )
    }
}

fn told(answer: Answer) -> (u16, serde_json::Value) {
    (answer.status, answer.json())
}

async fn another_process_tells_what_became_of_a_key<E: Engine>() {
    let (place, shop) = (E::place().await, Shop::new());
    let one = Process::of(&place, &shop).await;
    let other = Desk::of(&place, &shop).await;

    let (status, never) = other.told("k").await;
    assert_eq!((status, &never["state"]), (404, &"never-seen".into()));

    let first = one.start(&ask("k").does("wait"));
    shop.until_effects(1).await;
    let (status, running) = other.told("k").await;
    assert_eq!((status, &running["state"]), (202, &"running".into()));
    assert_eq!(
        (&running["attempt"], &running["lapsed"]),
        (&1.into(), &false.into())
    );
    let left = running["expires_in_ms"].as_u64();
    assert!(
        left.is_some_and(|left| left > 0 && left <= 30_000),
        "{running}"
    );

    shop.let_go();
    let first = first.await.expect("no panic");
    let (status, done) = other.told("k").await;
    assert_eq!((status, &done["state"]), (200, &"done".into()));
    let response = &done["response"];
    assert_eq!(response["status"], first.status);
    assert_eq!(
        response["body"],
        std::str::from_utf8(&first.body).expect("text")
    );

    let lost = one.ask(&ask("lost").does("commit&panic")).await;
    lost.assert_refused(500, "handler-panicked");
    let (status, unknown) = other.told("lost").await;
    assert_eq!((status, &unknown["state"]), (409, &"unknown".into()));

    let failed = one.ask(&ask("failed").does("status=503")).await;
    failed.assert_fresh(503);
    let (status, ended) = other.told("failed").await;
    assert_eq!((status, &ended["state"]), (404, &"never-seen".into()));
    assert_eq!(shop.effects(), 3, "asking runs nothing");
    assert_eq!(other.process.calls(Operation::Claim), 0);
}

/// A crowd that waits in the other process for the run of the one, until all of it waits.
async fn crowd<E: Engine>(
    does: &str,
) -> (
    Shop,
    Process<E>,
    Desk<E>,
    JoinHandle<Answer>,
    Vec<JoinHandle<Answer>>,
) {
    let (place, shop) = (E::place().await, Shop::new());
    let one = Process::of(&place, &shop).await;
    let other = Desk::of(&place, &shop).await;
    let first = one.start(&ask("k").does(does));
    shop.until_effects(1).await;
    let waiting = (0..CROWD)
        .map(|_| other.start("k", Some("wait=25")))
        .collect();
    until("all wait", async || other.process.layer.waiting() == CROWD).await;
    (shop, one, other, first, waiting)
}

async fn who_waits_in_another_process_is_told_the_end<E: Engine>() {
    let (shop, _one, other, first, waiting) = crowd::<E>("wait").await;
    shop.let_go();
    let first = first.await.expect("no panic");
    for answer in all(waiting).await {
        assert!(answer.headers.contains_key("preference-applied"));
        let (status, done) = told(answer);
        assert_eq!((status, &done["state"]), (200, &"done".into()));
        let body = &done["response"]["body"];
        assert_eq!(body, std::str::from_utf8(&first.body).expect("text"));
    }
    assert_eq!(other.process.calls(Operation::Watch), 1);
    assert_eq!(other.process.layer.waiting(), 0);
}

async fn who_waits_is_told_of_an_end_without_an_outcome<E: Engine>() {
    let (shop, _one, _other, first, waiting) = crowd::<E>("wait&status=503").await;
    shop.let_go();
    first.await.expect("no panic").assert_fresh(503);
    for answer in all(waiting).await {
        let (status, ended) = told(answer);
        assert_eq!((status, &ended["state"]), (404, &"never-seen".into()));
    }
    assert_eq!(shop.effects(), 1);
}

async fn who_waits_is_told_of_an_unknown_outcome<E: Engine>() {
    let (shop, _one, _other, first, waiting) = crowd::<E>("commit&wait&panic").await;
    shop.let_go();
    first
        .await
        .expect("no panic")
        .assert_refused(500, "handler-panicked");
    for answer in all(waiting).await {
        let (status, ended) = told(answer);
        assert_eq!((status, &ended["state"]), (409, &"unknown".into()));
    }
    assert_eq!(shop.effects(), 1);
}

async fn the_key_of_another_tenant_was_never_seen_in_any_process<E: Engine>() {
    let (place, shop) = (E::place().await, Shop::new());
    let one = Process::of(&place, &shop).await;
    let other = Desk::of(&place, &shop).await;
    one.ask(&ask("k").tenant("acme")).await.assert_fresh(201);
    let (status, never) = other.told("k").await;
    assert_eq!((status, &never["state"]), (404, &"never-seen".into()));
}
