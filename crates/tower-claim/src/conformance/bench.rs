//! What laws are written with: keys, claims and owners.

use std::ops::Deref;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, Either, select};

use super::Time;
use super::ask::Ask;
use super::law::{Judged, Stop};
use super::schedule::Schedule;
use super::suite::OnTime;
use crate::store::{
    Beat, DynClaimAdmin, DynClaimMany, Finish, FinishRequest, Marked, Owner, RecordView, Release,
    ReleaseRequest, Renewed, StoreTime, Value, Watched,
};
use crate::{
    Clock, DynClaimStore, DynFenceStore, Fingerprint, Key, Nonce, OsEntropy, Settings, StoreError,
    SystemClock,
};

/// A store, and a law's time on it.
#[derive(Debug)]
pub(super) struct Bench {
    pub(super) store: Arc<dyn DynClaimStore>,
    schedule: Schedule,
}

impl Bench {
    pub(super) fn new(store: Arc<dyn DynClaimStore>, schedule: Schedule) -> Self {
        Self { store, schedule }
    }

    pub(super) fn key(&self) -> Key {
        let (a, b) = (Nonce::draw(&OsEntropy), Nonce::draw(&OsEntropy));
        let mut bytes = [0; 32];
        bytes[..16].copy_from_slice(a.as_bytes());
        bytes[16..].copy_from_slice(b.as_bytes());
        Key::from_bytes(bytes)
    }

    pub(super) fn nonce(&self) -> Nonce {
        Nonce::draw(&OsEntropy)
    }

    pub(super) fn units(&self, n: u32) -> Duration {
        self.schedule.unit * n
    }

    /// Terms with a lease of so many units: it lapses between the step of that number, counted from the
    /// grant, and the next.
    pub(super) fn lease(&self, units: u32) -> Settings {
        let mut terms = Settings::new(self.units(units));
        terms.label = Arc::from("conformance");
        terms.unfinished_keep = self.units(60);
        terms
    }

    /// By the store's clock, so many units from now.
    pub(super) fn ahead(&self, units: u32) -> StoreTime {
        self.store.dyn_now().saturating_add(self.units(units))
    }

    /// After the end of every law.
    pub(super) fn far(&self) -> StoreTime {
        self.ahead(60)
    }

    pub(super) fn manual_clock(&self) -> Judged<&crate::testing::ManualClock> {
        match &self.schedule.time {
            Time::Manual(clock) => Ok(clock),
            Time::Real { .. } => Err(Stop::Stalled),
        }
    }

    /// See [`Schedule::about`].
    pub(super) fn about(&self, seen: Duration, units: u32) -> bool {
        self.schedule.about(seen, units)
    }

    /// See [`Schedule::at`].
    pub(super) async fn at(&self, step: u32) -> Judged {
        self.schedule.at(step).await
    }

    /// What follows is bound to no step: it is about much, or many, and a slow engine is not a wrong one.
    pub(super) fn unhurried(&self) -> Judged {
        self.schedule.only_wait()
    }

