//! The laws of the HTTP layer: what is merged, what is shared, and what never.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

mod common;

use std::time::Duration;

use common::*;
use futures_util::FutureExt;
use futures_util::future::join_all;
use http::header::{self, HeaderName};
use http::{HeaderValue, Method, Request, StatusCode};
use tokio::time::{Instant, sleep};
use tower::{Layer, ServiceExt};
use tower_claim::http::{Gate, Mode, Switch};
use tower_single_flight::SingleFlightLayer;

type MakeRequest = Box<dyn Fn() -> Request<TestBody>>;
type MakeResponse = fn() -> TestResponse;

#[test]
fn a_hundred_readers_are_one_call() {
    paused(async {
        let app = App::new(|_, n| ok(format!("body {n}")));
        let began = Instant::now();
        let answers = app.at_once(100, get("/x")).await;
        assert!(
            answers
                .iter()
                .all(|a| a.status == 200 && a.body == "body 1")
        );
        assert_eq!((app.calls(), began.elapsed()), (1, 20 * MS));
        assert_eq!((app.layer.flights(), app.layer.followers()), (0, 0));
    });
}

#[test]
fn followers_say_that_they_were_collapsed_and_the_leader_does_not() {
    paused(async {
        let app = App::new(|_, _| {
            let mut response = ok("x");
            response
                .headers_mut()
                .insert("cache-status", "inner; hit".parse().unwrap());
            response
        });
        let answers = app.at_once(3, get("/x")).await;
        let statuses = |a: &Answer| -> Vec<String> {
            let all = a.headers.get_all("cache-status");
            all.iter().map(|v| v.to_str().unwrap().to_owned()).collect()
        };
        assert_eq!(statuses(&answers[0]), ["inner; hit"]);
        for follower in &answers[1..] {
            let collapsed = "tower-single-flight; fwd=miss; collapsed";
            assert_eq!(statuses(follower), ["inner; hit", collapsed]);
        }
    });
}

#[test]
fn what_may_be_one_users_passes_through() {
    paused(async {
        let get = move || get("/x");
        let with = |name: &'static str, value: &'static str| {
            move || {
                let mut request = get();
                let value = HeaderValue::from_bytes(value.as_bytes()).unwrap();
                request.headers_mut().insert(name, value);
                request
            }
        };
        let method = |method: Method| {
            move || {
                let mut request = get();
                *request.method_mut() = method.clone();
                request
            }
        };
        let with_body = move || get().map(|_| body("a body"));
        let cases: Vec<(&str, MakeRequest)> = vec![
            ("authorization", Box::new(with("authorization", "Bearer x"))),
            ("proxy", Box::new(with("proxy-authorization", "Basic x"))),
            ("cookie", Box::new(with("cookie", "a=b"))),
            ("range", Box::new(with("range", "bytes=0-9"))),
            ("if-range", Box::new(with("if-range", "\"v1\""))),
            ("upgrade", Box::new(with("upgrade", "websocket"))),
            ("connection", Box::new(with("connection", "close, Upgrade"))),
            ("expect", Box::new(with("expect", "100-continue"))),
            (
                "no-store",
                Box::new(with("cache-control", "max-age=3, No-Store")),
            ),
            (
                "no-store and é",
                Box::new(with("cache-control", "x=\"é\", no-store")),
            ),
            ("post", Box::new(method(Method::POST))),
            ("options", Box::new(method(Method::OPTIONS))),
            (
                "query",
                Box::new(method(Method::from_bytes(b"QUERY").unwrap())),
            ),
            ("body", Box::new(with_body)),
        ];
        for (name, request) in cases {
            let app = App::new(|_, n| ok(format!("{n}")));
            let answers = app.at_once_by(5, |_| request()).await;
            assert_eq!(app.calls(), 5, "{name}");
            let mut bodies: Vec<_> = answers.into_iter().map(|a| a.body).collect();
            bodies.sort();
            assert_eq!(bodies, ["1", "2", "3", "4", "5"], "{name}");
        }
    });
}

