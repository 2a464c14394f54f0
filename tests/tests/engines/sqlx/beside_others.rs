//! Claims, guards and holds inside a transaction, beside others who are at the same rows.

use std::time::Instant;

use tower_claim::store::{Admission, Claimed, FinishRequest, LostReason, Owner, Value, Watched};
use tower_claim::{ClaimStore, FenceStore, Nonce, OsEntropy, Renewal, Settings, Terms, Token};
use tower_claim_sqlx::TransactionError;

use super::shop::{DAY, Outcome, SECOND, Shop, key, receipt, ten_seconds, write};

#[tokio::test]
async fn a_loser_does_not_wait_for_the_row() -> Outcome {
    let shop = Shop::open(4).await?;
    let settings = Settings::new(60 * SECOND);
    for fresh in [true, false] {
        let key = key(&format!("fresh: {fresh}"));
        if !fresh {
            shop.hold(key, SECOND / 20).await?;
            tokio::time::sleep(SECOND / 10).await;
        }
        let mut first = shop.pool.begin().await?;
        let winner = shop.ask(key, Nonce::draw(&OsEntropy), &settings);
        let won = shop.claims.claim_in(&mut first, winner).await?;
        assert!(matches!(won, Claimed::Granted(_)), "{won:?}");

        let mut second = shop.pool.begin().await?;
        sqlx::query("set local lock_timeout = '7s'")
            .execute(&mut *second)
            .await?;
        let loser = shop.ask(key, Nonce::draw(&OsEntropy), &settings);
        // Who waited would wait in each of them: of a busy machine the fastest counts.
        let mut fastest = 60 * SECOND;
        for _ in 0..10 {
            let sent = Instant::now();
            let lost = shop.claims.claim_in(&mut second, loser).await?;
            assert!(matches!(lost, Claimed::Busy(_)), "{lost:?}");
            fastest = fastest.min(sent.elapsed());
        }
        assert!(fastest < SECOND / 2, "it waited: {fastest:?}");
        // Its transaction lives, under its own bound.
        let bound: String = sqlx::query_scalar("select current_setting('lock_timeout')")
            .fetch_one(&mut *second)
            .await?;
        assert_eq!(bound, "7s");
        second.commit().await?;
        first.rollback().await?;
        let won = shop.store.claim(loser).await?;
        assert!(
            matches!(won, Claimed::Granted(_)),
            "nothing is left: {won:?}"
        );
    }
    Ok(())
}

#[tokio::test]
async fn a_pool_of_one_is_enough() -> Outcome {
    let shop = Shop::open(1).await?;
    let work = async |n: u32| -> Outcome {
        let claim = shop
            .claim(key(&format!("one {n}")), &ten_seconds()?)
            .await?;
        let mut tx = shop.pool.begin().await?;
        write(&mut tx).await?;
        let finishing = claim.begin_finish()?;
        shop.finish_in(&mut tx, &finishing).await?;
        tx.commit().await?;
        finishing.committed();
        Ok(())
    };
    let all = futures_util::future::join_all((0..8).map(work));
    for done in tokio::time::timeout(60 * SECOND, all).await? {
        done?;
    }
    assert_eq!(shop.receipts().await?, 8);
    Ok(())
}

