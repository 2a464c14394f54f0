//! Why a database refused a statement of a handler's, as far as the layer around can help.

use std::fmt;
use std::sync::Arc;

use crate::{Code, Refusal};

/// A row is there already: the database refused another one by a unique index (SQLSTATE 23505).
///
/// In a response's extensions it tells the layer around why the handler failed; a layer that knows what to answer for
/// this constraint answers that instead. The engines' crates make one of their driver's errors.
#[derive(Clone, PartialEq, Eq)]
pub struct UniqueViolation {
    constraint: Arc<str>,
    table: Option<Arc<str>>,
    detail: Option<Arc<str>>,
}

impl UniqueViolation {
    /// Of the constraint, or unique index, of this name.
    pub fn new(constraint: impl Into<Arc<str>>) -> Self {
        Self {
            constraint: constraint.into(),
            table: None,
            detail: None,
        }
    }

    /// On this table. Default: not told.
    #[must_use]
    pub fn with_table(mut self, table: impl Into<Arc<str>>) -> Self {
        self.table = Some(table.into());
        self
    }

    /// In the database's words, in its own language: for people. Default: none.
    #[must_use]
    pub fn with_detail(mut self, detail: impl Into<Arc<str>>) -> Self {
        self.detail = Some(detail.into());
        self
    }

    /// The name of the constraint.
    pub fn constraint(&self) -> &str {
        &self.constraint
    }

    /// The table.
    pub fn table(&self) -> Option<&str> {
        self.table.as_deref()
    }

    /// What the database says: it may name the values, so it is not for the caller's eyes.
    pub fn detail(&self) -> Option<&str> {
        self.detail.as_deref()
    }
}

impl fmt::Debug for UniqueViolation {
    /// Without the detail, which may name the row's values.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UniqueViolation")
            .field("constraint", &self.constraint)
            .field("table", &self.table)
            .finish_non_exhaustive()
    }
}

/// Why a database refused a statement.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Conflict {
    /// A row is there already.
    UniqueViolation(UniqueViolation),
    /// Another transaction came first (SQLSTATE 40001, 40P01): the same work, begun anew, may succeed.
    CameSecond,
    /// None that a layer could help with.
    Other,
}

impl Conflict {
    /// The refusal, where another transaction came first: 409 `in-progress`, reason `another-transaction`. Nothing
    /// was done, and a repeat runs.
    pub fn to_refusal(&self) -> Option<Refusal> {
        let Self::CameSecond = self else {
            return None;
        };
        let refusal = Refusal::new(Code::InProgress).with_reason("another-transaction");
        Some(refusal.with_detail("nothing was done: another transaction came first"))
    }

    /// What a handler answers that failed by it, and knows no better: the [refusal](Self::to_refusal), or a bare 500.
    /// A [`UniqueViolation`] is in its extensions, so that the layer around can answer better. The database's own
    /// words are not for the caller.
    #[cfg(feature = "http")]
    pub fn to_response(&self) -> http::Response<bytes::Bytes> {
        if let Some(refusal) = self.to_refusal() {
            return refusal.to_response(false);
        }
        let mut response = http::Response::new(bytes::Bytes::new());
        *response.status_mut() = http::StatusCode::INTERNAL_SERVER_ERROR;
        if let Self::UniqueViolation(violation) = self {
            response.extensions_mut().insert(violation.clone());
        }
        response
    }
}