#[test]
fn an_identity_in_the_key_merges_one_user_and_never_two() {
    paused(async {
        let layer = builder().identity(header::AUTHORIZATION).build().unwrap();
        let app = App::with(layer, |request, _| {
            ok(request.headers["authorization"]
                .to_str()
                .unwrap()
                .to_owned())
        });
        let answers = app
            .at_once_by(10, |n| {
                let mut request = get("/x");
                let user = if n % 2 == 0 { "Bearer a" } else { "Bearer b" };
                request
                    .headers_mut()
                    .insert("authorization", user.parse().unwrap());
                request
            })
            .await;
        for (n, answer) in answers.iter().enumerate() {
            assert_eq!(
                answer.body,
                if n % 2 == 0 { "Bearer a" } else { "Bearer b" }
            );
        }
        assert_eq!(app.calls(), 2);
        // Another credential still passes through.
        let mut with_both = get("/x");
        with_both
            .headers_mut()
            .insert("authorization", "Bearer a".parse().unwrap());
        with_both
            .headers_mut()
            .insert("cookie", "s=1".parse().unwrap());
        app.at_once(3, with_both).await;
        assert_eq!(app.calls(), 5);
    });
}

#[test]
fn a_key_header_alone_lifts_no_bypass() {
    paused(async {
        let layer = builder().key_header(header::COOKIE).build().unwrap();
        let app = App::with(layer, |_, _| ok("x"));
        let mut request = get("/x");
        request
            .headers_mut()
            .insert("cookie", "s=1".parse().unwrap());
        app.at_once(3, request).await;
        assert_eq!(app.calls(), 3);
    });
}

#[test]
fn requests_that_differ_are_never_merged() {
    paused(async {
        let pairs: [(Request<TestBody>, Request<TestBody>); 13] = [
            (get("/x"), get("/y")),
            (get("/x"), get("/x?")),
            (get("/x?a=1&b=2"), get("/x?b=2&a=1")),
            (get("/%78"), get("/x")),
            (get("http://one.example/x"), get("http://two.example/x")),
            (get("http://one.example/x"), get("https://one.example/x")),
            (with_header("host", "one"), with_header("host", "two")),
            (
                with_header("accept", "a"),
                with_header("accept-encoding", "a"),
            ),
            // Lines that are there and empty are not lines that are not there.
            (
                with_header("accept", ""),
                with_header("accept-encoding", ""),
            ),
            (
                with_header("x-forwarded-proto", "http"),
                with_header("x-forwarded-proto", "https"),
            ),
            (
                with_header("x-forwarded-host", "one"),
                with_header("x-forwarded-host", "two"),
            ),
            (
                with_header("if-none-match", "\"1\""),
                with_header("if-none-match", "\"2\""),
            ),
            (get("/x"), {
                let mut head = get("/x");
                *head.method_mut() = Method::HEAD;
                head
            }),
        ];
        for (one, other) in pairs {
            let app = App::new(|_, n| ok(format!("{n}")));
            let name = format!("{one:?} and {other:?}");
            tokio::join!(app.send(one), app.send(other));
            assert_eq!(app.calls(), 2, "{name}");
        }
    });
}

#[test]
fn an_empty_key_header_is_not_another_empty_key_header() {
    paused(async {
        let names = ["x-a", "x-b"];
        let layer = names
            .iter()
            .fold(builder(), |b, n| b.key_header(HeaderName::from_static(n)));
        let app = App::with(layer.build().unwrap(), |_, _| ok("x"));
        tokio::join!(
            app.send(with_header("x-a", "")),
            app.send(with_header("x-b", ""))
        );
        assert_eq!(app.calls(), 2);
    });
}

#[test]
fn two_header_lines_are_not_one_with_a_comma() {
    paused(async {
        let app = App::new(|_, _| ok("x"));
        let one = with_header("accept", "a, b");
        let mut two = with_header("accept", "a");
        two.headers_mut().append("accept", "b".parse().unwrap());
        tokio::join!(app.send(one), app.send(two));
        assert_eq!(app.calls(), 2);
    });
}

