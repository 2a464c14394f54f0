//! Repeats of a run that is inside of its transaction, by processes that do not see it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use axum::routing::post;
use futures_util::future::join_all;
use sqlx::AssertSqlSafe;
use sqlx::postgres::PgPoolOptions;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tower_claim::ClaimAdmin;
use tower_claim_postgres::Names;
use tower_claim_postgres::statement::Statements;
use tower_claim_sqlx::{Claims, RunTransaction, Transactions};
use tower_idempotency::{IdempotencyBuilder, IdempotencyLayer, IdempotentRun};

use super::inside::{REPEATABLE_READ, SERIALIZABLE};
use super::laws::{Answer, send, send_item};
use super::{Mode, SECOND, Shop, insert, until};

/// A handler that has written its row, and goes on when it is let.
pub struct Held {
    pub app: Router,
    pub written: Arc<AtomicU32>,
    pub gate: Arc<Semaphore>,
}

impl Held {
    pub fn over(shop: &Shop) -> Self {
        Self::under(shop, shop.layer_of(Mode::Inside))
    }

    pub fn under(shop: &Shop, layer: IdempotencyBuilder) -> Self {
        Self::at(shop, &layer.build().expect("good settings"))
    }

    pub fn at(shop: &Shop, layer: &IdempotencyLayer) -> Self {
        let (written, gate) = (Arc::new(AtomicU32::new(0)), Arc::new(Semaphore::new(0)));
        let (count, open) = (Arc::clone(&written), Arc::clone(&gate));
        let handler = async move |run: IdempotentRun, mut tx: RunTransaction| {
            let key = run.key().as_client_text().unwrap_or_default();
            let id = insert(&mut tx, key, "tea").await;
            count.fetch_add(1, Ordering::Relaxed);
            open.acquire().await.expect("never closed").forget();
            format!("order {id}")
        };
        let orders = Router::new().route("/orders", post(handler).layer(layer.clone()));
        Self {
            app: orders.with_state(shop.clone()),
            written,
            gate,
        }
    }

    /// A first run that has written.
    pub async fn begin(&self, key: &'static str) -> JoinHandle<Answer> {
        let before = self.written.load(Ordering::Relaxed);
        let app = self.app.clone();
        let first = tokio::spawn(async move { send(&app, key).await });
        until("it has written", async || {
            self.written.load(Ordering::Relaxed) > before
        })
        .await;
        first
    }

    pub fn let_go(&self) {
        self.gate.add_permits(1);
    }
}

/// One connection runs, the other serves all who repeat from elsewhere: none of them holds it while it waits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repeat_never_waits_for_the_row_and_holds_no_connection() {
    let mut shop = Shop::open().await;
    let options = shop.pool.connect_options().as_ref().clone();
    let two = PgPoolOptions::new().max_connections(2);
    let two = two.acquire_timeout(30 * SECOND).connect_with(options).await;
    shop.transactions = super::transactions(&two.expect("it connects"), &shop.schema);
    let (held, elsewhere) = (Held::over(&shop), Held::over(&shop));
    let first = held.begin("key").await;
    let repeats = join_all((0..20).map(|_| send(&elsewhere.app, "key"))).await;
    assert!(!first.is_finished(), "it waits for its gate");
    for repeat in repeats {
        assert_eq!(repeat.status, StatusCode::CONFLICT, "{}", repeat.body);
        assert!(repeat.body.contains("in-progress"), "{}", repeat.body);
    }
    let seen = shop.store.scan(None, 1).await.expect("a page");
    assert!(seen.records.is_empty(), "nothing is committed");
    held.let_go();
    let first = first.await.expect("it does not panic");
    assert_eq!(first.status, StatusCode::OK, "{}", first.body);
    let again = send(&held.app, "key").await;
    assert!(again.replayed && again.body == first.body);
    assert_eq!(shop.rows().await, ["key"]);
}

