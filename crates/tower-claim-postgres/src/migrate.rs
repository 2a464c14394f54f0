//! The tables: made, and known again.

use tokio_postgres::GenericClient;

use crate::error::of_statement;
use crate::{ConnectError, Names};

/// Of the tables.
const FORMAT: i64 = 1;
/// Of the functions' text: raised where one is mended.
const FUNCTIONS: i64 = 1;

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
            // A stranger's migration, or its table, is being changed.
            Some("55P03") => ConnectError::Server(
                "the tables have been locked by somebody else for 30 s: migrate again when that is over"
                    .to_owned(),
            ),
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
