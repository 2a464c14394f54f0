//! A store that answers garbage.

use system_tests::client::{Answer, Call, post, until};
use system_tests::programs::Lab;
use system_tests::relay::Way;
#[cfg(feature = "postgres")]
use system_tests::servers::Postgres;
#[cfg(feature = "redis")]
use system_tests::servers::Redis;

use crate::effects;
use crate::engines::{Engine, on_engine};
use crate::idempotency::record_of;
#[cfg(feature = "redis")]
use crate::inside::name;
use crate::line::Line;

#[cfg(feature = "redis")]
on_engine!(redis Redis: noise_instead_of_answers_runs_nothing,);
#[cfg(feature = "postgres")]
on_engine!(postgres Postgres: noise_instead_of_answers_runs_nothing,);

fn order(lab: &Lab, key: &str) -> Call {
    post(lab.address(), "/orders").key(key)
}

fn assert_unavailable(answer: &Answer) {
    let was = (answer.status.as_u16(), answer.code());
    assert_eq!(was, (503, "store-unavailable".to_owned()), "{answer:?}");
    assert!(answer.headers.contains_key("retry-after"), "{answer:?}");
}

#[track_caller]
fn assert_unreadable(answer: &Answer, what: &str) {
    assert_unavailable(answer);
    assert_eq!(answer.json()["reason"], "record-unreadable", "{what}");
}

async fn noise_instead_of_answers_runs_nothing(on: Engine) {
    let line = Line::to(on);
    let lab = line.lab(&[]);
    let first = order(&lab, "old").send().await;
    assert_eq!(first.status, 201);
    line.relay().set(Way::Noise);
    for key in ["old", "new", "old", "newer"] {
        assert_unavailable(&order(&lab, key).send().await);
    }
    assert_eq!(effects(&lab, "POST /orders").await, 1);

    line.relay().set(Way::Pass);
    line.relay().cut();
    let ask = || order(&lab, "old").send();
    let again = until("it is understood again", ask, Answer::replayed).await;
    assert_eq!(again.body, first.body);
    for (n, key) in ["new", "newer"].into_iter().enumerate() {
        let ask = || order(&lab, key).send();
        let ran = until("it runs", ask, |answer| answer.status == 201).await;
        assert!(!ran.replayed(), "{key}: nothing ran before");
        assert_eq!(effects(&lab, "POST /orders").await, n as u64 + 2);
    }
}

#[cfg(feature = "redis")]
#[tokio::test]
async fn values_in_redis_that_are_no_records_run_nothing() {
    let server = Redis::start();
    let place = crate::engines::Place::at(Engine::Redis, server.url());
    let lab = place.lab(&[]);
    assert_eq!(order(&lab, "old").send().await.status, 201);
    let old = name(&server, &record_of(&place, "old"));
    let before_hex = &old[..old.len() - 64];
    for (n, plant) in [
        "SET NAME noise",
        "RPUSH NAME noise",
        "HSET NAME name noise",
        "HSET NAME v 9 state held token 1",
        "HSET NAME v 1 state done",
        "HSET NAME v 1 state asleep token 1 nonce 00 not_after 1 since 1 ends 1",
        "HSET NAME v 1 state free token -1 nonce 0123456789abcdef0123456789abcdef not_after 1 since 1 ends 1",
    ]
    .into_iter()
    .enumerate()
    {
        let key = format!("new-{n}");
        let name = format!("{before_hex}{}", record_of(&place, &key));
        let planted = server.ask(&plant.replace("NAME", &name));
        assert!(!planted.starts_with('-'), "{plant}: {planted}");
        for _ in 0..2 {
            assert_unreadable(&order(&lab, &key).send().await, plant);
        }
    }
    // Of a record that is one, its fields, and what it keeps.
    for (n, (field, noise)) in [
        ("value", "noise"),
        ("value", "\"\\xff\\x00\""),
        ("state", "noise"),
        ("token", "noise"),
        ("token", "99999999999999999999"),
        ("ends", "-1"),
        ("nonce", "noise"),
        ("fingerprint", "noise"),
    ]
    .into_iter()
    .enumerate()
    {
        let key = format!("old-{n}");
        assert_eq!(order(&lab, &key).send().await.status, 201);
        let name = name(&server, &record_of(&place, &key));
        let planted = server.ask(&format!("HSET {name} {field} {noise}"));
        assert!(planted.starts_with(":0"), "{field} is no field: {planted}");
        let before = effects(&lab, "POST /orders").await;
        for _ in 0..2 {
            assert_unreadable(&order(&lab, &key).send().await, field);
        }
        assert_eq!(effects(&lab, "POST /orders").await, before, "{field}");
    }
    assert_eq!(effects(&lab, "POST /orders").await, 9);
    assert!(
        order(&lab, "old").send().await.replayed(),
        "the others are well"
    );
}

#[cfg(feature = "postgres")]
#[tokio::test]
async fn rows_in_postgres_that_are_no_records_run_nothing() {
    let server = Postgres::start();
    let place = crate::engines::Place::at(Engine::Postgres, server.url());
    let lab = place.lab(&[]);
    assert_eq!(order(&lab, "old").send().await.status, 201);
    // What the table refuses, somebody with the right to may let in.
    server.sql(
        "do $$ declare c record; begin
           for c in select conname from pg_constraint
             where conrelid = 'tower_claim.claim'::regclass and contype = 'c' loop
             execute format('alter table tower_claim.claim drop constraint %I', c.conname);
           end loop;
         end $$",
    );
    for (n, (noise, is_seen)) in [
        ("value = '\\xff00ff'", true),
        ("value = '\\x'", true),
        ("value = decode(repeat('ab', 5000), 'hex')", true),
        ("format = 9", true),
        // Of these not all can be told from a record; none may free the key.
        ("state = 'asleep'", false),
        ("token = -1", false),
        ("token = 9223372036854775807", false),
        ("nonce = '\\x00'", false),
        ("label = repeat('noise', 1000)", false),
        ("since = 'infinity'", false),
        ("until = 'infinity'", false),
        ("not_after = '-infinity'", false),
        ("progress = -1", false),
        ("attempt = -1", false),
        ("unfinished_keep = '-1 year'", false),
        ("spent_room = -1", false),
    ]
    .into_iter()
    .enumerate()
    {
        let key = format!("old-{n}");
        let first = order(&lab, &key).send().await;
        assert_eq!(first.status, 201, "{noise}: the store is well");
        let record = record_of(&place, &key);
        let planted = format!(
            "with changed as (update tower_claim.claim set {noise} where key = '\\x{record}' returning 1)
             select count(*) from changed"
        );
        assert_eq!(server.sql(&planted), "1", "{noise}");
        for _ in 0..2 {
            let answer = order(&lab, &key).send().await;
            if is_seen {
                assert_unreadable(&answer, noise);
            } else if answer.replayed() {
                assert_eq!(answer.body, first.body, "{noise}");
            } else {
                let refused = [409, 503].contains(&answer.status.as_u16());
                assert!(refused, "{noise}: {answer:?}");
            }
        }
        assert_eq!(effects(&lab, "POST /orders").await, n as u64 + 2, "{noise}");
    }
    let well = order(&lab, "old").send().await;
    assert!(well.replayed(), "the others are well");
}
