//! The response future: leads, follows, goes alone or passes through.

use std::fmt;
use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderName, Method, Request, Response};
use http_body::Body;
use pin_project_lite::pin_project;
use tower_claim::http::is_grpc;
use tower_claim::{Code, Refusal};
use tower_service::Service;

use super::aloft::take_off;
use super::answer::{Answer, ForOthers, Led, Slot};
use super::body::FlightBody;
use super::layer::Shared;
use super::learned::Lesson;
use super::limit::Permit;
use super::observe::Watch;
use super::present::Headers;
use super::request::KeyRule;
use crate::call::{Call, Launch, Role};
use crate::caller::Caller;
use crate::core::{Core, Flown};
use crate::error::FlightError;
use crate::oneshot::Oneshot;

pub(super) type HttpCore<R, E> = Core<Vec<u8>, Arc<Answer<R>>, Slot<E>, Led<R>>;
type HttpCall<S, B, R, E> = Call<Vec<u8>, Arc<Answer<R>>, Slot<E>, Led<R>, Box<FlightLaunch<S, B>>>;

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
    fn into_call(mut self) -> Oneshot<S, Request<B>>
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

pin_project! {
    /// The future of a [`SingleFlightService`](super::SingleFlightService). Dropping it leaves the flight:
    /// the call goes on while anybody else waits for it, else it is dropped, too.
    pub struct ResponseFuture<S, B, R>
    where
        S: Service<Request<B>>,
        R: Body,
    {
        #[pin]
        state: State<S, B, R, S::Error>,
    }
}

/// What a call holds until its head is there.
enum UntilHead {
    Nothing,
    Permit(#[expect(dead_code, reason = "its drop gives it back")] Permit),
    Watch(Watch),
}

pin_project! {
    #[project = StateProj]
    enum State<S, B, R, E>
    where
        S: Service<Request<B>>,
        R: Body,
    {
        Pass { #[pin] call: Oneshot<S, Request<B>>, until_head: UntilHead },
        Fly { call: HttpCall<S, B, R, E>, regrouped: bool },
        Answer { response: Option<Response<FlightBody<R>>> },
    }
}

impl<S, B, R> ResponseFuture<S, B, R>
where
    S: Service<Request<B>>,
    R: Body,
{
    pub(super) fn pass(service: S, request: Request<B>) -> Self {
        Self::holding(service, request, UntilHead::Nothing)
    }

    pub(super) fn watched(service: S, request: Request<B>, watch: Option<Watch>) -> Self {
        let until_head = watch.map_or(UntilHead::Nothing, UntilHead::Watch);
        Self::holding(service, request, until_head)
    }

    fn holding(service: S, request: Request<B>, until_head: UntilHead) -> Self {
        let call = Oneshot::new(service, request);
        Self {
            state: State::Pass { call, until_head },
        }
    }

    pub(super) fn fly(call: HttpCall<S, B, R, S::Error>) -> Self {
        Self {
            state: State::Fly {
                call,
                regrouped: false,
            },
        }
    }
}

impl<S, B, R> Future for ResponseFuture<S, B, R>
where
    S: Service<Request<B>, Response = Response<R>> + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
    B: Send + 'static,
    R: Body<Data = Bytes> + Send + 'static,
    R::Error: Send,
{
    type Output = Result<Response<FlightBody<R>>, S::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.project().state;
        loop {
            let next = match state.as_mut().project() {
                StateProj::Pass { call, until_head } => {
                    let response = ready!(call.poll(cx));
                    let held = mem::replace(until_head, UntilHead::Nothing);
                    return Poll::Ready(response.map(|response| {
                        let (parts, body) = response.into_parts();
                        if let UntilHead::Watch(watch) = held {
                            watch.head(&parts);
                        }
                        Response::from_parts(parts, FlightBody::inner(body))
                    }));
                }
                StateProj::Answer { response } => match response.take() {
                    Some(response) => return Poll::Ready(Ok(response)),
                    // Polled after its end.
                    None => return Poll::Pending,
                },
                StateProj::Fly { call, regrouped } => {
                    let landed = ready!(Pin::new(&mut *call).poll(cx));
                    let leads = call.role() == Role::Leader;
                    match landed {
                        Ok(Flown::Alone(led)) => {
                            return Poll::Ready(Ok(led.response.map(FlightBody::inner)));
                        }
                        Ok(Flown::Shared(answer)) if leads => State::Answer {
                            response: answer.own.take(),
                        },
                        Ok(Flown::Shared(answer)) => follow(call, &answer, *regrouped),
                        Err(FlightError::Failed(error)) if leads => match error.take() {
                            Some(error) => return Poll::Ready(Err(error)),
                            None => refuse(None, Code::UpstreamFailed),
                        },
                        // Not in a runtime: nothing can be shared there.
                        Err(FlightError::NoRuntime) => go_alone(call.take_launch()),
                        Err(error) => refuse(call.take_launch().as_deref(), error.code()),
                    }
                }
            };
            state.set(next);
        }
    }
}

/// The flight has landed: does its answer serve this follower?
fn follow<S, B, R>(
    call: &mut HttpCall<S, B, R, S::Error>,
    answer: &Answer<R>,
    regrouped: bool,
) -> State<S, B, R, S::Error>
where
    S: Service<Request<B>>,
    R: Body<Data = Bytes>,
{
    let Some(launch) = call.take_launch() else {
        return refuse::<S, B, R>(None, Code::UpstreamFailed);
    };
    let master = match &answer.for_others {
        ForOthers::Broken => return refuse(Some(&launch), Code::UpstreamFailed),
        ForOthers::Alone => {
            launch.learn(Lesson::Alone);
            return go_alone(Some(launch));
        }
        ForOthers::Master(master) => master,
    };
    if master.serves(&launch.shared.rule, &launch.parts.headers) {
        return State::Answer {
            response: Some(master.copy()),
        };
    }
    match launch.vary_key(&master.varies_by) {
        // With its own kind, in parallel with the other kinds.
        Some(key) if !regrouped => State::Fly {
            call: call.again(key, launch),
            regrouped: true,
        },
        _ => go_alone(Some(launch)),
    }
}

impl<S, B> FlightLaunch<S, B> {
    fn learn(&self, lesson: Lesson) -> Option<Vec<u8>> {
        let key = self
            .shared
            .rule
            .key(&self.parts, Headers::of(&self.parts.headers))?;
        let now = self.shared.sharing.clock.now();
        self.shared.learned.learn(&key, lesson, now);
        Some(key)
    }

