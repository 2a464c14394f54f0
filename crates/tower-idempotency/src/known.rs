//! What a repeat is told, from what the store knows.

use std::time::Duration;

use tower_claim::store::{DoneRecord, State, Value, Watched};
use tower_claim::{Attempt, Code, Fingerprint, Key, Refusal, StoreError, Token};

use crate::admit::lead;
use crate::body::UploadDigest;
use crate::record::{KeptResponse, is_withdrawn};
use crate::reply::Reply;
use crate::shared::Shared;

impl Shared {
    /// The answer to a repeat that neither runs nor waits.
    pub(crate) fn answer(&self, key: Key, claimed: &Result<Attempt, StoreError>) -> Reply {
        match claimed {
            Ok(Attempt::Done(done)) if done.same_fingerprint => self.replay(key, done),
            Ok(Attempt::Cooling(cooling)) if cooling.same_fingerprint => {
                self.in_progress(cooling.remaining)
            }
            Ok(Attempt::Unknown(unknown)) if unknown.same_fingerprint => self.unknown(),
            Ok(_) => self.reused(),
            Err(error) => self.store_failed(error),
        }
    }

    /// What a repeat would be told, for a run whose outcome was not accepted: it was taken over, and what
    /// it did must not be sent as if it stood. Never runs anything.
    ///
    /// Who took over may have given the key back, and another payload may have it by now.
    pub(crate) async fn answer_after_loss(&self, key: Key, print: Fingerprint) -> Reply {
        let store = self.keeper.store();
        let record = match store.dyn_peek(key).await {
            Ok(Some(record)) => record,
            Ok(None) => return self.in_progress(Duration::ZERO),
            Err(error) => return self.store_failed(&error),
        };
        if record.state != State::Free && record.fingerprint != Some(print) {
            return self.reused();
        }
        match record.state {
            State::Unknown => self.unknown(),
            State::Done => match self.finished(key, record.token).await {
                Ok(Some(done)) => self.replay(key, &done),
                Ok(None) => self.in_progress(Duration::ZERO),
                Err(error) => self.store_failed(&error),
            },
            _ => self.in_progress(record.expires_in),
        }
    }

    /// The finished record, if it still is one. A watch of it is answered at once; the limit, longer than any store
    /// takes for a call, is for one that is fooled.
    pub(crate) async fn finished(
        &self,
        key: Key,
        token: Token,
    ) -> Result<Option<DoneRecord>, StoreError> {
        let late = self.clock().now() + self.terms.lease();
        tokio::select! {
            biased;
            seen = self.keeper.store().dyn_watch(key, token) => Ok(match seen? {
                Watched::Done(done) if done.token == token => Some(done),
                _ => None,
            }),
            () = self.clock().sleep_until(late) => {
                Err(StoreError::unavailable("a finished record was not told within a lease"))
            }
        }
    }

    /// Whether there is a record of this key that binds.
    pub(crate) async fn taken(&self, key: Key) -> Result<bool, StoreError> {
        let record = self.keeper.store().dyn_peek(key).await?;
        Ok(record.is_some_and(|record| record.state != State::Free))
    }

    /// The same for who answers a request.
    pub(crate) async fn is_taken(&self, key: Key) -> Result<bool, Reply> {
        let taken = self.taken(key).await;
        taken.map_err(|error| self.store_failed(&error))
    }

    pub(crate) fn replay(&self, key: Key, done: &DoneRecord) -> Reply {
        if is_withdrawn(done) {
            self.counters.store_failures.add();
            return Refusal::new(Code::StoreUnavailable)
                .with_reason("mark-in-doubt")
                .with_retry_after(done.keep_left)
                .into();
        }
        match lead(done) {
            None => {}
            // It waits for the hook of a layer that has one.
            Some(_) if self.reconcile.is_none() => return self.unknown(),
            Some(_) => return self.in_progress(Duration::ZERO),
        }
        match self.kept_response(key, done) {
            Ok(Some(kept)) if kept.is_whole => Reply::Replay(kept),
            Ok(head) => Reply::NotKept(head),
            Err(refusal) => refusal.into(),
        }
    }

    /// The same, unless it is of another upload than the one with this digest. Only where both were read to their ends
    /// that can be told.
    pub(crate) fn of_its_upload(&self, reply: Reply, digest: Option<UploadDigest>) -> Reply {
        let kept = match &reply {
            Reply::Replay(kept) | Reply::NotKept(Some(kept)) if self.entry.bound.bodies() => {
                kept.upload
            }
            _ => None,
        };
        match (kept, digest) {
            (Some(kept), Some(digest)) if kept != digest => self.reused(),
            _ => reply,
        }
    }

    /// The response of a finished record, or its head; `None` where neither was kept.
    pub(crate) fn kept_response(
        &self,
        key: Key,
        done: &DoneRecord,
    ) -> Result<Option<KeptResponse>, Refusal> {
        let Value::Kept(bytes) = &done.value else {
            return Ok(None);
        };
        self.read_record(key, bytes).map(Some).map_err(|why| {
            // The work is done, so it is not run again; what it answered cannot be told. That is for people to
            // mend, hence no 409, which would read as the client's affair.
            self.counters.store_failures.add();
            self.counters.meter.unreadable(key, &why);
            Refusal::new(Code::StoreUnavailable)
                .with_reason("record-unreadable")
                .with_detail(why.to_string())
        })
    }

    pub(crate) fn in_progress(&self, left: Duration) -> Reply {
        self.counters.in_progress.add();
        Refusal::new(Code::InProgress).with_retry_after(left).into()
    }

    pub(crate) fn unknown(&self) -> Reply {
        self.counters.outcome_unknown.add();
        Code::OutcomeUnknown.into()
    }

    pub(crate) fn reused(&self) -> Reply {
        self.counters.key_reused.add();
        Code::KeyReused.into()
    }

    pub(crate) fn store_failed(&self, error: &StoreError) -> Reply {
        self.store_refusal(error).into()
    }

    pub(crate) fn store_refusal(&self, error: &StoreError) -> Refusal {
        self.counters.store_failures.add();
        self.counters.meter.store_failed(error);
        let refusal = Refusal::new(Code::StoreUnavailable);
        match error {
            StoreError::Full => refusal.with_reason("full"),
            StoreError::Garbled { .. } => refusal.with_reason("record-unreadable"),
            _ => refusal,
        }
    }
}
