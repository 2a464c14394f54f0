//! `/classrooms/{id}/announcement`: sent once, by a key the server derives.

use futures_util::future::join_all;
use system_tests::client::{get, post};

use super::effects;
use super::engines::{Engine, on_each_engine};

const PATH: &str = "/classrooms/7/announcement";

on_each_engine!(
    it_is_sent_once_also_on_one_thread,
    tenants_have_classrooms_of_their_own,
    one_classroom_in_two_spellings_is_told_once,
);

async fn it_is_sent_once_also_on_one_thread(on: Engine) {
    let lab = on.lab_with(&["--on-busy", "wait:5s"], &[("TOKIO_WORKER_THREADS", "1")]);
    for i in 0..50 {
        let answer = post(lab.address(), PATH)
            .body(format!("text {i}"))
            .send()
            .await;
        assert_eq!(
            (answer.status.as_u16(), answer.replayed()),
            (201, i > 0),
            "{answer:?}"
        );
    }
    assert_eq!(effects(&lab, &format!("POST {PATH}")).await, 1);

    let other = "/classrooms/8/announcement";
    let calls = (0..50).map(|i| {
        tokio::spawn(
            post(lab.address(), other)
                .body(format!("{i}"))
                .lab("delay=50")
                .send(),
        )
    });
    let answers = join_all(calls).await;
    assert!(answers.iter().all(|a| a.as_ref().unwrap().status == 201));
    assert_eq!(effects(&lab, &format!("POST {other}")).await, 1);
}

async fn tenants_have_classrooms_of_their_own(on: Engine) {
    let lab = on.lab(&[]);
    for tenant in ["a", "b", "a"] {
        assert_eq!(
            post(lab.address(), PATH)
                .header("x-tenant", tenant)
                .send()
                .await
                .status,
            201
        );
    }
    assert_eq!(effects(&lab, &format!("POST {PATH}")).await, 2);
}

async fn one_classroom_in_two_spellings_is_told_once(on: Engine) {
    let lab = on.lab(&[]);
    for (room, status) in [("77", 201), ("%37%37", 422), ("7%37", 422), ("77", 201)] {
        let path = format!("/classrooms/{room}/announcement");
        let answer = post(lab.address(), &path).body("no lessons").send().await;
        assert_eq!(answer.status, status, "{room}");
    }
    let total = get(lab.address(), "/effects").send().await;
    assert_eq!(total.json()["total"], 1);
}
