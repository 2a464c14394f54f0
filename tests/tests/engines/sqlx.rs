//! The calls inside a user's sqlx transaction, beside a store that speaks tokio-postgres.

use std::error::Error as StdError;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{Connection, PgConnection, PgPool, Postgres as Db, Transaction};
use system_tests::relay::Relay;
use system_tests::servers::Postgres;
use tower_claim::store::{
    Admission, Beat, ClaimRequest, Claimed, FinishRequest, LostReason, Owner, Renewed, State,
    Value, Watched,
};
use tower_claim::{
    Attempt, Claim, ClaimStore, FenceStore, Keeper, Key, Namespace, Nonce, OsEntropy, Renewal,
    Settings, Settled, Terms, Token, Use,
};
use tower_claim_postgres::{Names, PostgresStore};
use tower_claim_sqlx::{Claims, TransactionError};

type Outcome = Result<(), Box<dyn StdError>>;

const SECOND: Duration = Duration::from_secs(1);
const DAY: Duration = Duration::from_secs(86_400);

/// A user's shop: its pool, with a table of receipts, and the claims beside it in one schema.
struct Shop {
    pool: PgPool,
    claims: Claims,
    store: PostgresStore,
    keeper: Keeper,
}

impl Shop {
    async fn open(connections: u32) -> Result<Self, Box<dyn StdError>> {
        static SERVER: OnceLock<Postgres> = OnceLock::new();
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let url = SERVER.get_or_init(Postgres::start).url();
        let schema = format!("sqlx_{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let builder = PostgresStore::builder().url(&url).schema(&schema);
        builder.migrate().await?;
        let store = builder.pool_size(connections as usize).connect().await?;
        let options = url.parse::<PgConnectOptions>()?;
        let pool = PgPoolOptions::new()
            .max_connections(connections)
            .acquire_timeout(10 * SECOND)
            .connect_with(options.options([("search_path", &schema)]))
            .await?;
        sqlx::query("create table receipts (id integer)")
            .execute(&pool)
            .await?;
        Ok(Self {
            pool,
            claims: Claims::named(&Names::new(&schema, "")?),
            keeper: Keeper::new(store.clone()),
            store,
        })
    }

    /// `HOST:PORT` of the server.
    fn address(&self) -> String {
        let options = self.pool.connect_options();
        format!("{}:{}", options.get_host(), options.get_port())
    }

    /// The pool's, by another port.
    fn options(&self, port: u16) -> PgConnectOptions {
        let options = self.pool.connect_options();
        options.as_ref().clone().host("127.0.0.1").port(port)
    }

    async fn claim(&self, key: Key, terms: &Terms) -> Result<Claim, Box<dyn StdError>> {
        match self.keeper.claim(key, None, terms, Token::ZERO).await? {
            Attempt::Granted(claim) => Ok(claim),
            other => Err(format!("not granted: {other:?}").into()),
        }
    }

    /// A hold that nobody beats, by the store alone.
    async fn hold(&self, key: Key, lease: Duration) -> Result<Owner, Box<dyn StdError>> {
        let (nonce, settings) = (Nonce::draw(&OsEntropy), Settings::new(lease));
        match self.store.claim(self.ask(key, nonce, &settings)).await? {
            Claimed::Granted(grant) => Ok(Owner {
                key,
                nonce,
                token: grant.token,
            }),
            other => Err(format!("not granted: {other:?}").into()),
        }
    }

    fn ask<'a>(&self, key: Key, nonce: Nonce, settings: &'a Settings) -> ClaimRequest<'a> {
        ClaimRequest {
            key,
            nonce,
            fingerprint: None,
            settings,
            floor: Token::ZERO,
            not_after: self.store.now().saturating_add(2 * SECOND),
        }
    }

    async fn finish_in(
        &self,
        tx: &mut PgConnection,
        owner: impl Into<Owner>,
    ) -> Result<(), TransactionError> {
        self.claims.finish_in(tx, owner, receipt(), DAY).await
    }

    async fn receipts(&self) -> Result<i64, sqlx::Error> {
        sqlx::query_scalar("select count(*) from receipts")
            .fetch_one(&self.pool)
            .await
    }

    async fn state(&self, key: Key) -> Result<State, Box<dyn StdError>> {
        let record = self.store.peek(key).await?;
        Ok(record.map_or(State::Free, |record| record.state))
    }

    /// Ends the session of a transaction, as a crash of its process does.
    async fn cut(&self, tx: &mut Transaction<'_, Db>) -> Outcome {
        let session: i32 = sqlx::query_scalar("select pg_backend_pid()")
            .fetch_one(&mut **tx)
            .await?;
        sqlx::query("select pg_terminate_backend($1, 5000)")
            .bind(session)
            .execute(&self.pool)
            .await?;
        Ok(())
    }
}

