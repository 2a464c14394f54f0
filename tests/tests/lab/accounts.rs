//! `/accounts/{id}` under a lease, `/ledger/{id}` behind the fence.

use http::Method;
use system_tests::client::{Call, call, get, post, until};
use system_tests::programs::Lab;

use super::engines::{Engine, on_each_engine};
use super::{effects, number, wait_live};

fn put(lab: &Lab, path: &str) -> Call {
    call(lab.address(), Method::PUT, path)
}

on_each_engine!(
    a_leased_write_reaches_the_ledger,
    a_second_owner_is_refused_while_the_first_works,
    the_release_is_answered_before_the_last_byte,
    both_accounts_are_leased_and_opposite_orders_do_not_lock_up,
    the_fence_compares_token_nonce_and_resource,
    a_client_that_leaves_frees_the_account,
    an_encoded_account_is_written_to_under_its_own_name,
    one_account_in_two_spellings_has_one_lease_and_one_ledger;
    with short spans:
    work_without_renewal_is_cancelled_at_the_end_of_its_lease,
    with_renewal_a_lease_outlives_its_length,
    a_paused_owner_cannot_write_after_a_takeover,
    a_blocked_owner_is_taken_over_and_its_late_write_is_refused,
);

async fn a_leased_write_reaches_the_ledger(on: Engine) {
    let lab = on.lab(&[]);
    let mut last = 0;
    for n in 1..=3 {
        let answer = put(&lab, "/accounts/7").send().await;
        assert_eq!(
            (answer.status.as_u16(), answer.json()["written"].as_bool()),
            (200, Some(true))
        );
        let token = number(&answer, "token");
        assert!(token > last, "tokens rise");
        last = token;
        let ledger = get(lab.address(), "/ledger/7").send().await.json();
        assert_eq!(ledger["high_water"], token);
        assert_eq!(ledger["admitted"].as_array().unwrap().len(), n);
        assert_eq!(ledger["admitted"][n - 1]["nonce"], answer.json()["nonce"]);
        assert_eq!(ledger["admitted"][n - 1]["pid"], lab.pid());
    }
    let dry = put(&lab, "/accounts/7").lab("write=off").send().await;
    assert_eq!(dry.json()["written"], false);
    let failed = put(&lab, "/accounts/7").lab("status=409").send().await;
    assert_eq!(failed.status, 409);
    assert_eq!(
        get(lab.address(), "/ledger/7").send().await.json()["high_water"],
        last
    );
}

async fn a_second_owner_is_refused_while_the_first_works(on: Engine) {
    let lab = on.lab(&[]);
    let first = tokio::spawn(put(&lab, "/accounts/7").lab("delay=5000").send());
    until(
        "the first works",
        || effects(&lab, "PUT /accounts/7"),
        |n| *n == 1,
    )
    .await;
    let second = put(&lab, "/accounts/7").send().await;
    assert_eq!(
        (second.status.as_u16(), second.code().as_str()),
        (423, "leased")
    );
    let after: u64 = second.headers["retry-after"]
        .to_str()
        .unwrap()
        .parse()
        .unwrap();
    assert!((1..=60).contains(&after));
    assert_eq!(
        put(&lab, "/accounts/8").send().await.status,
        200,
        "another account is free"
    );
    assert_eq!(
        put(&lab, "/accounts/8?also=7").send().await.code(),
        "leased"
    );
    assert_eq!(first.await.unwrap().status, 200);
}

async fn the_release_is_answered_before_the_last_byte(on: Engine) {
    let lab = on.lab(&[]);
    for round in 0..100 {
        let flags = [
            "",
            "size=100000",
            "size=3000&chunks=3",
            "size=3000&chunks=3&nolen",
            "status=204",
        ][round % 5];
        let answer = put(&lab, "/accounts/7").lab(flags).send().await;
        assert!(
            answer.status.is_success(),
            "round {round} ({flags}): {answer:?}"
        );
    }
    assert_eq!(effects(&lab, "PUT /accounts/7").await, 100);
}

