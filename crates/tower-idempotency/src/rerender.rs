//! Answering repeats of work whose response was not kept.

use std::fmt;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use http::request::Parts;
use http::{HeaderMap, Response, StatusCode};
use tower_claim::http::is_grpc;

use crate::accepts::Accepts;
use crate::counts::Counters;
use crate::made::MadeAnswer;
use crate::record::KeptResponse;
use crate::reply::Reply;
use crate::shared::Shared;
use crate::shown;

/// A repeat of work that is done and whose response was not kept, as
/// [`on_not_kept`](crate::IdempotencyBuilder::on_not_kept) sees it.
pub struct NotKept {
    parts: Parts,
    head: Option<KeptResponse>,
}

impl NotKept {
    /// The head of the repeat.
    pub fn request(&self) -> &Parts {
        &self.parts
    }

    /// The status of the first answer; `None` where not even that was kept.
    pub fn status(&self) -> Option<StatusCode> {
        self.head.as_ref().map(|head| head.status)
    }

    /// The headers of the first answer that are kept by the layer's rules; `None` like the status.
    pub fn headers(&self) -> Option<&HeaderMap> {
        self.head.as_ref().map(|head| &head.headers)
    }

    /// When the first run that is known of began, since the Unix epoch; `None` like the status.
    pub fn first_seen(&self) -> Option<Duration> {
        self.head.as_ref().and_then(|head| head.first_seen)
    }
}

impl fmt::Debug for NotKept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NotKept")
            .field("request", &shown::Asked(&self.parts))
            .field("status", &self.status())
            .field("headers", &self.headers().map(shown::Names))
            .field("first_seen", &self.first_seen())
            .finish()
    }
}

type Hook = dyn Fn(NotKept) -> BoxFuture<'static, Option<Response<Bytes>>> + Send + Sync;

/// The hook.
#[derive(Clone)]
pub(crate) struct OnNotKept(Arc<Hook>);

impl OnNotKept {
    pub(crate) fn new<F>(hook: impl Fn(NotKept) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Option<Response<Bytes>>> + Send + 'static,
    {
        Self(Arc::new(move |not_kept| Box::pin(hook(not_kept))))
    }

    async fn render(&self, parts: Parts, head: Option<KeptResponse>, counters: &Counters) -> Reply {
        let first_seen = head.as_ref().and_then(|head| head.first_seen);
        let to_grpc = is_grpc(&parts.headers);
        let not_kept = NotKept { parts, head };
        let hook = &self.0;
        let asked = AssertUnwindSafe(async move { hook(not_kept).await }).catch_unwind();
        let response = match asked.await {
            Ok(Some(response)) => response,
            Ok(None) => return Reply::NotKept(None),
            Err(_panic) => {
                counters.meter.hook_panicked(None, "on_not_kept");
                return Reply::NotKept(None);
            }
        };
        counters.rendered.add();
        Reply::Rendered(MadeAnswer::of(response, to_grpc).into_kept(first_seen))
    }
}

impl Shared {
    /// What this request is told, and counted as: in other words, where its response was not kept, or is in a coding that
    /// this request does not accept, and there is a hook.
    pub(crate) async fn tell(
        &self,
        reply: Reply,
        accepts: &Accepts,
        asked: Option<Parts>,
    ) -> Reply {
        let reply = match reply {
            Reply::Replay(kept) if !accepts.reads(&kept) => Reply::NotKept(Some(kept)),
            reply => reply,
        };
        let told = match (reply, &self.on_not_kept, asked) {
            (Reply::NotKept(head), Some(hook), Some(parts)) => {
                hook.render(parts, head, &self.counters).await
            }
            (reply, ..) => reply,
        };
        match &told {
            Reply::Replay(_) => self.counters.replays.add(),
            Reply::NotKept(_) => self.counters.not_kept.add(),
            _ => {}
        }
        told
    }
}

impl fmt::Debug for OnNotKept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnNotKept")
    }
}