    /// Remembers what this key's answers vary by, and makes the finer key.
    fn vary_key(&self, names: &[HeaderName]) -> Option<Vec<u8>> {
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

fn go_alone<S, B, R>(launch: Option<Box<FlightLaunch<S, B>>>) -> State<S, B, R, S::Error>
where
    S: Service<Request<B>>,
    R: Body<Data = Bytes>,
{
    let Some(launch) = launch else {
        return refuse::<S, B, R>(None, Code::Overloaded);
    };
    let counters = &launch.shared.cores.counters;
    match launch.shared.alone.try_take() {
        Some(permit) => {
            counters.alone.add();
            State::Pass {
                call: launch.into_call(),
                until_head: UntilHead::Permit(permit),
            }
        }
        None => {
            counters.overloaded.add();
            refuse(Some(&launch), Code::Overloaded)
        }
    }
}

fn refuse<S, B, R>(launch: Option<&FlightLaunch<S, B>>, code: Code) -> State<S, B, R, S::Error>
where
    S: Service<Request<B>>,
    R: Body<Data = Bytes>,
{
    Caller::current().refused(code);
    let refusal = Refusal::new(code);
    let grpc = launch.is_some_and(|launch| is_grpc(&launch.parts.headers));
    let mut response = refusal.to_response(grpc);
    if let Some(render) = launch.and_then(|launch| launch.shared.render.as_ref()) {
        response = render(&refusal, response);
    }
    State::Answer {
        response: Some(response.map(|bytes| FlightBody::whole(Some(bytes), None))),
    }
}

impl<S, B, R> fmt::Debug for ResponseFuture<S, B, R>
where
    S: Service<Request<B>>,
    R: Body,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
