//! What a leader's call takes along of its task.

use std::fmt;
use std::future::Future;
use std::panic::resume_unwind;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use tokio::sync::oneshot;
use tower_claim::Carry;

/// An allow-list: nothing else of one caller's task is seen by a call that others share.
#[derive(Clone, Default)]
pub(crate) struct Carries(Vec<Arc<dyn Carry>>);

impl Carries {
    pub(crate) fn add(&mut self, carry: impl Carry) {
        self.0.push(Arc::new(carry));
    }

    /// On the leader's task, when its call begins: who promotes the call later is another caller, and what
    /// it carries is not the leader's.
    pub(crate) fn take_along<F>(&self, call: F) -> BoxFuture<'static, F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        if self.0.is_empty() {
            return Box::pin(call);
        }
        let (tell, mut told) = oneshot::channel();
        let work: BoxFuture<'static, ()> = Box::pin(async move {
            let _ = tell.send(call.await);
        });
        let work = self.0.iter().fold(work, |work, c| c.carry(work));
        Box::pin(async move {
            work.await;
            match told.try_recv() {
                Ok(output) => output,
                // As if the call itself had panicked, so that all who wait are told.
                Err(_) => resume_unwind(Box::new("a `Carry` dropped the work it was given")),
            }
        })
    }
}

impl fmt::Debug for Carries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} carried", self.0.len())
    }
}
