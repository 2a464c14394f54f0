//! What a repeat gets.

use http_body_util::BodyExt;
use tower::ServiceExt;
use tower_claim::testing::{Fault, Operation};

use crate::support::*;

#[tokio::test(start_paused = true)]
async fn a_replay_has_the_status_the_bytes_and_the_headers_of_the_first() {
    let app = App::new();
    let service = app.service();
    let ask = post("/orders").key("k");
    let first = ask.send(&service).await;
    let replay = ask.send(&service).await;
    replay.assert_replay_of(&first);
    for name in ["location", "etag", "x-name"] {
        assert_eq!(replay.headers[name], first.headers[name], "{name}");
    }
    assert_eq!(replay.headers["x-name"].as_bytes(), b"caf\xE9");
    let links: Vec<_> = replay.headers.get_all("link").iter().collect();
    assert_eq!(links, ["</a>; rel=a", "</b>; rel=b"]);
}

#[tokio::test(start_paused = true)]
async fn what_was_true_of_the_first_exchange_only_is_not_replayed() {
    let app = App::new();
    let service = app.service();
    let ask = post("/orders").key("k");
    let first = ask.send(&service).await;
    let replay = ask.send(&service).await;
    for name in ["set-cookie", "traceparent"] {
        assert!(first.headers.contains_key(name), "{name}");
        assert!(!replay.headers.contains_key(name), "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn extensions_survive_on_the_first_response() {
    let app = App::new();
    let response = app
        .service()
        .oneshot(post("/orders").key("k").request())
        .await
        .unwrap();
    assert_eq!(response.extensions().get(), Some(&Extension(1)));
}

#[tokio::test(start_paused = true)]
async fn an_error_of_the_client_is_kept_and_replayed() {
    let app = App::new();
    let service = app.service();
    let ask = post("/orders").key("k").flags("status=422");
    let first = ask.send(&service).await;
    first.assert_fresh(422);
    ask.send(&service).await.assert_replay_of(&first);
    assert_eq!(app.effects(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_answer_without_content_is_replayed() {
    let app = App::new();
    let service = app.service();
    let ask = post("/orders").key("k").flags("status=204");
    let first = ask.send(&service).await;
    first.assert_fresh(204);
    ask.send(&service).await.assert_replay_of(&first);
}

#[tokio::test(start_paused = true)]
async fn an_answer_of_unknown_length_is_kept_while_it_streams() {
    let app = App::new();
    let service = app.service();
    for status in [201, 422] {
        let flags = format!("size=30&chunks=3&chunk_delay=100&nolen&status={status}");
        let ask = post("/orders").key(&status.to_string()).flags(&flags);
        let start = tokio::time::Instant::now();
        let response = service.clone().oneshot(ask.request()).await.unwrap();
        let mut body = response.into_body();
        let frame = body.frame().await.unwrap().unwrap();
        assert_eq!(frame.into_data().unwrap().len(), 10);
        assert_eq!(start.elapsed(), ms(0), "the first byte is not delayed");
        ask.send(&service).await.assert_refused(409, "in-progress");
        let rest = body.collect().await.unwrap().to_bytes();
        assert_eq!((rest.len(), start.elapsed()), (20, ms(200)));
        let replay = ask.send(&service).await;
        assert!(replay.is_replay());
        assert_eq!(replay.text(), "x".repeat(30));
    }
    assert_eq!(app.effects(), 2);
}

#[tokio::test(start_paused = true)]
async fn the_record_is_kept_before_the_last_byte_leaves() {
    let app = App::new();
    let service = app.service();
    for (key, flags) in [
        ("length", "size=30&chunks=3"),
        ("end", "size=30&chunks=3&nolen&ends"),
        ("nothing", "size=30&chunks=3&nolen"),
    ] {
        // A slow store, so that a record that is merely begun is not there yet.
        app.store
            .faults()
            .set_for(Operation::Finish, Fault::Delay(ms(50)));
        let ask = post("/orders").key(key).flags(flags);
        let response = service.clone().oneshot(ask.request()).await.unwrap();
        let mut body = response.into_body();
        // The very moment that the end can be seen: by the last frame, where that tells.
        let mut left = 30;
        while let Some(frame) = body.frame().await {
            left -= frame.unwrap().into_data().unwrap().len();
            if left == 0 && key != "nothing" {
                break;
            }
        }
        assert_eq!(left, 0);
        assert!(ask.send(&service).await.is_replay(), "{key}");
    }
    assert_eq!(app.effects(), 3);
}

/// Byte by byte an answer takes a hundred times its size in memory.
#[tokio::test(start_paused = true)]
async fn an_answer_in_a_great_many_frames_goes_out_whole_and_is_remembered_as_done() {
    let app = App::new();
    let service = app.service();
    for (flags, kept) in [
        ("size=60000&chunks=60000", true),
        ("size=60000&chunks=60000&nolen", true),
        ("size=70000&chunks=70000", false),
        ("size=70000&chunks=70000&nolen", false),
    ] {
        let ask = post("/orders").key(&flags.replace(['&', '='], "-"));
        let ask = ask.flags(flags);
        let first = ask.send(&service).await;
        let size = if kept { 60_000 } else { 70_000 };
        assert_eq!(first.assert_fresh(201).text().len(), size, "{flags}");
        let again = ask.send(&service).await;
        if kept {
            again.assert_replay_of(&first);
        } else {
            again.assert_refused(409, "response-not-kept");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_frame_without_data_is_neither_kept_nor_passed_on() {
    let app = App::new();
    let service = app.service();
    for length in ["", "&nolen"] {
        // All of them but the last are empty.
        let flags = format!("size=30&chunks=100000{length}");
        let ask = post("/orders").key(&format!("k{}", length.len()));
        let ask = ask.flags(&flags);
        let response = service.clone().oneshot(ask.request()).await.unwrap();
        let mut body = response.into_body();
        let mut frames = Vec::new();
        while let Some(frame) = body.frame().await {
            frames.push(frame.unwrap().into_data().unwrap().len());
        }
        assert_eq!(frames, [30], "{length}");
        assert!(ask.send(&service).await.is_replay());
    }
}

#[tokio::test(start_paused = true)]
async fn a_big_answer_goes_out_whole_and_is_remembered_as_done() {
    let app = App::new();
    let layer = app.builder().max_response_body(1000).build().unwrap();
    let service = app.under(&layer);
    for (key, flags, kept) in [
        ("at the cap", "size=1000&chunks=3", true),
        ("over the cap", "size=1001&chunks=3", false),
        ("at the cap, unknown", "size=1000&chunks=3&nolen", true),
        ("over the cap, unknown", "size=1001&chunks=3&nolen", false),
        ("far over", "size=10000&chunks=1&nolen", false),
    ] {
        let ask = post("/orders")
            .key(&key.replace([' ', ','], "-"))
            .flags(flags);
        let first = ask.send(&service).await;
        first.assert_fresh(201);
        let size = flags.split(['=', '&']).nth(1).unwrap();
        assert_eq!(first.text().len().to_string(), size, "{key}");
        let again = ask.send(&service).await;
        if kept {
            again.assert_replay_of(&first);
        } else {
            again.assert_refused(409, "response-not-kept");
        }
    }
    assert_eq!(app.effects(), 5);
    assert_eq!((layer.counts().kept, layer.counts().tombstones), (2, 3));
}

#[tokio::test(start_paused = true)]
async fn a_big_answer_is_settled_before_its_head_when_its_length_is_known() {
    let app = App::new();
    let service = app.under(&app.builder().max_response_body(10).build().unwrap());
    let ask = post("/orders")
        .key("k")
        .flags("size=100&chunks=2&chunk_delay=1000");
    let response = service.clone().oneshot(ask.request()).await.unwrap();
    ask.send(&service)
        .await
        .assert_refused(409, "response-not-kept");
    assert_eq!(hint(&response), Some(100), "untouched");
    assert_eq!(read(response).await.text().len(), 100);
}

#[tokio::test(start_paused = true)]
async fn an_endless_answer_is_settled_when_it_passes_the_cap() {
    let app = App::new();
    let service = app.under(&app.builder().max_response_body(10).build().unwrap());
    let ask = post("/orders")
        .key("k")
        .flags("size=100000&chunks=10000&chunk_delay=100&nolen");
    let response = service.clone().oneshot(ask.request()).await.unwrap();
    let mut body = response.into_body();
    body.frame().await.unwrap().unwrap();
    ask.send(&service).await.assert_refused(409, "in-progress");
    body.frame().await.unwrap().unwrap();
    ask.send(&service)
        .await
        .assert_refused(409, "response-not-kept");
    body.frame().await.unwrap().unwrap();
    assert_eq!(app.effects(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_replay_says_its_length() {
    let app = App::new();
    let service = app.service();
    let ask = post("/orders").key("k").flags("size=30&chunks=3&nolen");
    ask.send(&service).await.assert_fresh(201);
    let replay = service.clone().oneshot(ask.request()).await.unwrap();
    assert_eq!(hint(&replay), Some(30));
}

#[tokio::test(start_paused = true)]
async fn a_record_is_kept_for_its_retention_and_no_longer() {
    let app = App::new();
    let service = app.under(&app.builder().retention(ms(5000)).build().unwrap());
    let ask = post("/orders").key("k");
    let first = ask.send(&service).await;
    tokio::time::advance(ms(4900)).await;
    ask.send(&service).await.assert_replay_of(&first);
    tokio::time::advance(ms(200)).await;
    ask.send(&service).await.assert_fresh(201);
    assert_eq!(app.effects(), 2);
}

#[tokio::test(start_paused = true)]
async fn many_repeats_at_once_are_all_replayed() {
    let app = App::new();
    let service = app.service();
    let ask = post("/orders").key("k");
    let first = ask.send(&service).await;
    let finishes = app.store.faults().calls().of(Operation::Finish);
    let repeats = (0..50).map(|_| ask.send(&service));
    for replay in futures_util::future::join_all(repeats).await {
        replay.assert_replay_of(&first);
    }
    let calls = app.store.faults().calls();
    assert_eq!(calls.of(Operation::Finish), finishes, "no write");
}

#[tokio::test(start_paused = true)]
async fn an_unreadable_record_is_no_reason_to_run_again() {
    use tower_claim::store::{FinishRequest, Owner, Value};
    use tower_claim::{ClaimAdmin, ClaimStore};

    let app = App::new();
    let service = app.service();
    // Somebody else wrote under our key. The fingerprint is that of the request.
    let ask = post("/orders").key("k");
    let first = ask.clone().flags("delay=1000");
    let running = tokio::spawn({
        let service = service.clone();
        async move { first.send(&service).await }
    });
    tokio::time::sleep(ms(1)).await;
    let scan = app.store.inner().scan(None, 10).await.unwrap();
    let record = &scan.records[0];
    let owner = Owner {
        key: record.key,
        nonce: record.nonce,
        token: record.token,
    };
    let value = Value::Kept(vec![9, 9, 9].into());
    let finish = FinishRequest {
        owner,
        value,
        keep: ms(60_000),
    };
    let _ = app.store.inner().finish(finish).await.unwrap();
    let refused = ask.send(&service).await;
    refused.assert_refused(503, "store-unavailable");
    assert!(refused.text().contains("record-unreadable"));
    running.await.unwrap();
    assert_eq!(app.effects(), 1);
}