#[test]
fn the_key_can_be_changed() {
    paused(async {
        let layer = builder()
            .without_authority()
            .key_header(HeaderName::from_static("x-tenant"))
            .build()
            .unwrap();
        let app = App::with(layer, |_, _| ok("x"));
        let (one, other) = (get("http://one.example/x"), get("https://two.example/x"));
        tokio::join!(app.send(one), app.send(other));
        assert_eq!(app.calls(), 1);
        let (one, other) = (with_header("x-tenant", "1"), with_header("x-tenant", "2"));
        tokio::join!(app.send(one), app.send(other));
        assert_eq!(app.calls(), 3);

        let own = |parts: &http::request::Parts| {
            let path = parts.uri.path();
            path.strip_prefix("/shared/").map(str::to_owned)
        };
        let app = App::with(builder().key(own).build().unwrap(), |_, _| ok("x"));
        tokio::join!(app.send(get("/shared/x?a")), app.send(get("/shared/x?b")));
        assert_eq!(app.calls(), 1);
        tokio::join!(app.send(get("/x")), app.send(get("/x")));
        assert_eq!(app.calls(), 3, "None passes through");
        let mut head = get("/shared/x");
        *head.method_mut() = Method::HEAD;
        tokio::join!(app.send(get("/shared/x")), app.send(head));
        assert_eq!(app.calls(), 5, "the method stays in the key");
    });
}

#[test]
fn no_cache_never_joins_what_began_earlier() {
    paused(async {
        for name in ["cache-control", "pragma"] {
            let app = App::new(|_, n| ok(format!("{n}")));
            let old = app.spawn(get("/x"));
            sleep(5 * MS).await;
            let fresh = app.spawn(with_header(name, "no-cache"));
            sleep(5 * MS).await;
            let joined = app.spawn(get("/x"));
            assert_eq!(old.await.unwrap().body, "1");
            assert_eq!(fresh.await.unwrap().body, "2");
            assert_eq!(
                joined.await.unwrap().body,
                "2",
                "later ones join the newer flight"
            );
        }
    });
}

#[test]
fn an_answer_for_one_caller_costs_as_many_calls_as_callers() {
    paused(async {
        let cases: [(&str, MakeResponse); 16] = [
            ("set-cookie", || answer_with("set-cookie", "s=1")),
            ("private", || {
                answer_with("cache-control", "max-age=5, private")
            }),
            ("private=", || answer_with("cache-control", "private=\"x\"")),
            ("no-store", || answer_with("cache-control", "no-store")),
            // Bytes that are no text hide nothing beside them.
            ("private and é", || {
                answer_with("cache-control", "x=\"é\", private")
            }),
            ("vary with é", || answer_with("vary", "é")),
            ("vary", || answer_with("vary", "accept, *")),
            ("garbled vary", || answer_with("vary", "a b")),
            ("events", || {
                answer_with("content-type", "text/event-stream; charset=utf-8")
            }),
            ("206", || status(206)),
            ("401", || status(401)),
            ("407", || status(407)),
            ("416", || status(416)),
            ("421", || status(421)),
            ("425", || status(425)),
            ("429", || status(429)),
        ];
        for (name, make) in cases {
            let app = App::new(move |_, n| make().map(|_| body(format!("{n}"))));
            let began = Instant::now();
            let answers = app.at_once(5, get("/x")).await;
            assert_eq!(
                app.calls(),
                5,
                "{name}: as many calls as callers, not one more"
            );
            assert_eq!(began.elapsed(), 40 * MS, "{name}: all at once");
            let mut bodies: Vec<_> = answers.into_iter().map(|a| a.body).collect();
            bodies.sort();
            assert_eq!(bodies, ["1", "2", "3", "4", "5"], "{name}");
            // Remembered: the next ones do not queue.
            let began = Instant::now();
            app.at_once(5, get("/x")).await;
            assert_eq!((app.calls(), began.elapsed()), (10, 20 * MS), "{name}");
            // And forgotten.
            sleep(Duration::from_secs(10)).await;
            let began = Instant::now();
            app.at_once(2, get("/x")).await;
            assert_eq!((app.calls(), began.elapsed()), (12, 40 * MS), "{name}");
        }
    });
}

#[test]
fn shared_statuses_are_shared() {
    paused(async {
        for code in [200, 204, 301, 304, 404, 410, 500, 503] {
            let app = App::new(move |_, _| status(code));
            let answers = app.at_once(5, with_header("if-none-match", "\"1\"")).await;
            assert!(answers.iter().all(|a| a.status == code));
            assert_eq!(app.calls(), 1, "{code}");
        }
    });
}

