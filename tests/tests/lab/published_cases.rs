//! The black-box kit of published idempotency bugs, run against the lab: every case is judged, and passes.

use std::time::Duration;

use idempotency_kit::{Report, Settings, examine};
use serde_json::Value;
use system_tests::programs::{Lab, run};

use super::engines::{Engine, on_each_engine};

on_each_engine!(
    pass_with_the_defaults,
    pass_where_repeats_wait_keys_are_quoted_and_json_is_canonical,
    pass_behind_a_timeout,
    pass_around_a_layer_that_rewrites_requests,
);

fn base(lab: &Lab) -> String {
    format!("http://{}", lab.address())
}

/// Examines the lab, and wants all cases judged and passed but these.
async fn passes(lab: &Lab, but: &[&str], change: impl FnOnce(&mut Settings)) {
    let mut settings = Settings::new(&base(lab)).expect("an address is a base");
    settings.lab = true;
    change(&mut settings);
    let report = examine(&settings).await;
    let report: Report = report.unwrap_or_else(|error| panic!("{error}"));
    assert!(report.passed(), "{report}");
    let skipped: Vec<_> = report.skipped().map(|case| case.number).collect();
    assert_eq!(skipped, but, "{report}");
}

async fn pass_with_the_defaults(on: Engine) {
    let lab = on.lab(&["--max-response", "1KiB"]);
    passes(&lab, &["14", "16d", "27"], |settings| {
        settings.keeps = Some(1024)
    })
    .await;
}

async fn pass_where_repeats_wait_keys_are_quoted_and_json_is_canonical(on: Engine) {
    let lab = on.lab(&[
        "--on-busy",
        "wait:3s",
        "--keys",
        "strict",
        "--require-key",
        "on",
        "--require-tenant",
        "on",
        "--fingerprint",
        "json",
        "--inner",
        "nonce",
    ]);
    let us = Settings::header_line("x-tenant: kit").expect("a header line");
    passes(&lab, &["16d"], |settings| {
        settings.waits = Some(Duration::from_secs(3));
        settings.headers = vec![us];
    })
    .await;
}

async fn pass_behind_a_timeout(on: Engine) {
    let lab = on.lab(&["--outer-timeout", "3s"]);
    passes(&lab, &[], |settings| {
        settings.times_out = Some(Duration::from_secs(3));
        settings.only = vec!["16d".to_owned()];
    })
    .await;
}

async fn pass_around_a_layer_that_rewrites_requests(on: Engine) {
    let lab = on.lab(&["--inner", "rewrite"]);
    passes(&lab, &[], |settings| {
        // The handler counts under the path that the layer inside made.
        settings.only = ["8", "34", "39"].map(str::to_owned).into();
    })
    .await;
}

#[tokio::test]
async fn pass_over_http2() {
    let lab = Lab::start(&[]);
    passes(&lab, &["14", "16d", "27"], |settings| settings.http2 = true).await;
}

/// The program: exit status and both forms of the report.
#[test]
fn the_program_says_how_it_went() {
    let kit = |args: &[&str]| {
        let out = run("idempotency-kit", args);
        let text = |bytes| String::from_utf8(bytes).expect("it speaks UTF-8");
        (out.status.code(), text(out.stdout), text(out.stderr))
    };
    let running = Lab::start(&["--max-response", "1KiB"]);
    let lab = base(&running);

    let (code, out, _) = kit(&[&lab, "--lab", "--case", "4", "--case", "27"]);
    assert_eq!(code, Some(0), "{out}");
    assert!(out.contains("paveg/hono-idempotency #91"), "{out}");
    assert!(out.ends_with("1 passed, 0 failed, 1 skipped\n"), "{out}");

    // Twice against the same service, and told something wrong about it.
    let (code, out, _) = kit(&[&lab, "--lab", "--keeps", "2048", "--json", "--case", "43"]);
    assert_eq!(code, Some(1), "{out}");
    let report: Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!(
        (&report["failed"], &report["passed"]),
        (&1.into(), &0.into())
    );
    let case = &report["cases"][0];
    assert_eq!(
        (&case["case"], &case["result"]),
        (&"43".into(), &"fail".into())
    );
    for told in ["source", "right", "request", "expected", "seen"] {
        assert!(case[told].is_string(), "{told}: {case}");
    }

    for (args, says) in [
        (&["https://127.0.0.1"][..], "plain http only"),
        (&["http://127.0.0.1:1"], "cannot be reached"),
        (&[&lab, "--case", "1000"], "there is no case 1000"),
        (&[&lab, "--effects", "/nowhere"], "--effects was given"),
        (&[&lab, "--post", "/nowhere"], "is not accepted"),
        (&[&lab, "--waits", "soon"], "write a time like"),
    ] {
        let (code, out, error) = kit(args);
        assert_eq!((code, out.as_str()), (Some(2), ""), "{args:?}: {error}");
        assert!(error.contains(says), "{args:?}: {error}");
    }
}
