//! `/board` and `/metrics`.

use system_tests::client::{call, get, post, until};
use system_tests::programs::Lab;

use super::{live_on, rows, wait_live};

#[tokio::test]
async fn the_board_has_the_shape_of_the_contract() {
    let lab = Lab::start(&["--stuck-after", "300ms"]);
    let hung = tokio::spawn(
        post(lab.address(), "/orders")
            .lab("mark=upstream_called&hang")
            .send(),
    );
    let row = until(
        "the row is stuck",
        || live_on(&lab, "/orders"),
        |rows| rows.len() == 1 && rows[0]["stuck"] == true,
    )
    .await
    .remove(0);
    assert_eq!(
        (row["method"].as_str(), row["stage"].as_str()),
        (Some("POST"), Some("upstream_called"))
    );
    assert!(row["id"].is_string() && row["wait"].is_null());
    assert!(row["age_ms"].as_f64().unwrap() >= 300.0);
    assert!(row["total_age_ms"].as_f64().unwrap() >= row["age_ms"].as_f64().unwrap());

    let board = get(lab.address(), "/board").send().await.json();
    assert_eq!(board["version"], 1);
    assert_eq!(board["totals"]["in_flight"], 1);
    assert_eq!(board["totals"]["untracked"], 0);
    assert_eq!(board["totals"]["late_marks"], 0);
    assert_eq!(rows(&lab, "live", "stage=received").await.len(), 0);
    assert_eq!(
        rows(&lab, "live", "stage=upstream_called&min_age_ms=100")
            .await
            .len(),
        1
    );
    assert_eq!(rows(&lab, "live", "min_age_ms=3600000").await.len(), 0);
    hung.abort();
    let row = until(
        "the row ends",
        || rows(&lab, "recent", ""),
        |rows| rows.len() == 1,
    )
    .await
    .remove(0);
    assert_eq!(
        (row["outcome"].as_str(), row["stage"].as_str()),
        (Some("cancelled"), Some("upstream_called"))
    );
}

#[tokio::test]
async fn outcomes_tell_how_a_request_ended() {
    let lab = Lab::start(&[]);
    assert_eq!(
        get(lab.address(), "/orders")
            .lab("size=1234")
            .send()
            .await
            .status,
        200
    );
    assert_eq!(
        get(lab.address(), "/orders")
            .lab("status=500")
            .send()
            .await
            .status,
        500
    );
    assert_eq!(
        post(lab.address(), "/orders")
            .key("a,b")
            .send()
            .await
            .status,
        400
    );
    assert!(
        !get(lab.address(), "/orders")
            .lab("size=10&chunks=2&body_error=1")
            .send()
            .await
            .complete
    );
    // All announced bytes are out before the body fails: nobody looks for more.
    let all = get(lab.address(), "/orders")
        .lab("size=77&chunks=4&body_error=4")
        .send()
        .await;
    assert!(all.complete && all.body.len() == 77);
    let half = get(lab.address(), "/orders")
        .lab("size=1000000&chunks=100&chunk_delay=20")
        .open()
        .await;
    drop(half);
    let of = async |outcome: &str| {
        let query = format!("outcome={outcome}");
        until(
            outcome,
            || rows(&lab, "recent", &query),
            |rows| !rows.is_empty(),
        )
        .await
        .remove(0)
    };
    let short = until(
        "77 bytes",
        || rows(&lab, "recent", "outcome=done"),
        |rows| rows.iter().any(|row| row["bytes"] == 77),
    );
    short.await;
    let done = rows(&lab, "recent", "outcome=done")
        .await
        .pop()
        .expect("the first");
    assert_eq!(
        (done["status"].as_u64(), done["bytes"].as_u64()),
        (Some(200), Some(1234))
    );
    assert!(done["total_ms"].is_f64() && done["stages"].is_object());
    assert_eq!(of("rejected").await["status"], 400);
    let gone = of("client_gone").await;
    assert_eq!(
        (gone["stage"].as_str(), gone["status"].as_u64()),
        (Some("streaming"), Some(200))
    );
    let failed = until(
        "two failures",
        || rows(&lab, "recent", "outcome=failed"),
        |rows| rows.len() == 2,
    )
    .await;
    let mut statuses: Vec<_> = failed
        .iter()
        .map(|row| row["status"].as_u64().unwrap())
        .collect();
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 500]);
    assert_eq!(rows(&lab, "recent", "limit=2").await.len(), 2);
}