#[tokio::test]
async fn tokio_postgres_and_sqlx_see_each_others_claims() -> Outcome {
    let shop = Shop::open(4).await?;
    let settings = Settings::new(60 * SECOND);
    let mut connection = shop.pool.acquire().await?;
    let ask = |name| shop.ask(key(name), Nonce::draw(&OsEntropy), &settings);

    // Claimed by sqlx, in a transaction of its own.
    let request = ask("a");
    let Claimed::Granted(grant) = shop.claims.claim_in(&mut connection, request).await? else {
        return Err("not granted".into());
    };
    let rival = shop.store.claim(ask("a")).await?;
    assert!(matches!(rival, Claimed::Busy(busy) if busy.token == grant.token));
    let owner = Owner {
        key: request.key,
        nonce: request.nonce,
        token: grant.token,
    };
    let waits = shop.store.watch(owner.key, owner.token);
    let (seen, finished) = tokio::join!(waits, async {
        tokio::time::sleep(SECOND / 10).await;
        shop.finish_in(&mut connection, owner).await
    });
    finished?;
    assert!(matches!(seen?, Watched::Done(done) if done.value == receipt()));
    let rival = shop.store.claim(ask("a")).await?;
    assert!(matches!(rival, Claimed::Done(done) if done.value == receipt()));

    // Claimed by tokio-postgres.
    let owner = shop.hold(key("b"), 60 * SECOND).await?;
    let rival = shop.claims.claim_in(&mut connection, ask("b")).await?;
    assert!(matches!(rival, Claimed::Busy(busy) if busy.token == owner.token));
    shop.claims.still_held_in(&mut connection, owner).await?;
    let every_byte: Vec<u8> = (0..=255).collect();
    let value = Value::Kept(every_byte.into());
    let finish = FinishRequest {
        owner,
        value: value.clone(),
        keep: DAY,
    };
    let _ = shop.store.finish(finish).await?;
    let rival = shop.claims.claim_in(&mut connection, ask("b")).await?;
    assert!(matches!(rival, Claimed::Done(done) if done.value == value));
    Ok(())
}

#[tokio::test]
async fn a_stale_write_cannot_commit_and_is_not_overtaken() -> Outcome {
    let shop = Shop::open(4).await?;
    let token = |n| Token::new(n).ok_or("no token");
    let (old, new) = (Nonce::draw(&OsEntropy), Nonce::draw(&OsEntropy));
    let mut tx = shop.pool.begin().await?;
    let admitted = shop.claims.fence_in(&mut tx, "seat 14", token(5)?, old);
    admitted.await?;
    write(&mut tx).await?;
    let sent = Instant::now();
    let (newer, committed) = tokio::join!(shop.store.admit("seat 14", token(6)?, new), async {
        tokio::time::sleep(SECOND / 4).await;
        tx.commit().await
    });
    committed?;
    assert_eq!(newer?, Admission::Admitted);
    assert!(sent.elapsed() >= SECOND / 4, "it overtook");

    for (stale, by) in [(token(5)?, old), (token(6)?, old)] {
        let mut tx = shop.pool.begin().await?;
        write(&mut tx).await?;
        let refused = shop.claims.fence_in(&mut tx, "seat 14", stale, by).await;
        let high = token(6)?;
        let told = match refused {
            Err(TransactionError::Stale { high: told }) if stale < high => told,
            Err(TransactionError::Collision { high: told }) if stale == high => told,
            other => return Err(format!("{stale}: {other:?}").into()),
        };
        assert_eq!(told, high);
        // Who does not heed the error: the server answers by a rollback.
        let _ = tx.commit().await;
        assert_eq!(shop.receipts().await?, 1, "only what was admitted");
    }
    let mut tx = shop.pool.begin().await?;
    shop.claims
        .fence_in(&mut tx, "seat 14", token(6)?, new)
        .await?;
    Ok(())
}

#[tokio::test]
async fn beats_that_meet_the_locked_record_are_doubt_not_loss() -> Outcome {
    let shop = Shop::open(4).await?;
    let terms = Terms::builder(SECOND * 6).build()?;
    let claim = shop.claim(key("a"), &terms).await?;
    let mut tx = shop.pool.begin().await?;
    shop.claims.still_held_in(&mut tx, claim.owner()).await?;
    write(&mut tx).await?;
    // Past the first beats, which are due at a third.
    tokio::time::sleep(SECOND * 28 / 10).await;
    assert_eq!(claim.check(), Ok(()));
    tx.commit().await?;
    tokio::time::sleep(SECOND * 4).await;
    assert_eq!(claim.check(), Ok(()), "renewed since");

    let short = Terms::builder(SECOND).renewal(Renewal::Off).build()?;
    let late = shop.claim(key("b"), &short).await?;
    tokio::time::sleep(SECOND * 11 / 10).await;
    let mut tx = shop.pool.begin().await?;
    let refused = shop.claims.still_held_in(&mut tx, late.owner()).await;
    assert!(matches!(
        refused,
        Err(TransactionError::NotHeld(LostReason::Lapsed))
    ));
    Ok(())
}
