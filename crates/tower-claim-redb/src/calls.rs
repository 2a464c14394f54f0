//! How a call reaches the file: a read on a thread beside, a change through the one who writes.

use std::sync::Arc;
use std::sync::mpsc::{SyncSender, TrySendError};
use std::time::Duration;

use redb::ReadTransaction;
use tokio::sync::Semaphore;
use tower_claim::engine::{At, Bells, Record, call_within};
use tower_claim::{Key, StoreError};

use crate::book::{self, Book};
use crate::error::Trouble;
use crate::file::File;
use crate::time::Time;
use crate::writer::{Call, Order};

pub(crate) struct Inner {
    pub(crate) file: Arc<File>,
    pub(crate) time: Arc<Time>,
    pub(crate) bells: Arc<Bells>,
    pub(crate) orders: SyncSender<Order>,
    pub(crate) call_timeout: Duration,
    pub(crate) poll: Duration,
    pub(crate) guard_marks: u64,
    /// Reads at the same moment are bounded: a disk that hangs takes so many threads at most.
    pub(crate) readers: Arc<Semaphore>,
}

impl Inner {
    /// Reads what is committed, without the writer; never on the thread that asks: what is not in the cache is read
    /// from the disk, and while redb makes the file longer, a read waits for that.
    pub(crate) async fn read<R, F>(&self, look: F) -> Result<R, StoreError>
    where
        R: Send + 'static,
        F: FnOnce(&ReadTransaction) -> Result<R, Trouble> + Send + 'static,
    {
        let looked = async {
            let turn = Arc::clone(&self.readers).acquire_owned().await;
            let file = Arc::clone(&self.file);
            let read = tokio::task::spawn_blocking(move || {
                let _turn = turn.map_err(StoreError::unavailable)?;
                file.read(look)
            });
            read.await
                .unwrap_or_else(|gone| Err(StoreError::unavailable(gone)))
        };
        let was_broken = self.file.is_broken();
        let answer = tokio::time::timeout(self.call_timeout, looked).await;
        if !was_broken && self.file.is_broken() {
            // A full queue wakes the writer as well.
            let _ = self.orders.try_send(Order::Mend);
        }
        answer.unwrap_or_else(|_| Err(StoreError::unavailable("the disk does not answer")))
    }

    pub(crate) async fn look<R, F>(&self, key: Key, tell: F) -> Result<R, StoreError>
    where
        R: Send + 'static,
        F: FnOnce(Record, At) -> R + Send + 'static,
    {
        let (file, time) = (Arc::clone(&self.file), Arc::clone(&self.time));
        self.read(move |txn| {
            let at = time.at();
            Ok(tell(book::look(txn, file.runs(), &key, at)?, at))
        })
        .await
    }

    /// Has the writer do something, and waits until it is on the disk.
    pub(crate) async fn write<R, F>(&self, work: F) -> Result<R, StoreError>
    where
        R: Send + 'static,
        F: FnOnce(&mut Book<'_>, At) -> Result<R, Trouble> + Send + 'static,
    {
        let (call, answer) = Call::new(work);
        match self.orders.try_send(Order::Do(Box::new(call))) {
            Ok(()) => {}
            Err(TrySendError::Full(_)) => {
                return Err(StoreError::unavailable("too many calls wait for the disk"));
            }
            Err(TrySendError::Disconnected(_)) => return Err(closed()),
        }
        let answer = async {
            match answer.await {
                Ok(answer) => answer,
                // The writer ends only between two transactions: this call was never begun.
                Err(_) => Err(closed()),
            }
        };
        call_within(self.call_timeout, answer).await
    }

    pub(crate) async fn change<R, F>(&self, key: Key, op: F) -> Result<R, StoreError>
    where
        R: Send + 'static,
        F: FnOnce(&mut Record, At) -> Result<R, StoreError> + Send + 'static,
    {
        self.write(move |book, at| book.change(&key, at, |record| op(record, at)))
            .await
    }
}

fn closed() -> StoreError {
    StoreError::unavailable("the store is closed")
}
