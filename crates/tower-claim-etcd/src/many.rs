//! Several keys in one transaction.

use futures_util::future::join_all;
use tower_claim::store::{ClaimManyRequest, Claimed, ClaimedMany, Grant, Release, ReleaseRequest};
use tower_claim::{ClaimMany, StoreError, Token};

use crate::moves::{self, Ask};
use crate::record::Seen;
use crate::store::{EtcdStore, unix_ms};
use crate::write::{Pending, Written, too_busy};

/// Keys of one claim. Each takes up to six operations, and etcd takes 128 in one transaction by default.
pub(crate) const MOST_KEYS: usize = 16;

impl ClaimMany for EtcdStore {
    async fn claim_many(&self, request: ClaimManyRequest<'_>) -> Result<ClaimedMany, StoreError> {
        let first = request.first_key()?;
        if request.keys.len() > MOST_KEYS {
            return Err(StoreError::Unsupported(
                "a claim of more than 16 keys on etcd: its transactions are bounded",
            ));
        }
        let (inner, nonce) = (&self.inner, request.nonce);
        let deadline = inner.calls.deadline();
        let both: Vec<_> = request.keys.iter().map(|key| (*key, Some(nonce))).collect();
        for _ in 0..64 {
            let refused = |key, by| Ok(ClaimedMany::Refused { key, by });
            if inner.now() > request.not_after {
                return refused(first, Claimed::TooLate);
            }
            let all = inner.look(deadline, &both).await?;
            let all: Vec<Seen> = all.into_iter().collect::<Result<_, _>>()?;
            let now = unix_ms();
            let mut ask = Ask {
                nonce,
                fingerprint: None,
                settings: request.settings,
                floor: request.floor,
                spent_secs: 0,
                least_secs: inner.least_secs(),
            };
            ask.spent_secs = inner.spent_secs(request.not_after, ask.lease_secs());
            let mut token = Token::ZERO;
            for (key, seen) in request.keys.iter().zip(&all) {
                if let Some(by) = seen.refusal(nonce, None, now) {
                    inner.heard(*key, nonce);
                    return refused(*key, inner.judged(deadline, seen, by).await?);
                }
                token = token.max(seen.next_token(request.floor)?);
            }
            let mut granted: Option<Grant> = None;
            let mut pending = Vec::with_capacity(all.len());
            for (key, seen) in request.keys.iter().zip(&all) {
                let (plan, one) = moves::grant(seen, &ask, token, now);
                pending.push(Pending {
                    key: *key,
                    nonce: Some(nonce),
                    seen,
                    plan,
                });
                granted = Some(match granted {
                    None => one,
                    Some(all) => all.together_with(one),
                });
            }
            let claim = Some((ask.lease_secs(), request.not_after));
            match (inner.write(deadline, claim, &pending).await?, granted) {
                (Written::Yes(token), Some(grant)) => {
                    return Ok(ClaimedMany::Granted(Grant { token, ..grant }));
                }
                (Written::TooLate, _) => return refused(first, Claimed::TooLate),
                _ => {}
            }
        }
        Err(too_busy())
    }

    async fn release_many(&self, requests: &[ReleaseRequest]) -> Result<Vec<Release>, StoreError> {
        let releases = requests.iter().map(|request| self.inner.release(*request));
        join_all(releases).await.into_iter().collect()
    }
}
