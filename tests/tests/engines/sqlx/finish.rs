//! Rows and result: both, or neither, whatever becomes of the transaction, its client or its answer.

use sqlx::{Connection, PgConnection};
use system_tests::relay::Relay;
use tower_claim::store::{Beat, LostReason, Owner, Renewed, State};
use tower_claim::{Attempt, ClaimStore, Renewal, Settled, Terms, Token};
use tower_claim_sqlx::TransactionError;

use super::shop::{Outcome, SECOND, Shop, key, receipt, ten_seconds, write};

#[tokio::test]
async fn a_commit_keeps_rows_and_result() -> Outcome {
    let shop = Shop::open(4).await?;
    let claim = shop.claim(key("a"), &ten_seconds()?).await?;
    let mut tx = shop.pool.begin().await?;
    write(&mut tx).await?;
    let finishing = claim.begin_finish()?;
    shop.finish_in(&mut tx, &finishing).await?;
    assert_eq!(
        shop.state(key("a")).await?,
        State::Held,
        "not before the commit"
    );
    tx.commit().await?;
    finishing.committed();
    assert_eq!(shop.receipts().await?, 1);
    let again = shop
        .keeper
        .claim(key("a"), None, &ten_seconds()?, Token::ZERO)
        .await?;
    assert!(matches!(again, Attempt::Done(done) if done.value == receipt()));
    Ok(())
}

#[tokio::test]
async fn a_rollback_undoes_both_and_gives_the_key_back() -> Outcome {
    let shop = Shop::open(4).await?;
    let terms = Terms::builder(60 * SECOND).build()?;
    let claim = shop.claim(key("a"), &terms).await?;
    let mut tx = shop.pool.begin().await?;
    write(&mut tx).await?;
    let finishing = claim.begin_finish()?;
    shop.finish_in(&mut tx, &finishing).await?;
    // In this order the keeper's release meets the locked record first.
    drop((finishing, claim));
    tokio::time::sleep(SECOND / 10).await;
    tx.rollback().await?;
    assert!(shop.keeper.drain(10 * SECOND).await);
    assert_eq!(shop.receipts().await?, 0);
    assert_eq!(shop.claim(key("a"), &terms).await?.attempt(), 1);
    Ok(())
}

#[tokio::test]
async fn a_superseded_owner_cannot_commit_its_rows() -> Outcome {
    let shop = Shop::open(4).await?;
    let short = Terms::builder(SECOND).renewal(Renewal::Off).build()?;
    let zombie = shop.claim(key("a"), &short).await?;
    let mut tx = shop.pool.begin().await?;
    write(&mut tx).await?;
    tokio::time::sleep(SECOND * 11 / 10).await;
    let next = shop.claim(key("a"), &ten_seconds()?).await?;
    assert!(next.attempt() > zombie.attempt());

    let finishing = zombie.begin_finish()?;
    let refused = shop.finish_in(&mut tx, &finishing).await;
    let error = refused.expect_err("it was superseded");
    assert!(matches!(error, TransactionError::Lost) && !error.is_retryable());
    // Who does not heed the error: the server answers by a rollback.
    let _ = tx.commit().await;
    assert_eq!(finishing.in_doubt().await?, Settled::RolledBack);
    assert_eq!(shop.receipts().await?, 0);

    let mut tx = shop.pool.begin().await?;
    write(&mut tx).await?;
    let finishing = next.begin_finish()?;
    shop.finish_in(&mut tx, &finishing).await?;
    tx.commit().await?;
    finishing.committed();
    assert_eq!(shop.receipts().await?, 1);
    Ok(())
}

/// An operator broke the claim: the nonce is the owner's still, the token is not.
#[tokio::test]
async fn the_nonce_alone_finishes_and_holds_nothing() -> Outcome {
    let shop = Shop::open(4).await?;
    let owner = shop.hold(key("a"), 60 * SECOND).await?;
    let token = Token::new(owner.token.get() + 1).ok_or("no token")?;
    let another = Owner { token, ..owner };
    for call in ["finish", "still held"] {
        let mut tx = shop.pool.begin().await?;
        write(&mut tx).await?;
        let refused = match call {
            "finish" => shop.finish_in(&mut tx, another).await,
            _ => shop.claims.still_held_in(&mut tx, another).await,
        };
        let lost = matches!(
            refused,
            Err(TransactionError::Lost | TransactionError::NotHeld(LostReason::Broken))
        );
        assert!(lost, "{call}: {refused:?}");
        let _ = tx.commit().await;
        assert_eq!(shop.receipts().await?, 0, "{call}");
    }
    assert_eq!(shop.state(key("a")).await?, State::Held);
    Ok(())
}