async fn both_accounts_are_leased_and_opposite_orders_do_not_lock_up(on: Engine) {
    let lab = on.lab(&[]);
    let calls = (0..20).map(|i| {
        let path = if i % 2 == 0 {
            "/accounts/a?also=b"
        } else {
            "/accounts/b?also=a"
        };
        tokio::spawn(put(&lab, path).lab("delay=20").send())
    });
    let answers = futures_util::future::join_all(calls).await;
    let mut done = 0;
    for answer in answers.into_iter().map(Result::unwrap) {
        match answer.status.as_u16() {
            200 => done += 1,
            423 => assert_eq!(answer.code(), "leased"),
            _ => panic!("{answer:?}"),
        }
    }
    assert!(done >= 1);
    assert_eq!(put(&lab, "/accounts/a?also=b").send().await.status, 200);
    assert_eq!(
        put(&lab, "/accounts/a?also=a").send().await.status,
        200,
        "the same account twice is one"
    );
}

async fn work_without_renewal_is_cancelled_at_the_end_of_its_lease(on: Engine) {
    let lab = on.lab(&["--lease", "2s", "--renew", "off"]);
    let answer = put(&lab, "/accounts/7").lab("delay=5000").send().await;
    assert_eq!(
        (answer.status.as_u16(), answer.code().as_str()),
        (409, "lease-lost")
    );
    assert_eq!(answer.json()["reason"], "expired");
    let ledger = get(lab.address(), "/ledger/7").send().await.json();
    assert_eq!(
        ledger["admitted"].as_array().unwrap().len(),
        0,
        "it wrote nothing"
    );
    let ask = || put(&lab, "/accounts/7").send();
    until("the account is free again", ask, |answer| {
        answer.status == 200
    })
    .await;
}

