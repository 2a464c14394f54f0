//! Calls beside the same trips by the raw driver, in one run.

use std::time::{Duration, Instant};

use deadpool_postgres::{Manager, ManagerConfig, Pool, RecyclingMethod};
use futures_util::future::join_all;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{NoTls, Row};
use tower_claim::store::{Claimed, Finish};
use tower_claim::{ClaimStore, Key, Token};
use tower_claim_postgres::PostgresStore;
use tower_claim_postgres::statement::{Call, Param};

use super::scene::{Ask, SECOND, finish, hold, key, tables};
use super::server;

const AT_ONCE: usize = 8;
const ROUNDS: usize = 15;
/// Of the bare driver's throughput.
const AT_LEAST: f64 = 0.9;

/// The bare driver over a pool of its own: with the store's own statements, and with what one would write by hand,
/// without cooling, takeover, spent nonces, marks or a clock.
struct Bare {
    pool: Pool,
    schema: String,
}

impl Bare {
    fn new(schema: &str) -> Self {
        let config = server().url().parse().expect("a URL");
        let recycling_method = RecyclingMethod::Fast;
        let manager = Manager::from_config(config, NoTls, ManagerConfig { recycling_method });
        let pool = Pool::builder(manager).max_size(AT_ONCE).build();
        Self {
            pool: pool.expect("a pool"),
            schema: schema.to_owned(),
        }
    }

    async fn make(&self) {
        let schema = &self.schema;
        let table = format!(
            "create table {schema}.by_hand (key bytea primary key, nonce bytea not null, token bigserial, \
             until timestamptz not null, state text not null, value bytea) with (fillfactor = 70)"
        );
        let client = self.pool.get().await.expect("a connection");
        client.batch_execute(&table).await.expect("a table");
    }

    async fn claim_and_finish(&self, key: Key) {
        let client = self.pool.get().await.expect("a connection");
        let nonce = super::scene::nonce();
        let (key, nonce) = (key.as_bytes().as_slice(), nonce.as_bytes().as_slice());
        let claim = format!(
            "insert into {}.by_hand (key, nonce, until, state) \
             values ($1, $2, clock_timestamp() + interval '60 s', 'held') on conflict (key) do nothing \
             returning token",
            self.schema
        );
        let bytes = Type::BYTEA;
        let params: [(&(dyn ToSql + Sync), Type); 2] =
            [(&key, bytes.clone()), (&nonce, bytes.clone())];
        let rows = client.query_typed(&claim, &params).await.expect("a row");
        let token: i64 = rows[0].get(0);
        drop(client);
        let client = self.pool.get().await.expect("a connection");
        let finish = format!(
            "update {}.by_hand set state = 'done', value = $4 where key = $1 and nonce = $2 \
             and token = $3 and state = 'held' returning 1",
            self.schema
        );
        let done = b"done".as_slice();
        let params: [(&(dyn ToSql + Sync), Type); 4] = [
            (&key, bytes.clone()),
            (&nonce, bytes.clone()),
            (&token, Type::INT8),
            (&done, bytes),
        ];
        let rows = client.query_typed(&finish, &params).await.expect("a row");
        assert_eq!(rows.len(), 1);
    }

    /// The very statement of a store's call.
    async fn send(&self, call: Call) -> Row {
        let client = self.pool.get().await.expect("a connection");
        let params: Vec<_> = call.params().iter().map(typed).collect();
        let rows = client.query_typed(call.text(), &params).await;
        rows.expect("an answer").pop().expect("a row")
    }

    async fn same_claim_and_finish(&self, store: &PostgresStore, key: Key) {
        let ask = Ask::new(store, key, 60 * SECOND);
        let row = self.send(store.statements().claim(&ask.request())).await;
        assert_eq!(row.get::<_, &str>("answer"), "granted");
        let token = u64::try_from(row.get::<_, i64>("token")).expect("a token");
        let owner = ask.owner(Token::new(token).expect("a token"));
        let row = self.send(store.statements().finish(&finish(owner, "done")));
        assert_eq!(row.await.get::<_, &str>("answer"), "finished");
    }

