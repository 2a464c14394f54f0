//! A layer exists before the response and error types are known: it keeps one core per combination of
//! types, and each service looks its own up once.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crate::builder::Policy;
use crate::core::{Core, Share};
use crate::counts::Counters;
use crate::table::Table;
use crate::tasks::Tasks;

/// A core without its types.
trait AnyCore: Any + Send + Sync {
    fn flights(&self) -> usize;
    fn followers(&self) -> usize;
}

impl<K, T, E, O> AnyCore for Core<K, T, E, O>
where
    K: Send + Sync + 'static,
    T: Send + 'static,
    E: Send + Sync + 'static,
    O: Send + 'static,
{
    fn flights(&self) -> usize {
        self.table.fold(0, |sum, _| sum + 1)
    }

    fn followers(&self) -> usize {
        self.table.fold(0, |sum, f| sum + f.lock().followers())
    }
}

type ByType = HashMap<TypeId, Arc<dyn AnyCore>>;

/// The cores of one layer value.
pub(crate) struct Cores {
    pub(crate) policy: Policy,
    pub(crate) tasks: Arc<Tasks>,
    pub(crate) counters: Arc<Counters>,
    by_type: Mutex<ByType>,
}

impl Cores {
    pub(crate) fn new(policy: Policy) -> Self {
        Self {
            policy,
            tasks: Arc::default(),
            counters: Arc::default(),
            by_type: Mutex::default(),
        }
    }

    fn sum(&self, of: impl Fn(&dyn AnyCore) -> usize) -> usize {
        let by_type = self.by_type.lock().unwrap_or_else(PoisonError::into_inner);
        by_type.values().map(|core| of(&**core)).sum()
    }

    pub(crate) fn flights(&self) -> usize {
        self.sum(AnyCore::flights)
    }

    pub(crate) fn followers(&self) -> usize {
        self.sum(AnyCore::followers)
    }

    fn make<K, T, E, O>(&self, share: Share<O, T>) -> Core<K, T, E, O> {
        Core {
            table: Table::new(self.policy.shards),
            share,
            policy: self.policy.clone(),
            tasks: Arc::clone(&self.tasks),
            counters: Arc::clone(&self.counters),
        }
    }

    fn find<K, T, E, O>(&self, share: impl FnOnce() -> Share<O, T>) -> Arc<dyn AnyCore>
    where
        K: Send + Sync + 'static,
        T: Send + 'static,
        E: Send + Sync + 'static,
        O: Send + 'static,
    {
        let mut by_type = self.by_type.lock().unwrap_or_else(PoisonError::into_inner);
        let core = by_type
            .entry(TypeId::of::<Core<K, T, E, O>>())
            .or_insert_with(|| Arc::new(self.make::<K, T, E, O>(share())));
        Arc::clone(core)
    }
}

/// The core of one service and its clones: they have one response and one error type, so the map is asked
/// once.
#[derive(Clone, Default)]
pub(crate) struct Resolved(Arc<OnceLock<Arc<dyn AnyCore>>>);

impl Resolved {
    pub(crate) fn core<K, T, E, O>(
        &self,
        cores: &Cores,
        share: impl Fn() -> Share<O, T>,
    ) -> Arc<Core<K, T, E, O>>
    where
        K: Send + Sync + 'static,
        T: Send + 'static,
        E: Send + Sync + 'static,
        O: Send + 'static,
    {
        let known = self.0.get_or_init(|| cores.find::<K, T, E, O>(&share));
        let known: Arc<dyn Any + Send + Sync> = Arc::<dyn AnyCore>::clone(known);
        known.downcast().unwrap_or_else(|_| {
            // One service called with two request types whose responses differ.
            let found: Arc<dyn Any + Send + Sync> = cores.find::<K, T, E, O>(&share);
            found
                .downcast()
                .unwrap_or_else(|_| Arc::new(cores.make(share())))
        })
    }
}
