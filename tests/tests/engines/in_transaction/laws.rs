//! What is committed, and what is not.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use axum::Router;
use axum::body::Body;
use axum::http::{Request, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use http_body_util::BodyExt;
use system_tests::relay::Relay;
use tokio::sync::Notify;
use tower::ServiceExt;
use tower_claim::Renewal;
use tower_claim_sqlx::RunTransaction;
use tower_idempotency::IdempotentRun;

use super::{Mode, SECOND, Shop, TOGETHER, insert, order, until};

pub struct Answer {
    pub status: StatusCode,
    pub replayed: bool,
    pub body: String,
}

pub async fn send(app: &Router, key: &str) -> Answer {
    send_item(app, key, "coffee").await
}

pub async fn send_item(app: &Router, key: &str, item: &'static str) -> Answer {
    let request = Request::post("/orders").header("idempotency-key", key);
    let request = request.body(Body::from(item)).expect("a request");
    let sent = app.clone().oneshot(request);
    let sent = tokio::time::timeout(30 * SECOND, sent).await;
    let response: Response = sent.expect("an answer in time").expect("an answer");
    let (head, body) = response.into_parts();
    let body = body.collect().await.expect("a whole body").to_bytes();
    Answer {
        status: head.status,
        replayed: head.headers.contains_key("idempotent-replayed"),
        body: String::from_utf8(body.to_vec()).expect("text"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_and_answer_are_committed_together() {
    for mode in TOGETHER {
        let shop = Shop::open().await;
        let app = shop.orders(shop.layer_of(mode));
        let first = send(&app, "a").await;
        assert_eq!((first.status, first.replayed), (StatusCode::CREATED, false));
        assert_eq!(shop.rows().await, ["a"]);
        let again = send(&app, "a").await;
        assert_eq!((again.status, again.replayed), (StatusCode::CREATED, true));
        assert_eq!(again.body, first.body);
        assert_eq!(shop.rows().await, ["a"]);
    }
}

/// What the handler writes, and then answers: the first time, and the second.
async fn twice(
    shop: &Shop,
    mode: Mode,
    answer: impl Fn() -> Response + Clone + Send + Sync + 'static,
) -> [Answer; 2] {
    let handler = async move |mut tx: RunTransaction| {
        insert(&mut tx, "key", "tea").await;
        answer()
    };
    let app = shop.app(shop.layer_of(mode), post(handler));
    [send(&app, "key").await, send(&app, "key").await]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_is_kept_without_its_rows() {
    for mode in TOGETHER {
        let shop = Shop::open().await;
        let refuse = || (StatusCode::UNPROCESSABLE_ENTITY, "sold out").into_response();
        let [first, again] = twice(&shop, mode, refuse).await;
        assert_eq!(first.status, StatusCode::UNPROCESSABLE_ENTITY);
        assert!(again.replayed && again.body == "sold out");
        assert!(shop.rows().await.is_empty());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failure_leaves_no_rows_and_a_repeat_runs() {
    for mode in TOGETHER {
        let shop = Shop::open().await;
        let ran = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&ran);
        let fails_first = move || match counted.fetch_add(1, Ordering::Relaxed) {
            0 => StatusCode::BAD_GATEWAY.into_response(),
            _ => "done".into_response(),
        };
        let [first, again] = twice(&shop, mode, fails_first).await;
        assert_eq!(first.status, StatusCode::BAD_GATEWAY);
        assert_eq!((again.body.as_str(), again.replayed), ("done", false));
        assert_eq!(shop.rows().await, ["key"], "of the second run only");
        assert_eq!(ran.load(Ordering::Relaxed), 2);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_panic_leaves_no_rows_and_a_repeat_runs() {
    for mode in TOGETHER {
        let shop = Shop::open().await;
        let ran = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&ran);
        let panics_first = move || {
            let nth = counted.fetch_add(1, Ordering::Relaxed);
            assert!(nth > 0, "the handler panics");
            "done".into_response()
        };
        let [first, again] = twice(&shop, mode, panics_first).await;
        assert_eq!(first.status, StatusCode::INTERNAL_SERVER_ERROR);
        assert_eq!(again.body, "done");
        assert_eq!(shop.rows().await, ["key"]);
    }
}

/// A first run is paused past its lease, a second takes over. Whichever commits, the other cannot.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_was_taken_over_commits_nothing_and_gets_the_others_answer() {
    let shop = Shop::open().await;
    let (ran, wake) = (Arc::new(AtomicU32::new(0)), Arc::new(Notify::new()));
    let (count, woken) = (Arc::clone(&ran), Arc::clone(&wake));
    let handler = async move |mut tx: RunTransaction| {
        let nth = count.fetch_add(1, Ordering::Relaxed);
        let id = insert(&mut tx, &format!("run {nth}"), "tea").await;
        if nth == 0 {
            woken.notified().await;
        }
        format!("order {id}")
    };
    let lease = 3 * SECOND;
    let layer = shop.layer().lease(lease).renewal(Renewal::Off);
    let app = shop.app(layer, post(handler));
    let paused = tokio::spawn({
        let app = app.clone();
        async move { send(&app, "key").await }
    });
    until("the first run has begun", async || {
        ran.load(Ordering::Relaxed) > 0
    })
    .await;
    // Refused as in progress until the lease has lapsed.
    let mut second = None;
    until("the lease has lapsed", async || {
        second =
            Some(send(&app, "key").await).filter(|answer| answer.status != StatusCode::CONFLICT);
        second.is_some()
    })
    .await;
    let second = second.expect("an answer");
    assert!(!second.replayed);
    wake.notify_one();
    let first = paused.await.expect("it does not panic");
    assert_eq!(first.body, second.body, "one intent, one answer");
    assert!(first.replayed);
    assert_eq!(shop.rows().await, ["run 1"]);
    assert_eq!(ran.load(Ordering::Relaxed), 2);
}

/// Case 5 has a claim whose answer is lost; this is its twin at the other end of the run (idempot-dev/idempot-js
/// #185). The connection breaks at the finish, or at the COMMIT, which arrived or did not. The record tells.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_05_twin_a_commit_without_an_answer_is_told_as_it_was() {
    for mode in TOGETHER {
        a_commit_without_an_answer(mode).await;
    }
}

async fn a_commit_without_an_answer(mode: Mode) {
    let shop = Shop::open().await;
    let options = shop.pool.connect_options();
    let server = format!("{}:{}", options.get_host(), options.get_port());
    let relay = Arc::new(Relay::to(server));
    let cut_off = shop.by_port(relay.port()).await;
    let mut done = Vec::new();
    // Requests that arrive after the handler's own: the finish is prepared, is run, and the COMMIT.
    for (arrive, committed) in [(0, false), (2, false), (3, true)] {
        let cutting = Arc::clone(&relay);
        let cuts = async move |mut tx: RunTransaction| {
            let id = insert(&mut tx, "key", "tea").await;
            match arrive {
                0 => cutting.cut(),
                _ => cutting.cut_after(arrive - 1),
            }
            format!("order {id}")
        };
        let layer = cut_off.layer_of(mode).lease(5 * SECOND);
        let app = cut_off.app(layer, post(cuts));
        let key = format!("arrive-{arrive}");
        let answer = send(&app, &key).await;
        assert!(!relay.call_off(), "{mode:?}: the cut fell into the commit");
        let healthy = shop.orders(shop.layer_of(mode));
        let again = send(&healthy, &key).await;
        if committed {
            assert_eq!(answer.status, StatusCode::OK, "{}", answer.body);
            assert!(again.replayed && again.body == answer.body);
            done.push("key".to_owned());
        } else {
            assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
            assert!(!again.replayed, "nothing was done, so it runs");
            assert_eq!(again.status, StatusCode::CREATED);
            done.push(key);
        }
        assert_eq!(shop.rows().await, done);
    }
}

/// Whatever the handler answers: a refusal is no outcome either, while the transaction may be open.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_that_is_kept_back_is_not_committed() {
    for mode in TOGETHER {
        for says in [StatusCode::OK, StatusCode::GONE] {
            a_transaction_that_is_kept_back(mode, says).await;
        }
    }
}

async fn a_transaction_that_is_kept_back(mode: Mode, says: StatusCode) {
    let shop = Shop::open().await;
    let (let_go, gone) = (Arc::new(Notify::new()), Arc::new(AtomicU32::new(0)));
    let (told, counted) = (Arc::clone(&let_go), Arc::clone(&gone));
    let leak = async move |mut tx: RunTransaction| {
        insert(&mut tx, "key", "tea").await;
        tokio::spawn(async move {
            told.notified().await;
            drop(tx);
            counted.fetch_add(1, Ordering::Relaxed);
        });
        (says, "done")
    };
    let app = shop.app(shop.layer_of(mode), post(leak));
    let answer = send(&app, "key").await;
    let told = format!("{mode:?}, {says}: {}", answer.body);
    assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE, "{told}");
    let healthy = shop.orders(shop.layer_of(mode));
    if mode == Mode::Inside {
        let busy = send(&healthy, "key").await;
        assert_eq!(busy.status, StatusCode::CONFLICT, "its key is as open");
    } else {
        let again = send(&healthy, "key").await;
        assert_eq!((again.status, again.replayed), (StatusCode::CREATED, false));
    }
    let_go.notify_one();
    until("it is let go", async || gone.load(Ordering::Relaxed) > 0).await;
    until("it is rolled back", async || {
        let again = send(&healthy, "key").await;
        assert_eq!(again.replayed, mode == Mode::Outside, "{told}");
        again.status == StatusCode::CREATED
    })
    .await;
    assert_eq!(shop.rows().await, ["key"], "of the second run only");
}

/// What was sent out before the point of no return is not rolled back with the rows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn past_the_point_of_no_return_a_lost_transaction_is_an_unknown_outcome() {
    let shop = Shop::open().await;
    let spoils = async |run: IdempotentRun, mut tx: RunTransaction| {
        run.point_of_no_return().await.expect("marked");
        // Whatever is wrong with a statement, no later one is taken.
        let wrong = sqlx::query("select 1 / 0").execute(&mut *tx).await;
        wrong.expect_err("refused");
        "done"
    };
    let app = shop.app(shop.layer(), post(spoils));
    for _ in 0..2 {
        let answer = send(&app, "key").await;
        assert_eq!(answer.status, StatusCode::CONFLICT);
        assert!(answer.body.contains("outcome-unknown"), "{}", answer.body);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_key_there_is_no_transaction_and_without_a_database_no_run() {
    let shop = Shop::open().await;
    let app = shop.orders(shop.layer());
    let request = Request::post("/orders")
        .body(Body::empty())
        .expect("a request");
    let answer = app.oneshot(request).await.expect("an answer");
    assert_eq!(answer.status(), StatusCode::BAD_REQUEST);

    shop.pool.close().await;
    let app = shop.app(shop.layer(), post(order));
    let answer = send(&app, "key").await;
    assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
}
