//! What became of a write, also when its call was cut off.

use std::sync::{Arc, OnceLock};

use axum::Json;
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use serde_json::json;
use tower_claim::{Refusal, Token};

/// The token it was written under.
type Written = Result<Token, Refusal>;

/// Where a write is to be found by whoever must answer for it.
///
/// The fence drops an older call when it admits a newer token. A write that is on its way to an engine cannot
/// be taken back by that: it would stand, and its writer had heard "stale". So it runs to its end, as a task of
/// its own, and its caller is answered what the engine said. Nothing is lost by it: the engine judges the
/// token once more, in one step with the write.
#[derive(Debug, Clone, Default)]
pub(super) struct Outcome(Arc<OnceLock<Shared<BoxFuture<'static, Written>>>>);

impl Outcome {
    /// Starts the write, and answers for it. Where this is dropped, the write goes on.
    pub(super) async fn begin(
        &self,
        write: impl Future<Output = Written> + Send + 'static,
    ) -> Response {
        let write = self.0.get_or_init(|| write.boxed().shared()).clone();
        tokio::spawn(write.clone());
        answer(write.await)
    }

    /// The answer of a write that was begun.
    pub(super) async fn told(&self) -> Option<Response> {
        let write = self.0.get()?.clone();
        Some(answer(write.await))
    }
}

fn answer(written: Written) -> Response {
    match written {
        Ok(token) => Json(json!({ "high_water": token.get() })).into_response(),
        Err(refusal) => refusal.to_response(false).map(Body::from),
    }
}

#[cfg(test)]
mod tests {
    use http::StatusCode;
    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn a_write_whose_call_was_cut_off_is_answered_for() {
        let outcome = Outcome::default();
        let (go_on, told) = oneshot::channel::<()>();
        let (done, ended) = oneshot::channel();
        let mut call = Box::pin(outcome.begin(async {
            let _ = told.await;
            let _ = done.send(());
            Ok(Token::ZERO)
        }));
        assert!(call.as_mut().now_or_never().is_none(), "it is on its way");
        drop(call);
        go_on.send(()).expect("it is still there");
        ended.await.expect("it ends though nobody waits");
        let answer = outcome.told().await.expect("it was begun");
        assert_eq!(answer.status(), StatusCode::OK);
    }

    #[tokio::test]
    async fn a_write_that_never_began_has_no_answer_of_its_own() {
        assert!(Outcome::default().told().await.is_none());
    }
}