async fn with_renewal_a_lease_outlives_its_length(on: Engine) {
    let lab = on.lab(&["--lease", "2s"]);
    let slow = tokio::spawn(put(&lab, "/accounts/7").lab("delay=5000").send());
    until("it works", || effects(&lab, "PUT /accounts/7"), |n| *n == 1).await;
    let mut refused = 0;
    while !slow.is_finished() {
        let answer = put(&lab, "/accounts/7").lab("write=off").send().await;
        refused += u32::from(answer.status == 423);
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    let slow = slow.await.unwrap();
    assert_eq!(slow.status, 200, "{slow:?}");
    assert!(refused > 3, "refused {refused} times");
}

async fn the_fence_compares_token_nonce_and_resource(on: Engine) {
    let lab = on.lab(&[]);
    let (a, b) = ("a".repeat(32), "b".repeat(32));
    let write = |line: String| put(&lab, "/ledger/7").header("fencing-token", line).send();
    assert_eq!(put(&lab, "/ledger/7").send().await.code(), "token-missing");
    let first = write(format!("7;t=42;o={a}")).await;
    assert_eq!(
        (first.status.as_u16(), number(&first, "high_water")),
        (200, 42)
    );
    assert_eq!(
        write(format!("7;t=42;o={a}")).await.status,
        200,
        "many writes under one grant"
    );
    assert_eq!(write(format!("7;t=42;o={b}")).await.code(), "token-stale");
    assert_eq!(write(format!("7;t=41;o={b}")).await.code(), "token-stale");
    assert_eq!(write(format!("7;t=43;o={b}")).await.status, 200);
    assert_eq!(write(format!("7;t=42;o={a}")).await.status, 412);
    for bad in [
        format!("8;t=44;o={a}"),
        "7;t=x;o=y".to_owned(),
        format!("7;t=9007199254740992;o={a}"),
        "7".to_owned(),
    ] {
        let answer = write(bad.clone()).await;
        assert_eq!(
            (answer.status.as_u16(), answer.code().as_str()),
            (400, "token-invalid"),
            "{bad}"
        );
    }
    let ledger = get(lab.address(), "/ledger/7").send().await.json();
    assert_eq!(ledger["high_water"], 43);
    let tokens: Vec<_> = ledger["admitted"]
        .as_array()
        .unwrap()
        .iter()
        .map(|w| w["token"].as_u64().unwrap())
        .collect();
    assert_eq!(tokens, [42, 42, 43]);
    assert_eq!(ledger["refused"], 3);
    let effects = get(lab.address(), "/effects").send().await;
    assert_eq!(number(&effects, "total"), 0, "the ledger counts no effects");
}

async fn a_paused_owner_cannot_write_after_a_takeover(on: Engine) {
    let lab = on.lab(&["--lease", "2s", "--renew", "off"]);
    let zombie = put(&lab, "/accounts/7")
        .lab("write=off")
        .send()
        .await
        .json();
    let takeover = put(&lab, "/accounts/7").send().await;
    assert_eq!(takeover.status, 200);
    let line = format!(
        "7;t={};o={}",
        zombie["token"],
        zombie["nonce"].as_str().unwrap()
    );
    let write = put(&lab, "/ledger/7")
        .header("fencing-token", line)
        .send()
        .await;
    assert_eq!(
        (write.status.as_u16(), write.code().as_str()),
        (412, "token-stale")
    );
}

async fn a_client_that_leaves_frees_the_account(on: Engine) {
    let lab = on.lab(&[]);
    let first = tokio::spawn(post(lab.address(), "/accounts/7").lab("delay=20000").open());
    wait_live(&lab, "/accounts/{id}", 1).await;
    first.abort();
    let ask = || put(&lab, "/accounts/7").send();
    until("the account is free", ask, |answer| answer.status == 200).await;
}

async fn an_encoded_account_is_written_to_under_its_own_name(on: Engine) {
    let lab = on.lab(&[]);
    for id in ["a%20b", "a%2Fb", "caf%C3%A9", "a%25b", "a%3Bb", "%22q%22"] {
        let answer = put(&lab, &format!("/accounts/{id}")).send().await;
        assert_eq!(answer.status, 200, "{id}: {answer:?}");
        let ledger = get(lab.address(), format!("/ledger/{id}")).send().await;
        assert_eq!(
            ledger.json()["high_water"],
            number(&answer, "token"),
            "{id}"
        );
    }
    let plain = get(lab.address(), "/ledger/a").send().await.json();
    assert_eq!(plain["high_water"], 0);
}

async fn one_account_in_two_spellings_has_one_lease_and_one_ledger(on: Engine) {
    let lab = on.lab(&[]);
    let first = tokio::spawn(put(&lab, "/accounts/77").lab("delay=5000").send());
    until(
        "the first works",
        || effects(&lab, "PUT /accounts/77"),
        |n| *n == 1,
    )
    .await;
    for spelling in ["/accounts/%37%37", "/accounts/8?also=%377"] {
        let second = put(&lab, spelling).send().await;
        assert_eq!(
            (second.status.as_u16(), second.code().as_str()),
            (423, "leased"),
            "{spelling}"
        );
    }
    assert_eq!(first.await.unwrap().status, 200);
    let spelt = put(&lab, "/accounts/7%37").send().await;
    assert_eq!(spelt.status, 200);
    let ledger = get(lab.address(), "/ledger/77").send().await.json();
    assert_eq!(ledger["high_water"], number(&spelt, "token"));
    assert_eq!(ledger["admitted"].as_array().unwrap().len(), 2);
}

async fn a_blocked_owner_is_taken_over_and_its_late_write_is_refused(on: Engine) {
    let lab = on.lab(&["--lease", "2s", "--renew", "off"]);
    let zombie = tokio::spawn(put(&lab, "/accounts/7").lab("block=12000").send());
    until(
        "the first blocks its thread",
        || effects(&lab, "PUT /accounts/7"),
        |n| *n == 1,
    )
    .await;
    let ask = || put(&lab, "/accounts/7").send();
    let owner = until("another takes over", ask, |answer| answer.status == 200).await;
    assert!(!zombie.is_finished(), "it was asleep all the time");
    let late = zombie.await.unwrap();
    assert!(
        late.code() == "lease-lost" || late.code() == "token-stale",
        "{late:?}"
    );
    let ledger = get(lab.address(), "/ledger/7").send().await.json();
    assert_eq!(ledger["admitted"].as_array().unwrap().len(), 1, "{ledger}");
    assert_eq!(ledger["high_water"], number(&owner, "token"));
}
