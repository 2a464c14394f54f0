//! What a call reads: a few rows by an index, however small the table was when its session made the plan.

use tower_claim::store::Watched;
use tower_claim::{ClaimAdmin, ClaimMany, ClaimStore, FenceStore, Token};
use tower_claim_postgres::PostgresStore;

use super::roles::works;
use super::scene::{Ask, SECOND, client, granted, hold, kept, key, tables, until};
use super::server;

/// What every role must manage, and then each call that is left.
async fn round(store: &PostgresStore, url: &str) {
    let owner = works(store).await;
    let seen = store.watch(owner.key, owner.token).await;
    assert!(matches!(seen, Ok(Watched::Done(_))), "{seen:?}");
    let released = Ask::new(store, key(), SECOND);
    granted(store.claim(released.request()).await.expect("an answer"));
    // By another nonce: it is remembered beside the holder's.
    let spent = Ask::new(store, released.key, SECOND);
    assert!(store.release(spent.release()).await.is_ok());
    let all = [released.release(), spent.release()];
    assert!(store.release_many(&all).await.is_ok());
    assert!(store.scan(Some(owner.key), 5).await.is_ok());
    let held = hold(store, key(), 60 * SECOND).await;
    let asked = store.ask_revoke(held.key, Token::ZERO).await;
    assert_eq!(asked.ok(), Some(false));
    assert!(store.break_claim(held.key, Token::ZERO).await.is_ok());
    assert!(store.purge(owner.key, owner.token).await.is_ok());

    let seat = format!("seat {}", owner.token);
    assert!(store.admit(&seat, owner.token, owner.nonce).await.is_ok());
    assert!(store.raise_floor(&seat, Token::ZERO).await.is_ok());
    let high = store.high_water(&seat).await;
    assert_eq!(high.ok(), Some(owner.token));

    let mut session = client(url).await;
    let transaction = session.transaction().await.expect("it begins");
    let inside = Ask::new(store, key(), 60 * SECOND);
    let answer = store.claim_in(&transaction, inside.request()).await;
    let owner = inside.owner(granted(answer.expect("an answer")).token);
    assert!(store.still_held_in(&transaction, owner).await.is_ok());
    let fenced = store.fence_in(&transaction, &seat, owner.token, owner.nonce);
    assert!(fenced.await.is_ok());
    let done = store.finish_in(&transaction, owner, kept("done"), SECOND);
    assert!(done.await.is_ok());
    transaction.commit().await.expect("it commits");
}

/// A session keeps its plans until the next ANALYZE. One made for three rows must do for 100,000.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_call_reads_a_whole_table_that_grew_since_it_was_planned() {
    let (builder, schema) = tables().await;
    let url = format!("{}?application_name={schema}", server().url());
    let builder = builder.url(&url).pool_size(1).listen(false);
    let builder = builder.purge_every(None);
    let store = builder.clone().connect().await.expect("it connects");
    hold(&store, key(), 60 * SECOND).await;
    let stranger = client(&server().url()).await;
    // Now the planner knows how small they are.
    for table in ["claim", "spent", "fence"] {
        let vacuum = format!("vacuum analyze {schema}.{table}");
        stranger.batch_execute(&vacuum).await.expect("it is known");
    }
    for _ in 0..8 {
        round(&store, &url).await;
    }
    let grow = format!(
        "insert into {schema}.claim select sha256(n::text::bytea), 1, 'held', 1, \
         decode(repeat('01', 16), 'hex'), now(), now(), now() + interval '1 h', '1 h', '0', '0', '1 d', \
         'take over', '', null, now(), 0, 1, false, false, false, null, null, 16, null, null, now() \
         from generate_series(1, 100000) n; \
         insert into {schema}.spent select sha256(n::text::bytea), decode(repeat('02', 16), 'hex'), now() \
         from generate_series(1, 100000) n; \
         insert into {schema}.fence select sha256(('seat ' || n)::bytea), 'seat', 1, null, now() \
         from generate_series(1, 100000) n"
    );
    stranger.batch_execute(&grow).await.expect("it grows");
    // One that planned before, and one that plans by what is no longer true.
    let late = builder.connect().await.expect("it connects");
    for _ in 0..8 {
        round(&store, &url).await;
        round(&late, &url).await;
    }
    // A session tells what it read when it ends.
    drop((store, late));
    let sessions = "select count(*) from pg_stat_activity where application_name = $1";
    until("its sessions end", async || {
        let row = stranger.query_one(sessions, &[&schema]).await;
        row.expect("a count").get::<_, i64>(0) == 0
    })
    .await;
    let read = "select sum(seq_tup_read)::bigint, sum(idx_tup_fetch)::bigint \
        from pg_stat_user_tables where schemaname = $1 and relname in ('claim', 'spent', 'fence')";
    let row = stranger.query_one(read, &[&schema]).await.expect("counts");
    let (walked, fetched): (i64, i64) = (row.get(0), row.get(1));
    assert_eq!(walked, 0, "rows were read without an index");
    assert!((100..20_000).contains(&fetched), "{fetched} by an index");
}
