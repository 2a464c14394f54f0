//! What a database does for the layer: claims inside the user's transaction, rows that are there already.

use std::future::Future;
use std::sync::Arc;

use bytes::Bytes;
use http::Response;
use http::response::Parts;
use tower_claim::transaction::{BeginWithClaim, UniqueViolation};
use tower_claim::{ConfigError, LapsePolicy};

use super::IdempotencyBuilder;
use crate::existing::ExistingRow;
use crate::store_down::OnStoreDown;

impl IdempotencyBuilder {
    /// Claims inside the user's transaction: claim, the handler's rows and the answer are one transaction, with one
    /// commit. Default: the claim is made outside, where others see it, and only the answer is committed with the
    /// rows. The handler is the same: it takes its transaction from the same `Transactions` (of tower-claim-sqlx or
    /// tower-claim-postgres), which is to be given here, too.
    ///
    /// No lease runs, no heartbeat is sent, and **a crash leaves nothing at all**: a repeat runs as soon as the
    /// database has noticed. A repeat of a request that is going is refused 409 `in-progress`; or it waits
    /// ([`OnBusy::Wait`](crate::OnBusy::Wait)). Where that goes on in this process neither takes a connection; else a look takes one, for 50 ms at
    /// most. What is paid for it is in the table of the [crate's docs](crate#which-postgresql-mode): a connection of the
    /// pool for the whole of each run and for each replay, and:
    ///
    /// - a running request is seen by no other process: there another payload under its key is refused as in progress, not
    ///   as reused, those who wait look for its end four times a second, with one connection for all who wait for one key, and
    ///   over its tenant's quota a repeat is told 429. [`KeyLookup`](crate::KeyLookup) does not know it;
    /// - there is no [point of no return](crate::IdempotentRun::point_of_no_return) and nothing lapses:
    ///   [`LapsePolicy::Hold`] and [`reconcile`](Self::reconcile) are refused as well;
    /// - an overlap of [`key_window`](Self::key_window) is refused, since a run of the last window would not be seen; and
    ///   [`stream_uploads`](Self::stream_uploads), since a transaction would be open while the upload lasts;
    /// - a handler that takes connections of the same pool beside its transaction needs two at a time: a pool whose
    ///   runs all wait for their second one stands still.
    ///
    /// The layer's store must be the one of the same tables; one of another engine is refused when the layer is built. It
    /// is asked what became of a commit without an answer.
    ///
    /// ```no_run
    /// # fn example(
    /// #     store: impl tower_claim::ClaimStore,
    /// #     transactions: impl tower_claim::transaction::BeginWithClaim,
    /// # ) -> Result<(), tower_claim::ConfigError> {
    /// use tower_idempotency::IdempotencyLayer;
    ///
    /// let layer = IdempotencyLayer::builder(store).claim_inside(transactions).build()?;
    /// # let _ = layer;
    /// # Ok(()) }
    /// ```
    pub fn claim_inside(mut self, transactions: impl BeginWithClaim) -> Self {
        self.inside = Some(Arc::new(transactions));
        self
    }

