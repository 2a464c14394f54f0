//! Dropping an answer.
//!
//! Only the end of a key's way is purged: the record that holds the answer. The markers before it stay. Freed, a marker
//! would let a repeat run under its key, while another that had read it before runs where it led: each key has one
//! owner, and nobody has both. What a marker says besides, that a run was lost there, stays true.
//!
//! Behind a marker that leads to a hook the purged key is not left free: the next repeat would ask the hook, which may know
//! the very answer that was to go. The operator lets it run there as it lets an outcome run that the hook cannot tell: by a
//! marker of its own. Between the purge and that, a repeat may claim the key and ask the hook; then it goes first, and the
//! operator's word is not needed any more. Where it fails in between, the hook is asked: never too little.
//!
//! A record whose run was withdrawn holds no answer, and its key for a moment only. An answer that was finished inside a
//! transaction is an answer when that is committed, not before: until then its run is held, and a conflict.

use tower_claim::store::{Purged, RecordView, State, Value};
use tower_claim::{Attempt, StoreError, Token};

use super::{Operator, SeenRecord, is_behind_hook};
use crate::admit::lead;
use crate::record::{Marker, is_withdrawn};

impl Operator {
    /// Drops an answer: because it is wrong, or holds what has to be erased. The next repeat runs, and no hook is asked
    /// before; the key is free, also for another payload. Take what is purged from [`explain`](Self::explain) or
    /// [`list`](Self::list): nothing newer is purged unseen.
    ///
    /// [`Purged::Conflict`] where there is no answer: a run is going, its outcome is unknown (that is to be
    /// [resolved](Self::resolve_with)), the record only leads on, or is another one than was seen. [`Purged::Absent`]
    /// where it has gone already.
    ///
    /// What the work did stays done: only its answer goes. Whoever was replayed it has it. In a store's older pages, logs
    /// and backups it stays as long as these: see [`ClaimAdmin::purge`](tower_claim::ClaimAdmin::purge). In the
    /// [quota](crate::IdempotencyBuilder::max_records_per_tenant) of its tenant it counts until its retention would have
    /// passed. Where runs were lost before the one that answered, its payload stays bound, as a fingerprint, as long as
    /// the doubt would have lasted, and nothing runs any more in the
    /// [last time](crate::IdempotencyBuilder::reconcile) of that.
    ///
    /// There is no purge by tenant or by person: the keys of records are hashes, and tell neither. Whoever has to erase
    /// what is kept of somebody remembers the business keys with what else is known of them;
    /// [`key_of`](Self::key_of) makes the key of a record from the head of such a request.
    ///
    /// ```
    /// use http::Request;
    /// use tower_claim::MemoryStore;
    /// use tower_idempotency::{Explanation, IdempotencyLayer};
    /// # use http::Response;
    /// # use http_body_util::Full;
    /// # use tower::{Layer, ServiceExt};
    /// # use tower_idempotency::RequestBody;
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # type Body = Full<bytes::Bytes>;
    /// let store = MemoryStore::new();
    /// let layer = IdempotencyLayer::new(store.clone());
    /// let operator = layer.operator(store);
    /// # let service = layer.layer(tower::service_fn(async |_: Request<RequestBody<Body>>| {
    /// #     Ok::<_, std::convert::Infallible>(Response::new(Body::from("ordered")))
    /// # }));
    /// # let order = Request::post("/orders").header("idempotency-key", "8e03978e");
    /// # service.oneshot(order.body(Body::from("one coffee"))?).await?;
    ///
    /// // The request whose answer has to go, as far as its head says who sent it, where to, and under which key.
    /// let (head, ()) = Request::post("/orders").header("idempotency-key", "8e03978e").body(())?.into_parts();
    /// let key = operator.key_of(&head).ok_or("the layer lets it pass")?;
    /// if let Explanation::Done { seen, .. } | Explanation::Unreadable { seen, .. } = operator.explain(key).await? {
    ///     operator.purge(seen).await?;
    /// }
    /// assert!(matches!(operator.explain(key).await?, Explanation::NeverSeen));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// The store's. The answer may be gone all the same, and behind a lost run the hook may be asked yet:
    /// [`explain`](Self::explain) tells.
    ///
    /// # Cancellation
    ///
    /// As after an error.
    pub async fn purge(&self, seen: SeenRecord) -> Result<Purged, StoreError> {
        let SeenRecord { key, token } = seen;
        let record = match self.store.dyn_peek(key).await? {
            Some(record) if record.state != State::Free => record,
            _ => return Ok(Purged::Absent),
        };
        if record.state != State::Done || record.token != token {
            return Ok(Purged::Conflict {
                token: record.token,
            });
        }
        let Some(done) = self.shared.finished(key, token).await? else {
            return Ok(Purged::Absent);
        };
        if lead(&done).is_some() || is_withdrawn(&done) {
            return Ok(Purged::Conflict { token });
        }
        let purged = self.store.dyn_purge(key, token).await?;
        if let Purged::Purged { token } = purged
            && is_behind_hook(&record)
        {
            self.let_run(&record, token).await?;
        }
        Ok(purged)
    }

    /// Leads on from a key that is free, to where no hook is asked.
    async fn let_run(&self, record: &RecordView, purged: Token) -> Result<(), StoreError> {
        let (terms, keeper) = (self.terms_of_a_hook(), &self.shared.keeper);
        let claimed = keeper.claim(record.key, record.fingerprint, &terms, purged);
        if let Attempt::Granted(claim) = claimed.await? {
            let run = Value::Kept(Marker::Run.to_bytes());
            // Lost, another has the key by now, and goes first.
            let _ = claim.finish(run, self.shared.marker_keep()).await?;
        }
        Ok(())
    }
}
