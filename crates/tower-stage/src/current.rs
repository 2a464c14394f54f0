//! The handle of the request that this thread polls.

use std::cell::RefCell;
use std::mem;

use crate::StageHandle;

thread_local! {
    static CURRENT: RefCell<StageHandle> = const { RefCell::new(StageHandle::inert()) };
}

/// `None` while the thread's locals are being torn down.
pub(crate) fn with<T>(f: impl FnOnce(&StageHandle) -> T) -> Option<T> {
    CURRENT
        .try_with(|current| current.try_borrow().ok().map(|current| f(&current)))
        .ok()
        .flatten()
}

/// Runs `f` with `handle` as the current one. The handle is moved in and out again: no reference is
/// counted on this path, which is every poll's. Inlined, since the `f` of a call owns the request, which
/// would be copied into it.
#[inline(always)]
pub(crate) fn enter<T>(handle: &mut StageHandle, f: impl FnOnce() -> T) -> T {
    swap(handle);
    let _restored = Entered(handle);
    f()
}

/// Restores on unwinding too, else a panicking request would stay current on this thread.
struct Entered<'a>(&'a mut StageHandle);

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        swap(self.0);
    }
}

fn swap(handle: &mut StageHandle) {
    let _ = CURRENT.try_with(|current| {
        if let Ok(mut current) = current.try_borrow_mut() {
            mem::swap(&mut *current, handle);
        }
    });
}
