//! The calls in this process, by resource: [`Calls`] with a lock and wakers around it.

use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll};

use futures_util::task::AtomicWaker;
use tower_claim::Token;

use super::drain::{CallId, Calls, Turn};

/// What can be ended from outside while nobody polls it: a response body whose client reads slowly.
pub(crate) trait Cut: Send + Sync {
    /// Drops the body now, or leaves that to who polls it at this moment.
    fn cut(&self);
}

/// How one call hears of its end.
#[derive(Default)]
pub(crate) struct Signal {
    cancelled: AtomicBool,
    waker: AtomicWaker,
    body: Mutex<Option<Weak<dyn Cut>>>,
}

impl Signal {
    /// Whether a newer call was admitted. Wakes `cx` when that changes.
    pub(crate) fn poll_cancelled(&self, cx: &Context<'_>) -> bool {
        self.waker.register(cx.waker());
        self.is_cancelled()
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::SeqCst)
    }

    /// From now on the call is this body.
    pub(crate) fn set_body(&self, body: Weak<dyn Cut>) {
        *lock(&self.body) = Some(body);
    }

    fn cancel(&self) {
        self.cancelled.store(true, Ordering::SeqCst);
        let body = lock(&self.body).clone();
        if let Some(body) = body.and_then(|body| body.upgrade()) {
            body.cut();
        }
        self.waker.wake();
    }
}

#[derive(Default)]
struct Resource {
    calls: Calls,
    signals: HashMap<CallId, Arc<Signal>>,
}

#[derive(Default)]
struct Inner {
    next: CallId,
    resources: HashMap<Arc<str>, Resource>,
}

/// All calls under way. Costs nothing for a resource nobody calls.
#[derive(Default)]
pub(crate) struct Registry(Mutex<Inner>);

impl Registry {
    /// A call arrives; to be called *before* the store is asked.
    pub(crate) fn enter(self: &Arc<Self>, resource: Arc<str>, token: Token) -> Ticket {
        let signal = Arc::new(Signal::default());
        let mut inner = lock(&self.0);
        let id = inner.next;
        inner.next += 1;
        let entry = inner.resources.entry(resource.clone()).or_default();
        entry.calls.enter(id, token);
        entry.signals.insert(id, signal.clone());
        Ticket {
            registry: self.clone(),
            resource,
            id,
            signal,
        }
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        lock(&self.0).resources.is_empty()
    }
}

/// One call's place. Drop it only after everything that could still write is gone.
pub(crate) struct Ticket {
    registry: Arc<Registry>,
    resource: Arc<str>,
    id: CallId,
    signal: Arc<Signal>,
}

impl Ticket {
    pub(crate) fn signal(&self) -> &Arc<Signal> {
        &self.signal
    }

    /// The store said yes: cancels all older calls.
    pub(crate) fn admit(&self) {
        let cancelled: Vec<Arc<Signal>> = {
            let mut inner = lock(&self.registry.0);
            let Some(entry) = inner.resources.get_mut(&self.resource) else {
                return;
            };
            let ids = entry.calls.admit(self.id);
            ids.iter()
                .filter_map(|id| entry.signals.get(id).cloned())
                .collect()
        };
        // Outside of the lock: a body that is cut drops its ticket, which takes the lock.
        for signal in cancelled {
            signal.cancel();
        }
    }

    /// Ready when the call may run (true) or is cancelled (false).
    ///
    /// Dropping it leaves nothing behind.
    pub(crate) async fn turn(&self) -> bool {
        poll_fn(|cx| {
            self.signal.waker.register(cx.waker());
            match self.turn_now() {
                Turn::Run => Poll::Ready(true),
                Turn::Cancelled => Poll::Ready(false),
                Turn::Wait => Poll::Pending,
            }
        })
        .await
    }

    pub(crate) fn turn_now(&self) -> Turn {
        let inner = lock(&self.registry.0);
        match inner.resources.get(&self.resource) {
            Some(entry) => entry.calls.turn(self.id),
            None => Turn::Cancelled,
        }
    }

    /// Runs `work` until it ends or the call is cancelled; then `None`, and `work` has been dropped.
    pub(crate) async fn until_cancelled<F: Future>(&self, work: F) -> Option<F::Output> {
        let mut work = pin!(work);
        poll_fn(|cx| {
            if self.signal.poll_cancelled(cx) {
                return Poll::Ready(None);
            }
            work.as_mut().poll(cx).map(Some)
        })
        .await
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let waiting: Vec<Arc<Signal>> = {
            let mut inner = lock(&self.registry.0);
            let Some(entry) = inner.resources.get_mut(&self.resource) else {
                return;
            };
            let was_cancelled = entry.calls.leave(self.id);
            entry.signals.remove(&self.id);
            if entry.calls.is_empty() {
                inner.resources.remove(&self.resource);
                return;
            }
            // Only a cancelled call keeps others waiting. Its signal does not say it: that is set later.
            if was_cancelled {
                entry.signals.values().cloned().collect()
            } else {
                Vec::new()
            }
        };
        for signal in waiting {
            signal.waker.wake();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(n: u64) -> Token {
        Token::new(n).unwrap()
    }

    /// A body that does something when it is cut.
    struct WhenCut(Mutex<Option<Box<dyn FnOnce() + Send>>>);

    impl Cut for WhenCut {
        fn cut(&self) {
            let todo = lock(&self.0).take();
            if let Some(todo) = todo {
                todo();
            }
        }
    }

    #[test]
    fn who_waits_is_woken_also_by_an_older_call_that_leaves_before_it_has_heard_of_its_end() {
        let registry = Arc::new(Registry::default());
        let enter = |n| registry.enter("a".into(), token(n));
        let (first, second, new) = (enter(1), enter(1), enter(2));
        let (signal, also_new) = (first.signal().clone(), Arc::new(enter(2)));
        let woken = Arc::new(AtomicBool::new(false));

        // Both are cancelled by one step; while the first hears of it, a second call of the new owner
        // begins to wait, and the second old call ends by itself.
        let body: Arc<dyn Cut> = Arc::new(WhenCut(Mutex::new(Some(Box::new({
            let (also_new, woken) = (also_new.clone(), woken.clone());
            move || {
                let waker = futures_util::task::waker(Arc::new(Woken(woken.clone())));
                let mut cx = Context::from_waker(&waker);
                let mut turn = pin!(also_new.turn());
                also_new.admit();
                assert!(turn.as_mut().poll(&mut cx).is_pending());
                drop(first);
                assert!(turn.as_mut().poll(&mut cx).is_pending());
                woken.store(false, Ordering::SeqCst);
                drop(second);
                assert!(woken.load(Ordering::SeqCst), "nobody is left to wake it");
            }
        })))));
        signal.set_body(Arc::downgrade(&body));
        new.admit();
        assert!(lock(&registry.0).resources.len() == 1 && also_new.turn_now() == Turn::Run);
    }

    struct Woken(Arc<AtomicBool>);

    impl futures_util::task::ArcWake for Woken {
        fn wake_by_ref(woken: &Arc<Self>) {
            woken.0.store(true, Ordering::SeqCst);
        }
    }

    #[test]
    fn a_resource_nobody_calls_costs_nothing() {
        let registry = Arc::new(Registry::default());
        let old = registry.enter("a".into(), token(1));
        let new = registry.enter("a".into(), token(2));
        let other = registry.enter("b".into(), token(1));
        new.admit();
        assert_eq!(new.turn_now(), Turn::Wait);
        drop(old);
        assert_eq!(new.turn_now(), Turn::Run);
        drop((new, other));
        assert!(registry.is_empty());
    }
}
