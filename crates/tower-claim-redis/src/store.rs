//! The protocol for one key, and for several at once.

use std::sync::Arc;
use std::time::Duration;

use redis::Cmd;
use tower_claim::engine::{Watching, span_micros, time_micros};
use tower_claim::store::{
    Beat, Capabilities, ClaimRequest, ClaimStore, Claimed, DynClaimStore, Finish, FinishRequest,
    Marked, Owner, RecordView, Release, ReleaseRequest, Renewed, StoreTime, Value, Watched,
};
use tower_claim::{Fingerprint, Key, LapsePolicy, Nonce, Settings, StoreError, Token};

use crate::answer::{claimed, done, lost, released, renewed, viewed};
use crate::many::fill_release;
use crate::reply::{Reply, fingerprint_digits};
use crate::{RedisStore, script};

/// A claim as the script takes it, after the keys.
pub(crate) struct Ask<'a> {
    pub(crate) nonce: Nonce,
    pub(crate) fingerprint: Option<Fingerprint>,
    pub(crate) settings: &'a Settings,
    pub(crate) floor: Token,
    pub(crate) not_after: StoreTime,
}

impl Ask<'_> {
    pub(crate) fn fill(&self, command: &mut Cmd) {
        let Settings {
            lease,
            cooling,
            min_hold,
            on_lapse,
            unfinished_keep,
            label,
        } = self.settings;
        let on_lapse = match on_lapse {
            LapsePolicy::Hold => "hold",
            _ => "take_over",
        };
        command
            .arg(self.nonce.to_string())
            .arg(fingerprint_digits(self.fingerprint))
            .arg(time_micros(self.not_after))
            .arg(self.floor.get())
            .arg(span_micros(*lease))
            .arg(span_micros(*cooling))
            .arg(span_micros(*min_hold))
            .arg(on_lapse)
            .arg(span_micros(*unfinished_keep))
            .arg(&**label);
    }
}

impl RedisStore {
    async fn look(&self, key: Key, token: Token) -> Result<Watching, StoreError> {
        let wait = span_micros(
            self.inner
                .poll
                .saturating_mul(4)
                .max(Duration::from_secs(1)),
        );
        let fill = |command: &mut Cmd| {
            command.arg(token.get()).arg(wait);
        };
        let mut reply = self.one(&script::LOOK, &key, fill).await?;
        let tag = reply.tag(&key.prefix())?;
        Ok(Watching::Over(match tag.as_str() {
            "until" => return Ok(Watching::Until(reply.time()?)),
            "done" => Watched::Done(done(&mut reply)?),
            "ended" => Watched::Ended,
            "superseded" => Watched::Superseded {
                token: reply.token()?,
            },
            _ => return Reply::unknown(),
        }))
    }

    /// Records of many keys; of each what it is, or why it cannot be read.
    pub(crate) async fn view_all(
        &self,
        keys: &[Key],
    ) -> Result<Vec<Result<Option<RecordView>, StoreError>>, StoreError> {
        let mut views = Vec::with_capacity(keys.len());
        for (places, answers) in self
            .inner
            .link
            .run_many(&script::PEEK, keys, |_, _| ())
            .await
        {
            for (place, answer) in places.into_iter().zip(answers?) {
                views.push((place, viewed(answer, keys[place])));
            }
        }
        views.sort_by_key(|(place, _)| *place);
        Ok(views.into_iter().map(|(_, view)| view).collect())
    }
}

impl ClaimStore for RedisStore {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities
    }

    fn now(&self) -> StoreTime {
        self.inner.clock.now()
    }

    async fn claim(&self, request: ClaimRequest<'_>) -> Result<Claimed, StoreError> {
        let ask = Ask {
            nonce: request.nonce,
            fingerprint: request.fingerprint,
            settings: request.settings,
            floor: request.floor,
            not_after: request.not_after,
        };
        let fill = |command: &mut Cmd| ask.fill(command);
        let mut reply = self.one(&script::CLAIM, &request.key, fill).await?;
        let _place = reply.number()?;
        claimed(reply, &request.key.prefix())
    }

    /// One script for 32 beats, on a cluster one for each slot; all travel at once. A beat whose record cannot be
    /// read, or whose part of the batch was not answered, is [`Renewed::Unsure`] beside others that were.
    async fn renew(&self, beats: &[Beat]) -> Result<Vec<Renewed>, StoreError> {
        let keys: Vec<Key> = beats.iter().map(|beat| beat.owner.key).collect();
        let fill = |command: &mut Cmd, n: usize| {
            let Beat { owner, progress } = &beats[n];
            command
                .arg(owner.nonce.to_string())
                .arg(owner.token.get())
                .arg(*progress);
        };
        let link = &self.inner.link;
        let (all, error) = link.answers_of(&script::RENEW, &keys, fill, renewed).await;
        match error {
            Some(error) if all.iter().all(Option::is_none) => return Err(error),
            Some(error) => tracing::warn!(
                error = &error as &dyn std::error::Error,
                "a beat was not answered"
            ),
            None => {}
        }
        let unsure = |answer: Option<Renewed>| answer.unwrap_or(Renewed::Unsure);
        Ok(all.into_iter().map(unsure).collect())
    }

    async fn mark(&self, owner: Owner) -> Result<Marked, StoreError> {
        let fill = |command: &mut Cmd| {
            command.arg(owner.nonce.to_string()).arg(owner.token.get());
        };
        let mut reply = self.one(&script::MARK, &owner.key, fill).await?;
        match reply.tag(&owner.key.prefix())?.as_str() {
            "marked" => Ok(Marked::Marked),
            tag => Ok(Marked::Lost(lost(tag)?)),
        }
    }

    async fn finish(&self, request: FinishRequest) -> Result<Finish, StoreError> {
        let owner = request.owner;
        let fill = |command: &mut Cmd| {
            command
                .arg(owner.nonce.to_string())
                .arg(owner.token.get())
                .arg(span_micros(request.keep));
            if let Value::Kept(body) = &request.value {
                command.arg(&body[..]);
            }
        };
        let mut reply = self.one(&script::FINISH, &owner.key, fill).await?;
        match reply.tag(&owner.key.prefix())?.as_str() {
            "finished" => Ok(Finish::Finished),
            "lost" => Ok(Finish::Lost),
            _ => Reply::unknown(),
        }
    }

    async fn release(&self, request: ReleaseRequest) -> Result<Release, StoreError> {
        let fill = |command: &mut Cmd| fill_release(command, &request);
        let reply = self.one(&script::RELEASE, &request.key, fill).await?;
        released(reply.part()?, &request.key.prefix())
    }

    /// A notification wakes it; a lost one costs at most the
    /// [poll step](crate::RedisStoreBuilder::poll_step).
    async fn watch(&self, key: Key, token: Token) -> Result<Watched, StoreError> {
        let inner = &self.inner;
        inner.listen();
        let now = || inner.clock.now();
        let look = || self.look(key, token);
        inner.bells.watch(key, token, inner.poll, now, look).await
    }

    async fn peek(&self, key: Key) -> Result<Option<RecordView>, StoreError> {
        let reply = self.one(&script::PEEK, &key, |_| ()).await?;
        viewed(reply.part()?, key)
    }

    /// A store with a connection made on the runtime that calls this; the same store where it was built
    /// from a connection alone.
    async fn keeper_store(&self) -> Result<Arc<dyn DynClaimStore>, StoreError> {
        let store = self.on_this_runtime();
        store.inner.link.connection().await?;
        Ok(Arc::new(store))
    }
}