#[test]
fn a_304_is_shared_only_under_equal_conditions() {
    paused(async {
        // An own key knows nothing of conditions.
        let layer = builder().key(|_| Some("same")).build().unwrap();
        let app = App::with(layer, |request, n| {
            match request.headers.get("if-none-match") {
                Some(_) => status(304),
                None => ok(format!("{n}")),
            }
        });
        let (conditional, plain) = tokio::join!(
            app.send(with_header("if-none-match", "\"1\"")),
            app.send(get("/x"))
        );
        assert_eq!(
            (conditional.status.as_u16(), plain.status.as_u16()),
            (304, 200)
        );
        assert_eq!(plain.body, "2");
    });
}

#[test]
fn variants_are_regrouped_in_parallel_and_learned() {
    paused(async {
        let app = App::new(|request, _| {
            let kind = request.headers["x-kind"].to_str().unwrap().to_owned();
            let mut response = ok(kind);
            response
                .headers_mut()
                .insert("vary", "X-Kind".parse().unwrap());
            response
        });
        let kinds = ["a", "b", "c"];
        let round = || async {
            let began = Instant::now();
            let answers = app
                .at_once_by(30, |n| with_header("x-kind", kinds[n % 3]))
                .await;
            for (n, answer) in answers.iter().enumerate() {
                assert_eq!(answer.body, kinds[n % 3]);
            }
            began.elapsed()
        };
        assert_eq!(round().await, 40 * MS);
        assert_eq!(app.calls(), 3, "one call per variant");
        assert_eq!(round().await, 20 * MS, "the next round is keyed right");
        assert_eq!(app.calls(), 6);
    });
}

#[test]
fn equal_values_of_a_vary_header_share_at_once() {
    paused(async {
        let app = App::new(|_, n| {
            let mut response = ok(format!("{n}"));
            response
                .headers_mut()
                .insert("vary", "Origin, Accept".parse().unwrap());
            response
        });
        let answers = app
            .at_once(10, with_header("origin", "https://one.example"))
            .await;
        assert!(answers.iter().all(|a| a.body == "1"));
        assert_eq!(app.calls(), 1);
    });
}

#[test]
fn a_predicate_can_deny_further() {
    paused(async {
        let layer = builder()
            .share_if(|r| r.status.is_success())
            .build()
            .unwrap();
        let app = App::with(layer, |_, _| status(404));
        app.at_once(3, get("/x")).await;
        assert_eq!(app.calls(), 3);
    });
}

#[test]
fn going_alone_is_bounded() {
    paused(async {
        let layer = builder().go_alone_limit(2).build().unwrap();
        let app = App::with(layer, |_, _| answer_with("set-cookie", "s=1"));
        let answers = app.at_once(6, get("/x")).await;
        let ok = answers.iter().filter(|a| a.status == 200).count();
        let refused: Vec<_> = answers.iter().filter(|a| a.status == 503).collect();
        assert_eq!((ok, refused.len(), app.calls()), (3, 3, 3));
        for refusal in refused {
            assert!(
                refusal.body.contains("\"code\":\"overloaded\""),
                "{}",
                refusal.body
            );
            assert_eq!(refusal.headers["retry-after"], "1");
        }
    });
}

#[test]
fn followers_get_no_header_of_the_leaders_own_way() {
    paused(async {
        let app = App::new(|_, _| {
            let mut response = ok("x");
            for (name, value) in [
                ("connection", "x-hop"),
                ("x-hop", "1"),
                ("keep-alive", "timeout=5"),
                ("x-request-id", "leader"),
                ("traceparent", "00-x"),
                ("server-timing", "db;dur=1"),
                ("date", "Sun, 06 Nov 1994 08:49:37 GMT"),
                ("etag", "\"v1\""),
            ] {
                response.headers_mut().insert(name, value.parse().unwrap());
            }
            response
        });
        let answers = app.at_once(2, get("/x")).await;
        assert_eq!(answers[0].headers.len(), 8, "the leader's own, untouched");
        let names: Vec<_> = answers[1].headers.keys().map(HeaderName::as_str).collect();
        assert_eq!(names.len(), 3, "{names:?}");
        for name in ["date", "etag", "cache-status"] {
            assert!(names.contains(&name));
        }
    });
}

