//! What becomes of an upload that streams.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// Of the whole body of an upload; under the layer's secret, where it has one.
pub(crate) type UploadDigest = [u8; 32];

/// What becomes of an upload that streams: told by the body, which its handler has. By default nothing can: it was
/// read before.
#[derive(Debug, Clone, Default)]
pub(crate) struct UploadFate(Option<Arc<Fate>>);

#[derive(Debug, Default)]
struct Fate {
    failed: AtomicBool,
    digest: OnceLock<UploadDigest>,
}

impl UploadFate {
    /// Of an upload that streams.
    pub(crate) fn open() -> Self {
        Self(Some(Arc::default()))
    }

    /// Of one that was read to its end before.
    pub(crate) fn known(digest: UploadDigest) -> Self {
        let fate = Self::open();
        fate.is(digest);
        fate
    }

    /// What the handler answers then is no outcome to keep.
    pub(crate) fn has_failed(&self) -> bool {
        self.0
            .as_ref()
            .is_some_and(|fate| fate.failed.load(Ordering::Acquire))
    }

    /// Once it was read to its end, where its fingerprint does not know it.
    pub(crate) fn digest(&self) -> Option<UploadDigest> {
        self.0.as_ref()?.digest.get().copied()
    }

    pub(super) fn fails(&self) {
        if let Some(fate) = &self.0 {
            fate.failed.store(true, Ordering::Release);
        }
    }

    pub(super) fn is(&self, digest: UploadDigest) {
        if let Some(fate) = &self.0 {
            let _ = fate.digest.set(digest);
        }
    }
}
