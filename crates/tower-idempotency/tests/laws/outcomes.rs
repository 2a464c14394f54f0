//! Which answers are kept, what of them, and what repeats are told.

use std::io;

use bytes::Bytes;
use http::header::{ETAG, LOCATION};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use tower::util::BoxCloneSyncService;
use tower::{Layer, ServiceExt};
use tower_claim::testing::{Fault, Operation};
use tower_claim::transaction::UniqueViolation;
use tower_idempotency::{
    IdempotencyLayer, NotKept, Outcome, RequestBody, default_grpc_outcome, default_outcome,
};

use crate::support::*;

/// A service that answers each request by this function, and counts.
fn answering(
    layer: &IdempotencyLayer,
    answer: impl Fn(u64) -> Response<Body> + Clone + Send + Sync + 'static,
) -> Service {
    let runs = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(0));
    let handler = tower::service_fn(move |_: Request<RequestBody<Body>>| {
        let n = runs.fetch_add(1, std::sync::atomic::Ordering::SeqCst) + 1;
        let response = answer(n);
        async move { Ok::<_, io::Error>(response) }
    });
    layer.layer(BoxCloneSyncService::new(handler))
}

fn trailing(trailers: &[(&'static str, &'static str)]) -> Body {
    let mut map = HeaderMap::new();
    for (name, value) in trailers {
        map.append(*name, HeaderValue::from_static(value));
    }
    let frames = [
        Ok(Frame::data(Bytes::from_static(b"message"))),
        Ok::<_, io::Error>(Frame::trailers(map)),
    ];
    StreamBody::new(futures_util::stream::iter(frames)).boxed_unsync()
}

fn grpc() -> Ask {
    post("/lab.Lab/Order").header("content-type", "application/grpc")
}

