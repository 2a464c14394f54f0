//! What only PostgreSQL has: rows that strangers lock, and pools that run dry.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use tokio_postgres::NoTls;
use tower_claim::store::{Claimed, Finish, Owner, Value};
use tower_claim::{Attempt, DynClaimStore, Loss, Settings, Token};
use tower_claim_postgres::PostgresStore;

use super::Engine;
use super::engines::postgres::{One, url};
use super::scene::{ANSWER, Guard, Party, beaten, knows, terms, two, within};
use crate::suite::{claim, key, nonce};

/// A stranger's session that locks one row.
async fn stranger(engine: &One, row: tower_claim::Key) -> tokio_postgres::Client {
    let (client, connection) = tokio_postgres::connect(&url(&engine.address()), NoTls)
        .await
        .expect("the server runs");
    tokio::spawn(connection);
    client.batch_execute("begin").await.expect("it begins");
    let locked = client
        .query(
            "select from tower_claim.claim where key = $1 for update",
            &[&row.as_bytes().as_slice()],
        )
        .await;
    assert_eq!(locked.expect("it locks").len(), 1);
    client
}

/// The owner stops in time, nobody else is granted the key meanwhile, its neighbours notice nothing, and the
/// first to write after the lock is the next owner.
#[tokio::test(flavor = "multi_thread")]
async fn a_row_locked_for_three_leases_costs_its_owner_the_hold_and_nobody_a_write() {
    let engine = One::start().await;
    let (owner, rival) = two(&engine).await;
    let (terms, guard) = (terms::<One>(), Guard::default());
    let held = owner.take(key(), &terms, ANSWER).await;
    let neighbour = owner.take(key(), &terms, ANSWER).await;
    assert!(guard.write_as(&held).await);

    beaten(&held).await;
    let lock = stranger(&engine, held.key()).await;
    let locked = Instant::now();
    let lost = async {
        let loss = held.lost().await;
        (loss, locked.elapsed())
    };
    let ((loss, after), ()) = tokio::join!(
        within(One::lease() + ANSWER, "the loss", lost),
        knows(&held, locked, One::lease())
    );
    assert_eq!(loss, Loss::StoreUnreachable, "doubt, and no thief");
    assert!(
        after >= One::lease() / 2,
        "a beat was taken for lost: {after:?}"
    );
    while locked.elapsed() < One::lease() * 3 {
        let asked = rival.try_take(held.key(), &terms).await;
        assert!(!matches!(asked, Ok(Attempt::Granted(_))), "{asked:?}");
        assert_eq!(neighbour.check(), Ok(()), "a neighbour was harmed");
        assert!(guard.write_as(&held).await, "no newer one has written");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    lock.batch_execute("rollback").await.expect("it ends");
    let next = rival.take(held.key(), &terms, ANSWER).await;
    let (_, fell) = guard.pass_to(next, &held, &rival.keeper).await;
    assert!(!fell);
}

/// One connection for everything but beats: twenty holds, twenty who wait, finishes, and a stranger's lock that
/// keeps the connection busy. Nobody waits for ever, no hold is lost.
#[tokio::test(flavor = "multi_thread")]
async fn with_a_pool_of_one_no_hold_is_lost_and_nobody_waits_for_ever() {
    let engine = One::start().await;
    let small = PostgresStore::builder()
        .url(&url(&engine.address()))
        .pool_size(1)
        .connect()
        .await
        .expect("the server runs");
    let owner = Party::with(Arc::new(small) as Arc<dyn DynClaimStore>);
    let terms = terms::<One>();
    let held = join_all((0..20).map(|_| owner.take(key(), &terms, ANSWER))).await;
    let waiting: Vec<_> = held
        .iter()
        .map(|claim| {
            let (store, key, token) = (Arc::clone(&owner.store), claim.key(), claim.token());
            tokio::spawn(async move {
                while store.dyn_watch(key, token).await.is_err() {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            })
        })
        .collect();

    // A row that lapses while it is locked: each claim of it waits, on the only connection.
    let blocked = key();
    let dead = Owner {
        key: blocked,
        nonce: nonce(),
        token: Token::ZERO,
    };
    let (settings, direct) = (
        Settings::new(Duration::from_millis(100)),
        One::connect(engine.address()).await,
    );
    let not_after = direct.dyn_now().saturating_add(Duration::from_secs(60));
    let granted = direct.dyn_claim(claim(&dead, &settings, not_after)).await;
    assert!(matches!(granted, Ok(Claimed::Granted(_))), "{granted:?}");
    let lock = stranger(&engine, blocked).await;
    let until = Instant::now() + One::lease() * 3;
    let work = async || {
        let claim = match owner.try_take(key(), &terms).await? {
            Attempt::Granted(claim) => claim,
            other => panic!("a free key: {other:?}"),
        };
        let finish = claim.finish(Value::Tombstone, Duration::from_secs(60));
        let told = within(ANSWER, "a finish", finish).await;
        told.map_err(|error| format!("{error:?}"))
    };
    let mut refused = 0;
    while Instant::now() < until {
        // Either may be refused: there is one connection. Neither may wait for ever.
        let (locked, _) = tokio::join!(owner.try_take(blocked, &terms), work());
        assert!(!matches!(locked, Ok(Attempt::Granted(_))), "{locked:?}");
        refused += usize::from(locked.is_err());
        for claim in &held {
            assert_eq!(claim.check(), Ok(()), "a beat waited for the pool");
        }
    }
    assert!(refused > 0, "no claim met the lock");
    lock.batch_execute("rollback").await.expect("it ends");
    let freed = async {
        loop {
            if let Ok(done) = work().await {
                break done;
            }
        }
    };
    let done = within(ANSWER, "the connection's end of waiting", freed).await;
    assert_eq!(done, Finish::Finished);
    drop(held);
    within(ANSWER, "those who wait", join_all(waiting)).await;
}
