//! Every future dropped at every await.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

use tower_claim::testing::Fault;
use tower_idempotency::OnBusy;

use crate::support::*;

/// Polls at most `polls` times, with the rest of the runtime in between, then drops.
async fn drop_after<F: Future>(polls: usize, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    for _ in 0..polls {
        let polled = poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx))).await;
        if let Poll::Ready(output) = polled {
            return Some(output);
        }
        // Time stands still for this one, which steps on to its next await.
        tokio::time::sleep(ms(1)).await;
    }
    None
}

#[tokio::test(start_paused = true)]
async fn a_first_run_dropped_at_any_await_runs_once_or_leaves_the_key_free() {
    let mut ran_on = 0;
    for polls in 0..30 {
        let app = App::new();
        let layer = app.builder().lease(ms(1000)).build().unwrap();
        let service = app.under(&layer);
        // Every call of the store takes its time, so that each is an await to be dropped at.
        app.store.faults().set(Fault::Delay(ms(3)));
        let ask = post("/orders")
            .key("k")
            .flags("delay=3&size=30&chunks=3&chunk_delay=2&nolen");
        let whole = drop_after(polls, ask.send(&service)).await;
        assert!(layer.drain(ms(60_000)).await, "{polls}: something hangs");
        let before = app.effects();
        assert!(before <= 1);

        let reader = app.under(&app.builder().lease(ms(1000)).build().unwrap());
        let again = ask.send(&reader).await;
        assert_eq!(again.status, 201, "{polls}: {again:?}");
        assert_eq!(again.is_replay(), before == 1, "{polls}");
        assert_eq!(app.effects(), 1, "{polls}");
        ran_on += usize::from(before == 1 && whole.is_none());
        if whole.is_some() {
            assert!(
                polls > 5 && ran_on > 3,
                "{polls} {ran_on}: the test drops nowhere"
            );
            return;
        }
    }
    panic!("the first run never ended");
}

#[tokio::test(start_paused = true)]
async fn a_waiting_repeat_dropped_at_any_await_leaves_nothing_behind() {
    for polls in 0..40 {
        let app = App::new();
        let wait = app.builder().on_busy(OnBusy::Wait(ms(60_000)));
        let layer = wait.max_waiters(1).build().unwrap();
        let service = app.under(&layer);
        let ask = post("/orders").key("k").flags("delay=10");
        let first = tokio::spawn({
            let (service, ask) = (service.clone(), ask.clone());
            async move { ask.send(&service).await }
        });
        tokio::time::sleep(ms(1)).await;
        let done = drop_after(polls, ask.send(&service)).await.is_some();
        // The one place among the followers is free again.
        let second = ask.send(&service).await;
        second.assert_replay_of(&first.await.unwrap());
        assert_eq!(app.effects(), 1);
        if done {
            return;
        }
    }
    panic!("the repeat never ended");
}
