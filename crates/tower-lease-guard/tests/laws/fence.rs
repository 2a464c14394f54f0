//! The guard at the resource.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that cannot go on fails"
)]

mod support;

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{Request, Response};
use http_body_util::BodyExt;
use support::*;
use tokio::sync::Notify;
use tower::{Layer, Service, ServiceBuilder, ServiceExt};
use tower_claim::http::{Gate, Mode, Switch};
use tower_claim::store::Admission;
use tower_claim::{Clock, FenceStore, Nonce, StoreError, SystemClock, Token, TokioClock};
use tower_lease_guard::fence::Superseded;
use tower_lease_guard::{FENCING_TOKEN, FenceError, FenceLayer, FencingToken, MissingToken};

/// The naive guard, with a pause around each step so that every order of calls is met.
#[derive(Debug, Clone, Default)]
struct Marks(Arc<Mutex<HashMap<String, (Token, Nonce)>>>);

impl FenceStore for Marks {
    async fn admit(
        &self,
        resource: &str,
        token: Token,
        nonce: Nonce,
    ) -> Result<Admission, StoreError> {
        tokio::task::yield_now().await;
        let answer = {
            let mut marks = self.0.lock().unwrap();
            match marks.get(resource) {
                Some(&(high, _)) if token < high => Admission::Stale { high },
                Some(&(high, owner)) if token == high && nonce != owner => {
                    Admission::Collision { high }
                }
                _ => {
                    marks.insert(resource.to_owned(), (token, nonce));
                    Admission::Admitted
                }
            }
        };
        tokio::task::yield_now().await;
        Ok(answer)
    }

    async fn raise_floor(&self, _: &str, _: Token) -> Result<Token, StoreError> {
        Err(StoreError::Unsupported("not in this test"))
    }

    async fn high_water(&self, resource: &str) -> Result<Token, StoreError> {
        Ok(self
            .0
            .lock()
            .unwrap()
            .get(resource)
            .map_or(Token::ZERO, |mark| mark.0))
    }
}

#[derive(Debug)]
struct Down;

impl FenceStore for Down {
    async fn admit(&self, _: &str, _: Token, _: Nonce) -> Result<Admission, StoreError> {
        Err(StoreError::unavailable("down"))
    }
    async fn raise_floor(&self, _: &str, _: Token) -> Result<Token, StoreError> {
        Err(StoreError::unavailable("down"))
    }
    async fn high_water(&self, _: &str) -> Result<Token, StoreError> {
        Err(StoreError::unavailable("down"))
    }
}

fn token(resource: &str, token: u64, nonce: u8) -> FencingToken {
    FencingToken::new(
        resource,
        Token::new(token).unwrap(),
        Nonce::from_bytes([nonce; 16]),
    )
    .unwrap()
}

fn write(t: u64, nonce: u8) -> Request<()> {
    stamped(&token("r", t, nonce).to_string())
}

fn stamped(header: &str) -> Request<()> {
    let mut request = request("/r");
    request
        .headers_mut()
        .append(&FENCING_TOKEN, header.parse().unwrap());
    request
}

fn resource(req: &http::request::Parts) -> Option<String> {
    req.uri
        .path()
        .strip_prefix("/r")
        .map(|rest| format!("r{rest}"))
}

fn layer() -> FenceLayer {
    FenceLayer::new(Marks::default(), resource)
}

async fn ok(_: Request<()>) -> Result<Response<TestBody>, Infallible> {
    Ok(Response::new(full("ran")))
}

async fn answer(fence: &FenceLayer, request: Request<()>) -> (u16, String) {
    refusal(
        fence
            .layer(tower::service_fn(ok))
            .oneshot(request)
            .await
            .unwrap(),
    )
    .await
}

fn ran() -> (u16, String) {
    (200, "no refusal: ran".to_owned())
}

fn refused(status: u16, what: &str) -> (u16, String) {
    (status, what.to_owned())
}