    async fn same_replay(&self, store: &PostgresStore, key: Key) {
        let ask = Ask::new(store, key, SECOND);
        let row = self.send(store.statements().claim(&ask.request())).await;
        assert_eq!(row.get::<_, &str>("answer"), "done");
    }

    async fn replay(&self, key: Key) {
        let client = self.pool.get().await.expect("a connection");
        let key = key.as_bytes().as_slice();
        let text = format!(
            "select state, token, value from {}.by_hand where key = $1",
            self.schema
        );
        let rows = client.query_typed(&text, &[(&key, Type::BYTEA)]).await;
        let rows = rows.expect("a row");
        assert_eq!(rows[0].get::<_, &str>(0), "done");
    }
}

fn typed(param: &Param) -> (&(dyn ToSql + Sync), Type) {
    match param {
        Param::Int(value) => (value, Type::INT8),
        Param::Small(value) => (value, Type::INT4),
        Param::Text(value) => (value, Type::TEXT),
        Param::Bytes(value) => (value, Type::BYTEA),
        other => panic!("not in these calls: {other:?}"),
    }
}

async fn claim_and_finish(store: &PostgresStore, key: Key) {
    let owner = hold(store, key, 60 * SECOND).await;
    let done = store.finish(finish(owner, "done")).await;
    assert_eq!(done.ok(), Some(Finish::Finished));
}

async fn replay(store: &PostgresStore, key: Key) {
    let ask = Ask::new(store, key, SECOND);
    let answer = store.claim(ask.request()).await.expect("an answer");
    assert!(matches!(answer, Claimed::Done(_)), "{answer:?}");
}

/// `each` of these many, some at a time.
async fn time(many: usize, each: impl AsyncFn()) -> Duration {
    let began = Instant::now();
    let one = async || {
        for _ in 0..many / AT_ONCE {
            each().await;
        }
    };
    join_all((0..AT_ONCE).map(|_| one())).await;
    began.elapsed()
}

/// The middle of the ratios of neighbouring rounds: what else the machine does hits both.
fn middle(name: &str, mut ratios: Vec<f64>) -> f64 {
    ratios.sort_unstable_by(f64::total_cmp);
    let middle = ratios[ratios.len() / 2];
    println!(
        "{name}: {middle:.2} of the throughput ({:.2} to {:.2})",
        ratios[0],
        ratios[ratios.len() - 1]
    );
    middle
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "prints figures"]
async fn calls_cost_little_more_than_the_same_trips_by_the_bare_driver() {
    let (builder, schema) = tables().await;
    let store = builder.pool_size(AT_ONCE).purge_every(None).connect().await;
    let store = store.expect("it connects");
    let bare = Bare::new(&schema);
    bare.make().await;
    let done = key();
    claim_and_finish(&store, done).await;
    bare.claim_and_finish(done).await;

    let mut ratios: [Vec<f64>; 4] = Default::default();
    for round in 0..=ROUNDS {
        let ours = time(160, async || claim_and_finish(&store, key()).await).await;
        let same = time(160, async || {
            bare.same_claim_and_finish(&store, key()).await;
        });
        let same = same.await;
        let hand = time(160, async || bare.claim_and_finish(key()).await).await;
        let our_reads = time(800, async || replay(&store, done).await).await;
        let same_reads = time(800, async || bare.same_replay(&store, done).await).await;
        let hand_reads = time(800, async || bare.replay(done).await).await;
        // The first makes connections and plans.
        if round > 0 {
            for (ratios, (theirs, ours)) in ratios.iter_mut().zip([
                (same, ours),
                (same_reads, our_reads),
                (hand, ours),
                (hand_reads, our_reads),
            ]) {
                ratios.push(theirs.as_secs_f64() / ours.as_secs_f64());
            }
        }
    }
    let [writes, reads, by_hand, reads_by_hand] = ratios;
    let writes = middle("claim and finish, the same statements", writes);
    let reads = middle("replay, the same statements", reads);
    // Without takeover, cooling, spent nonces, marks: what those cost the server.
    middle("claim and finish, an insert and an update", by_hand);
    middle("replay, a select", reads_by_hand);
    assert!(writes >= AT_LEAST && reads >= AT_LEAST);
}
