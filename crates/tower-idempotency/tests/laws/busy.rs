//! Repeats that come while the first run is going.

use futures_util::future::join_all;
use tokio::time::Instant;
use tower_claim::testing::Operation;
use tower_idempotency::OnBusy;

use crate::support::*;

/// Starts a request in a task of its own and lets it get as far as it can.
async fn start(service: &Service, ask: Ask) -> tokio::task::JoinHandle<Answer> {
    let service = service.clone();
    let running = tokio::spawn(async move { ask.send(&service).await });
    tokio::time::sleep(ms(1)).await;
    running
}

#[tokio::test(start_paused = true)]
async fn a_repeat_of_a_running_request_is_told_when_to_come_again() {
    let app = App::new();
    let service = app.service();
    let ask = post("/orders").key("k");
    let first = start(&service, ask.clone().flags("delay=1000")).await;
    let refused = ask.send(&service).await;
    refused.assert_refused(409, "in-progress");
    assert_eq!(refused.retry_after(), Some(30), "what is left of the lease");
    let first = first.await.unwrap();
    ask.send(&service).await.assert_replay_of(&first);
    assert_eq!(app.effects(), 1);
}

/// The classroom that got its announcement many times: a lock that knew its owner by the thread let the
/// same thread in again. Here there is one thread only.
#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn the_same_thread_is_not_let_in_again() {
    let app = App::new();
    let once = app.builder().derived_key(|req| req.uri.path().to_owned());
    let service = app.under(&once.first_payload_wins().build().unwrap());
    let ask = post("/classrooms/7/announcement").flags("delay=100");
    let asked = join_all((0..50).map(|_| ask.send(&service))).await;
    let fresh: Vec<_> = asked.iter().filter(|a| a.status == 201).collect();
    assert_eq!(fresh.len(), 1);
    for answer in &asked {
        if answer.status != 201 {
            answer.assert_refused(409, "in-progress");
        }
    }
    for _ in 0..50 {
        ask.send(&service).await.assert_replay_of(fresh[0]);
    }
    assert_eq!(app.effects(), 1);
}

#[tokio::test(start_paused = true)]
async fn another_payload_is_told_so_also_while_the_first_runs() {
    let app = App::new();
    for on_busy in [OnBusy::Reject, OnBusy::Wait(ms(10_000))] {
        let service = app.under(&app.builder().on_busy(on_busy).build().unwrap());
        let key = format!("{on_busy:?}");
        let key: String = key.chars().filter(|c| c.is_alphanumeric()).collect();
        let ask = post("/orders").key(&key);
        let first = start(&service, ask.clone().body("{\"a\":1}").flags("delay=1000")).await;
        let at = Instant::now();
        ask.body("{\"a\":2}")
            .send(&service)
            .await
            .assert_refused(422, "key-reused");
        assert_eq!(at.elapsed(), ms(0));
        first.await.unwrap().assert_fresh(201);
    }
    assert_eq!(app.effects(), 2);
}