#[tokio::test]
async fn each_token_is_answered_as_the_table_says() {
    let fence = layer();
    assert_eq!(
        answer(&fence, request("/r")).await,
        refused(428, "token-missing")
    );
    assert_eq!(
        answer(&fence, stamped("nonsense")).await,
        refused(400, "token-invalid/malformed")
    );
    assert_eq!(
        answer(&fence, stamped(&token("s", 9, 1).to_string())).await,
        refused(400, "token-invalid/other-resource")
    );
    assert_eq!(answer(&fence, write(5, 1)).await, ran());
    assert_eq!(answer(&fence, write(5, 1)).await, ran());
    assert_eq!(answer(&fence, write(6, 2)).await, ran());
    assert_eq!(
        answer(&fence, write(5, 1)).await,
        refused(412, "token-stale/stale")
    );
    assert_eq!(
        answer(&fence, write(6, 3)).await,
        refused(412, "token-stale/collision")
    );
    assert_eq!(answer(&fence, write(6, 2)).await, ran());
    assert_eq!(answer(&fence, request("/elsewhere")).await, ran());
    let long = format!("/r{}", "x".repeat(255));
    assert_eq!(
        answer(&fence, request(&long)).await,
        refused(400, "key-invalid")
    );
    let several = stamped(&format!("{}, {}", token("s", 1, 1), token("r", 7, 7)));
    assert_eq!(answer(&fence, several).await, ran());
}

#[tokio::test]
async fn a_missing_token_may_be_allowed() {
    let fence = FenceLayer::builder(Marks::default(), resource)
        .missing(MissingToken::Allow)
        .build()
        .unwrap();
    assert_eq!(answer(&fence, request("/r")).await, ran());
    assert_eq!(
        answer(&fence, stamped("nonsense")).await,
        refused(400, "token-invalid/malformed")
    );
}

#[tokio::test]
async fn an_inflated_token_is_refused_and_locks_nobody_out() {
    let hour = Duration::from_secs(3600);
    let fence = FenceLayer::builder(Marks::default(), resource)
        .max_ahead(hour)
        .build()
        .unwrap();
    let at = |ahead: Duration| (SystemClock.unix_time() + ahead).as_millis() as u64 * 1024;
    assert_eq!(
        answer(&fence, write(Token::MAX.get(), 9)).await,
        refused(400, "token-invalid/inflated")
    );
    assert_eq!(
        answer(&fence, write(at(2 * hour), 9)).await,
        refused(400, "token-invalid/inflated")
    );
    assert_eq!(answer(&fence, write(at(hour / 2), 1)).await, ran());
}

#[tokio::test]
async fn without_its_store_nothing_is_written() {
    let fence = FenceLayer::new(Down, resource);
    assert_eq!(
        answer(&fence, write(1, 1)).await,
        refused(503, "store-unavailable")
    );
}

#[test]
fn bad_settings_are_refused_when_built() {
    let builder = || FenceLayer::builder(Marks::default(), resource);
    assert_eq!(
        builder()
            .drain_timeout(Duration::ZERO)
            .build()
            .unwrap_err()
            .setting(),
        "drain_timeout"
    );
    assert_eq!(
        builder()
            .max_ahead(Duration::ZERO)
            .build()
            .unwrap_err()
            .setting(),
        "max_ahead"
    );
}

#[tokio::test]
async fn the_gate_limits_the_guard_and_turns_it_off_while_it_runs() {
    let switch = Switch::default();
    let gate = Gate::new()
        .methods([http::Method::PUT])
        .switch(switch.clone());
    let fence = FenceLayer::builder(Marks::default(), resource)
        .gate(gate)
        .build()
        .unwrap();
    let mut get = request("/r");
    *get.method_mut() = http::Method::GET;
    assert_eq!(answer(&fence, get).await, ran());
    assert_eq!(
        answer(&fence, request("/r")).await,
        refused(428, "token-missing")
    );
    for mode in [Mode::Observe, Mode::Off] {
        switch.set(mode);
        assert_eq!(answer(&fence, request("/r")).await, ran());
        assert_eq!(answer(&fence, write(1, 1)).await, ran());
    }
}

#[tokio::test]
async fn the_handler_sees_the_admitted_token() {
    let fence = layer();
    let service = fence.layer(tower::service_fn(|req: Request<()>| async move {
        let token = req
            .extensions()
            .get::<FencingToken>()
            .map(ToString::to_string);
        Ok::<_, Infallible>(Response::new(full(token.unwrap_or_default())))
    }));
    let response = service.oneshot(write(5, 1)).await.unwrap();
    assert_eq!(
        text(response.into_body()).await,
        token("r", 5, 1).to_string()
    );
}

#[tokio::test]
async fn a_write_checked_by_hand_is_judged_the_same() {
    let marks = Marks::default();
    token("r", 5, 1).admit(&marks).await.unwrap();
    token("r", 6, 2).admit(&marks).await.unwrap();
    let stale = token("r", 5, 1).admit(&marks).await.unwrap_err();
    assert!(
        matches!(stale, FenceError::Stale { high } if high.get() == 6),
        "{stale}"
    );
    let collision = token("r", 6, 3).admit(&marks).await.unwrap_err();
    assert!(
        matches!(collision, FenceError::Collision { .. }),
        "{collision}"
    );
    let down = token("r", 6, 2).admit(&Down).await.unwrap_err();
    assert!(down.is_retryable() && down.refusal().code().http_status() == 503);
}

