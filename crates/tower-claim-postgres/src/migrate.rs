//! The tables: made, and known again.

use tokio_postgres::GenericClient;
use tokio_postgres::types::Type;
use tower_claim::StoreError;

use crate::error::of_statement;
use crate::{ConnectError, Names};

/// Of the tables.
const FORMAT: i64 = 1;
/// Of the functions' text: raised where one is mended.
const FUNCTIONS: i64 = 1;
/// PostgreSQL 13.
const OLDEST_SERVER: i32 = 130_000;

/// What a server said of itself.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SelfTest {
    /// A commit is answered before it is on disk.
    pub(crate) answers_early: bool,
    /// Nothing is made sure to be on disk.
    pub(crate) unsafe_disk: bool,
    pub(crate) now: i64,
}

/// Makes the tables where they are missing. Safe from several processes at once; changes nothing where all is
/// in place, for which no right to create is needed.
pub(crate) async fn migrate(
    client: &impl GenericClient,
    names: &Names,
) -> Result<(), ConnectError> {
    match check_tables(client, names).await {
        Err(ConnectError::NotMigrated(_)) => {}
        answer => return answer,
    }
    let made = client.batch_execute(&names.migration()).await;
    if let Err(error) = made {
        let state = error.as_db_error().map(|db| db.code().code().to_owned());
        // The transaction the batch began is left open by its error.
        let _ = client.batch_execute("rollback").await;
        return Err(match state.as_deref() {
            Some("42501") => ConnectError::NoRights {
                grants: format!(
                    "GRANT CREATE ON DATABASE … (or own the schema \"{}\"), or let its owner run the SQL file",
                    names.schema()
                ),
            },
            Some("42703" | "42P07" | "42809" | "42804") => ConnectError::Foreign(names.clone()),
            Some("TC003") => ConnectError::NewerFormat {
                found: FORMAT + 1,
                known: FORMAT,
            },
            _ => ConnectError::Store(of_statement(error, None)),
        });
    }
    check_tables(client, names).await
}

/// Whether the tables are ours and of a format that we know.
pub(crate) async fn check_tables(
    client: &impl GenericClient,
    names: &Names,
) -> Result<(), ConnectError> {
    let meta = names.of("meta");
    let text =
        format!("select format::bigint as format, functions::bigint as functions from {meta}");
    let rows = match client.query_typed(&text, &[]).await {
        Ok(rows) => rows,
        Err(error) => {
            let state = error.as_db_error().map(|db| db.code().code().to_owned());
            return Err(match state.as_deref() {
                Some("42P01" | "3F000") => ConnectError::NotMigrated(names.clone()),
                Some("42703" | "42809" | "42846") => ConnectError::Foreign(names.clone()),
                Some("42501") => ConnectError::NoRights {
                    grants: names.grants("the_role"),
                },
                _ => ConnectError::Store(of_statement(error, None)),
            });
        }
    };
    let Some(row) = rows.first() else {
        return Err(ConnectError::NotMigrated(names.clone()));
    };
    let read = |column| -> Result<i64, ConnectError> {
        let value: Result<Option<i64>, _> = row.try_get(column);
        value
            .ok()
            .flatten()
            .ok_or_else(|| ConnectError::Foreign(names.clone()))
    };
    let (format, functions) = (read("format")?, read("functions")?);
    if format > FORMAT {
        return Err(ConnectError::NewerFormat {
            found: format,
            known: FORMAT,
        });
    }
    if format < FORMAT || functions < FUNCTIONS {
        return Err(ConnectError::NotMigrated(names.clone()));
    }
    Ok(())
}

/// Asks the server what it is, and whether this role may work with the tables.
pub(crate) async fn self_test(
    client: &impl GenericClient,
    names: &Names,
) -> Result<SelfTest, ConnectError> {
    const TEXT: &str = "select current_setting('server_version_num')::integer as version, \
        current_setting('synchronous_commit') as commits, current_setting('fsync') as fsync, \
        pg_is_in_recovery() as replica, current_setting('transaction_read_only') = 'on' as read_only, \
        (extract(epoch from clock_timestamp()) * 1000000)::bigint as at";
    let unreadable = |error: tokio_postgres::Error| ConnectError::Store(of_statement(error, None));
    let row =
        client
            .query_typed_one(TEXT, &[])
            .await
            .map_err(|error| match error.as_db_error() {
                Some(db) => ConnectError::Server(format!(
                    "the server is no PostgreSQL that this crate knows: {}",
                    db.message()
                )),
                None => unreadable(error),
            })?;
    let version: i32 = row.try_get("version").map_err(unreadable)?;
    if version < OLDEST_SERVER {
        return Err(ConnectError::Server(format!(
            "PostgreSQL 13 or newer is needed; this is {version}"
        )));
    }
    let replica: bool = row.try_get("replica").map_err(unreadable)?;
    let read_only: bool = row.try_get("read_only").map_err(unreadable)?;
    if replica || read_only {
        return Err(ConnectError::Server(
            "the server takes no writes (a replica?): connect to the primary, e.g. with \
             target_session_attrs=read-write"
                .to_owned(),
        ));
    }
    check_tables(client, names).await?;
    check_rights(client, names).await?;
    let commits: String = row.try_get("commits").map_err(unreadable)?;
    let fsync: String = row.try_get("fsync").map_err(unreadable)?;
    Ok(SelfTest {
        answers_early: commits == "off",
        unsafe_disk: fsync == "off",
        now: row.try_get("at").map_err(unreadable)?,
    })
}

async fn check_rights(client: &impl GenericClient, names: &Names) -> Result<(), ConnectError> {
    const TEXT: &str = "select coalesce(bool_and(has_table_privilege(to_regclass(t), r)), false) as may, \
        bool_and(to_regclass(t) is not null) as there, current_user::text as role \
        from unnest($1) t, unnest(array['SELECT', 'INSERT', 'UPDATE', 'DELETE']) r";
    let tables: Vec<String> = ["claim", "spent", "fence"].map(|t| names.of(t)).to_vec();
    let row = client
        .query_typed_one(TEXT, &[(&tables, Type::TEXT_ARRAY)])
        .await
        .map_err(|error| ConnectError::Store(of_statement(error, None)))?;
    let read = |error: tokio_postgres::Error| ConnectError::Store(StoreError::unavailable(error));
    if !row.try_get::<_, bool>("there").map_err(read)? {
        return Err(ConnectError::Foreign(names.clone()));
    }
    if !row.try_get::<_, bool>("may").map_err(read)? {
        let role: String = row.try_get("role").map_err(read)?;
        return Err(ConnectError::NoRights {
            grants: names.grants(&role),
        });
    }
    Ok(())
}
