//! Orders whose rows and answers are committed together: claimed outside of the handler's transaction or inside it,
//! and finished inside it.

mod by_tokio_postgres;
mod crash;
mod ended;
mod existing;
#[cfg(feature = "grpc")]
mod grpc;
mod here;
mod inside;
mod laws;
mod recovered;
mod repeats;
mod streams;
mod unguarded;
mod victim;

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::FromRef;
use axum::routing::{MethodRouter, post};
use sqlx::PgPool;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use system_tests::servers::Postgres;
use tower_claim_postgres::{Names, PostgresStore};
use tower_claim_sqlx::{Claims, RunTransaction, Transactions};
use tower_idempotency::{IdempotencyBuilder, IdempotencyLayer};

const SECOND: Duration = Duration::from_secs(1);

/// How claim, rows and answer hang together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// The handler commits its rows by itself; claim and answer are apart from them.
    Separate,
    /// Claimed, written and finished in one transaction.
    Inside,
    /// Claimed outside, written and finished in one transaction.
    Outside,
}

impl Mode {
    const ALL: [Self; 3] = [Self::Separate, Self::Inside, Self::Outside];
}

/// Rows and answer are committed together.
const TOGETHER: [Mode; 2] = [Mode::Inside, Mode::Outside];

/// A shop in a schema of its own.
#[derive(Clone)]
struct Shop {
    url: String,
    schema: String,
    store: PostgresStore,
    pool: PgPool,
    transactions: Transactions,
}

impl FromRef<Shop> for Transactions {
    fn from_ref(shop: &Shop) -> Self {
        shop.transactions.clone()
    }
}

impl Shop {
    /// A new one, on the server that these tests share.
    async fn open() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let url = server().url();
        let schema = format!("shop_{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let builder = PostgresStore::builder().url(&url).schema(&schema);
        builder.migrate().await.expect("tables are made");
        let shop = Self::at(url, schema).await;
        sqlx::query(
            "create table orders (id serial primary key, key text not null, item text not null)",
        )
        .execute(&shop.pool)
        .await
        .expect("a table");
        shop
    }

    /// One that is there.
    async fn at(url: String, schema: String) -> Self {
        let store = store(&url, &schema).await;
        let pool = pool(&url, &schema, None).await;
        Self {
            transactions: transactions(&pool, &schema),
            url,
            schema,
            store,
            pool,
        }
    }

    /// The same shop, its transactions by another port of loopback.
    async fn by_port(&self, port: u16) -> Self {
        let pool = pool(&self.url, &self.schema, Some(port)).await;
        Self {
            transactions: transactions(&pool, &self.schema),
            ..self.clone()
        }
    }

    fn layer(&self) -> IdempotencyBuilder {
        IdempotencyLayer::builder(self.store.clone()).one_tenant()
    }

    /// The same of this mode. The handler of [`TOGETHER`] is the same.
    fn layer_of(&self, mode: Mode) -> IdempotencyBuilder {
        match mode {
            Mode::Inside => self.layer().claim_inside(self.transactions.clone()),
            Mode::Separate | Mode::Outside => self.layer(),
        }
    }

    fn app(&self, layer: IdempotencyBuilder, handler: MethodRouter<Shop>) -> Router {
        let layer = layer.build().expect("good settings");
        let orders = Router::new().route("/orders", handler.layer(layer));
        orders.with_state(self.clone())
    }

    /// An app that orders what the body says, under the request's key.
    fn orders(&self, layer: IdempotencyBuilder) -> Router {
        self.app(layer, post(order))
    }

    /// The same of this mode.
    fn orders_of(&self, mode: Mode, layer: IdempotencyBuilder) -> Router {
        match mode {
            Mode::Separate => self.app(layer, post(order_apart)),
            Mode::Inside | Mode::Outside => self.orders(layer),
        }
    }

    /// Its transactions begin so.
    fn beginning_with(mut self, statement: &'static str) -> Self {
        self.transactions = self.transactions.begin_with(statement);
        self
    }

    /// Takes one order for each item from now on.
    async fn one_order_per_item(&self) {
        let index = sqlx::query("create unique index one_order_per_item on orders (item)");
        index.execute(&self.pool).await.expect("an index");
    }

    /// The keys of all orders.
    async fn rows(&self) -> Vec<String> {
        let rows = sqlx::query_scalar("select key from orders order by id");
        rows.fetch_all(&self.pool).await.expect("rows")
    }
}

fn server() -> &'static Postgres {
    static SERVER: OnceLock<Postgres> = OnceLock::new();
    SERVER.get_or_init(Postgres::start)
}

async fn store(url: &str, schema: &str) -> PostgresStore {
    let store = PostgresStore::builder().url(url).schema(schema);
    store.connect().await.expect("it connects")
}

async fn pool(url: &str, schema: &str, port: Option<u16>) -> PgPool {
    let options: PgConnectOptions = url.parse().expect("a URL");
    let mut options = options.options([("search_path", schema)]);
    if let Some(port) = port {
        options = options.host("127.0.0.1").port(port);
    }
    let pool = PgPoolOptions::new().acquire_timeout(60 * SECOND);
    pool.connect_with(options).await.expect("it connects")
}

fn transactions(pool: &PgPool, schema: &str) -> Transactions {
    let names = Names::new(schema, "").expect("a name");
    Transactions::new(pool.clone()).claims(Claims::named(&names))
}

/// Writes an order; answers its number.
async fn insert(tx: &mut RunTransaction, key: &str, item: &str) -> i32 {
    let query = sqlx::query_scalar("insert into orders (key, item) values ($1, $2) returning id");
    let id = query.bind(key).bind(item).fetch_one(&mut **tx).await;
    id.expect("a row")
}

/// The handler that a user writes.
async fn order(
    run: tower_idempotency::IdempotentRun,
    mut tx: RunTransaction,
    item: String,
) -> (axum::http::StatusCode, String) {
    let id = insert(
        &mut tx,
        run.key().as_client_text().unwrap_or_default(),
        &item,
    )
    .await;
    (axum::http::StatusCode::CREATED, format!("order {id}"))
}

/// The same, where rows and answer are apart.
async fn order_apart(
    axum::extract::State(shop): axum::extract::State<Shop>,
    run: tower_idempotency::IdempotentRun,
    item: String,
) -> Result<(axum::http::StatusCode, String), tower_claim_sqlx::WorkError> {
    let query = sqlx::query_scalar("insert into orders (key, item) values ($1, $2) returning id");
    let key = run.key().as_client_text().unwrap_or_default();
    let id: i32 = query.bind(key).bind(item).fetch_one(&shop.pool).await?;
    Ok((axum::http::StatusCode::CREATED, format!("order {id}")))
}

/// The layer of a shop whose order of this item may be there already.
fn asking_for_the_order(shop: &Shop, layer: IdempotencyBuilder) -> IdempotencyBuilder {
    let pool = shop.pool.clone();
    layer.on_unique_violation("one_order_per_item", move |row| {
        let pool = pool.clone();
        async move {
            let item = std::str::from_utf8(row.body()?).ok()?.to_owned();
            let id = sqlx::query_scalar("select id from orders where item = $1");
            let id: i32 = id.bind(item).fetch_optional(&pool).await.ok()??;
            let response = axum::http::Response::builder().status(201);
            response.body(format!("order {id}").into()).ok()
        }
    })
}

async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let late = tokio::time::Instant::now() + 60 * SECOND;
    while !holds().await {
        assert!(tokio::time::Instant::now() < late, "never: {what}");
        tokio::time::sleep(SECOND / 50).await;
    }
}
