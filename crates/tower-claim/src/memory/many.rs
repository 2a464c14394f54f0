//! Several keys in one step.

use super::inner::{Inner, wake_all};
use super::lock::Locked;
use super::shard::{NoRoom, RECORD_BYTES, Spread};
use crate::record::{Asker, Record};
use crate::store::{ClaimManyRequest, ClaimedMany, Grant};
use crate::{Key, StoreError, Token};

impl Inner {
    pub(super) fn claim_many(
        &self,
        request: &ClaimManyRequest<'_>,
    ) -> Result<ClaimedMany, StoreError> {
        request.first_key()?;
        let mut searched = false;
        loop {
            if let Ok(answer) = self.try_claim_many(request) {
                return answer;
            }
            let records = request.keys.len();
            if searched || !self.make_room(records, records * RECORD_BYTES) {
                return Err(StoreError::Full);
            }
            searched = true;
        }
    }

    fn try_claim_many(
        &self,
        request: &ClaimManyRequest<'_>,
    ) -> Result<Result<ClaimedMany, StoreError>, NoRoom> {
        let asker = Asker {
            nonce: request.nonce,
            fingerprint: None,
            not_after: request.not_after,
        };
        let keys: Vec<(&Key, Spread)> = request
            .keys
            .iter()
            .map(|key| (key, self.spread(key)))
            .collect();
        let mut order: Vec<usize> = keys.iter().map(|(_, s)| self.shard_of(*s)).collect();
        order.sort_unstable();
        order.dedup();
        // Always in this order: two claims that share shards cannot wait for each other.
        let mut locked: Vec<Locked<'_>> = order.iter().map(|n| self.lock_nth(*n)).collect();
        let nth = |spread| {
            let shard = self.shard_of(spread);
            order.binary_search(&shard).unwrap_or_default()
        };
        let at = self.at();

        let vacant = Record::vacant();
        let mut token = Token::ZERO;
        for (key, spread) in &keys {
            let record = locked[nth(*spread)].look(spread.bucket, key, at);
            let record = record.unwrap_or(&vacant);
            if let Some(by) = record.refusal(&asker, at.now) {
                return Ok(Ok(ClaimedMany::Refused { key: **key, by }));
            }
            match record.next_token(request.floor, at.unix_ms) {
                Ok(next) => token = token.max(next),
                Err(error) => return Ok(Err(error)),
            }
        }
        let news = keys
            .iter()
            .filter(|(key, spread)| !locked[nth(*spread)].has(spread.bucket, key))
            .count();
        if !self.room.take_records(news, news * RECORD_BYTES) {
            return Err(NoRoom);
        }

        let mut granted: Option<Grant> = None;
        let mut wakes = Vec::new();
        for (key, spread) in &keys {
            let room = (&self.room, true);
            let shard = &mut locked[nth(*spread)];
            let (one, wake) = shard.change(spread.bucket, key, at, room, |record, terms| {
                record.grant(&asker, token, terms.share(request.settings), at.now)
            });
            wakes.push(wake);
            let one = one?;
            granted = Some(match granted {
                None => one,
                Some(all) => all.together_with(one),
            });
        }
        drop(locked);
        wakes.into_iter().for_each(wake_all);
        match granted {
            Some(grant) => Ok(Ok(ClaimedMany::Granted(grant))),
            None => Err(NoRoom),
        }
    }
}