/// A service whose first call hangs with a guard in its hand, while later ones write.
fn first_hangs(
    log: &Log,
) -> impl Service<Request<()>, Response = Response<TestBody>, Error = Infallible, Future: Send>
+ Clone
+ Send
+ use<> {
    let log = log.clone();
    tower::service_fn(move |req: Request<()>| {
        let log = log.clone();
        let t = req
            .extensions()
            .get::<FencingToken>()
            .unwrap()
            .token()
            .get();
        async move {
            if t == 1 {
                log.add("old inside");
                let _gone = OnDrop(log.clone(), "old gone");
                std::future::pending::<()>().await;
            }
            log.add(format!("{t} writes"));
            Ok(Response::new(full("ran")))
        }
    })
}

#[tokio::test]
async fn an_older_call_is_gone_before_a_newer_one_runs() {
    let (log, fence) = (Log::default(), layer());
    let service = fence.layer(first_hangs(&log));
    let old = tokio::spawn(service.clone().oneshot(write(1, 1)));
    while log.lines().is_empty() {
        tokio::task::yield_now().await;
    }
    let new = service.clone().oneshot(write(2, 2)).await.unwrap();
    assert_eq!(refusal(new).await, ran());
    assert_eq!(log.lines(), ["old inside", "old gone", "2 writes"]);
    let old = tokio::time::timeout(Duration::from_secs(5), old);
    let old = old.await.expect("not cancelled").unwrap().unwrap();
    assert_eq!(refusal(old).await, refused(412, "token-stale/superseded"));
}

#[tokio::test(start_paused = true)]
async fn a_newer_call_waits_for_an_older_one_and_gives_up_in_time() {
    let (log, limit) = (Log::default(), Duration::from_secs(5));
    let clock = Arc::new(TokioClock::new());
    let fence = FenceLayer::builder(Marks::default(), resource)
        .drain_timeout(limit)
        .clock(clock)
        .build()
        .unwrap();
    let service = fence.layer(first_hangs(&log));
    let mut old = Box::pin(service.clone().oneshot(write(1, 1)));
    while log.lines().is_empty() {
        assert!(once(&mut old).await.is_none());
        tokio::task::yield_now().await;
    }
    // Nobody polls the old call from here on: it cannot end.
    let start = tokio::time::Instant::now();
    let new = service.clone().oneshot(write(2, 2)).await.unwrap();
    assert_eq!(refusal(new).await, refused(503, "wait-timeout"));
    assert_eq!(start.elapsed(), limit);

    let again = tokio::spawn(service.clone().oneshot(write(2, 2)));
    tokio::time::sleep(limit / 2).await;
    assert!(!again.is_finished());
    drop(old);
    assert_eq!(refusal(again.await.unwrap().unwrap()).await, ran());
    assert_eq!(log.lines(), ["old inside", "old gone", "2 writes"]);
}

#[tokio::test]
async fn calls_of_one_owner_run_side_by_side() {
    let (fence, both) = (layer(), Arc::new(tokio::sync::Barrier::new(2)));
    let service = fence.layer(tower::service_fn(move |_: Request<()>| {
        let both = both.clone();
        async move {
            both.wait().await;
            Ok::<_, Infallible>(Response::new(full("ran")))
        }
    }));
    let (a, b) = tokio::join!(
        service.clone().oneshot(write(1, 1)),
        service.clone().oneshot(write(1, 1))
    );
    assert_eq!(
        (refusal(a.unwrap()).await, refusal(b.unwrap()).await),
        (ran(), ran())
    );
}

fn streaming(
    log: &Log,
) -> impl Service<Request<()>, Response = Response<TestBody>, Error = Infallible, Future: Send>
+ Clone
+ Send
+ use<> {
    let log = log.clone();
    tower::service_fn(move |req: Request<()>| {
        let log = log.clone();
        let t = req
            .extensions()
            .get::<FencingToken>()
            .unwrap()
            .token()
            .get();
        async move {
            log.add(format!("{t} runs"));
            let guard = (t == 1).then(|| OnDrop(log.clone(), "old stream gone"));
            let body = Frames {
                frames: vec!["a"],
                ends: t != 1,
                guard,
            };
            Ok(Response::new(body.boxed_unsync()))
        }
    })
}