/// A claim whose snapshot is older than the commit of the run that it waited for: PostgreSQL says 40001. It is the
/// first statement, so the transaction begins anew, and finds the record.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_that_came_second_is_replayed_the_record() {
    for begin in [REPEATABLE_READ, SERIALIZABLE] {
        let mut shop = Shop::open().await;
        let names = Names::new(&shop.schema, "").expect("a name");
        let patient = Statements::new(&names).with_lock_wait_in_transaction(30 * SECOND);
        shop.transactions =
            Transactions::new(shop.pool.clone()).claims(Claims::with_statements(patient));
        let shop = shop.beginning_with(begin);
        let held = Held::over(&shop);
        let first = held.begin("key").await;
        // Of a process that does not see the first.
        let app = Held::over(&shop).app;
        let second = tokio::spawn(async move { send(&app, "key").await });
        until("it waits for the row", async || {
            let waiting = "select count(*) from pg_stat_activity \
                           where wait_event_type = 'Lock' and query like $1";
            let claim = format!("%{}%claim_in%", shop.schema);
            let count = sqlx::query_scalar(waiting).bind(claim);
            count.fetch_one(&shop.pool).await.ok() == Some(1_i64)
        })
        .await;
        held.let_go();
        let first = first.await.expect("it does not panic");
        let second = second.await.expect("it does not panic");
        assert_eq!(first.status, StatusCode::OK, "{}", first.body);
        assert_eq!(second.status, StatusCode::OK, "{begin}: {}", second.body);
        assert!(second.replayed && second.body == first.body);
        assert_eq!(shop.rows().await, ["key"]);
    }
}

/// Of an outcome whose keep has passed, and of a run that was given back: what they were asked binds nobody any more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_payload_that_is_over_binds_no_repeat() {
    let shop = Shop::open().await;
    let short = shop.layer().retention(Duration::from_millis(1));
    let short = shop.app(short, post(async || "done"));
    let fails = shop.app(shop.layer(), post(async || StatusCode::BAD_GATEWAY));
    let held = Held::over(&shop);
    // Knows nothing of the others' runs but what the database tells.
    let other = Held::over(&shop);
    for (app, key) in [(short, "kept"), (fails, "given-back")] {
        send_item(&app, key, "tea").await;
        let first = tokio::spawn({
            let (app, key) = (held.app.clone(), key.to_owned());
            async move { send(&app, &key).await }
        });
        until("it runs", async || {
            held.written.load(Ordering::Relaxed) == 1 || first.is_finished()
        })
        .await;
        assert!(!first.is_finished(), "{key}: it waits for its gate");
        let repeat = send(&other.app, key).await;
        assert_eq!(repeat.status, StatusCode::CONFLICT, "{}", repeat.body);
        assert!(repeat.body.contains("in-progress"), "{}", repeat.body);
        held.let_go();
        assert_eq!(first.await.expect("no panic").status, StatusCode::OK);
        held.written.store(0, Ordering::Relaxed);
    }
}

/// However often others are ahead of it: that is no failure of the database.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_that_comes_second_time_and_again_is_told_that_the_key_is_busy() {
    let shop = Shop::open().await;
    let by_tokio = super::by_tokio_postgres::transactions(&shop);
    let layers = [
        shop.layer_of(Mode::Inside),
        shop.layer().claim_inside(by_tokio),
    ];
    let claim = format!("{}.claim", shop.schema);
    for (nth, layer) in layers.into_iter().enumerate() {
        let lose = format!(
            "create sequence tries_{nth};
             create function lose() returns trigger language plpgsql as $$ begin
                 perform nextval('tries_{nth}');
                 raise exception 'another came first' using errcode = '40001';
             end $$;
             create trigger lose before insert on {claim} for each row execute function lose()"
        );
        let set = sqlx::raw_sql(AssertSqlSafe(lose)).execute(&shop.pool).await;
        set.expect("a trigger");
        let app = shop.app(layer, post(async || "done"));
        let key = format!("key-{nth}");
        let busy = send(&app, &key).await;
        assert_eq!(busy.status, StatusCode::CONFLICT, "{}", busy.body);
        assert!(busy.body.contains("in-progress"), "{}", busy.body);
        let tries = AssertSqlSafe(format!("select last_value from tries_{nth}"));
        let tries = sqlx::query_scalar(tries).fetch_one(&shop.pool).await;
        assert_eq!(tries.ok(), Some(4_i64), "it has tried");
        let end = AssertSqlSafe(format!("drop trigger lose on {claim}; drop function lose"));
        let ended = sqlx::raw_sql(end).execute(&shop.pool).await;
        ended.expect("no trigger");
        let again = send(&app, &key).await;
        assert_eq!((again.body.as_str(), again.replayed), ("done", false));
    }
}
