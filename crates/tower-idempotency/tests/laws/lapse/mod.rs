//! Runs that lapse: a takeover, a late owner, an unknown outcome.

mod late;

use std::time::Duration;

use tower_claim::store::{Capabilities, Event, Promise, Resolution};
use tower_claim::testing::{Fault, Operation};
use tower_claim::{ClaimAdmin, LapsePolicy, MemoryStore, Renewal, RunOn};
use tower_idempotency::{IdempotencyBuilder, IdempotencyLayer, IdempotentRun, RequestBody};

use crate::support::*;

/// Without renewal a run lapses while its handler goes on.
fn lapsing(app: &App) -> IdempotencyBuilder {
    app.builder().lease(ms(200)).renewal(Renewal::Off)
}

fn spawn(service: &Service, ask: Ask) -> tokio::task::JoinHandle<Answer> {
    let service = service.clone();
    tokio::spawn(async move { ask.send(&service).await })
}

#[tokio::test(start_paused = true)]
async fn a_lapsed_run_that_nobody_took_over_still_counts() {
    let app = App::new();
    let service = app.under(&lapsing(&app).build().unwrap());
    let ask = post("/orders").key("k");
    let first = ask.clone().flags("delay=600").send(&service).await;
    first.assert_fresh(201);
    ask.send(&service).await.assert_replay_of(&first);
    assert_eq!(app.effects(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_renewed_run_is_not_taken_over() {
    let app = App::new();
    let service = app.under(&app.builder().lease(ms(200)).build().unwrap());
    let ask = post("/orders").key("k");
    let first = spawn(&service, ask.clone().flags("delay=5000"));
    for _ in 0..9 {
        tokio::time::sleep(ms(500)).await;
        ask.send(&service).await.assert_refused(409, "in-progress");
    }
    first.await.unwrap().assert_fresh(201);
    assert_eq!(app.effects(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_takeover_needs_the_same_payload() {
    let app = App::new();
    let service = app.under(&lapsing(&app).build().unwrap());
    let ask = post("/orders").key("k");
    let _a = spawn(&service, ask.clone().flags("delay=60000"));
    tokio::time::sleep(ms(300)).await;
    ask.body("other")
        .send(&service)
        .await
        .assert_refused(422, "key-reused");
}

#[tokio::test(start_paused = true)]
async fn under_hold_a_lapse_is_no_reason_to_run_again() {
    let app = App::new();
    let service = app.under(&lapsing(&app).on_lapse(LapsePolicy::Hold).build().unwrap());
    let ask = post("/orders").key("k");
    let first = spawn(&service, ask.clone().flags("delay=1000"));
    tokio::time::sleep(ms(300)).await;
    ask.send(&service)
        .await
        .assert_refused(409, "outcome-unknown");
    // The owner was only slow: its outcome is accepted.
    let first = first.await.unwrap();
    first.assert_fresh(201);
    ask.send(&service).await.assert_replay_of(&first);
    assert_eq!(app.effects(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_may_forget_is_trusted_with_an_unknown_outcome_only_when_told_to() {
    let app = App::new();
    for event in [Event::Failover, Event::Restart] {
        let engine = Capabilities::in_process("forgetful");
        let forgetful = engine.with_weakened(event, &[Promise::OneResult]);
        let builder = || {
            IdempotencyLayer::builder(app.store.clone().promising(forgetful))
                .clock(app.clock.clone())
                .run_on(RunOn::Task)
        };
        let refused = builder().on_lapse(LapsePolicy::Hold).build().unwrap_err();
        assert_eq!(refused.setting(), "on_lapse");
        builder().build().unwrap();

        let trusting = builder()
            .on_lapse(LapsePolicy::Hold)
            .trust_forgetful_store();
        let service = app.under(&trusting.build().unwrap());
        let ask = post("/orders").key(&format!("{event:?}"));
        let first = ask.clone().flags("commit&status=500").send(&service).await;
        first.assert_fresh(500);
        ask.send(&service).await.assert_replay_of(&first);
    }
}

#[tokio::test(start_paused = true)]
async fn an_unknown_outcome_runs_again_when_an_operator_says_that_nothing_happened() {
    let app = App::new();
    let service = app.service();
    let ask = post("/orders").key("k");
    ask.clone()
        .flags("commit&panic")
        .send(&service)
        .await
        .assert_refused(500, "handler-panicked");
    ask.send(&service)
        .await
        .assert_refused(409, "outcome-unknown");
    let store = app.store.inner();
    let record = store.scan(None, 10).await.unwrap().records.remove(0);
    store
        .resolve(record.key, record.token, Resolution::Absent)
        .await
        .unwrap();
    ask.send(&service).await.assert_fresh(201);
    assert_eq!(app.effects(), 2);
}

#[tokio::test(start_paused = true)]
async fn the_handler_sees_its_key_its_attempt_and_whom_it_took_over() {
    let app = App::new();
    let layer = lapsing(&app).build().unwrap();
    let (seen, mut runs) = tokio::sync::mpsc::unbounded_channel();
    let handler = tower::service_fn(move |req: http::Request<_>| {
        let _: &tower_idempotency::RequestBody<Body> = req.body();
        let run: IdempotentRun = req.extensions().get().cloned().unwrap();
        seen.send(run.clone()).unwrap();
        async move {
            let loss = run.lost().await;
            assert_eq!(run.check(), Err(loss), "the handler runs on, and knows");
            tokio::time::sleep(ms(500)).await;
            Ok::<_, std::io::Error>(http::Response::new(body_of("done")))
        }
    });
    let service = tower::Layer::layer(&layer, tower::util::BoxCloneSyncService::new(handler));
    let ask = post("/orders").key("k");
    let a = spawn(&service, ask.clone());
    tokio::time::sleep(ms(300)).await;
    let b = spawn(&service, ask);
    let first = soon(runs.recv()).await.unwrap();
    let second = soon(runs.recv()).await.unwrap();
    assert_eq!(first.key().as_client_text(), Some("k"));
    assert_eq!((first.attempt(), second.attempt()), (1, 2));
    assert!(first.took_over().is_none());
    assert_eq!(second.took_over().unwrap().token, first.token());
    assert!(second.token() > first.token());
    assert!(second.remaining() > Duration::ZERO && second.remaining() <= ms(200));
    a.await.unwrap();
    b.await.unwrap().assert_fresh(200);
    // The run is over: what was left of its handle can do nothing more.
    assert!(second.check().is_err());
    assert!(second.point_of_no_return().await.is_err());
    assert_eq!(second.remaining(), Duration::ZERO);

    // What the crashed run asked of the next service, the next run asks again by the same key.
    let key = first.downstream_key("charge");
    assert_eq!(key, second.downstream_key("charge"));
    assert_ne!(key, second.downstream_key("letter"));
    assert!(key.len() == 32 && key.bytes().all(|b| b.is_ascii_hexdigit()));
    let elsewhere = post("/orders").key("k").header("x-tenant", "t2");
    for other in [post("/orders").key("k2"), elsewhere] {
        drop(spawn(&service, other));
        let run = soon(runs.recv()).await.unwrap();
        assert_ne!(run.downstream_key("charge"), key);
    }
}

/// What streams on, or never comes, must not be run again when the claim can be held no longer.
#[tokio::test(start_paused = true)]
async fn an_answer_that_outlasts_its_claim_is_remembered_as_done() {
    let app = App::new();
    let layer = app.builder().lease(ms(200)).max_hold(ms(1000));
    let layer = layer.build().unwrap();
    let service = app.under(&layer);
    for (key, flags) in [
        ("unknown", "size=50&chunks=50&chunk_delay=100&nolen"),
        ("known", "size=50&chunks=50&chunk_delay=100"),
        ("never", "size=2&chunks=2&chunk_delay=100000000"),
        ("endless", "size=2&chunks=2&chunk_delay=100000000&nolen"),
    ] {
        let effects = app.effects();
        let ask = post("/orders").key(key);
        let first = spawn(&service, ask.clone().flags(flags));
        tokio::time::sleep(ms(900)).await;
        ask.send(&service).await.assert_refused(409, "in-progress");
        for _ in 0..10 {
            tokio::time::sleep(ms(100)).await;
            let again = ask.send(&service).await;
            assert!(
                !again.is_replay() && again.status == 409,
                "{key}: {again:?}"
            );
        }
        let again = ask.send(&service).await;
        again.assert_refused(409, "response-not-kept");
        assert_eq!(app.effects(), effects + 1, "{key}");
        assert_eq!(layer.in_flight(), 0, "{key}: its place is free");
        if key.ends_with("known") {
            assert_eq!(first.await.unwrap().text().len(), 50, "{key}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn under_progress_a_run_is_renewed_while_it_moves() {
    let app = App::new();
    let stall_after = ms(300);
    let layer = app.builder().lease(ms(200));
    let layer = layer.renewal(Renewal::Progress { stall_after }).build();
    let layer = layer.unwrap();
    let handler = tower::service_fn(|req: http::Request<tower_idempotency::RequestBody<Body>>| {
        let run: IdempotentRun = req.extensions().get().cloned().unwrap();
        let steps = if req.headers().contains_key("x-still") {
            1
        } else {
            10
        };
        async move {
            for step in 0..10 {
                if step < steps {
                    run.progress(step);
                }
                tokio::time::sleep(ms(100)).await;
            }
            Ok::<_, std::io::Error>(http::Response::new(body_of(format!("{:?}", run.check()))))
        }
    });
    let moving = tower::Layer::layer(&layer, tower::util::BoxCloneSyncService::new(handler));
    let moved = post("/orders").key("moves").send(&moving).await;
    assert_eq!(moved.text(), "Ok(())");
    let still = post("/orders").key("still").header("x-still", "1");
    assert_eq!(still.send(&moving).await.text(), "Err(Stalled)");

    // Frames of the response are progress, too: it is kept, though it takes long.
    let service = app.under(&layer);
    for length in ["", "&nolen"] {
        let ask = post("/orders").key(&format!("frames{}", length.len()));
        let ask = ask.flags(&format!("size=10&chunks=10&chunk_delay=100{length}"));
        ask.send(&service).await.assert_fresh(201);
        assert!(ask.send(&service).await.is_replay(), "{length}");
    }
}

/// A process that goes down in the midst of a run (a drain that timed out, then the end of its runtime) leaves what a
/// crash would: its keeper, on a thread of its own, must not give the key back.
#[test]
fn a_run_whose_runtime_shuts_down_lapses_as_after_a_crash() {
    for on_lapse in [LapsePolicy::Hold, LapsePolicy::TakeOver] {
        let store = MemoryStore::new();
        let layer = || {
            let layer = IdempotencyLayer::builder(store.clone()).lease(ms(1000));
            layer.on_lapse(on_lapse).build().unwrap()
        };
        let runtime = || {
            let runtime = tokio::runtime::Builder::new_multi_thread();
            { runtime }.worker_threads(1).enable_all().build().unwrap()
        };
        let ask = post("/orders").key("k");

        let first = runtime();
        let (begins, mut begun) = tokio::sync::mpsc::unbounded_channel();
        let endless = tower::service_fn(move |request: http::Request<RequestBody<Body>>| {
            let run = request.extensions().get::<IdempotentRun>().cloned();
            begins.send(run.unwrap()).unwrap();
            std::future::pending::<Result<http::Response<Body>, std::io::Error>>()
        });
        let going_down = layer();
        let service = tower::util::BoxCloneSyncService::new(endless);
        let service = tower::Layer::layer(&going_down, service);
        let (drained, _left_behind) = first.block_on(async {
            let _running = spawn(&service, ask.clone());
            let left_behind = begun.recv().await.unwrap();
            (going_down.drain(ms(1)).await, left_behind)
        });
        assert!(!drained);
        drop((first, service, going_down));

        let next = tower::service_fn(|request: http::Request<RequestBody<Body>>| async move {
            let run = request.extensions().get::<IdempotentRun>().unwrap();
            let attempt = run.attempt().to_string();
            Ok::<_, std::io::Error>(http::Response::new(body_of(attempt)))
        });
        let service = tower::util::BoxCloneSyncService::new(next);
        let service = tower::Layer::layer(&layer(), service);
        let told = runtime().block_on(async {
            let deadline = tokio::time::Instant::now() + ms(30_000);
            loop {
                let told = ask.send(&service).await;
                if told.status != 409 || told.code() != "in-progress" {
                    return told;
                }
                assert!(tokio::time::Instant::now() < deadline, "busy for ever");
                tokio::time::sleep(ms(20)).await;
            }
        });
        match on_lapse {
            LapsePolicy::Hold => drop(told.assert_refused(409, "outcome-unknown")),
            _ => assert_eq!(told.assert_fresh(200).text(), "2", "it took over"),
        }
    }
}

/// Given back, the key would be free: who comes next would not know of the run that crashed, and another payload would
/// be let in beside its effects.
#[tokio::test(start_paused = true)]
async fn who_takes_over_and_gives_up_leaves_what_it_found() {
    for (gives_up, status) in [
        ("status=503", 503),
        ("reject=422", 422),
        ("panic", 500),
        ("no place to run", 503),
    ] {
        let app = App::new();
        let crashed = app.under(&lapsing(&app).build().unwrap());
        let ask = post("/orders").key("k");
        let _crashed = spawn(&crashed, ask.clone().flags("delay=100000000"));
        tokio::time::sleep(ms(300)).await;

        let layer = app.builder().lease(ms(200)).max_in_flight(1).tell_status();
        let service = app.under(&layer.build().unwrap());
        let _other = (gives_up == "no place to run").then(|| {
            let other = post("/orders").key("other").flags("delay=50");
            spawn(&service, other)
        });
        tokio::time::sleep(ms(1)).await;
        let gave_up = ask.clone().flags(gives_up).send(&service).await;
        assert_eq!(gave_up.status, status, "{gives_up}");

        ask.send(&service).await.assert_refused(409, "in-progress");
        tokio::time::sleep(ms(300)).await;
        let other = ask.clone().body("other").send(&service).await;
        other.assert_refused(422, "key-reused");
        let next = ask.send(&service).await;
        next.assert_fresh(201);
        assert_eq!(
            next.headers["idempotency-status"], "taken-over",
            "{gives_up}"
        );
        ask.send(&service).await.assert_replay_of(&next);
    }
}

/// Given back, the key would be free: for another payload even, and for a run that is told of nobody.
#[tokio::test(start_paused = true)]
async fn a_caller_that_hangs_up_while_it_takes_over_leaves_what_a_crash_leaves() {
    use futures_util::FutureExt;
    let mut took_over = 0;
    for polls in 1..40 {
        let app = App::new();
        let service = app.under(&lapsing(&app).tell_status().build().unwrap());
        let ask = post("/orders").key("k");
        spawn(&service, ask.clone().flags("delay=100000000"));
        tokio::time::sleep(ms(300)).await;
        let faults = app.store.faults();
        faults.set_for(Operation::Claim, Fault::LoseReply(2));
        {
            let call = tower::ServiceExt::oneshot(service.clone(), ask.request());
            let mut call = Box::pin(call);
            for _ in 0..polls {
                if (&mut call).now_or_never().is_some() {
                    break;
                }
                tokio::time::sleep(ms(1)).await;
            }
        }
        faults.set(Fault::Ok);
        if app.effects() > 1 {
            break; // it was heard, and ran
        }
        for _ in 0..3 {
            let other = ask.clone().body("another").send(&service).await;
            other.assert_refused(422, "key-reused");
            tokio::time::sleep(ms(500)).await;
        }
        let next = ask.send(&service).await;
        next.assert_fresh(201);
        assert_eq!(next.headers["idempotency-status"], "taken-over", "{polls}");
        took_over += 1;
    }
    assert!(took_over > 1, "{took_over}");
}
