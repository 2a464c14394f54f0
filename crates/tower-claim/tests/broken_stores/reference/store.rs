//! The trait.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tower_claim::store::{
    Beat, Capabilities, ClaimRequest, Claimed, Finish, FinishRequest, LostReason, Marked, Owner,
    RecordView, Release, ReleaseRequest, Renewed, StoreTime, Watched,
};
use tower_claim::{ClaimStore, Clock, DynClaimStore, Key, StoreError, Token};

use super::Reference;
use super::claim::Judgement;

impl ClaimStore for Reference {
    fn capabilities(&self) -> Capabilities {
        Capabilities::in_process("reference")
    }

    fn now(&self) -> StoreTime {
        if self.breaks("the store's time stands still") {
            return StoreTime::from_micros(u64::from(u32::MAX) << 20);
        }
        StoreTime::from_micros(self.clock.now().elapsed().as_micros() as u64)
    }

    async fn claim(&self, request: ClaimRequest<'_>) -> Result<Claimed, StoreError> {
        if self.breaks("a claim looks, then takes") {
            let judgement = self.records().judge(&request);
            tokio::task::yield_now().await;
            if let Judgement::Grant = judgement {
                return Ok(Claimed::Granted(self.records().grant(&request, false)));
            }
        }
        if self.breaks("repeats at the same moment bar each other") {
            let judgement = self.records().judge(&request);
            if let Judgement::Answer(Claimed::Done(_)) = judgement {
                if self.repeating.swap(true, Ordering::SeqCst) {
                    return Ok(Claimed::TooLate);
                }
                tokio::task::yield_now().await;
                self.repeating.store(false, Ordering::SeqCst);
            }
        }
        let answer = self.records().claim(request);
        self.wake();
        answer
    }

    async fn renew(&self, beats: &[Beat]) -> Result<Vec<Renewed>, StoreError> {
        if beats.is_empty() && self.breaks("an empty batch is an error") {
            return Err(StoreError::unavailable("nothing to do"));
        }
        let mut records = self.records();
        let applied = match self.breaks("only sixteen beats of a batch are applied") {
            true => &beats[..beats.len().min(16)],
            false => beats,
        };
        let mut answers: Vec<_> = applied.iter().map(|beat| records.beat(beat)).collect();
        if self.breaks("beyond 256 beats all are lost") {
            let beyond = answers.iter_mut().skip(256);
            beyond.for_each(|answer| *answer = Renewed::Lost(LostReason::Superseded));
        }
        if self.breaks("beats are answered in reverse") {
            answers.reverse();
        }
        drop(records);
        self.wake();
        Ok(answers)
    }

    async fn mark(&self, owner: Owner) -> Result<Marked, StoreError> {
        Ok(self.records().mark(owner))
    }

    async fn finish(&self, request: FinishRequest) -> Result<Finish, StoreError> {
        let answer = self.records().finish(request);
        self.wake();
        Ok(answer)
    }

    async fn release(&self, request: ReleaseRequest) -> Result<Release, StoreError> {
        let answer = self.records().release(request);
        if !self.breaks("a release wakes nobody") {
            self.wake();
        }
        Ok(answer)
    }

    async fn watch(&self, key: Key, token: Token) -> Result<Watched, StoreError> {
        Ok(self.look_on(key, token).await)
    }

    async fn peek(&self, key: Key) -> Result<Option<RecordView>, StoreError> {
        Ok(self.records().view(key))
    }

    async fn keeper_store(&self) -> Result<Arc<dyn DynClaimStore>, StoreError> {
        if self.breaks("the keeper's store is another store") {
            return Ok(Arc::new(Reference::new(self.clock.clone(), "")));
        }
        Ok(Arc::new(self.clone()))
    }
}
