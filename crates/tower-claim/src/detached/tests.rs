//! Work outlives its caller, and a drain waits for it.

use std::sync::Mutex;

use super::*;
use crate::TokioClock;

fn detached() -> Detached {
    Detached::new().with_clock(Arc::new(TokioClock::new()))
}

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn work_outlives_its_caller() {
    let detached = detached();
    let done = Arc::new(Mutex::new(false));
    let caller = {
        let (detached, done) = (detached.clone(), done.clone());
        async move {
            let running = detached.spawn(async move {
                tokio::time::sleep(SECOND).await;
                *done.lock().unwrap() = true;
            });
            running.unwrap().await.unwrap();
        }
    };
    assert!(tokio::time::timeout(SECOND / 2, caller).await.is_err());
    assert_eq!(detached.running(), 1);
    assert!(detached.drain(SECOND).await);
    assert!(*done.lock().unwrap());
    assert_eq!(detached.running(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_panic_reaches_the_caller_and_is_counted_out() {
    let detached = detached();
    let running = detached.spawn(async { panic!("meant") }).unwrap();
    let result: Result<(), _> = running.await;
    assert_eq!(result, Err(CutShort::Panicked));
    assert_eq!(
        Refusal::from(CutShort::Panicked).code(),
        Code::HandlerPanicked
    );
    assert!(detached.drain(SECOND).await);
}

#[tokio::test(start_paused = true)]
async fn a_drain_refuses_new_work_and_tells_whether_it_came_to_rest() {
    let detached = detached();
    let running = detached.spawn(std::future::pending::<()>()).unwrap();
    let begun = tokio::time::Instant::now();
    assert!(!detached.drain(SECOND).await);
    assert_eq!(begun.elapsed().as_millis(), 1000);
    let refused = detached.clone().spawn(async {}).unwrap_err();
    assert_eq!(refused, NotSpawned::ShuttingDown);
    assert_eq!(Refusal::from(refused).code(), Code::ShuttingDown);
    assert_eq!(detached.running(), 1, "the refused one is not counted");
    drop(running);
}

#[tokio::test(start_paused = true)]
async fn a_drain_waits_for_reserved_places() {
    let detached = detached();
    let (used, given_back) = (detached.reserve().unwrap(), detached.reserve().unwrap());
    let work = async move {
        tokio::time::sleep(SECOND).await;
        drop(given_back);
        let working = used.spawn(tokio::time::sleep(SECOND));
        assert!(working.await.is_ok(), "closed, but it has its place");
    };
    let begun = tokio::time::Instant::now();
    let (drained, ()) = tokio::join!(detached.drain(SECOND * 3), work);
    assert!(drained);
    assert_eq!(begun.elapsed(), SECOND * 2);
    assert_eq!(detached.reserve().unwrap_err(), NotSpawned::ShuttingDown);
}

#[test]
fn without_a_runtime_work_is_refused_and_with_it_gone_cut_short() {
    let detached = Detached::new();
    let refused = detached.spawn(async {}).unwrap_err();
    assert_eq!(refused, NotSpawned::NoRuntime);
    assert_eq!(detached.running(), 0);

    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let running = {
        let _entered = runtime.enter();
        detached.spawn(std::future::pending::<()>()).unwrap()
    };
    assert_eq!(detached.running(), 1);
    drop(runtime);
    assert_eq!(detached.running(), 0);
    assert_eq!(
        futures_util::FutureExt::now_or_never(running),
        Some(Err(CutShort::ShutDown))
    );
}

tokio::task_local! {
    static USER: u32;
    static LANG: &'static str;
}

struct User;

impl Carry for User {
    fn carry(&self, work: BoxFuture<'static, ()>) -> BoxFuture<'static, ()> {
        match USER.try_with(|user| *user) {
            Ok(user) => Box::pin(USER.scope(user, work)),
            Err(_) => work,
        }
    }
}

#[tokio::test(start_paused = true)]
async fn only_what_is_named_is_carried() {
    let detached = detached().carrying(User);
    let see = || (USER.try_with(|u| *u).ok(), LANG.try_with(|l| *l).ok());
    let seen = LANG
        .scope(
            "en",
            USER.scope(7, async {
                detached.spawn(async move { see() }).unwrap().await
            }),
        )
        .await;
    assert_eq!(seen, Ok((Some(7), None)));
    let seen = detached.spawn(async move { see() }).unwrap().await;
    assert_eq!(seen, Ok((None, None)), "nothing to carry");
}