#[tokio::test]
async fn followers_of_a_flight_name_their_blocker() {
    let lab = Lab::start(&[]);
    let leader = tokio::spawn(
        get(lab.address(), "/items/7")
            .lab("mark=upstream_called&delay=4000")
            .send(),
    );
    until(
        "the leader runs",
        || live_on(&lab, "/items/{id}"),
        |rows| rows.iter().any(|row| row["stage"] == "upstream_called"),
    )
    .await;
    let followers: Vec<_> = (0..5)
        .map(|_| tokio::spawn(get(lab.address(), "/items/7").send()))
        .collect();
    let waits = |rows: &Vec<serde_json::Value>| {
        rows.iter()
            .filter(|row| row["wait"]["reason"] == "flight")
            .count()
            == 5
    };
    let rows = until("five wait", || live_on(&lab, "/items/{id}"), waits).await;
    let blockers: std::collections::BTreeSet<_> = rows
        .iter()
        .filter_map(|row| row["wait"]["blocker"].as_str())
        .collect();
    assert_eq!(blockers.len(), 1, "{rows:?}");
    let first: Vec<_> = rows.iter().filter(|row| row["wait"].is_null()).collect();
    assert_eq!(first.len(), 1);
    assert_eq!(first[0]["stage"], "upstream_called");
    for call in followers.into_iter().chain([leader]) {
        assert_eq!(call.await.unwrap().status, 200);
    }
}

#[tokio::test]
async fn operators_routes_are_not_tracked_and_unmatched_ones_have_no_path() {
    let lab = Lab::start(&[]);
    for path in ["/effects", "/claims", "/metrics", "/board"] {
        assert_eq!(get(lab.address(), path).send().await.status, 200, "{path}");
    }
    assert_eq!(rows(&lab, "recent", "").await.len(), 0);
    assert_eq!(get(lab.address(), "/secret/path").send().await.status, 404);
    for row in rows(&lab, "recent", "").await {
        assert_eq!(row["route"], "unmatched");
    }
}

#[tokio::test]
async fn metrics_have_one_sample_a_response() {
    let lab = Lab::start(&[]);
    for _ in 0..3 {
        assert_eq!(get(lab.address(), "/items/7").send().await.status, 200);
    }
    assert_eq!(
        call(lab.address(), http::Method::PUT, "/accounts/7")
            .send()
            .await
            .status,
        200
    );
    let ask = || async {
        let text = get(lab.address(), "/metrics").send().await;
        String::from_utf8(text.body.to_vec()).unwrap()
    };
    let count = |text: &String, route: &str| -> f64 {
        text.lines()
            .filter(|line| line.starts_with("http_server_request_duration_seconds_count{"))
            .filter(|line| line.contains(&format!("http_route=\"{route}\"")))
            .map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap())
            .sum()
    };
    assert_eq!(
        get(lab.address(), "/orders")
            .lab("panic")
            .send()
            .await
            .status,
        500
    );
    let text = until("three samples", ask, |text| {
        count(text, "/items/{id}") == 3.0
    })
    .await;
    assert_eq!(count(&text, "/accounts/{id}"), 1.0, "{text}");
    assert_eq!(
        count(&text, "/orders"),
        1.0,
        "the answer to a panic counts: {text}"
    );
}

#[tokio::test]
async fn the_board_is_read_while_handlers_block_every_worker() {
    let lab = Lab::start_with(&[], &[("TOKIO_WORKER_THREADS", "1")]);
    let blocked = tokio::spawn(get(lab.address(), "/orders").lab("block=8000").send());
    let rows = wait_live(&lab, "/orders", 1).await;
    assert_eq!(rows[0]["stage"], "received");
    assert!(
        !blocked.is_finished(),
        "the board did not wait for the handler"
    );
    assert_eq!(blocked.await.unwrap().status, 200);
}
