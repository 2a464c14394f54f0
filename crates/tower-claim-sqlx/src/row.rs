//! Parameters into sqlx, and columns out of it.

use sqlx::postgres::{PgArguments, PgRow};
use sqlx::query::Query;
use sqlx::{AssertSqlSafe, Decode, PgConnection, Postgres, Row, Type};
use tower_claim::{Key, StoreError};
use tower_claim_postgres::statement::{Call, Columns, Param, ReadError};

use crate::error::store_error;

/// Sends one statement, which answers one row.
pub(crate) async fn ask(
    connection: &mut PgConnection,
    key: Option<&Key>,
    call: &Call,
) -> Result<Answer, StoreError> {
    let row = look(connection, key, call).await?;
    row.ok_or_else(|| store_error(key, sqlx::Error::RowNotFound))
}

/// Sends one statement, which answers one row at most.
pub(crate) async fn look(
    connection: &mut PgConnection,
    key: Option<&Key>,
    call: &Call,
) -> Result<Option<Answer>, StoreError> {
    // The text has nothing of the user's in it but names, which are checked where they are made.
    let text = AssertSqlSafe(call.text().to_owned());
    let row = call
        .params()
        .iter()
        .fold(sqlx::query(text), bind)
        .fetch_optional(connection)
        .await
        .map_err(|error| store_error(key, error))?;
    Ok(row.map(Answer))
}

fn bind<'q>(
    query: Query<'q, Postgres, PgArguments>,
    param: &Param,
) -> Query<'q, Postgres, PgArguments> {
    match param {
        Param::Int(number) => query.bind(*number),
        Param::Small(number) => query.bind(*number),
        Param::Flag(flag) => query.bind(*flag),
        Param::Text(text) => query.bind(text.as_str()),
        Param::Bytes(bytes) => query.bind(bytes.as_deref()),
        Param::BytesList(list) => query.bind(list),
        Param::IntList(list) => query.bind(list),
        // One more or less is refused by the server, before it does anything.
        _ => query,
    }
}

/// One row of an answer.
pub(crate) struct Answer(PgRow);

impl Answer {
    fn get<'r, T>(&'r self, column: &str) -> Result<Option<T>, ReadError>
    where
        T: Decode<'r, Postgres> + Type<Postgres>,
    {
        Ok(self.0.try_get(column)?)
    }
}

impl Columns for Answer {
    fn int(&self, column: &str) -> Result<Option<i64>, ReadError> {
        self.get(column)
    }

    fn flag(&self, column: &str) -> Result<Option<bool>, ReadError> {
        self.get(column)
    }

    fn text(&self, column: &str) -> Result<Option<String>, ReadError> {
        self.get(column)
    }

    fn bytes(&self, column: &str) -> Result<Option<Vec<u8>>, ReadError> {
        self.get(column)
    }
}