    pub(super) fn ask(&self, key: Key) -> Ask<'_> {
        Ask::new(self, key)
    }

    pub(super) async fn renew(&self, owner: Owner) -> Judged<Renewed> {
        self.beat(owner, 0).await
    }

    pub(super) async fn beat(&self, owner: Owner, progress: u64) -> Judged<Renewed> {
        let mut answers = self.beats(&[Beat { owner, progress }]).await?;
        ensure!(answers.len() == 1, "one beat, answered by {answers:?}");
        Ok(answers.remove(0))
    }

    /// Doubt is asked again, as a keeper would; doubt without end is no answer.
    pub(super) async fn beats(&self, beats: &[Beat]) -> Judged<Vec<Renewed>> {
        let until = SystemClock.now() + self.units(10);
        for asked in 1u32.. {
            let answers = self.store.dyn_renew(beats).await?;
            if !answers.contains(&Renewed::Unsure) {
                return Ok(answers);
            }
            if !self.schedule.on_time() {
                return Err(Stop::Stalled);
            }
            // On a busy machine one answer may take that long.
            ensure!(
                SystemClock.now() < until || asked < 20,
                "in doubt for ever: {answers:?}"
            );
            tokio::task::yield_now().await;
        }
        Err(Stop::Stalled)
    }

    pub(super) async fn mark(&self, owner: Owner) -> Judged<Marked> {
        Ok(self.store.dyn_mark(owner).await?)
    }

    /// As [`mark`](Self::mark), and it must be.
    pub(super) async fn marked(&self, owner: Owner) -> Judged {
        expect!("mark", self.mark(owner).await?, Marked::Marked);
        Ok(())
    }

    /// As [`finish`](Self::finish), and it must be.
    pub(super) async fn finished(&self, owner: Owner, text: &'static str, keep: u32) -> Judged {
        let finish = self.finish(owner, text, keep).await?;
        expect!("finish", finish, Finish::Finished);
        Ok(())
    }

    /// Finishes with this text, kept for so many units.
    pub(super) async fn finish(
        &self,
        owner: Owner,
        text: &'static str,
        keep: u32,
    ) -> Judged<Finish> {
        let request = FinishRequest {
            owner,
            value: kept(text),
            keep: self.units(keep),
        };
        Ok(self.store.dyn_finish(request).await?)
    }

    pub(super) async fn release(&self, owner: Owner) -> Judged<Release> {
        self.release_until(owner, self.far()).await
    }

    /// No claim of this nonce was sent with a later `not_after`.
    pub(super) async fn release_until(
        &self,
        owner: Owner,
        not_after: StoreTime,
    ) -> Judged<Release> {
        let request = ReleaseRequest {
            key: owner.key,
            nonce: owner.nonce,
            token: Some(owner.token),
            not_after,
        };
        Ok(self.store.dyn_release(request).await?)
    }

    pub(super) async fn release_by_nonce(&self, key: Key, nonce: Nonce) -> Judged<Release> {
        let request = ReleaseRequest {
            key,
            nonce,
            token: None,
            not_after: self.far(),
        };
        Ok(self.store.dyn_release(request).await?)
    }

    pub(super) async fn peek(&self, key: Key) -> Judged<Option<RecordView>> {
        Ok(self.store.dyn_peek(key).await?)
    }

    pub(super) fn watch(&self, owner: Owner) -> Watching<'_> {
        self.store.dyn_watch(owner.key, owner.token)
    }

    /// Does the work while the watcher looks on: its answer, if it came before the work was over.
    pub(super) async fn beside(
        &self,
        watching: &mut Watching<'_>,
        work: impl Future<Output = Judged>,
    ) -> Judged<Option<Watched>> {
        match select(watching, pin!(work)).await {
            Either::Left((answer, work)) => {
                work.await?;
                Ok(Some(answer?))
            }
            Either::Right((judged, _)) => judged.map(|()| None),
        }
    }

    /// The watcher's answer: now, or after a poll step. What it is to answer has happened: it comes, or never,
    /// and a busy machine has as long as it needs.
    pub(super) async fn woken(&self, watching: &mut Watching<'_>) -> Judged<Watched> {
        self.schedule.only_wait()?;
        let slice = self.units(1).max(WOKEN / 10);
        // In slices: a machine that stands still for long costs one of them only.
        let sleep = async {
            for _ in 0..10 {
                tokio::time::sleep(slice).await;
            }
        };
        match select(watching, pin!(sleep)).await {
            Either::Left((answer, _)) => Ok(answer?),
            Either::Right(_) => Err(Stop::Broken("the watcher was not woken".to_owned())),
        }
    }
}

/// How long a watcher may take, at least: less than a call that is taken for hung.
const WOKEN: Duration = Duration::from_secs(20);

pub(super) type Watching<'a> = BoxFuture<'a, Result<Watched, StoreError>>;

pub(super) fn kept(text: &'static str) -> Value {
    Value::Kept(bytes::Bytes::from_static(text.as_bytes()))
}

pub(super) fn print(n: u8) -> Fingerprint {
    Fingerprint::from_bytes([n; 32])
}

impl OnTime for Bench {
    fn on_time(&self) -> bool {
        self.schedule.on_time()
    }
}

macro_rules! benches {
    ($($(#[$doc:meta])* $name:ident: $power:ident),+) => {$(
        $(#[$doc])*
        #[derive(Debug)]
        pub(super) struct $name {
            bench: Bench,
            pub(super) power: Arc<dyn $power>,
        }

        impl $name {
            pub(super) fn new<S: $power>(store: Arc<S>, schedule: Schedule) -> Self {
                Self { bench: Bench::new(store.clone(), schedule), power: store }
            }
        }

        impl Deref for $name {
            type Target = Bench;

            fn deref(&self) -> &Bench {
                &self.bench
            }
        }

        impl OnTime for $name {
            fn on_time(&self) -> bool {
                self.bench.on_time()
            }
        }
    )+};
}

benches! {
    /// With claims of several keys.
    ManyBench: DynClaimMany,
    /// With an operator.
    AdminBench: DynClaimAdmin
}

/// A guard's store. Its laws need no time.
#[derive(Debug)]
pub(super) struct FenceBench {
    pub(super) store: Arc<dyn DynFenceStore>,
}

impl FenceBench {
    pub(super) fn new(store: Arc<dyn DynFenceStore>) -> Self {
        Self { store }
    }

    /// A name that no other law uses.
    pub(super) fn resource(&self) -> String {
        format!("conformance-{}", Nonce::draw(&OsEntropy))
    }
}

impl OnTime for FenceBench {
    fn on_time(&self) -> bool {
        true
    }
}
