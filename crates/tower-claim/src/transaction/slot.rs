//! Where a transaction lies between the layer and its handler.

use std::any::Any;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::OwnedMutexGuard;

use super::{NotLent, OpenTransaction, StillLent};

/// Where a layer finds the transaction that its handler worked in. In the request's extensions, where a layer
/// ends transactions. Clones are one slot.
///
/// One transaction for each run: a second one is refused, since only one can carry the result.
#[derive(Clone, Default)]
pub struct TransactionSlot(Arc<Mutex<Place>>, Option<&'static str>);

#[derive(Default)]
enum Place {
    #[default]
    Empty,
    /// Begun by the layer, for the handler to pick up.
    LaidOut(Box<dyn Loan>),
    Lent(Box<dyn Loan>),
    /// The run is over, and somebody had its transaction yet.
    KeptBack,
    /// The run is over.
    Closed,
}

/// A transaction in the hands of a handler: use it as the transaction, and drop it when the work is written, or
/// with the handler.
pub type Lent<T> = OwnedMutexGuard<T>;

impl TransactionSlot {
    /// An empty slot.
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty slot of a layer whose store is of this [engine](crate::store::Capabilities::engine): a transaction of another one
    /// cannot carry its results.
    pub fn over(engine: &'static str) -> Self {
        Self(Arc::default(), Some(engine))
    }

    /// Whether transactions of this engine carry the layer's results, as far as it can be told. Asked by an engine's
    /// crate before it begins one.
    ///
    /// # Errors
    ///
    /// [`NotLent::OfAnotherStore`].
    pub fn is_of(&self, engine: &'static str) -> Result<(), NotLent> {
        match self.1 {
            Some(store) if store != engine => Err(NotLent::OfAnotherStore { store, engine }),
            _ => Ok(()),
        }
    }

    /// Whether [`lend`](Self::lend) would lend.
    ///
    /// # Errors
    ///
    /// [`NotLent`].
    pub fn is_free(&self) -> Result<(), NotLent> {
        match *self.lock() {
            Place::Empty => Ok(()),
            Place::LaidOut(_) | Place::Lent(_) => Err(NotLent::Second),
            Place::KeptBack | Place::Closed => Err(NotLent::Over),
        }
    }

    /// Lays out a transaction that is open, for the handler to [pick up](Self::pick_up). It carries the result
    /// also where the handler does not.
    ///
    /// # Errors
    ///
    /// [`NotLent`]. The transaction is dropped, and so rolled back.
    pub fn lay_out<T: OpenTransaction>(&self, transaction: T) -> Result<(), NotLent> {
        let mut place = self.lock();
        match *place {
            Place::Empty => {
                *place = Place::LaidOut(Box::new(Arc::new(tokio::sync::Mutex::new(transaction))));
                Ok(())
            }
            Place::LaidOut(_) | Place::Lent(_) => Err(NotLent::Second),
            Place::KeptBack | Place::Closed => Err(NotLent::Over),
        }
    }

    /// Lends the handler what was [laid out](Self::lay_out); `None` where nothing was, so that the handler's engine
    /// [lends](Self::lend) one it begins now.
    ///
    /// # Errors
    ///
    /// [`NotLent`]. [`NotLent::OfAnotherEngine`] where what was laid out is no `T`: it stays there.
    pub fn pick_up<T: OpenTransaction>(&self) -> Result<Option<Lent<T>>, NotLent> {
        let mut place = self.lock();
        let whole = match &*place {
            Place::Empty => return Ok(None),
            Place::LaidOut(loan) => {
                let loan: &dyn Any = &**loan;
                let whole = loan.downcast_ref::<Whole<T>>();
                Arc::clone(whole.ok_or(NotLent::OfAnotherEngine)?)
            }
            Place::Lent(_) => return Err(NotLent::Second),
            Place::KeptBack | Place::Closed => return Err(NotLent::Over),
        };
        // Nobody else has it yet.
        let lent = whole.try_lock_owned().map_err(|_| NotLent::Second)?;
        if let Place::LaidOut(loan) = std::mem::take(&mut *place) {
            *place = Place::Lent(loan);
        }
        Ok(Some(lent))
    }

    /// Lends a transaction to the handler.
    ///
    /// # Errors
    ///
    /// [`NotLent`]. The transaction is dropped, and so rolled back.
    pub fn lend<T: OpenTransaction>(&self, transaction: T) -> Result<Lent<T>, NotLent> {
        self.is_free()?;
        let whole = Arc::new(tokio::sync::Mutex::new(transaction));
        // Nobody else has it yet.
        let lent = Arc::clone(&whole).try_lock_owned();
        let lent = lent.map_err(|_| NotLent::Second)?;
        let mut place = self.lock();
        match *place {
            Place::Empty => *place = Place::Lent(Box::new(whole)),
            Place::LaidOut(_) | Place::Lent(_) => return Err(NotLent::Second),
            Place::KeptBack | Place::Closed => return Err(NotLent::Over),
        }
        Ok(lent)
    }

    /// What the handler worked in, when it is done. The run is over with this: what is given back later is
    /// rolled back.
    ///
    /// # Errors
    ///
    /// [`StillLent`]: the handler has answered, and something it left behind has the transaction yet. Who asks again is
    /// told so again.
    pub fn take(&self) -> Result<Option<Box<dyn OpenTransaction>>, StillLent> {
        let mut place = self.lock();
        match std::mem::replace(&mut *place, Place::Closed) {
            Place::Empty | Place::Closed => Ok(None),
            Place::LaidOut(loan) | Place::Lent(loan) => {
                if let Some(transaction) = loan.back() {
                    return Ok(Some(transaction));
                }
                *place = Place::KeptBack;
                Err(StillLent)
            }
            Place::KeptBack => {
                *place = Place::KeptBack;
                Err(StillLent)
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Place> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for TransactionSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match *self.lock() {
            Place::Empty => "TransactionSlot(empty)",
            Place::LaidOut(_) => "TransactionSlot(laid out)",
            Place::Lent(_) => "TransactionSlot(lent)",
            Place::KeptBack => "TransactionSlot(kept back)",
            Place::Closed => "TransactionSlot(closed)",
        })
    }
}

type Whole<T> = Arc<tokio::sync::Mutex<T>>;

/// The slot's end of what was lent.
trait Loan: Any + Send {
    /// `None` while the other end has it.
    fn back(self: Box<Self>) -> Option<Box<dyn OpenTransaction>>;
}

impl<T: OpenTransaction> Loan for Whole<T> {
    fn back(self: Box<Self>) -> Option<Box<dyn OpenTransaction>> {
        Some(Box::new(Arc::into_inner(*self)?.into_inner()))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use futures_util::future::BoxFuture;

    use super::*;
    use crate::store::FinishRequest;
    use crate::transaction::CommitError;

    #[derive(Default)]
    struct Rows(Arc<AtomicU32>);

    impl OpenTransaction for Rows {
        fn commit_with(
            self: Box<Self>,
            _: FinishRequest,
        ) -> BoxFuture<'static, Result<(), CommitError>> {
            Box::pin(std::future::ready(Ok(())))
        }

        fn commit(self: Box<Self>) -> BoxFuture<'static, Result<(), CommitError>> {
            Box::pin(std::future::ready(Ok(())))
        }

        fn roll_back(self: Box<Self>) -> BoxFuture<'static, ()> {
            Box::pin(std::future::ready(()))
        }
    }

    impl Drop for Rows {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_transaction_of_another_engine_than_the_layers_store_is_refused_with_the_mend() {
        let slot = TransactionSlot::over("memory");
        let refused = slot.is_of("postgres").unwrap_err();
        let told = refused.to_string();
        for word in ["`memory`", "`postgres`", "same database"] {
            assert!(told.contains(word), "{told}");
        }
        assert_eq!(slot.is_of("memory"), Ok(()));
        assert_eq!(TransactionSlot::new().is_of("postgres"), Ok(()));
    }

    #[test]
    fn what_the_handler_drops_comes_back() {
        let (slot, dropped) = (TransactionSlot::new(), Arc::default());
        let lent = slot.lend(Rows(Arc::clone(&dropped))).unwrap();
        drop(lent);
        assert_eq!(dropped.load(Ordering::Relaxed), 0, "it is open yet");
        assert!(slot.take().unwrap().is_some());
        assert_eq!(dropped.load(Ordering::Relaxed), 1);
        assert!(slot.take().unwrap().is_none(), "it is taken once");
    }

    #[test]
    fn one_that_is_kept_is_told_of_and_rolled_back_in_the_end() {
        let (slot, dropped) = (TransactionSlot::new(), Arc::default());
        let lent = slot.lend(Rows(Arc::clone(&dropped))).unwrap();
        assert_eq!(slot.take().err(), Some(StillLent));
        assert_eq!(slot.take().err(), Some(StillLent), "and told of again");
        drop(lent);
        assert_eq!(dropped.load(Ordering::Relaxed), 1);
        assert_eq!(slot.take().err(), Some(StillLent), "nothing is committed");
        assert_eq!(slot.is_free(), Err(NotLent::Over));
    }

    #[test]
    fn a_run_has_one_transaction_and_none_when_it_is_over() {
        let slot = TransactionSlot::new();
        let lent = slot.lend(Rows::default()).unwrap();
        assert_eq!(slot.lend(Rows::default()).err(), Some(NotLent::Second));
        drop(lent);
        assert_eq!(slot.lend(Rows::default()).err(), Some(NotLent::Second));
        let _ = slot.take();
        assert_eq!(slot.lend(Rows::default()).err(), Some(NotLent::Over));
    }

    #[test]
    fn what_is_laid_out_is_picked_up_once_and_comes_back_either_way() {
        for picks_up in [false, true] {
            let (slot, dropped) = (TransactionSlot::new(), Arc::default());
            assert!(slot.pick_up::<Rows>().unwrap().is_none());
            slot.lay_out(Rows(Arc::clone(&dropped))).unwrap();
            assert_eq!(slot.lay_out(Rows::default()), Err(NotLent::Second));
            assert_eq!(slot.is_free(), Err(NotLent::Second));
            if picks_up {
                let lent = slot.pick_up::<Rows>().unwrap();
                assert_eq!(slot.pick_up::<Rows>().err(), Some(NotLent::Second));
                drop(lent);
                assert_eq!(slot.pick_up::<Rows>().err(), Some(NotLent::Second));
            }
            assert!(slot.take().unwrap().is_some());
            assert_eq!(dropped.load(Ordering::Relaxed), 1);
            assert_eq!(slot.pick_up::<Rows>().err(), Some(NotLent::Over));
        }
    }

    struct Others(Rows);

    impl OpenTransaction for Others {
        fn commit_with(
            self: Box<Self>,
            finish: FinishRequest,
        ) -> BoxFuture<'static, Result<(), CommitError>> {
            Box::new(self.0).commit_with(finish)
        }

        fn commit(self: Box<Self>) -> BoxFuture<'static, Result<(), CommitError>> {
            Box::pin(std::future::ready(Ok(())))
        }

        fn roll_back(self: Box<Self>) -> BoxFuture<'static, ()> {
            Box::new(self.0).roll_back()
        }
    }

    #[test]
    fn what_is_of_another_engine_stays_where_it_is() {
        let slot = TransactionSlot::new();
        slot.lay_out(Others(Rows::default())).unwrap();
        let refused = slot.pick_up::<Rows>().err();
        assert_eq!(refused, Some(NotLent::OfAnotherEngine));
        assert!(slot.pick_up::<Others>().unwrap().is_some());
    }
}
