//! The response future: leads, follows, goes alone or passes through.

use std::fmt;
use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use pin_project_lite::pin_project;
use tower_claim::http::is_grpc;
use tower_claim::{Code, Refusal};
use tower_service::Service;

use super::answer::{Answer, ForOthers, Led, Slot};
use super::body::FlightBody;
use super::launch::FlightLaunch;
use super::learned::Lesson;
use super::limit::Permit;
use super::observe::Watch;
use crate::call::{Call, Role};
use crate::caller::Caller;
use crate::core::{Core, Flown};
use crate::error::FlightError;
use crate::oneshot::Oneshot;

pub(super) type HttpCore<R, E> = Core<Vec<u8>, Arc<Answer<R>>, Slot<E>, Led<R>>;
type HttpCall<S, B, R, E> = Call<Vec<u8>, Arc<Answer<R>>, Slot<E>, Led<R>, Box<FlightLaunch<S, B>>>;

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
