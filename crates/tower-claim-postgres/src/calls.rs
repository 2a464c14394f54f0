//! One statement over a pooled connection, bounded.

use std::time::Duration;

use deadpool_postgres::{Object, Pool};
use tokio::time::Instant;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Error, GenericClient, Row};
use tower_claim::engine::EngineClock;
use tower_claim::{Key, StoreError};

use crate::error::{ended_session, of_statement};
use crate::statement::{Call, Columns, Param, ReadError, answer};

/// A pool and the bounds of a call over it.
#[derive(Debug, Clone)]
pub(crate) struct Calls {
    pub(crate) pool: Pool,
    /// For a connection.
    pub(crate) pool_wait: Duration,
    /// For the whole call.
    pub(crate) timeout: Duration,
    /// Prepare statements by name, and keep them with the connection.
    pub(crate) prepared: bool,
}

impl Calls {
    /// Sends one call; tells the clock when it was answered.
    pub(crate) async fn send(
        &self,
        clock: &EngineClock,
        call: &Call,
        key: Option<&Key>,
    ) -> Result<Vec<Row>, StoreError> {
        let until = Instant::now() + self.timeout;
        let client = self.client().await?;
        let sent = clock.sending();
        let answer = if self.prepared {
            tokio::time::timeout_at(until, query_prepared(&client, call)).await
        } else {
            tokio::time::timeout_at(until, query(&**client, call)).await
        };
        match answer {
            Ok(Ok(rows)) => {
                if let Some(at) = rows.first().and_then(answer::at) {
                    clock.observe(sent, at);
                }
                Ok(rows)
            }
            Ok(Err(error)) => {
                if ended_session(&error) {
                    drop(Object::take(client));
                }
                Err(of_statement(error, key))
            }
            Err(_) => {
                // Its next user would wait behind the call that hangs.
                drop(Object::take(client));
                Err(StoreError::ambiguous(format!(
                    "no answer within the call timeout of {:?}",
                    self.timeout
                )))
            }
        }
    }

    /// A connection. Nothing was sent yet, whatever becomes of it.
    pub(crate) async fn client(&self) -> Result<Object, StoreError> {
        let wait = self.pool_wait.min(self.timeout);
        match tokio::time::timeout(wait, self.pool.get()).await {
            Ok(client) => client.map_err(StoreError::unavailable),
            Err(_) => Err(StoreError::unavailable(format!(
                "no connection within {wait:?}: {} of {} are in use",
                self.pool.status().size - self.pool.status().available,
                self.pool.status().max_size,
            ))),
        }
    }
}

/// The one row of a call that answers one.
pub(crate) fn only(rows: &[Row]) -> Result<&Row, StoreError> {
    rows.first().ok_or_else(no_row)
}

pub(crate) fn no_row() -> StoreError {
    StoreError::Garbled {
        key_prefix: String::new(),
        source: "an answer without a row".into(),
    }
}

/// Without a name, so that no statement outlives it in a session that a pooler gives to somebody else.
pub(crate) async fn query(client: &impl GenericClient, call: &Call) -> Result<Vec<Row>, Error> {
    let params: Vec<_> = call.params().iter().map(typed).collect();
    client.query_typed(call.text(), &params).await
}

async fn query_prepared(client: &Object, call: &Call) -> Result<Vec<Row>, Error> {
    let params: Vec<_> = call.params().iter().map(typed).collect();
    let types: Vec<Type> = params.iter().map(|(_, sql)| sql.clone()).collect();
    let statement = client.prepare_typed_cached(call.text(), &types).await?;
    let params: Vec<_> = params.into_iter().map(|(value, _)| value).collect();
    client.query(&statement, &params).await
}

fn typed(param: &Param) -> (&(dyn ToSql + Sync), Type) {
    match param {
        Param::Int(value) => (value, Type::INT8),
        Param::Small(value) => (value, Type::INT4),
        Param::Flag(value) => (value, Type::BOOL),
        Param::Text(value) => (value, Type::TEXT),
        Param::Bytes(value) => (value, Type::BYTEA),
        Param::BytesList(values) => (values, Type::BYTEA_ARRAY),
        Param::IntList(values) => (values, Type::INT8_ARRAY),
    }
}

impl Columns for Row {
    fn int(&self, column: &str) -> Result<Option<i64>, ReadError> {
        Ok(self.try_get(column)?)
    }

    fn flag(&self, column: &str) -> Result<Option<bool>, ReadError> {
        Ok(self.try_get(column)?)
    }

    fn text(&self, column: &str) -> Result<Option<String>, ReadError> {
        Ok(self.try_get(column)?)
    }

    fn bytes(&self, column: &str) -> Result<Option<Vec<u8>>, ReadError> {
        Ok(self.try_get(column)?)
    }
}
