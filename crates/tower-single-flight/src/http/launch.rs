//! A caller's own call, before it is made.

use std::future::Future;
use std::sync::Arc;

use http::request::Parts;
use http::{HeaderName, Method, Request, Response};
use tower_service::Service;

use super::aloft::take_off;
use super::answer::{Led, Slot};
use super::layer::Shared;
use super::learned::Lesson;
use super::present::Headers;
use super::request::KeyRule;
use crate::call::Launch;
use crate::oneshot::Oneshot;

/// Most header names that one key learns to vary by. Beyond, its requests go alone.
const MOST_VARY: usize = 16;

/// A caller's own call, made or not. Boxed where it waits: a request's head is large, and is moved often.
pub(super) struct FlightLaunch<S, B> {
    pub(super) service: S,
    pub(super) parts: Parts,
    pub(super) body: B,
    pub(super) shared: Arc<Shared>,
}

impl<S, B> FlightLaunch<S, B> {
    pub(super) fn into_call(mut self) -> Oneshot<S, Request<B>>
    where
        S: Service<Request<B>>,
    {
        take_off(&mut self.parts.extensions, &self.shared);
        Oneshot::new(self.service, Request::from_parts(self.parts, self.body))
    }
}

impl<S, B, R> Launch for Box<FlightLaunch<S, B>>
where
    S: Service<Request<B>, Response = Response<R>> + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
    B: Send + 'static,
    R: Send + 'static,
{
    type Output = Led<R>;
    type Error = Slot<S::Error>;

    fn launch(self) -> impl Future<Output = Result<Led<R>, Slot<S::Error>>> + Send + 'static {
        let asked = self.shared.rule.asked(&self.parts.headers);
        let head = self.parts.method == Method::HEAD;
        let call = self.into_call();
        async move {
            let response = call.await.map_err(Slot::new)?;
            Ok(Led {
                response,
                asked,
                head,
            })
        }
    }
}

impl<S, B> FlightLaunch<S, B> {
    pub(super) fn learn(&self, lesson: Lesson) -> Option<Vec<u8>> {
        let key = self
            .shared
            .rule
            .key(&self.parts, Headers::of(&self.parts.headers))?;
        let now = self.shared.sharing.clock.now();
        self.shared.learned.learn(&key, lesson, now);
        Some(key)
    }

    /// Remembers what this key's answers vary by, and makes the finer key.
    pub(super) fn vary_key(&self, names: &[HeaderName]) -> Option<Vec<u8>> {
        let Shared {
            rule,
            learned,
            sharing,
            ..
        } = &*self.shared;
        let key = rule.key(&self.parts, Headers::of(&self.parts.headers))?;
        let mut names = names.to_vec();
        if let Some(Lesson::Vary(known)) = learned.recall(&key, || sharing.clock.now()) {
            names.extend(known.iter().cloned());
            names.sort_unstable_by(|a, b| a.as_str().cmp(b.as_str()));
            names.dedup();
        }
        if names.len() > MOST_VARY {
            self.learn(Lesson::Alone);
            return None;
        }
        let mut key = self.learn(Lesson::Vary(names.as_slice().into()))?;
        KeyRule::extend(&mut key, &self.parts.headers, &names);
        Some(key)
    }
}