/// The business of a transaction.
async fn write(tx: &mut PgConnection) -> Result<(), sqlx::Error> {
    sqlx::query("insert into receipts (id) values (7)")
        .execute(tx)
        .await?;
    Ok(())
}

fn key(name: &str) -> Key {
    Key::builder(Use::Idempotency, &Namespace::default())
        .part(name)
        .build()
}

fn receipt() -> Value {
    Value::Kept("receipt 7".into())
}

fn a_second() -> Result<Terms, Box<dyn StdError>> {
    Ok(Terms::builder(SECOND).build()?)
}

#[tokio::test]
async fn a_commit_keeps_rows_and_result() -> Outcome {
    let shop = Shop::open(4).await?;
    let claim = shop.claim(key("a"), &a_second()?).await?;
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
        .claim(key("a"), None, &a_second()?, Token::ZERO)
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
    let short = Terms::builder(SECOND / 20).renewal(Renewal::Off).build()?;
    let zombie = shop.claim(key("a"), &short).await?;
    let mut tx = shop.pool.begin().await?;
    write(&mut tx).await?;
    tokio::time::sleep(SECOND / 10).await;
    let next = shop.claim(key("a"), &a_second()?).await?;
    assert_eq!(next.attempt(), 2);

    let finishing = zombie.begin_finish()?;
    let late = async {
        shop.finish_in(&mut tx, &finishing).await?;
        tx.commit().await?;
        Ok::<_, Box<dyn StdError>>(())
    };
    let error = late.await.expect_err("it was superseded");
    let error = error.downcast::<TransactionError>()?;
    assert!(matches!(*error, TransactionError::Lost) && !error.is_retryable());
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
        let claim = shop.claim(key, &a_second()?).await?;
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
        let claim = shop.claim(key, &a_second()?).await?;
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
        let sent = Instant::now();
        let lost = shop.claims.claim_in(&mut second, loser).await?;
        assert!(matches!(lost, Claimed::Busy(_)), "{lost:?}");
        assert!(sent.elapsed() < SECOND / 2, "it waited");
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

#[tokio::test]
async fn a_pool_of_one_is_enough() -> Outcome {
    let shop = Shop::open(1).await?;
    let work = async |n: u32| -> Outcome {
        let claim = shop.claim(key(&format!("one {n}")), &a_second()?).await?;
        let mut tx = shop.pool.begin().await?;
        write(&mut tx).await?;
        let finishing = claim.begin_finish()?;
        shop.finish_in(&mut tx, &finishing).await?;
        tx.commit().await?;
        finishing.committed();
        Ok(())
    };
    let all = futures_util::future::join_all((0..8).map(work));
    for done in tokio::time::timeout(10 * SECOND, all).await? {
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

    let mut tx = shop.pool.begin().await?;
    for (stale, by) in [(token(5)?, old), (token(6)?, old)] {
        let refused = shop.claims.fence_in(&mut tx, "seat 14", stale, by).await;
        let high = token(6)?;
        let told = match refused {
            Err(TransactionError::Stale { high: told }) if stale < high => told,
            Err(TransactionError::Collision { high: told }) if stale == high => told,
            other => return Err(format!("{stale}: {other:?}").into()),
        };
        assert_eq!(told, high);
    }
    shop.claims
        .fence_in(&mut tx, "seat 14", token(6)?, new)
        .await?;
    Ok(())
}

#[tokio::test]
async fn beats_that_meet_the_locked_record_are_doubt_not_loss() -> Outcome {
    let shop = Shop::open(4).await?;
    let terms = Terms::builder(SECOND * 2).build()?;
    let claim = shop.claim(key("a"), &terms).await?;
    let mut tx = shop.pool.begin().await?;
    shop.claims.still_held_in(&mut tx, claim.owner()).await?;
    write(&mut tx).await?;
    // Past the first beats, which are due at a third.
    tokio::time::sleep(SECOND * 12 / 10).await;
    assert_eq!(claim.check(), Ok(()));
    tx.commit().await?;
    tokio::time::sleep(SECOND * 2).await;
    assert_eq!(claim.check(), Ok(()), "renewed since");

    let short = Terms::builder(SECOND / 20).renewal(Renewal::Off).build()?;
    let late = shop.claim(key("b"), &short).await?;
    tokio::time::sleep(SECOND / 10).await;
    let mut tx = shop.pool.begin().await?;
    let refused = shop.claims.still_held_in(&mut tx, late.owner()).await;
    assert!(matches!(
        refused,
        Err(TransactionError::NotHeld(LostReason::Lapsed))
    ));
    Ok(())
}
