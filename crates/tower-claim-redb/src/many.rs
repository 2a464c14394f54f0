//! Several keys in one transaction.

use std::sync::Arc;

use tower_claim::engine::{Asker, At};
use tower_claim::store::{
    ClaimMany, ClaimManyRequest, ClaimedMany, Grant, Release, ReleaseRequest,
};
use tower_claim::{Key, Settings, StoreError, Token};

use crate::RedbStore;
use crate::book::Book;
use crate::error::Trouble;

struct Request {
    keys: Vec<Key>,
    asker: Asker,
    settings: Arc<Settings>,
    floor: Token,
}

impl Request {
    fn apply(&self, book: &mut Book<'_>, at: At) -> Result<ClaimedMany, Trouble> {
        let mut token = Token::ZERO;
        for key in &self.keys {
            let record = book.record(key, at)?;
            if let Some(by) = record.refusal(&self.asker, at.now) {
                return Ok(ClaimedMany::Refused { key: *key, by });
            }
            token = token.max(record.next_token(self.floor, at.unix_ms)?);
        }
        let mut all: Option<Grant> = None;
        for key in &self.keys {
            let terms = Arc::clone(&self.settings);
            let one = book.change(key, at, |record| {
                Ok(record.grant(&self.asker, token, terms, at.now))
            })?;
            all = Some(match all {
                None => one,
                Some(all) => all.together_with(one),
            });
        }
        let none = Trouble::Call(StoreError::Unsupported("a claim of no keys"));
        all.map(ClaimedMany::Granted).ok_or(none)
    }
}

impl ClaimMany for RedbStore {
    async fn claim_many(&self, request: ClaimManyRequest<'_>) -> Result<ClaimedMany, StoreError> {
        request.first_key()?;
        let request = Request {
            keys: request.keys.to_vec(),
            asker: Asker {
                nonce: request.nonce,
                fingerprint: None,
                not_after: request.not_after,
            },
            settings: Arc::new(request.settings.clone()),
            floor: request.floor,
        };
        self.inner
            .write(move |book, at| request.apply(book, at))
            .await
    }

    async fn release_many(&self, requests: &[ReleaseRequest]) -> Result<Vec<Release>, StoreError> {
        let requests = requests.to_vec();
        self.inner
            .write(move |book, at| {
                let release = |request: &ReleaseRequest| {
                    book.change(&request.key, at, |record| Ok(record.release(request, at)))
                };
                requests.iter().map(release).collect()
            })
            .await
    }
}