#[tokio::test(start_paused = true)]
async fn fifty_at_once_are_one_run_and_no_server_error() {
    let app = App::new();
    for (on_busy, replays) in [(OnBusy::Reject, false), (OnBusy::Wait(ms(5000)), true)] {
        let layer = app.builder().on_busy(on_busy).build().unwrap();
        let service = app.under(&layer);
        let ask = post("/orders")
            .key(if replays { "w" } else { "r" })
            .flags("delay=200");
        let all = join_all((0..50).map(|_| ask.send(&service))).await;
        let first: Vec<_> = all
            .iter()
            .filter(|a| a.status == 201 && !a.is_replay())
            .collect();
        assert_eq!(first.len(), 1);
        for answer in all.iter().filter(|a| a.is_replay() || a.status != 201) {
            if replays {
                answer.assert_replay_of(first[0]);
            } else {
                answer.assert_refused(409, "in-progress");
            }
        }
        assert_eq!((layer.counts().runs, layer.counts().store_failures), (1, 0));
    }
    assert_eq!(app.effects(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_waiting_repeat_is_answered_the_moment_the_first_is_done() {
    let app = App::new();
    let service = app.under(
        &app.builder()
            .on_busy(OnBusy::Wait(ms(2000)))
            .build()
            .unwrap(),
    );
    let ask = post("/orders").key("k");
    let at = Instant::now();
    let first = start(&service, ask.clone().flags("delay=500")).await;
    tokio::time::sleep(ms(49)).await;
    let replay = ask.send(&service).await;
    assert_eq!(at.elapsed(), ms(500));
    replay.assert_replay_of(&first.await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_waiting_repeat_is_told_to_come_again_when_its_time_is_up() {
    let app = App::new();
    let service = app.under(
        &app.builder()
            .on_busy(OnBusy::Wait(ms(2000)))
            .build()
            .unwrap(),
    );
    let ask = post("/orders").key("k");
    let first = start(&service, ask.clone().flags("delay=5000")).await;
    let at = Instant::now();
    let refused = ask.send(&service).await;
    refused.assert_refused(409, "in-progress");
    assert!(refused.retry_after().is_some());
    assert_eq!(at.elapsed(), ms(2000));
    first.await.unwrap().assert_fresh(201);
}

#[tokio::test(start_paused = true)]
async fn a_waiting_repeat_runs_when_the_first_ends_without_an_outcome() {
    let app = App::new();
    let service = app.under(
        &app.builder()
            .on_busy(OnBusy::Wait(ms(2000)))
            .build()
            .unwrap(),
    );
    let ask = post("/orders").key("k");
    let first = start(&service, ask.clone().flags("delay=500&status=503")).await;
    let waiting = join_all((0..5).map(|_| ask.send(&service))).await;
    first.await.unwrap().assert_fresh(503);
    let fresh = waiting.iter().filter(|a| !a.is_replay()).count();
    assert_eq!((fresh, app.effects()), (1, 2));
    assert!(waiting.iter().all(|a| a.status == 201));
}

#[tokio::test(start_paused = true)]
async fn followers_of_one_run_share_one_watch() {
    let app = App::new();
    let service = app.under(
        &app.builder()
            .on_busy(OnBusy::Wait(ms(2000)))
            .build()
            .unwrap(),
    );
    let ask = post("/orders").key("k").flags("delay=500");
    let all = join_all((0..100).map(|_| ask.send(&service))).await;
    assert_eq!(all.iter().filter(|a| a.is_replay()).count(), 99);
    assert_eq!(app.store.faults().calls().of(Operation::Watch), 1);
}

#[tokio::test(start_paused = true)]
async fn no_more_wait_than_may() {
    let app = App::new();
    let wait = app.builder().on_busy(OnBusy::Wait(ms(2000)));
    let service = app.under(&wait.max_waiters(3).build().unwrap());
    let ask = post("/orders").key("k").flags("delay=500");
    for _ in 0..2 {
        let all = join_all((0..10).map(|_| ask.send(&service))).await;
        let refused = all.iter().filter(|a| a.status == 409).count();
        assert!(
            refused == 6 || all.iter().all(Answer::is_replay),
            "{refused}"
        );
    }
    assert_eq!(app.effects(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_follower_that_leaves_frees_its_place() {
    let app = App::new();
    let wait = app.builder().on_busy(OnBusy::Wait(ms(60_000)));
    let service = app.under(&wait.max_waiters(1).build().unwrap());
    let ask = post("/orders").key("k");
    let first = start(&service, ask.clone().flags("delay=5000")).await;
    for _ in 0..3 {
        let gone = tokio::time::timeout(ms(10), ask.send(&service)).await;
        assert!(gone.is_err(), "it waited");
    }
    ask.send(&service)
        .await
        .assert_replay_of(&first.await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_waiting_repeat_is_never_replayed_anothers_payload() {
    let app = App::new();
    let service = app.under(
        &app.builder()
            .on_busy(OnBusy::Wait(ms(60_000)))
            .build()
            .unwrap(),
    );
    let ask = post("/orders").key("k");
    let first = start(&service, ask.clone().flags("delay=100&status=503")).await;
    // While it waits, the key is given back and taken by another payload, which is done at once.
    let (waiting, other) = tokio::join!(ask.send(&service), async {
        first.await.unwrap().assert_fresh(503);
        ask.clone().body("other").send(&service).await
    });
    let answers = [&waiting, &other];
    assert!(answers.iter().any(|a| a.status == 201), "{answers:?}");
    assert!(answers.iter().any(|a| a.status == 422), "{answers:?}");
    assert!(answers.iter().all(|a| !a.is_replay()), "{answers:?}");
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_at_once_are_one_run_and_all_are_answered_in_time() {
    const CROWD: usize = 10_000;
    for (on_busy, in_all, per_key, waits) in [
        (OnBusy::Reject, 10_000, 1_000, 0),
        (OnBusy::Wait(ms(5000)), 10_000, 1_000, 1_000),
        (OnBusy::Wait(ms(5000)), 300, 1_000, 300),
        (OnBusy::Wait(ms(5000)), 10_000, 10_000, 9_999),
    ] {
        let app = App::new();
        let wait = app.builder().on_busy(on_busy).max_waiters(in_all);
        let layer = wait.max_waiters_per_key(per_key).build().unwrap();
        let service = app.under(&layer);
        let ask = post("/orders").key("k").flags("delay=2000");
        let at = Instant::now();
        let crowd = join_all((0..CROWD).map(|_| ask.send(&service)));
        let seen = async {
            tokio::time::sleep(ms(1000)).await;
            let stats = app.store.inner().stats();
            (
                layer.waiting(),
                layer.in_flight(),
                stats.records,
                stats.watched,
            )
        };
        let (all, seen) = tokio::join!(crowd, seen);
        assert_eq!(seen, (waits, 1, 1, waits.min(1)));
        assert_eq!(at.elapsed(), ms(2000));
        let of = |status: u16| all.iter().filter(|a| a.status == status).count();
        assert_eq!((of(201), of(409)), (1 + waits, CROWD - 1 - waits));
        assert_eq!(all.iter().filter(|a| a.is_replay()).count(), waits);
        let refused = all.iter().filter(|a| a.status == 409);
        assert!(refused.clone().all(|a| a.retry_after() == Some(30)));
        assert_eq!((app.effects(), layer.counts().runs), (1, 1));
        let calls = app.store.faults().calls();
        assert_eq!(calls.of(Operation::Watch), waits.min(1) as u64);
        assert_eq!((layer.waiting(), layer.in_flight()), (0, 0));
        assert_eq!(app.store.inner().stats().watched, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn one_hot_key_leaves_places_for_the_others() {
    let app = App::new();
    let wait = app.builder().on_busy(OnBusy::Wait(ms(5000)));
    let layer = wait.max_waiters(6).max_waiters_per_key(4).build().unwrap();
    let service = app.under(&layer);
    let hot = post("/orders").key("hot").flags("delay=500");
    let calm = post("/orders").key("calm").flags("delay=500");
    let (hot, calm) = tokio::join!(
        join_all((0..20).map(|_| hot.send(&service))),
        join_all((0..3).map(|_| calm.send(&service))),
    );
    assert_eq!(hot.iter().filter(|a| a.is_replay()).count(), 4);
    assert_eq!(calm.iter().filter(|a| a.is_replay()).count(), 2);
    assert_eq!(app.effects(), 2);
}

#[tokio::test(start_paused = true)]
async fn the_bodies_of_those_that_wait_are_bounded() {
    let app = App::new();
    let wait = app.builder().on_busy(OnBusy::Wait(ms(5000)));
    let service = app.under(&wait.max_waiting_bytes(35).build().unwrap());
    let ask = post("/orders")
        .key("k")
        .body("0123456789")
        .flags("delay=500");
    let all = join_all((0..20).map(|_| ask.send(&service))).await;
    assert_eq!(all.iter().filter(|a| a.is_replay()).count(), 3);
    assert_eq!(all.iter().filter(|a| a.status == 409).count(), 16);
    assert_eq!(app.effects(), 1);
}

#[tokio::test(start_paused = true)]
async fn when_to_come_again_is_the_rest_of_the_lease_within_1_and_60_seconds() {
    for (lease, asked_at, expected) in [(90, 1, 60), (90, 31_500, 59), (30, 29_100, 1), (1, 1, 1)] {
        let app = App::new();
        let layer = app.builder().lease(ms(lease * 1000));
        let layer = layer.renewal(tower_claim::Renewal::Off).build().unwrap();
        let service = app.under(&layer);
        let ask = post("/orders").key("k");
        let first = start(&service, ask.clone().flags("delay=200000")).await;
        tokio::time::sleep(ms(asked_at - 1)).await;
        let refused = ask.send(&service).await;
        refused.assert_refused(409, "in-progress");
        assert_eq!(refused.retry_after(), Some(expected));
        first.await.unwrap();
    }
}
