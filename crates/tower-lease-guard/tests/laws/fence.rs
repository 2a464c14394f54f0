//! Which token the guard lets in.

use std::convert::Infallible;
use std::time::Duration;

use crate::marks::*;
use crate::support::*;
use crate::world::{ok, ran, refused};
use http::{Request, Response};
use tower::{Layer, Service, ServiceBuilder, ServiceExt};
use tower_claim::http::{Gate, Mode, Switch};
use tower_claim::{Clock, SystemClock, Token};
use tower_lease_guard::{FenceError, FenceLayer, FencingToken, MissingToken};

#[tokio::test]
async fn each_token_is_answered_as_the_table_says() {
    let fence = fence();
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
    let fence = fence();
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

#[tokio::test]
async fn the_ready_service_is_the_one_that_is_called() {
    let fence = fence();
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
    let fence = fence();
    let service = ServiceBuilder::new()
        .layer(fence)
        .concurrency_limit(1)
        .service_fn(ok);
    for t in 1..=20 {
        let call = service.clone().oneshot(write(t, 1));
        let response = tokio::time::timeout(Duration::from_secs(30), call)
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
    let response = fence()
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
