//! The protocol for several keys at once, and batches of releases.

use redis::Cmd;
use tower_claim::engine::time_micros;
use tower_claim::store::{
    ClaimMany, ClaimManyRequest, Claimed, ClaimedMany, MultiKey, Release, ReleaseRequest,
};
use tower_claim::{Key, StoreError};

use crate::answer::{claimed, released};
use crate::reply::Reply;
use crate::store::Ask;
use crate::{RedisStore, script};

impl ClaimMany for RedisStore {
    /// One script. On a cluster with a [hash tag](crate::RedisStoreBuilder::hash_tag) only, and while that slot
    /// moves to another node it is [`Ambiguous`](StoreError::Ambiguous) until all its keys lie on one.
    async fn claim_many(&self, request: ClaimManyRequest<'_>) -> Result<ClaimedMany, StoreError> {
        if self.inner.capabilities.multi_key == MultiKey::None {
            return Err(StoreError::Unsupported(
                "several keys at once on Redis Cluster: build the store with a `hash_tag`",
            ));
        }
        request.first_key()?;
        let ask = Ask {
            nonce: request.nonce,
            fingerprint: None,
            settings: request.settings,
            floor: request.floor,
            not_after: request.not_after,
        };
        let link = &self.inner.link;
        let names: Vec<String> = request.keys.iter().map(|key| link.name(key)).collect();
        let fill = |command: &mut Cmd| ask.fill(command);
        let mut reply = link.run(&script::CLAIM, &names, fill).await?;
        let place = usize::try_from(reply.number()?).unwrap_or(usize::MAX);
        let key = request.keys.get(place.wrapping_sub(1)).copied();
        match (
            claimed(reply, &key.map_or_else(String::new, |key| key.prefix()))?,
            key,
        ) {
            (Claimed::Granted(grant), None) => Ok(ClaimedMany::Granted(grant)),
            (by, Some(key)) => Ok(ClaimedMany::Refused { key, by }),
            _ => Reply::unknown(),
        }
    }

    /// Each is released, whatever becomes of the others.
    async fn release_many(&self, requests: &[ReleaseRequest]) -> Result<Vec<Release>, StoreError> {
        let keys: Vec<Key> = requests.iter().map(|request| request.key).collect();
        let fill = |command: &mut Cmd, n: usize| fill_release(command, &requests[n]);
        let link = &self.inner.link;
        let (all, error) = link
            .answers_of(&script::RELEASE, &keys, fill, released)
            .await;
        match error {
            Some(error) => Err(error),
            None => Ok(all.into_iter().flatten().collect()),
        }
    }
}

/// A release as the script takes it, after the keys.
pub(crate) fn fill_release(command: &mut Cmd, request: &ReleaseRequest) {
    let ReleaseRequest {
        nonce,
        token,
        not_after,
        ..
    } = request;
    command.arg(nonce.to_string());
    match token {
        Some(token) => command.arg(token.get()),
        None => command.arg(""),
    };
    command.arg(time_micros(*not_after));
}
