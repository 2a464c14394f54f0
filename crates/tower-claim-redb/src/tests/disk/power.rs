//! A disk that loses power: what was written and not flushed may be gone.
//!
//! A kill leaves the page cache; this does not.

use std::sync::atomic::AtomicUsize;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tower_claim::ClaimAdmin;
use tower_claim::FenceStore;
use tower_claim::store::{Admission, Marked, RecordView, Release, ReleaseRequest};

use super::*;

/// A disk in memory. Clones are one disk.
#[derive(Debug, Clone, Default)]
struct Volatile(Arc<State>);

#[derive(Debug, Default)]
struct State {
    platter: Mutex<Platter>,
    /// Answers the test has seen.
    answered: AtomicUsize,
}

#[derive(Debug, Default)]
struct Platter {
    /// What reads see.
    seen: Vec<u8>,
    /// What outlives the power.
    flushed: Vec<u8>,
    /// Since the last flush.
    unflushed: Vec<Write>,
    /// The disks left by a loss at each flush, and what was answered before it.
    losses: Option<Vec<(usize, Vec<u8>)>>,
}

#[derive(Debug, Clone)]
enum Write {
    Length(usize),
    Bytes(usize, Vec<u8>),
}

impl Write {
    fn apply(&self, disk: &mut Vec<u8>) {
        match self {
            Write::Length(len) => disk.resize(*len, 0),
            Write::Bytes(offset, bytes) => {
                let end = offset + bytes.len();
                disk.resize(disk.len().max(end), 0);
                disk[*offset..end].copy_from_slice(bytes);
            }
        }
    }
}

/// Of the writes that were not flushed, a disk may have done any before the power went.
#[derive(Debug, Clone, Copy)]
enum Loss {
    All,
    EveryOther,
}

impl Platter {
    fn write(&mut self, write: Write) {
        write.apply(&mut self.seen);
        self.unflushed.push(write);
    }

    fn after(&self, loss: Loss) -> Vec<u8> {
        let mut disk = self.flushed.clone();
        if let Loss::EveryOther = loss {
            let done = self.unflushed.iter().skip(1).step_by(2);
            done.for_each(|write| write.apply(&mut disk));
        }
        disk
    }
}

impl Volatile {
    fn of(bytes: Vec<u8>) -> Self {
        let disk = Self::default();
        let mut platter = disk.platter();
        (platter.seen, platter.flushed) = (bytes.clone(), bytes);
        drop(platter);
        disk
    }

    fn platter(&self) -> MutexGuard<'_, Platter> {
        let platter = self.0.platter.lock();
        platter.unwrap_or_else(PoisonError::into_inner)
    }

    /// The disk that is found when the power is back.
    fn after(&self, loss: Loss) -> Self {
        Self::of(self.platter().after(loss))
    }

    /// Opened by the process that had it: so its holds go on.
    fn open_by(&self, clock: &ManualClock) -> RedbStore {
        let builder = by_hand(clock).process([7; 16]).cache(1 << 20);
        builder.open_on(Box::new(self.clone())).unwrap()
    }
}

impl Disk for Volatile {
    fn look(&self, _: &redb::Builder) -> Result<Option<ReadOnlyDatabase>, OpenError> {
        Ok(None)
    }

    fn open(&self, redb: &redb::Builder, _: bool) -> Result<Database, DatabaseError> {
        redb.create_with_backend(self.clone())
    }
}

impl StorageBackend for Volatile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.platter().seen.len() as u64)
    }
    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let offset = offset as usize;
        out.copy_from_slice(&self.platter().seen[offset..offset + out.len()]);
        Ok(())
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.platter().write(Write::Length(len as usize));
        Ok(())
    }
    fn sync_data(&self) -> io::Result<()> {
        let mut platter = self.platter();
        if platter.losses.is_some() {
            let answered = self.0.answered.load(Ordering::SeqCst);
            let left = [Loss::All, Loss::EveryOther].map(|loss| (answered, platter.after(loss)));
            platter
                .losses
                .iter_mut()
                .for_each(|all| all.extend(left.clone()));
        }
        for write in std::mem::take(&mut platter.unflushed) {
            write.apply(&mut platter.flushed);
        }
        Ok(())
    }
    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.platter()
            .write(Write::Bytes(offset as usize, data.to_vec()));
        Ok(())
    }
}