#[tokio::test(start_paused = true)]
async fn a_rule_judges_by_headers_before_the_status_does() {
    let app = App::new();
    let layer = app
        .builder()
        .outcome_if(|answer| {
            let said = answer.headers.get("x-outcome")?;
            Some(match said.as_bytes() {
                b"release" => Outcome::Release,
                b"tombstone" => Outcome::Tombstone,
                _ => Outcome::Keep,
            })
        })
        .outcome_if(|answer| (answer.status == 404).then_some(Outcome::Release))
        .outcome(|status| match status.as_u16() {
            410 => Outcome::Release,
            _ => default_outcome(status),
        })
        .build()
        .unwrap();
    for (status, header, runs_again) in [
        (200, "release", true),
        (503, "keep", false),
        (404, "keep", false),
        (404, "", true),
        (410, "", true),
        (410, "keep", false),
        (200, "", false),
    ] {
        let service = answering(&layer, move |n| {
            let mut response = Response::builder().status(status);
            if !header.is_empty() {
                response = response.header("x-outcome", header);
            }
            response.body(body_of(n.to_string())).unwrap()
        });
        let ask = post("/orders").key(&format!("{status}{header}"));
        ask.send(&service).await.assert_fresh(status);
        let again = ask.send(&service).await;
        assert_eq!(again.text(), if runs_again { "2" } else { "1" });
        assert_eq!(again.is_replay(), !runs_again, "{status} {header}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_handler_may_say_the_outcome_itself() {
    for (said, repeat) in [
        (Outcome::Keep, "kept"),
        (Outcome::Release, "again"),
        (Outcome::Tombstone, "response-not-kept"),
    ] {
        let app = App::new();
        let layer = app.builder().outcome_if(|_| Some(Outcome::Release));
        let layer = layer.build().unwrap();
        let service = answering(&layer, move |n| {
            let body = body_of(if n == 1 { "kept" } else { "again" });
            Response::builder()
                .status(500)
                .extension(said)
                .body(body)
                .unwrap()
        });
        let ask = post("/orders").key("k");
        assert_eq!(ask.send(&service).await.text(), "kept");
        let again = ask.send(&service).await;
        assert!(again.text().contains(repeat), "{said:?}: {again:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn past_the_point_of_no_return_a_rule_may_only_say_how_much_is_kept() {
    let app = App::new();
    for (said, repeat) in [
        (Outcome::Release, None),
        (Outcome::Tombstone, Some("response-not-kept")),
    ] {
        let layer = app
            .builder()
            .outcome_if(move |_| Some(said))
            .build()
            .unwrap();
        let service = app.under(&layer);
        let ask = post("/orders")
            .key(&format!("{said:?}"))
            .flags("commit&status=500");
        let first = ask.send(&service).await;
        first.assert_fresh(500);
        let again = ask.send(&service).await;
        match repeat {
            None => drop(again.assert_replay_of(&first)),
            Some(code) => drop(again.assert_refused(409, code)),
        }
    }
    assert_eq!(app.effects(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_grpc_answer_is_judged_by_its_trailers_or_by_its_head_alone() {
    let app = App::new();
    let layer = app
        .builder()
        .outcome(|_| Outcome::Release)
        .grpc_outcome(|status| match status {
            5 => Outcome::Release,
            14 => Outcome::Keep,
            16 => Outcome::Tombstone,
            other => default_grpc_outcome(other),
        })
        .build()
        .unwrap();
    for (status, repeat) in [
        ("0", "1"),
        ("3", "1"),
        ("5", "2"),
        ("13", "2"),
        ("14", "1"),
        ("16", "not kept"),
        ("", "2"),
        ("x", "2"),
    ] {
        for alone in [false, true] {
            if alone && status.is_empty() {
                continue;
            }
            let service = answering(&layer, move |n| {
                let mut response = Response::builder()
                    .header("content-type", "application/grpc")
                    .header("x-n", n);
                if alone {
                    response = response.header("grpc-status", status);
                }
                let body = if alone {
                    body_of("")
                } else if status.is_empty() {
                    trailing(&[])
                } else {
                    trailing(&[("grpc-status", status)])
                };
                response.body(body).unwrap()
            });
            let ask = grpc().key(&format!("k{status}{alone}"));
            let first = ask.send(&service).await;
            assert_eq!(first.headers["x-n"], "1");
            let again = ask.send(&service).await;
            let what = format!("{status} {alone}: {again:?}");
            if repeat == "not kept" {
                assert_eq!(again.headers["problem-code"], "response-not-kept", "{what}");
                continue;
            }
            assert_eq!(again.headers["x-n"], repeat, "{what}");
            assert_eq!(again.is_replay(), repeat == "1", "{what}");
            if again.is_replay() {
                assert_eq!(again.trailers, first.trailers, "{what}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn headers_and_trailers_are_kept_by_the_lists() {
    let secret = HeaderName::from_static("x-secret");
    let app = App::new();
    let answer = |_| {
        Response::builder()
            .header("content-type", "text/plain")
            .header("location", "/orders/1")
            .header("etag", "\"v1\"")
            .header("x-secret", "s")
            .header("set-cookie", "a=1")
            .body(trailing(&[
                ("x-sum", "6"),
                ("x-secret", "s"),
                ("server-timing", "a"),
            ]))
            .unwrap()
    };
    let names = |answer: &Answer| {
        let trailers = answer.trailers.clone().unwrap_or_default();
        let mut all: Vec<_> = answer
            .headers
            .keys()
            .chain(trailers.keys())
            .map(|name| name.as_str().to_owned())
            .filter(|name| !name.starts_with("idempot") && name != "trailer")
            .collect();
        all.sort();
        all.join(" ")
    };
    let builders = [
        (
            app.builder(),
            "content-type etag location x-secret x-secret x-sum",
        ),
        (
            app.builder().drop_header(secret.clone()),
            "content-type etag location x-sum",
        ),
        (
            app.builder().keep_headers_only([LOCATION, ETAG]),
            "content-type etag location",
        ),
        (
            app.builder()
                .keep_headers_only([LOCATION])
                .keep_header(secret),
            "content-type location x-secret x-secret",
        ),
    ];
    for (i, (builder, kept)) in builders.into_iter().enumerate() {
        let service = answering(&builder.build().unwrap(), answer);
        let ask = post("/orders").key(&i.to_string());
        let first = ask.send(&service).await;
        assert_eq!(
            names(&first),
            "content-type etag location server-timing set-cookie x-secret x-secret x-sum",
            "the first run's own"
        );
        assert_eq!(names(&ask.send(&service).await), kept);
    }
}

#[tokio::test(start_paused = true)]
async fn framing_is_not_kept_though_asked_for() {
    let refused = App::new()
        .builder()
        .keep_header(http::header::CONTENT_LENGTH)
        .build();
    let refused = refused.unwrap_err();
    assert_eq!(refused.setting(), "keep_header");
    assert!(refused.to_string().contains("content-length"));
}

#[tokio::test(start_paused = true)]
async fn each_answer_says_how_it_came_about_when_told_to() {
    let app = App::new();
    let layer = app
        .builder()
        .tell_status()
        .max_response_body(10)
        .build()
        .unwrap();
    let service = app.under(&layer);
    let status = |answer: &Answer| {
        let status = answer.headers.get("idempotency-status");
        status.map(|s| s.to_str().unwrap().to_owned())
    };
    for flags in ["size=5", "size=5&chunks=5&nolen", "size=50", "status=503"] {
        let ask = post("/orders").key(flags).flags(flags);
        assert_eq!(
            status(&ask.send(&service).await).unwrap(),
            "fresh",
            "{flags}"
        );
        let again = status(&ask.send(&service).await).unwrap();
        let expected = match flags {
            "size=50" => "response-not-kept",
            "status=503" => "fresh",
            _ => "replayed",
        };
        assert_eq!(again, expected, "{flags}");
    }
    let keyless = post("/orders").send(&service).await;
    assert_eq!(status(&keyless), None, "none of the layer's business");
    let silent = app.service();
    let ask = post("/orders").key("silent");
    assert_eq!(status(&ask.send(&silent).await), None);
    assert_eq!(status(&ask.send(&silent).await), None);
}

/// It is this request's own answer, and the next one runs.
#[tokio::test(start_paused = true)]
async fn the_answer_of_a_hook_that_is_not_kept_says_how_it_came_about_as_well() {
    let app = App::new();
    for (status, said) in [(503, "fresh"), (200, "existing")] {
        let key = format!("k-{status}");
        let hook = move |_| async move {
            let response = Response::builder().status(status);
            response.body(Bytes::from_static(b"of the row")).ok()
        };
        let layer = app.builder().tell_status();
        let layer = layer.on_unique_violation("orders_key", hook);
        let handler = tower::service_fn(async |_: Request<RequestBody<Body>>| {
            let mut response = Response::new(body_of("refused"));
            *response.status_mut() = StatusCode::CONFLICT;
            let refused = UniqueViolation::new("orders_key");
            response.extensions_mut().insert(refused);
            Ok::<_, io::Error>(response)
        });
        let service = layer.build().unwrap();
        let service = service.layer(BoxCloneSyncService::new(handler));
        let answer = post("/orders").key(&key).send(&service).await;
        assert_eq!(answer.status, status);
        assert_eq!(answer.headers["idempotency-status"], said);
    }
}

#[tokio::test(start_paused = true)]
async fn a_replay_tells_when_the_first_run_began() {
    let app = App::new();
    let service = app.service();
    let ask = post("/orders").key("k");
    let began = app.clock.unix_time();
    let first = ask.clone().flags("delay=5000").send(&service).await;
    assert!(!first.headers.contains_key("idempotency-first-seen"));
    tokio::time::sleep(ms(60_000)).await;
    let replay = ask.send(&service).await;
    let date = httpdate::fmt_http_date(std::time::UNIX_EPOCH + began);
    assert_eq!(replay.headers["idempotency-first-seen"], date.as_str());
}

/// From the resource, as the first answer's location names it.
async fn see_other(not_kept: NotKept) -> Option<Response<Bytes>> {
    let uri = not_kept.request().uri.path().to_owned();
    assert!(!uri.ends_with("panic"), "told to");
    let made = not_kept.headers()?.get(LOCATION)?.clone();
    assert_eq!(not_kept.status().unwrap(), 201);
    assert!(not_kept.first_seen().is_some());
    let response = Response::builder().status(303).header(LOCATION, made);
    let response = response.body(Bytes::from_static(b"see there")).unwrap();
    (!uri.ends_with("none")).then_some(response)
}

#[tokio::test(start_paused = true)]
async fn what_was_not_kept_is_answered_from_the_resource() {
    let app = App::new();
    let layer = app
        .builder()
        .max_response_body(10)
        .tell_status()
        .on_not_kept(see_other);
    let layer = layer.build().unwrap();
    let service = app.under(&layer);
    for flags in ["size=50", "size=50&chunks=5&nolen"] {
        let ask = post("/orders").key(flags).flags(flags);
        let first = ask.send(&service).await;
        first.assert_fresh(201);
        let again = ask.send(&service).await;
        assert_eq!((again.status.as_u16(), again.text()), (303, "see there"));
        assert_eq!(again.headers["location"], first.headers["location"]);
        assert_eq!(again.headers["idempotency-status"], "rendered");
        assert!(again.is_replay() && again.headers.contains_key("idempotency-first-seen"));
    }
    assert_eq!((app.effects(), layer.counts().rendered), (2, 2));
    for path in ["/none", "/panic"] {
        let ask = post(path).key(path).flags("size=50");
        ask.send(&service).await.assert_fresh(201);
        ask.send(&service)
            .await
            .assert_refused(409, "response-not-kept");
    }
    assert_eq!((app.effects(), layer.counts().rendered), (4, 2));
}

#[tokio::test(start_paused = true)]
async fn extensions_and_trailers_are_intact_on_the_first_run_on_every_way() {
    let app = App::new();
    let layer = app.builder().max_response_body(10).build().unwrap();
    let service = app.under(&layer);
    for flags in [
        "size=5",
        "size=5&chunks=5&nolen",
        "size=50",
        "size=50&chunks=5&nolen",
        "status=503",
        "commit&status=503",
    ] {
        let ask = post("/orders").key(flags).flags(flags);
        let response = service.clone().oneshot(ask.request()).await.unwrap();
        assert!(
            response.extensions().get::<Extension>().is_some(),
            "{flags}"
        );
    }
    for status in [200, 503] {
        let service = answering(&layer, move |_| {
            let body = trailing(&[("x-sum", "6")]);
            Response::builder().status(status).body(body).unwrap()
        });
        let first = post("/orders")
            .key(&status.to_string())
            .send(&service)
            .await;
        assert_eq!(first.trailers.unwrap()["x-sum"], "6", "{status}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_tombstone_is_in_the_store_before_its_answer_leaves() {
    let app = App::new();
    let layer = app
        .builder()
        .outcome_if(|_| Some(Outcome::Tombstone))
        .build()
        .unwrap();
    let service = app.under(&layer);
    app.store
        .faults()
        .set_for(Operation::Finish, Fault::Delay(ms(50)));
    let ask = post("/orders")
        .key("k")
        .flags("size=30&chunks=3&nolen&chunk_delay=100");
    let response = service.clone().oneshot(ask.request()).await.unwrap();
    ask.send(&service)
        .await
        .assert_refused(409, "response-not-kept");
    assert_eq!(read(response).await.text().len(), 30);
    assert_eq!(app.effects(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_conflict_that_asks_to_come_again_is_no_outcome() {
    // Behind a gateway: the service's own guard says that the first run is still going.
    let app = App::new();
    let layer = app.builder().build().unwrap();
    let service = answering(&layer, |n| {
        let response = match n {
            1 => Response::builder().status(409).header("retry-after", "3"),
            _ => Response::builder().status(201),
        };
        response.body(body_of("")).unwrap()
    });
    let ask = post("/orders").key("k");
    assert_eq!(ask.send(&service).await.status, 409);
    ask.send(&service).await.assert_fresh(201);
    assert!(ask.send(&service).await.is_replay());
}
