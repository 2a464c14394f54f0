//! The one who writes: takes all calls that wait, and commits them together.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use tower_claim::engine::{At, Bells};
use tower_claim::store::StoreTime;
use tower_claim::{Key, StoreError};

use crate::book::Book;
use crate::error::{Failure, Trouble};
use crate::file::{File, NOT_OPEN, guarded};
use crate::meta;
use crate::time::Time;

/// Calls in one transaction, at most: so that none waits long for the others.
const TOGETHER: usize = 1024;
/// Records that a transaction of calls cleans up beside, for each call, and at least.
const CLEAN_EACH: usize = 2;
const CLEAN_LEAST: usize = 16;
/// Records that a transaction for cleaning alone looks at.
const CLEAN_ALONE: usize = 1024;
/// What is due waits so long for a call that commits anyway; an idle store writes once in a while.
const CLEAN_PAUSE: Duration = Duration::from_secs(1);
/// How long a disk is left alone on which the file could not be opened anew.
const MEND_PAUSE: Duration = Duration::from_millis(100);

/// A call on its way to the writer.
pub(crate) trait Job: Send {
    /// Does its work. An error is that of the whole transaction.
    fn apply(&mut self, book: &mut Book<'_>, at: At) -> Result<(), redb::Error>;
    /// The work is kept for good, or not.
    fn answer(self: Box<Self>, kept: Result<(), &Failure>);
}

/// What the writer is told.
pub(crate) enum Order {
    Do(Box<dyn Job>),
    /// The file wants to be opened anew: a read failed.
    Mend,
    Close(oneshot::Sender<()>),
}

/// A call, and who waits for its answer.
pub(crate) struct Call<R, F> {
    work: Option<F>,
    answer: Option<Result<R, StoreError>>,
    caller: oneshot::Sender<Result<R, StoreError>>,
}

impl<R, F> Call<R, F>
where
    F: FnOnce(&mut Book<'_>, At) -> Result<R, Trouble> + Send,
    R: Send,
{
    pub(crate) fn new(work: F) -> (Self, oneshot::Receiver<Result<R, StoreError>>) {
        let (caller, answer) = oneshot::channel();
        let call = Self {
            work: Some(work),
            answer: None,
            caller,
        };
        (call, answer)
    }
}

impl<R, F> Job for Call<R, F>
where
    F: FnOnce(&mut Book<'_>, At) -> Result<R, Trouble> + Send,
    R: Send,
{
    fn apply(&mut self, book: &mut Book<'_>, at: At) -> Result<(), redb::Error> {
        let Some(work) = self.work.take() else {
            return Ok(());
        };
        self.answer = Some(match work(book, at) {
            Ok(answer) => Ok(answer),
            Err(Trouble::Call(error)) => Err(error),
            Err(Trouble::Storage(error)) => return Err(error),
        });
        Ok(())
    }

    fn answer(self: Box<Self>, kept: Result<(), &Failure>) {
        let answer = match (kept, self.answer) {
            (Ok(()), Some(answer)) => answer,
            (Ok(()), None) => return,
            (Err(failure), _) => Err(failure.to_error()),
        };
        // Whoever has left is told nothing.
        let _ = self.caller.send(answer);
    }
}

pub(crate) struct Writer {
    pub(crate) file: Arc<File>,
    pub(crate) time: Arc<Time>,
    pub(crate) bells: Arc<Bells>,
    pub(crate) orders: Receiver<Order>,
    /// When there is something to clean.
    pub(crate) due: Option<StoreTime>,
    /// Until then a failed disk is left alone.
    pub(crate) rests_until: Option<Instant>,
}

impl Writer {
    /// Works until it is told to close, or all stores are gone.
    pub(crate) fn run(mut self) {
        let closing = loop {
            let mut jobs = Vec::new();
            let mut closing = None;
            match self.wait() {
                Ok(Order::Do(job)) => jobs.push(job),
                Ok(Order::Close(told)) => closing = Some(told),
                Ok(Order::Mend) | Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break None,
            }
            while closing.is_none() && jobs.len() < TOGETHER {
                match self.orders.try_recv() {
                    Ok(Order::Do(job)) => jobs.push(job),
                    Ok(Order::Close(told)) => closing = Some(told),
                    Ok(Order::Mend) => {}
                    Err(_) => break,
                }
            }
            self.commit(jobs);
            if closing.is_some() {
                break closing;
            }
        };
        self.file.close();
        drop(self);
        if let Some(told) = closing {
            let _ = told.send(());
        }
    }

    fn wait(&self) -> Result<Order, RecvTimeoutError> {
        let pause = match self.due {
            _ if self.file.is_lost() => None,
            // Nobody can ask for a file that is not open.
            _ if self.file.is_broken() => Some(MEND_PAUSE),
            Some(due) => Some(due.saturating_since(self.time.now()).max(CLEAN_PAUSE)),
            None => None,
        };
        match pause {
            Some(pause) => self.orders.recv_timeout(pause),
            None => {
                let order = self.orders.recv();
                order.map_err(|_| RecvTimeoutError::Disconnected)
            }
        }
    }

    /// Opens the file anew where it must be, at most once in a while: that may read all of it.
    fn mend(&mut self) -> Result<(), Failure> {
        if self.rests_until.is_some_and(|until| Instant::now() < until) {
            return Err(Failure::not_applied(NOT_OPEN));
        }
        let mended = self.file.mend();
        self.rests_until = mended.is_err().then(|| Instant::now() + MEND_PAUSE);
        mended
    }

    fn commit(&mut self, mut jobs: Vec<Box<dyn Job>>) {
        let done = match guarded(|| self.transact(&mut jobs)) {
            Ok(done) => done,
            Err(panicked) => Err(Failure::in_doubt(panicked)),
        };
        match &done {
            Ok(turned) => turned.iter().for_each(|key| self.bells.ring(key)),
            Err(failure) => {
                if self.file.tell_broken() {
                    tracing::error!(?failure, calls = jobs.len(), "a transaction failed");
                } else {
                    tracing::debug!(?failure, calls = jobs.len(), "the disk has not recovered");
                }
            }
        }
        let kept = done.as_ref().map(|_| ());
        for job in jobs {
            job.answer(kept);
        }
    }

    /// Does all that waits in one transaction; answers the keys of which a hold began or ended.
    fn transact(&mut self, jobs: &mut [Box<dyn Job>]) -> Result<Vec<Key>, Failure> {
        self.mend()?;
        let database = self.file.database();
        let Some(database) = &*database else {
            return Err(Failure::not_applied(NOT_OPEN));
        };
        let txn = database.begin_write().map_err(Failure::not_applied)?;
        let mut work = || -> Result<(bool, Vec<Key>), Trouble> {
            let mut book = Book::open(&txn, self.file.runs())?;
            for job in jobs.iter_mut() {
                job.apply(&mut book, self.time.at())?;
            }
            let clean = match jobs.len() {
                0 => CLEAN_ALONE,
                calls => CLEAN_LEAST.max(calls * CLEAN_EACH),
            };
            book.clean(self.time.at(), clean)?;
            self.due = book.next_due()?;
            Ok((book.is_changed(), book.into_turned()))
        };
        let (changed, turned) = work().map_err(|trouble| match trouble {
            Trouble::Call(error) => Failure::not_applied(error),
            Trouble::Storage(error) => Failure::not_applied(error),
        })?;
        if !changed {
            txn.abort().map_err(Failure::not_applied)?;
            return Ok(turned);
        }
        meta::write_seen(&txn, &self.time.seen()).map_err(Failure::not_applied)?;
        match txn.commit() {
            Ok(()) => Ok(turned),
            Err(error @ redb::CommitError::TransactionPoisoned) => Err(Failure::not_applied(error)),
            Err(error) => Err(Failure::in_doubt(error)),
        }
    }
}
