//! The request's row on the board, where there is one (feature `stage`).

#[cfg(feature = "stage")]
mod board {
    use std::sync::OnceLock;

    use http::Extensions;
    use tower_claim::Key;
    use tower_stage::{Stage, StageHandle, WaitReason};

    #[derive(Clone)]
    pub(crate) struct Row(StageHandle);

    impl Row {
        pub(crate) fn of(extensions: &Extensions) -> Self {
            Self(StageHandle::of(extensions))
        }

        /// Shows, until the guard is dropped, that the request waits for the first run under this key.
        pub(crate) fn waits_for(&self, key: Key) -> impl Sized + Send + use<> {
            self.0.wait_on(WaitReason::Replay, key.prefix())
        }

        /// Shows, until the guard is dropped, that the request waits for the store's answer to this call.
        pub(crate) fn asks_the_store(&self, call: &'static str) -> impl Sized + Send + use<> {
            static STORE: OnceLock<Option<WaitReason>> = OnceLock::new();
            // All places for names may be taken: then it is not shown.
            let reason = STORE.get_or_init(|| WaitReason::register("store").ok());
            reason.map(|reason| self.0.wait_on(reason, call))
        }

        /// The request may run, and does.
        pub(crate) fn runs(&self) {
            self.0.mark(Stage::Validated);
        }

        pub(crate) fn rejected(&self) {
            self.0.rejected();
        }

        pub(crate) fn panicked(&self) {
            self.0.panicked();
        }

        /// Deep code inside `future` marks this row.
        pub(crate) fn scope<F: Future>(self, future: F) -> impl Future<Output = F::Output> {
            self.0.scope(future)
        }
    }
}

#[cfg(not(feature = "stage"))]
mod board {
    use http::Extensions;
    use tower_claim::Key;

    #[derive(Clone)]
    pub(crate) struct Row;

    #[expect(clippy::unused_self, reason = "the twin of the row with the feature")]
    impl Row {
        pub(crate) fn of(_: &Extensions) -> Self {
            Self
        }

        pub(crate) fn waits_for(&self, _: Key) -> impl Sized + Send + use<> {}

        pub(crate) fn asks_the_store(&self, _: &'static str) -> impl Sized + Send + use<> {}

        pub(crate) fn runs(&self) {}

        pub(crate) fn rejected(&self) {}

        pub(crate) fn panicked(&self) {}

        pub(crate) fn scope<F: Future>(self, future: F) -> impl Future<Output = F::Output> {
            future
        }
    }
}

pub(crate) use board::Row;