#[tokio::test]
async fn a_stream_nobody_reads_cannot_keep_a_newer_call_waiting() {
    let (log, fence) = (Log::default(), layer());
    let service = fence.layer(streaming(&log));
    let mut old = service
        .clone()
        .oneshot(write(1, 1))
        .await
        .unwrap()
        .into_body();
    assert!(old.frame().await.unwrap().unwrap().is_data());
    let new = service.clone().oneshot(write(2, 2)).await.unwrap();
    assert_eq!(log.lines(), ["1 runs", "old stream gone", "2 runs"]);
    assert_eq!(text(new.into_body()).await, "a");
    let end = old.frame().await.unwrap().unwrap_err();
    assert!(
        end.is::<Superseded>(),
        "a cut stream must not end cleanly: {end}"
    );
}

#[tokio::test]
async fn a_stream_that_is_being_read_is_woken_and_cut() {
    let (log, fence) = (Log::default(), layer());
    let service = fence.layer(streaming(&log));
    let old = service.clone().oneshot(write(1, 1)).await.unwrap();
    let reader = tokio::spawn(old.into_body().collect());
    tokio::task::yield_now().await;
    service.clone().oneshot(write(2, 2)).await.unwrap();
    let ended = tokio::time::timeout(Duration::from_secs(5), reader).await;
    let ended = ended.expect("not woken").unwrap();
    assert!(ended.unwrap_err().is::<Superseded>());
}

#[tokio::test]
async fn a_response_of_known_length_is_finished_work_and_is_not_cut() {
    let fence = layer();
    let service = fence.layer(tower::service_fn(ok));
    let old = service.clone().oneshot(write(1, 1)).await.unwrap();
    service.clone().oneshot(write(2, 2)).await.unwrap();
    assert_eq!(text(old.into_body()).await, "ran");
}

#[tokio::test]
async fn a_call_dropped_at_any_await_keeps_nobody_waiting() {
    let gate = Arc::new(Notify::new());
    let fence = layer();
    let service = fence.layer(tower::service_fn({
        let gate = gate.clone();
        move |req: Request<()>| {
            let gate = gate.clone();
            let nonce = req.extensions().get::<FencingToken>().unwrap().nonce();
            async move {
                tokio::task::yield_now().await;
                if nonce == Nonce::from_bytes([1; 16]) {
                    gate.notified().await;
                }
                Ok::<_, Infallible>(Response::new(full("ran")))
            }
        }
    }));
    let high = Arc::new(std::sync::atomic::AtomicU64::new(0));
    let next = || high.fetch_add(1, std::sync::atomic::Ordering::SeqCst) + 1;
    let mut dropped = 0;
    for polls in 0..8 {
        let mut call = Box::pin(service.clone().oneshot(write(next(), 1)));
        for _ in 0..polls {
            assert!(once(&mut call).await.is_none(), "it hangs at the gate");
            tokio::task::yield_now().await;
        }
        drop(call);
        dropped += 1;
        let after = tokio::time::timeout(
            Duration::from_secs(5),
            service.clone().oneshot(write(next(), 2)),
        );
        assert_eq!(
            refusal(after.await.expect("it waits for a dropped call").unwrap()).await,
            ran()
        );
    }
    assert_eq!(dropped, 8);
}

#[tokio::test]
async fn the_ready_service_is_the_one_that_is_called() {
    let fence = layer();
    let mut service = fence.layer(MustBeReady::new(tower::service_fn(ok)));
    for request in [
        write(1, 1),
        request("/elsewhere"),
        write(2, 2),
        request("/r"),
    ] {
        let _ = service.ready().await.unwrap().call(request).await.unwrap();
    }
}

#[tokio::test]
async fn under_a_concurrency_limit_every_permit_comes_back() {
    let fence = layer();
    let service = ServiceBuilder::new()
        .layer(fence)
        .concurrency_limit(1)
        .service_fn(ok);
    for t in 1..=20 {
        let call = service.clone().oneshot(write(t, 1));
        let response = tokio::time::timeout(Duration::from_secs(5), call)
            .await
            .expect("a permit was lost");
        drop(response.unwrap());
        drop(service.clone().oneshot(write(t, 1)));
    }
}

#[tokio::test]
async fn a_grpc_call_is_refused_in_grpc() {
    let mut call = request("/r");
    call.headers_mut()
        .insert("content-type", "application/grpc".parse().unwrap());
    let response = layer()
        .layer(tower::service_fn(ok))
        .oneshot(call)
        .await
        .unwrap();
    assert_eq!(
        (
            response.status().as_u16(),
            response.headers()["grpc-status"].to_str().unwrap()
        ),
        (200, "9")
    );
}