    /// Answers for a row that is there already: when the database refuses a handler's row by this unique constraint or
    /// index, the hook makes the answer of the row that is there. The answer is kept and replayed like any other.
    /// Default: none, and the handler's own error is the answer. For several constraints, several calls; a second hook for one constraint is refused when the layer is built.
    ///
    /// The claim stops what comes twice under one key. The index stops the rest: one intent under two keys, and, where
    /// rows are written outside of the layer's transaction, a run that died between its row and its record.
    ///
    /// It is the answer of another's row, so it is marked as a replay (`Idempotent-Replayed: true`, and
    /// `Idempotency-Status: existing`) also for the first caller under its key.
    ///
    /// The handler says so by an error: `WorkError` of tower-claim-sqlx or tower-claim-postgres, which `?` makes, or a
    /// [`UniqueViolation`](tower_claim::transaction::UniqueViolation) in the extensions of its response. What it wrote
    /// in its transaction is rolled back before the hook is asked, so the hook sees what others have committed, and no
    /// connection is held meanwhile; behind the point of no return, too. `None`, a panic, and a claim that ends meanwhile:
    /// the handler's own error is the answer. A constraint that is checked at the commit only (`DEFERRED`) is no error of
    /// the handler's: `SET CONSTRAINTS ALL IMMEDIATE` as its last statement makes it one.
    ///
    /// The index knows nothing of tenants and payloads: **answer only for a row of this tenant, with this content**, or one
    /// user is told of another's order.
    ///
    /// Of a gRPC call: the answer is its message as it is sent (five bytes before it), or nothing, with `grpc-status` in
    /// the head; behind a message it is sent as a trailer. How a handler of tonic's says what the database refused:
    /// [`unique_violation_by`](Self::unique_violation_by).
    ///
    /// ```
    /// use http::Response;
    /// use tower_claim::MemoryStore;
    /// use tower_idempotency::IdempotencyLayer;
    ///
    /// # async fn order_of(tenant: &str, reference: &str) -> Option<u32> { None }
    /// let layer = IdempotencyLayer::builder(MemoryStore::new())
    ///     .on_unique_violation("orders_reference_key", |row| async move {
    ///         let header = |name| row.request().headers.get(name)?.to_str().ok();
    ///         let order = order_of(header("x-tenant")?, header("x-reference")?).await?;
    ///         Some(Response::new(format!("order {order}").into()))
    ///     })
    ///     .build()?;
    /// # let _ = layer;
    /// # Ok::<(), tower_claim::ConfigError>(())
    /// ```
    pub fn on_unique_violation<F>(
        mut self,
        constraint: impl Into<String>,
        hook: impl Fn(ExistingRow) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Option<Response<Bytes>>> + Send + 'static,
    {
        self.existing.add(constraint.into(), hook);
        self
    }

    /// Reads out of a handler's answer why its row was refused, for
    /// [`on_unique_violation`](Self::on_unique_violation), where the answer has no
    /// [`UniqueViolation`](tower_claim::transaction::UniqueViolation) among its extensions. It is asked about refusals
    /// only. `None`, or a panic: it was not refused for that. Default: nothing is read.
    ///
    /// tonic makes the response of a handler that fails itself, and puts its status into the extensions, source included:
    ///
    /// ```
    /// # mod tonic {
    /// #     #[derive(Clone)] pub struct Status;
    /// #     impl Status { pub fn source(&self) -> Option<&(dyn std::error::Error + 'static)> { None } }
    /// # }
    /// # #[derive(Debug)] struct WorkError;
    /// # impl std::fmt::Display for WorkError {
    /// #     fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result { Ok(()) }
    /// # }
    /// # impl std::error::Error for WorkError {}
    /// # impl WorkError { fn conflict(&self) -> Conflict { Conflict::Other } }
    /// # use std::error::Error;
    /// use tower_claim::MemoryStore;
    /// use tower_claim::transaction::Conflict;
    /// use tower_idempotency::IdempotencyLayer;
    ///
    /// // In the handler: `status.set_source(Arc::new(WorkError::from(error))); return Err(status)`, with the `WorkError`
    /// // of tower-claim-sqlx or tower-claim-postgres.
    /// let layer = IdempotencyLayer::builder(MemoryStore::new())
    ///     .on_unique_violation("orders_reference_key", |_row| async { None })
    ///     .unique_violation_by(|answer| {
    ///         let why = answer.extensions.get::<tonic::Status>()?.source()?;
    ///         match why.downcast_ref::<WorkError>()?.conflict() {
    ///             Conflict::UniqueViolation(violation) => Some(violation),
    ///             _ => None,
    ///         }
    ///     })
    ///     .build()?;
    /// # let _ = layer;
    /// # Ok::<(), tower_claim::ConfigError>(())
    /// ```
    pub fn unique_violation_by(
        mut self,
        read: impl Fn(&Parts) -> Option<UniqueViolation> + Send + Sync + 'static,
    ) -> Self {
        self.existing.read_by(read);
        self
    }

    pub(super) fn check_existing(&self) -> Result<(), ConfigError> {
        if self.existing.reads_in_vain() {
            return Err(ConfigError::new(
                "unique_violation_by",
                "nobody answers for a constraint: set `on_unique_violation`, or leave it out"
                    .to_owned(),
            ));
        }
        let Some(constraint) = self.existing.twice() else {
            return Ok(());
        };
        Err(ConfigError::new(
            "on_unique_violation",
            format!("`{constraint}` has two hooks: make one of them, or name another constraint"),
        ))
    }

    pub(super) fn check_inside(&self) -> Result<(), ConfigError> {
        let Some(inside) = &self.inside else {
            return Ok(());
        };
        let wrong = |setting, text: &str| Err(ConfigError::new(setting, text.to_owned()));
        let store = self.store.dyn_capabilities().engine;
        if let Some(engine) = inside.engine().filter(|engine| *engine != store) {
            return Err(ConfigError::new(
                "claim_inside",
                format!(
                    "the layer's store is `{store}`, and these transactions write to `{engine}`: give the layer the \
                     store of the same database"
                ),
            ));
        }
        if self.window.is_some_and(|window| !window.overlap.is_zero()) {
            return wrong(
                "key_window",
                "a run inside a transaction is seen by nobody, so one that began in the last window would run again \
                 in this one: use no overlap, or leave `claim_inside` out",
            );
        }
        if self.stream_uploads.is_some() {
            return wrong(
                "stream_uploads",
                "a transaction would be open for as long as the upload takes: leave it out, or `claim_inside`",
            );
        }
        if self.reconcile.is_some() || self.on_lapse != LapsePolicy::TakeOver {
            return wrong(
                "claim_inside",
                "nothing lapses inside a transaction, and a crash leaves nothing to ask about: leave `on_lapse` and \
                 `reconcile` out, or `claim_inside`",
            );
        }
        if self.on_store_down != OnStoreDown::Refuse {
            return wrong(
                "on_store_down",
                "without the database there is no transaction to run in: leave it out, or `claim_inside`",
            );
        }
        if self.circuit.is_some() {
            return wrong(
                "circuit_breaker",
                "the claim is a statement in your transaction, and waits as your pool does: leave it out, or \
                 `claim_inside`",
            );
        }
        Ok(())
    }
}