/// The client is gone at each point of "claim outside, finish inside".
#[tokio::test]
async fn a_crash_leaves_rows_and_result_or_neither_and_a_claimable_key() -> Outcome {
    let shop = Shop::open(4).await?;
    for point in 0..3 {
        let key = key(&format!("crash {point}"));
        let owner = shop.hold(key, SECOND / 2).await?;
        let mut tx = shop.pool.begin().await?;
        if point > 0 {
            write(&mut tx).await?;
        }
        if point > 1 {
            shop.finish_in(&mut tx, owner).await?;
        }
        shop.cut(&mut tx).await?;
        assert!(tx.commit().await.is_err());
        assert_eq!(shop.receipts().await?, 0, "point {point}");
        tokio::time::sleep(SECOND * 6 / 10).await;
        shop.hold(key, SECOND).await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_commit_whose_answer_is_missing_is_settled_by_asking() -> Outcome {
    let shop = Shop::open(4).await?;
    for commits in [true, false] {
        let key = key(&format!("commits: {commits}"));
        let claim = shop.claim(key, &ten_seconds()?).await?;
        let mut tx = shop.pool.begin().await?;
        write(&mut tx).await?;
        let finishing = claim.begin_finish()?;
        shop.finish_in(&mut tx, &finishing).await?;
        if commits {
            // As it is seen by who was cut off before the answer.
            tx.commit().await?;
            assert_eq!(finishing.in_doubt().await?, Settled::Committed);
            assert_eq!(shop.state(key).await?, State::Done);
        } else {
            shop.cut(&mut tx).await?;
            assert!(tx.commit().await.is_err());
            assert_eq!(finishing.in_doubt().await?, Settled::RolledBack);
            assert_eq!(shop.state(key).await?, State::Free);
        }
    }
    assert_eq!(shop.receipts().await?, 1);
    Ok(())
}

/// On the wire: the server gets the COMMIT, or does not, and its client is cut off before any answer.
#[tokio::test]
async fn a_connection_cut_between_commit_and_reply_is_settled_by_asking() -> Outcome {
    let shop = Shop::open(4).await?;
    let relay = Relay::to(shop.address());
    let options = shop.options(relay.port());
    for arrives in [true, false] {
        let mut line = PgConnection::connect_with(&options).await?;
        let key = key(&format!("arrives: {arrives}"));
        let claim = shop.claim(key, &ten_seconds()?).await?;
        let mut tx = line.begin().await?;
        write(&mut tx).await?;
        let finishing = claim.begin_finish()?;
        shop.finish_in(&mut tx, &finishing).await?;
        match arrives {
            true => relay.cut_after(0),
            false => relay.cut(),
        }
        let committed = tx.commit().await;
        assert!(committed.is_err(), "the client cannot know: {committed:?}");
        assert!(!relay.call_off(), "the cut fell on the COMMIT");
        let (settled, state) = match arrives {
            true => (Settled::Committed, State::Done),
            false => (Settled::RolledBack, State::Free),
        };
        assert_eq!(finishing.in_doubt().await?, settled);
        assert_eq!(shop.state(key).await?, state);
        assert_eq!(shop.receipts().await?, 1, "only what arrived");
    }
    Ok(())
}

#[tokio::test]
async fn at_stricter_isolation_the_transaction_is_run_again() -> Outcome {
    let shop = Shop::open(4).await?;
    for level in ["repeatable read", "serializable"] {
        let key = key(level);
        let claim = shop
            .claim(key, &Terms::builder(60 * SECOND).build()?)
            .await?;
        let begin = match level {
            "serializable" => "begin isolation level serializable",
            _ => "begin isolation level repeatable read",
        };
        let mut tx = shop.pool.begin_with(begin).await?;
        write(&mut tx).await?;
        // A beat after the transaction's snapshot.
        let beat = Beat {
            owner: claim.owner(),
            progress: 1,
        };
        let renewed = shop.store.renew(&[beat]).await?;
        assert!(matches!(renewed[..], [Renewed::Renewed { .. }]));
        let finishing = claim.begin_finish()?;
        let refused = shop.finish_in(&mut tx, &finishing).await;
        assert!(
            refused.is_err_and(|error| error.is_retryable()),
            "{level}: a serialization failure is to be tried again"
        );
        tx.rollback().await?;

        let mut tx = shop.pool.begin_with(begin).await?;
        write(&mut tx).await?;
        shop.finish_in(&mut tx, &finishing).await?;
        tx.commit().await?;
        finishing.committed();
        assert_eq!(shop.state(key).await?, State::Done);
    }
    assert_eq!(shop.receipts().await?, 2);
    Ok(())
}
