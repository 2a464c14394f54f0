//! The service.

use std::fmt;
use std::future::poll_fn;
use std::mem;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::request::Parts;
use http::{Request, Response};
use tower_claim::Moment;
use tower_claim::http::Mode;
use tower_service::Service;

use super::busy::come_back_after;
use super::call::LogicalCall;
use super::error::CallError;
use super::future::CallFuture;
use super::layer::Settings;
use super::repeat::{NoRepeat, RepeatBody};

/// Sends each logical call under one key. Made by [`IdempotencyKeyLayer`](crate::IdempotencyKeyLayer).
#[derive(Clone)]
pub struct IdempotencyKey<S, C = NoRepeat> {
    inner: S,
    settings: Arc<Settings>,
    repeat: C,
}

impl<S, C> IdempotencyKey<S, C> {
    pub(super) fn new(inner: S, settings: Arc<Settings>, repeat: C) -> Self {
        Self {
            inner,
            settings,
            repeat,
        }
    }

    /// The inner service.
    pub fn get_ref(&self) -> &S {
        &self.inner
    }
}

impl<S, C, B, R> Service<Request<B>> for IdempotencyKey<S, C>
where
    S: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Send + 'static,
    C: RepeatBody<B>,
    B: Send + 'static,
    R: Send + 'static,
{
    type Response = Response<R>;
    type Error = CallError<S::Error>;
    type Future = CallFuture<S::Future, Response<R>, S::Error>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx).map_err(CallError::Inner)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (mut parts, body) = request.into_parts();
        if self.settings.gate.mode(&parts) != Mode::On {
            return CallFuture::once(self.inner.call(Request::from_parts(parts, body)));
        }
        let now = self.settings.clock.now();
        self.settings.stamp(&mut parts, now);
        if let Some(age) = self.settings.age(&parts, now)
            && age >= self.settings.oldest
        {
            // What was polled ready may hold a place, and nobody calls it now.
            self.inner = self.inner.clone();
            return CallFuture::expired(age);
        }
        let Some(wait) = self.settings.wait else {
            return CallFuture::once(self.inner.call(Request::from_parts(parts, body)));
        };
        // The service that was polled ready goes into the call, a fresh clone takes its place: the clone has not
        // been polled, and calling it instead would break its contract.
        let fresh = self.inner.clone();
        let ready = mem::replace(&mut self.inner, fresh);
        let attempts = Attempts {
            service: ready,
            settings: Arc::clone(&self.settings),
            repeat: self.repeat.clone(),
            parts,
            until: now + wait,
        };
        CallFuture::waiting(Box::pin(attempts.run(body)))
    }
}

impl Settings {
    fn stamp(&self, parts: &mut Parts, now: Moment) {
        if parts.headers.contains_key(&self.header) {
            return;
        }
        let call = parts.extensions.get_or_insert_default::<LogicalCall>();
        let value = call.value(self.form, &*self.entropy, now);
        parts.headers.insert(self.header.clone(), value);
    }

    /// How old the key of this request is, where a layer of ours drew it.
    fn age(&self, parts: &Parts, now: Moment) -> Option<Duration> {
        let value = parts.headers.get(&self.header)?;
        parts.extensions.get::<LogicalCall>()?.age(value, now)
    }
}

/// The attempts of one call while its first one is still running at the server.
struct Attempts<S, C> {
    /// Polled ready.
    service: S,
    settings: Arc<Settings>,
    repeat: C,
    parts: Parts,
    until: Moment,
}

impl<S, C> Attempts<S, C> {
    async fn run<B, R>(mut self, body: B) -> Result<Response<R>, CallError<S::Error>>
    where
        S: Service<Request<B>, Response = Response<R>>,
        C: RepeatBody<B>,
    {
        let (mut body, source) = self.repeat.begin(body).await;
        loop {
            let request = Request::from_parts(self.parts.clone(), body);
            let response = self.service.call(request).await.map_err(CallError::Inner)?;
            let (Some(after), Some(source)) = (come_back_after(&response), &source) else {
                return Ok(response);
            };
            let clock = &self.settings.clock;
            // Who is told to come back later than the limit comes at the limit, once: the run may be over long before
            // its lease, of which `Retry-After` is the rest.
            let now = clock.now();
            let at = (now + after).min(self.until);
            let too_old = self
                .settings
                .age(&self.parts, at)
                .is_some_and(|age| age >= self.settings.oldest);
            if at <= now || too_old {
                return Ok(response);
            }
            let Some(again) = self.repeat.again(source) else {
                return Ok(response);
            };
            drop(response);
            clock.sleep_until(at).await;
            poll_fn(|cx| self.service.poll_ready(cx))
                .await
                .map_err(CallError::Inner)?;
            body = again;
        }
    }
}

impl<S: fmt::Debug, C> fmt::Debug for IdempotencyKey<S, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdempotencyKey")
            .field("inner", &self.inner)
            .finish_non_exhaustive()
    }
}
