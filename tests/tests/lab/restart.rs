//! A lab that ends and starts again over the same store.

use std::time::Duration;

use http::Method;
use system_tests::client::{call, post, until};
#[cfg(feature = "postgres")]
use system_tests::programs::path;
use system_tests::programs::{Lab, run_within};

use super::engines::Engine;
use super::{effects, number};

fn kill(mut lab: Lab) {
    lab.signal("KILL");
    assert!(lab.wait(Duration::from_secs(10)).is_some());
}

#[tokio::test]
async fn redb_keeps_outcomes_over_kill_9_and_forgets_who_held() {
    let place = Engine::Redb.place();
    let lab = place.lab(&[]);
    let first = post(lab.address(), "/orders").key("k").send().await;
    assert_eq!(first.status, 201);
    let working = post(lab.address(), "/orders").key("half").lab("hang");
    let working = tokio::spawn(working.open());
    until(
        "it works",
        || effects(&lab, "POST /orders"),
        |ran| *ran == 2,
    )
    .await;
    let leased = call(lab.address(), Method::PUT, "/accounts/7").send().await;
    kill(lab);
    working.abort();

    let lab = place.lab(&[]);
    let again = post(lab.address(), "/orders").key("k").send().await;
    assert!(again.replayed());
    assert_eq!(again.body, first.body);
    let half = || post(lab.address(), "/orders").key("half").send();
    let half = until("the half done one runs", half, |half| half.status == 201).await;
    assert!(
        half.json()["took_over"].is_u64(),
        "it knows what came before it: {half:?}"
    );
    let later = call(lab.address(), Method::PUT, "/accounts/7").send().await;
    assert_eq!(later.status, 200);
    assert!(number(&later, "token") > number(&leased, "token"));
}

#[tokio::test]
async fn a_redb_file_has_one_lab() {
    let place = Engine::Redb.place();
    let lab = place.lab(&[]);
    let rival = run_within(Duration::from_secs(20), "lab", &["--store", place.store()]);
    super::stores::assert_one_line(&rival, &["cannot open its store", "redb:"]);
    assert_eq!(
        post(lab.address(), "/orders").key("k").send().await.status,
        201
    );
}

#[cfg(feature = "postgres")]
#[tokio::test]
async fn two_labs_make_the_tables_of_an_empty_database_at_once() {
    let postgres = system_tests::servers::Postgres::start();
    path("lab");
    let place = super::engines::Place::at(Engine::Postgres, postgres.url());
    let (a, b) = std::thread::scope(|scope| {
        let both = [(); 2].map(|()| scope.spawn(|| place.lab(&[])));
        let [a, b] = both.map(|lab| lab.join().expect("it starts"));
        (a, b)
    });
    let first = post(a.address(), "/orders").key("k").send().await;
    assert_eq!(first.status, 201);
    assert!(
        post(b.address(), "/orders")
            .key("k")
            .send()
            .await
            .replayed()
    );
}