/// What a reader sees of a key, but for spans of time.
async fn seen(store: &RedbStore, n: u32) -> Option<impl PartialEq + std::fmt::Debug + use<>> {
    let view: RecordView = store.peek(key(n)).await.unwrap()?;
    Some((view.state, view.token, view.nonce, view.marked))
}

/// Loses the power, and finds each key and the mark as they were when the answer came.
async fn holds_over_a_loss(store: &RedbStore, disk: &Volatile, clock: &ManualClock, what: &str) {
    for loss in [Loss::All, Loss::EveryOther] {
        let found = disk.after(loss).open_by(clock);
        for n in 0..5 {
            let (then, now) = (seen(store, n).await, seen(&found, n).await);
            assert_eq!(then, now, "key {n}, after {what}, {loss:?} lost");
        }
        let (then, now) = (store.fence_store(), found.fence_store());
        for resource in ["a", "b"] {
            assert_eq!(
                then.high_water(resource).await.unwrap(),
                now.high_water(resource).await.unwrap(),
                "the mark of {resource}, after {what}, {loss:?} lost"
            );
        }
        found.close().await;
    }
}

#[tokio::test]
async fn what_was_answered_outlives_the_power() {
    let (disk, clock) = (Volatile::default(), ManualClock::new());
    let store = disk.open_by(&clock);
    let (guard, settings) = (store.fence_store(), terms(LapsePolicy::TakeOver));
    let holds = async |n| {
        let nonce = Nonce::draw(&OsEntropy);
        let token = granted(claim_as(&store, n, nonce, &settings).await).token;
        let key = key(n);
        Owner { key, nonce, token }
    };
    let check = async |what| holds_over_a_loss(&store, &disk, &clock, what).await;

    let finishes = holds(0).await;
    check("a grant").await;
    assert_eq!(store.mark(finishes).await.unwrap(), Marked::Marked);
    check("a mark").await;
    let finished = finish(&store, finishes).await.unwrap();
    assert_eq!(finished, Finish::Finished);
    check("a finish").await;

    let releases = holds(1).await;
    let request = ReleaseRequest {
        key: releases.key,
        nonce: releases.nonce,
        token: Some(releases.token),
        not_after: store.now().saturating_add(secs(2)),
    };
    assert_eq!(store.release(request).await.unwrap(), Release::Released);
    check("a release").await;

    let writes = holds(2).await;
    let admitted = guard.admit("a", writes.token, writes.nonce).await.unwrap();
    assert_eq!(admitted, Admission::Admitted);
    check("a write at the guard").await;
    guard.raise_floor("b", writes.token).await.unwrap();
    check("a raised floor").await;

    let broken = holds(3).await;
    store.break_claim(broken.key, broken.token).await.unwrap();
    check("a break").await;

    // The result itself, not only that there is one.
    let found = disk.after(Loss::All).open_by(&clock);
    let kept = claim(&found, 0).await.unwrap();
    let Claimed::Done(kept) = kept else {
        panic!("not done: {kept:?}");
    };
    assert_eq!(kept.value, Value::Kept(b"done".as_slice().into()));
    assert_eq!(kept.token, finishes.token);
}

/// In the midst of a commit, too: whole, with all that was answered before.
#[tokio::test]
async fn a_loss_of_power_at_any_flush_leaves_a_file_that_opens_with_all_that_was_answered() {
    let (disk, clock) = (Volatile::default(), ManualClock::new());
    let store = disk.open_by(&clock);
    disk.platter().losses = Some(Vec::new());
    let mut tokens = Vec::new();
    for n in 0..6 {
        tokens.push(done(&store, n).await);
        disk.0.answered.store(tokens.len(), Ordering::SeqCst);
    }
    let losses = disk.platter().losses.take().unwrap();
    // Two answers for each key, each behind a flush of its own at least.
    assert!(losses.len() >= 24, "only {} losses", losses.len());
    for (answered, left) in losses {
        let found = Volatile::of(left).open_by(&clock);
        for (n, token) in tokens.iter().take(answered).enumerate() {
            let kept = claim(&found, n as u32).await.unwrap();
            assert!(
                matches!(&kept, Claimed::Done(done) if done.token == *token),
                "{n} of {answered}: {kept:?}"
            );
        }
        done(&found, 100).await;
        found.close().await;
    }
}
