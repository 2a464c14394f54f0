//! What a server is asked before anything is entrusted to it.

use tokio_postgres::types::Type;
use tokio_postgres::{GenericClient, Row};
use tower_claim::StoreError;

use crate::error::of_statement;
use crate::migrate::check_tables;
use crate::names::functions;
use crate::{ConnectError, Names};

/// PostgreSQL 13.
const OLDEST_SERVER: i32 = 130_000;

/// What a server said of itself.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SelfTest {
    /// Why a crash may take what was answered, if it may.
    pub(crate) crash_forgets: Option<&'static str>,
    /// There are replicas, and it answers before one of them has the commit.
    pub(crate) replicas_lag: bool,
    pub(crate) now: i64,
}

/// Asks the server what it is, and whether this role may work with the tables.
pub(crate) async fn self_test(
    client: &impl GenericClient,
    names: &Names,
) -> Result<SelfTest, ConnectError> {
    let server = ask_server(client).await?;
    check_server(&server)?;
    check_tables(client, names).await?;
    let logged = check_rights(client, names).await?;
    let on = |column| server.try_get::<_, bool>(column).map_err(unreadable);
    let crash_forgets = if on("answers_early")? {
        Some("`synchronous_commit` is off")
    } else if on("unsafe_disk")? {
        Some("`fsync` is off")
    } else if !logged {
        Some("its tables are UNLOGGED")
    } else {
        None
    };
    Ok(SelfTest {
        crash_forgets,
        replicas_lag: on("replicated")? && !(on("synchronous")? && logged),
        now: server.try_get("at").map_err(unreadable)?,
    })
}

async fn ask_server(client: &impl GenericClient) -> Result<Row, ConnectError> {
    // A sender for logical replication (change capture) is no replica that could be promoted.
    const TEXT: &str = "select current_setting('server_version_num')::integer as version, \
        pg_is_in_recovery() or current_setting('transaction_read_only') = 'on' as takes_no_writes, \
        current_setting('transaction_isolation') as isolation, \
        current_setting('server_encoding') as encoding, \
        current_setting('synchronous_commit') = 'off' as answers_early, \
        current_setting('fsync') = 'off' as unsafe_disk, \
        current_setting('synchronous_commit') not in ('off', 'local') \
            and current_setting('synchronous_standby_names') <> '' as synchronous, \
        exists (select from pg_stat_replication s where not exists \
            (select from pg_replication_slots l where l.active_pid = s.pid and l.slot_type = 'logical')) \
            or exists (select from pg_replication_slots where slot_type = 'physical') as replicated, \
        (extract(epoch from clock_timestamp()) * 1000000)::bigint as at";
    let asked = client.query_typed_one(TEXT, &[]).await;
    asked.map_err(|error| match error.as_db_error() {
        Some(db) => ConnectError::Server(format!(
            "the server is no PostgreSQL that this crate knows: {}",
            db.message()
        )),
        None => unreadable(error),
    })
}

fn unreadable(error: tokio_postgres::Error) -> ConnectError {
    ConnectError::Store(of_statement(error, None))
}

fn check_server(server: &Row) -> Result<(), ConnectError> {
    let refused = |why: String| Err(ConnectError::Server(why));
    let version: i32 = server.try_get("version").map_err(unreadable)?;
    if version < OLDEST_SERVER {
        return refused(format!(
            "PostgreSQL 13 or newer is needed; this is {version}"
        ));
    }
    if server.try_get("takes_no_writes").map_err(unreadable)? {
        return refused(
            "the server takes no writes (a replica?): connect to the primary, e.g. with \
             target_session_attrs=read-write"
                .to_owned(),
        );
    }
    // Stricter levels judge by a snapshot from before the wait for a lock: where two meet, one fails.
    let isolation: String = server.try_get("isolation").map_err(unreadable)?;
    if isolation != "read committed" {
        return refused(format!(
            "`default_transaction_isolation` is `{isolation}`: set it to `read committed` for this role \
             (ALTER ROLE … SET), or in the URL by ?options=-cdefault_transaction_isolation=read%5C%20committed"
        ));
    }
    let encoding: String = server.try_get("encoding").map_err(unreadable)?;
    if !matches!(&*encoding, "UTF8" | "SQL_ASCII") {
        return refused(format!(
            "the database is encoded in {encoding}, which has no room for every label: give one in UTF8"
        ));
    }
    Ok(())
}

/// Whether the tables survive a crash.
async fn check_rights(client: &impl GenericClient, names: &Names) -> Result<bool, ConnectError> {
    const TEXT: &str = "select current_user::text as role, \
        bool_and(c.oid is not null) as there, \
        coalesce(bool_and(has_table_privilege(c.oid, r)), false) as may, \
        coalesce(bool_or(row_security_active(c.oid)), false) as hides, \
        coalesce(bool_and(c.relpersistence = 'p'), false) as logged, \
        (select count(*) from pg_proc p join pg_namespace n on n.oid = p.pronamespace \
            where n.nspname = $2 and p.proname = any($3)) as functions, \
        (select count(*) from pg_proc p join pg_namespace n on n.oid = p.pronamespace \
            where n.nspname = $2 and p.proname = any($3) and has_function_privilege(p.oid, 'EXECUTE')) as callable \
        from unnest($1) t left join pg_class c on c.oid = to_regclass(t), \
            unnest(array['SELECT', 'INSERT', 'UPDATE', 'DELETE']) r";
    let tables: Vec<String> = ["claim", "spent", "fence"].map(|t| names.of(t)).to_vec();
    let made: Vec<String> = functions()
        .map(|name| format!("{}{name}", names.prefix()))
        .collect();
    let row = client
        .query_typed_one(
            TEXT,
            &[
                (&tables, Type::TEXT_ARRAY),
                (&names.schema(), Type::TEXT),
                (&made, Type::TEXT_ARRAY),
            ],
        )
        .await
        .map_err(unreadable)?;
    let read = |error: tokio_postgres::Error| ConnectError::Store(StoreError::unavailable(error));
    let on = |column| row.try_get::<_, bool>(column).map_err(read);
    let number = |column| row.try_get::<_, i64>(column).map_err(read);
    if !on("there")? || number("functions")? < made.len() as i64 {
        return Err(ConnectError::Foreign(names.clone()));
    }
    let role: String = row.try_get("role").map_err(read)?;
    if !on("may")? {
        return Err(ConnectError::NoRights {
            grants: names.grants(&role),
        });
    }
    if number("callable")? < number("functions")? {
        return Err(ConnectError::NoRights {
            grants: names.grant_execute(&role),
        });
    }
    if on("hides")? {
        return Err(ConnectError::Server(format!(
            "row security hides records from the role {role}: ALTER TABLE … DISABLE ROW LEVEL SECURITY on \
             {}, or give the role BYPASSRLS",
            tables.join(", ")
        )));
    }
    on("logged")
}