#[test]
fn extensions_are_copied_by_name_only() {
    paused(async {
        #[derive(Clone, Debug, PartialEq)]
        struct Public(u8);
        #[derive(Clone)]
        struct Secret;
        let layer = builder().copy_extension::<Public>().build().unwrap();
        let app = App::with(layer, |_, _| {
            let mut response = ok("x");
            response.extensions_mut().insert(Public(1));
            response.extensions_mut().insert(Secret);
            response
        });
        let answers = app.at_once(2, get("/x")).await;
        assert!(answers[0].extensions.get::<Secret>().is_some());
        assert_eq!(answers[1].extensions.get::<Public>(), Some(&Public(1)));
        assert!(answers[1].extensions.get::<Secret>().is_none());
    });
}

#[test]
fn each_caller_owns_its_response() {
    paused(async {
        let app = App::new(|_, _| ok("x"));
        let outer = |n: usize| {
            let service = app.service.clone();
            async move {
                let mut response = service.oneshot(get("/x")).await.unwrap();
                response.headers_mut().insert("x-outer", n.into());
                response
            }
        };
        for (n, response) in join_all((0..5).map(outer)).await.iter().enumerate() {
            assert_eq!(response.headers().get_all("x-outer").iter().count(), 1);
            assert_eq!(response.headers()["x-outer"], n.to_string());
        }
    });
}

#[test]
fn the_first_caller_gets_the_error_itself_and_the_others_502() {
    paused(async {
        let app = App::failing();
        assert_eq!(
            app.service.clone().oneshot(get("/x")).await.unwrap_err(),
            Down
        );
        let results = join_all((0..5).map(|_| app.service.clone().oneshot(get("/x")))).await;
        let mut results = results.into_iter();
        assert_eq!(results.next().unwrap().unwrap_err(), Down);
        for follower in results {
            let answer = Answer::of(follower.unwrap()).await;
            assert_eq!(answer.status, StatusCode::BAD_GATEWAY);
            assert_eq!(answer.headers["content-type"], "application/problem+json");
            assert!(answer.body.contains("\"code\":\"upstream-failed\""));
        }
        assert_eq!(app.calls(), 2);
    });
}

#[test]
fn a_panic_is_a_500_for_all_when_joined_and_passed_on_when_not() {
    paused(async {
        let app = App::new(|_, _| panic!("in the handler"));
        let answers = app.at_once(5, get("/x")).await;
        for answer in answers {
            assert_eq!(answer.status, 500);
            assert!(answer.body.contains("\"code\":\"handler-panicked\""));
        }
        assert_eq!(app.calls(), 1);
        assert!(app.spawn(get("/x")).await.unwrap_err().is_panic());
        assert_eq!(app.layer.flights(), 0);
    });
}

#[test]
fn a_panic_in_the_predicate_locks_no_key() {
    paused(async {
        let layer = builder()
            .share_if(|_| panic!("in the predicate"))
            .build()
            .unwrap();
        let app = App::with(layer, |_, _| ok("x"));
        let answers = app.at_once(3, get("/x")).await;
        assert!(answers.iter().all(|a| a.status == 500));
        assert_eq!(
            app.send(get("/x")).await.status,
            200,
            "a lone caller asks no predicate"
        );
    });
}

#[test]
fn a_leader_that_hangs_up_takes_nothing_along() {
    paused(async {
        let app = App::new(|_, _| ok("x"));
        let began = Instant::now();
        let leader = app.spawn(get("/x"));
        tokio::task::yield_now().await;
        let others: Vec<_> = (0..99).map(|_| app.spawn(get("/x"))).collect();
        sleep(10 * MS).await;
        leader.abort();
        for other in others {
            assert_eq!(other.await.unwrap().body, "x");
        }
        assert_eq!((app.calls(), began.elapsed()), (1, 20 * MS));
    });
}

