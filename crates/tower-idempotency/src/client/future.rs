//! The future of a call.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::BoxFuture;
use pin_project_lite::pin_project;

use super::error::CallError;

pin_project! {
    /// The future of a call through [`IdempotencyKey`](crate::IdempotencyKey).
    ///
    /// # Cancellation
    ///
    /// A drop drops the attempt that is under way, if there is one. The server may have seen it; the same
    /// [`LogicalCall`](crate::LogicalCall) goes on under the same key.
    pub struct CallFuture<F, R, E> {
        #[pin]
        inner: Inner<F, R, E>,
    }
}

pin_project! {
    #[project = Projected]
    enum Inner<F, R, E> {
        Once {
            #[pin]
            call: F,
        },
        Expired {
            age: Duration,
        },
        Waiting {
            attempts: BoxFuture<'static, Result<R, CallError<E>>>,
        },
    }
}

impl<F, R, E> CallFuture<F, R, E> {
    pub(super) fn once(call: F) -> Self {
        Self {
            inner: Inner::Once { call },
        }
    }

    pub(super) fn expired(age: Duration) -> Self {
        Self {
            inner: Inner::Expired { age },
        }
    }

    pub(super) fn waiting(attempts: BoxFuture<'static, Result<R, CallError<E>>>) -> Self {
        Self {
            inner: Inner::Waiting { attempts },
        }
    }
}

impl<F, R, E> Future for CallFuture<F, R, E>
where
    F: Future<Output = Result<R, E>>,
{
    type Output = Result<R, CallError<E>>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project().inner.project() {
            Projected::Once { call } => call.poll(cx).map_err(CallError::Inner),
            Projected::Expired { age } => Poll::Ready(Err(CallError::KeyExpired { age: *age })),
            Projected::Waiting { attempts } => attempts.as_mut().poll(cx),
        }
    }
}

impl<F, R, E> fmt::Debug for CallFuture<F, R, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.inner {
            Inner::Once { .. } => "CallFuture::Once",
            Inner::Expired { .. } => "CallFuture::Expired",
            Inner::Waiting { .. } => "CallFuture::Waiting",
        })
    }
}