#[test]
fn waiting_has_its_limits() {
    paused(async {
        let layer = builder()
            .flight_age(1_000 * MS)
            .flight_wait(100 * MS)
            .extra_leaders(0)
            .build()
            .unwrap();
        let app = App::with(layer, |_, _| ok("x")).slow(5_000 * MS);
        let leader = app.spawn(get("/x"));
        sleep(MS).await;
        let waited = app.send(get("/x")).await;
        assert_eq!(waited.status, 503);
        assert!(waited.body.contains("\"code\":\"wait-timeout\""));
        sleep(850 * MS).await;
        let aged = app.send(get("/x")).await;
        assert_eq!(aged.status, 504);
        assert!(aged.body.contains("\"code\":\"flight-aged\""));
        assert_eq!(
            leader.await.unwrap().status,
            200,
            "the first caller has no limit"
        );
        assert_eq!(app.calls(), 1);
    });
}

#[test]
fn a_handler_that_asks_for_its_own_key_does_not_wait_for_itself() {
    paused(async {
        let app = App::nested();
        let answer = tokio::time::timeout(200 * MS, app.send(get("/a"))).await;
        assert_eq!(answer.expect("no deadlock").status, 200);
        // Two requests that ask for each other's key.
        let app = App::nested();
        let crossed = async { tokio::join!(app.send(get("/a")), app.send(get("/b"))) };
        let (a, b) = tokio::time::timeout(200 * MS, crossed)
            .await
            .expect("no deadlock");
        assert_eq!((a.status.as_u16(), b.status.as_u16()), (200, 200));
    });
}

#[test]
fn the_layer_met_twice_merges_once() {
    paused(async {
        let layer = builder().build().unwrap();
        let app = App::with(layer.clone(), |_, _| ok("x"));
        let twice = layer.layer(app.service.clone());
        let answers = join_all((0..5).map(|_| twice.clone().oneshot(get("/x")))).await;
        assert!(answers.iter().all(|a| a.as_ref().unwrap().status() == 200));
        assert_eq!(app.calls(), 1);
    });
}

#[test]
fn the_layer_can_be_limited_and_turned_off() {
    paused(async {
        let switch = Switch::default();
        let gate = Gate::new().routes(["/on/*"]).switch(switch.clone());
        let app = App::with(builder().gate(gate).build().unwrap(), |_, _| ok("x"));
        app.at_once(3, get("/on/x")).await;
        assert_eq!(app.calls(), 1);
        app.at_once(3, get("/off/x")).await;
        assert_eq!(app.calls(), 4);
        switch.set(Mode::Off);
        app.at_once(3, get("/on/x")).await;
        assert_eq!(app.calls(), 7);
    });
}

#[test]
fn without_a_runtime_nothing_is_merged_and_nothing_lost() {
    let layer = SingleFlightLayer::new();
    let gate = std::sync::Arc::new(tokio::sync::Semaphore::new(0));
    let wait = gate.clone();
    let service = layer.layer(tower::service_fn(move |_: Request<TestBody>| {
        let wait = wait.clone();
        async move {
            drop(wait.acquire().await);
            Ok::<_, Down>(ok("x"))
        }
    }));
    let mut both = Box::pin(join_all((0..2).map(|_| service.clone().oneshot(get("/x")))));
    assert!((&mut both).now_or_never().is_none());
    gate.add_permits(2);
    let both = both.now_or_never().expect("both ran");
    assert!(both.iter().all(|r| r.as_ref().unwrap().status() == 200));
}

#[test]
fn bad_settings_are_refused_with_the_mend() {
    let zero = Duration::ZERO;
    let refused = [
        SingleFlightLayer::builder().flight_age(zero).build(),
        SingleFlightLayer::builder().flight_wait(zero).build(),
        SingleFlightLayer::builder().max_waiters(0).build(),
        SingleFlightLayer::builder().shards(0).build(),
        SingleFlightLayer::builder().unsized_body_wait(zero).build(),
    ];
    let settings = refused.map(|r| r.unwrap_err().setting());
    let expected = [
        "flight_age",
        "flight_wait",
        "max_waiters",
        "shards",
        "unsized_body_wait",
    ];
    assert_eq!(settings, expected);
}
