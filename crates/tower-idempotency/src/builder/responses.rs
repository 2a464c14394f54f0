//! Which answers are kept, and what of them.

use std::future::Future;
use std::sync::Arc;

use bytes::Bytes;
use http::response::Parts;
use http::{HeaderMap, HeaderName, Response, StatusCode};

use super::IdempotencyBuilder;
use crate::outcome::Outcome;
use crate::rerender::{NotKept, OnNotKept};

impl IdempotencyBuilder {
    /// The largest response body that is kept, in bytes. Of a larger one, or an endless one, only the fact
    /// is kept that the work is done: a repeat is told so (409 `response-not-kept`). The same where it comes in so many
    /// small frames that they take eight times as much beside their data, at 128 bytes each. Default: 1 MiB.
    pub fn max_response_body(mut self, bytes: usize) -> Self {
        self.max_response_body = bytes;
        self
    }

    /// Keeps a response header, or trailer, that is dropped by default (dates, cookies, challenges, traces, quotas).
    /// Of what belongs to one message only (`Content-Length`, `Transfer-Encoding`, `Connection`, …) nothing may be
    /// kept: `build` refuses it. Default: none of them.
    ///
    /// ```
    /// use http::header::SET_COOKIE;
    /// use tower_claim::MemoryStore;
    /// use tower_idempotency::IdempotencyLayer;
    ///
    /// let layer = IdempotencyLayer::builder(MemoryStore::new())
    ///     .keep_header(SET_COOKIE) // whoever repeats the request is given the session, too
    ///     .build()?;
    /// # let _ = layer;
    /// # Ok::<(), tower_claim::ConfigError>(())
    /// ```
    pub fn keep_header(mut self, name: HeaderName) -> Self {
        self.headers.keep(name);
        self
    }

    /// Keeps these response headers and trailers only, and those of [`keep_header`](Self::keep_header).
    /// `Content-Type`, `Content-Encoding` and gRPC's status need not be named. Default: all but those that
    /// [are dropped](Self::drop_header).
    ///
    /// ```
    /// use http::header::{ETAG, LOCATION};
    /// use tower_claim::MemoryStore;
    /// use tower_idempotency::IdempotencyLayer;
    ///
    /// let layer = IdempotencyLayer::builder(MemoryStore::new())
    ///     .keep_headers_only([LOCATION, ETAG])
    ///     .build()?;
    /// # let _ = layer;
    /// # Ok::<(), tower_claim::ConfigError>(())
    /// ```
    pub fn keep_headers_only(mut self, names: impl IntoIterator<Item = HeaderName>) -> Self {
        self.headers.only(names.into_iter().collect());
        self
    }

    /// Drops a response header, or trailer, from replays. Default: hop-by-hop fields, framing, dates, cookies,
    /// challenges, traces and quotas are dropped; this adds to them.
    ///
    /// ```
    /// use http::HeaderName;
    /// use tower_claim::MemoryStore;
    /// use tower_idempotency::IdempotencyLayer;
    ///
    /// let layer = IdempotencyLayer::builder(MemoryStore::new())
    ///     .drop_header(HeaderName::from_static("x-served-by"))
    ///     .build()?;
    /// # let _ = layer;
    /// # Ok::<(), tower_claim::ConfigError>(())
    /// ```
    pub fn drop_header(mut self, name: HeaderName) -> Self {
        self.headers.drop(name);
        self
    }

    /// Which answers are outcomes to keep, by their status. [`NoEffect`](crate::NoEffect), an [`Outcome`] of the
    /// handler's own, [`outcome_if`](Self::outcome_if) and the point of no return go before it; gRPC calls are judged
    /// by their [gRPC status](Self::grpc_outcome). A rule that panics, behind the work, does not free the key: the answer
    /// is sent, and kept as a [tombstone](Outcome::Tombstone). Default: [`default_outcome`](crate::default_outcome).
    ///
    /// ```
    /// use tower_claim::MemoryStore;
    /// use tower_idempotency::{IdempotencyLayer, Outcome, default_outcome};
    ///
    /// // A 404 may be there tomorrow.
    /// let layer = IdempotencyLayer::builder(MemoryStore::new())
    ///     .outcome(|status| match status.as_u16() {
    ///         404 => Outcome::Release,
    ///         _ => default_outcome(status),
    ///     })
    ///     .build()?;
    /// # let _ = layer;
    /// # Ok::<(), tower_claim::ConfigError>(())
    /// ```
    pub fn outcome(mut self, rule: impl Fn(StatusCode) -> Outcome + Send + Sync + 'static) -> Self {
        self.outcome.by_status = Arc::new(rule);
        self
    }

    /// Adds a rule that sees the head of an answer: its status, headers and extensions. The first rule that says
    /// something decides; then [`outcome`](Self::outcome) or [`grpc_outcome`](Self::grpc_outcome) does. Default: none.
    ///
    /// Extractors of axum refuse (400, 415, 422) inside of this layer and cannot say [`NoEffect`](crate::NoEffect): without a
    /// rule such an answer is kept, and a client that mends its body under the same key is told that it was reused.
    /// `matches!(answer.status.as_u16(), 400 | 415 | 422).then_some(Outcome::Release)` frees the key; a handler that gives
    /// these answers behind an effect puts [`Outcome::Keep`] into their extensions, which goes first.
    ///
    /// ```
    /// use http::header::CACHE_CONTROL;
    /// use tower_claim::MemoryStore;
    /// use tower_idempotency::{IdempotencyLayer, Outcome};
    ///
    /// // What must not lie around anywhere is done once, but not kept.
    /// let layer = IdempotencyLayer::builder(MemoryStore::new())
    ///     .outcome_if(|answer| {
    ///         let secret = answer.headers.get(CACHE_CONTROL)? == "no-store";
    ///         (secret && answer.status.is_success()).then_some(Outcome::Tombstone)
    ///     })
    ///     .build()?;
    /// # let _ = layer;
    /// # Ok::<(), tower_claim::ConfigError>(())
    /// ```
    ///
    /// A handler of tonic's that fails has no response to put a word into, but a status, which is in the extensions of
    /// what tonic makes of it, source included:
    ///
    /// ```
    /// # mod tonic {
    /// #     #[derive(Clone)] pub struct Status;
    /// #     impl Status { pub fn source(&self) -> Option<&(dyn std::error::Error + 'static)> { None } }
    /// # }
    /// # use std::error::Error;
    /// use tower_claim::MemoryStore;
    /// use tower_idempotency::{IdempotencyLayer, NoEffect, Outcome};
    ///
    /// // In the handler: `status.set_source(Arc::new(NoEffect)); return Err(status)`.
    /// let layer = IdempotencyLayer::builder(MemoryStore::new())
    ///     .outcome_if(|answer| {
    ///         let why = answer.extensions.get::<tonic::Status>()?.source()?;
    ///         why.is::<NoEffect>().then_some(Outcome::Release)
    ///     })
    ///     .build()?;
    /// # let _ = layer;
    /// # Ok::<(), tower_claim::ConfigError>(())
    /// ```
    pub fn outcome_if(
        mut self,
        rule: impl Fn(&Parts) -> Option<Outcome> + Send + Sync + 'static,
    ) -> Self {
        self.outcome.by_head.push(Arc::new(rule));
        self
    }

    /// Which answers of gRPC calls are outcomes to keep, by their status, which is in the trailers, or in the head of
    /// an answer that has nothing else. A call without a status broke off, and is never kept. Default:
    /// [`default_grpc_outcome`](crate::default_grpc_outcome).
    ///
    /// ```
    /// use tower_claim::MemoryStore;
    /// use tower_idempotency::{IdempotencyLayer, Outcome, default_grpc_outcome};
    ///
    /// const NOT_FOUND: u8 = 5;
    /// let layer = IdempotencyLayer::builder(MemoryStore::new())
    ///     .grpc_outcome(|status| match status {
    ///         NOT_FOUND => Outcome::Release,
    ///         _ => default_grpc_outcome(status),
    ///     })
    ///     .build()?;
    /// # let _ = layer;
    /// # Ok::<(), tower_claim::ConfigError>(())
    /// ```
    pub fn grpc_outcome(mut self, rule: impl Fn(u8) -> Outcome + Send + Sync + 'static) -> Self {
        self.outcome.by_grpc_status = Arc::new(rule);
        self
    }

    /// Says on each answer to a request with a key how it came about, as `Idempotency-Status`: `fresh`, `taken-over`
    /// (a run after one that lapsed), `replayed`, `rendered`, `reconciled`, `existing`; on a refusal its code, like `in-progress`.
    /// `ignored` where a key was sent and not looked at: the layer is switched off or only observes, or its gate leaves out the
    /// method, the route or the request. Who reads that knows that a repeat runs again; where a layer inside has told its own
    /// status, that stays. A request without a key is answered without. Default: off. (Replays carry
    /// `Idempotent-Replayed: true` and `Idempotency-First-Seen`, the time of the first run, either way. Where runs were lost
    /// before that answered, it is the time of the first that is known of: after a takeover, when the run before began;
    /// where the outcome was unknown, its last sign of life.)
    ///
    /// ```
    /// use tower_claim::MemoryStore;
    /// use tower_idempotency::IdempotencyLayer;
    ///
    /// let layer = IdempotencyLayer::builder(MemoryStore::new()).tell_status().build()?;
    /// # let _ = layer;
    /// # Ok::<(), tower_claim::ConfigError>(())
    /// ```
    pub fn tell_status(mut self) -> Self {
        self.tell_status = true;
        self
    }

    /// Stands down for another of its kind inside, in this process or in the service behind a gateway: an answer that
    /// says by its `Idempotency-Status` that it came about under a key there (`fresh`, `taken-over`, `replayed`, `rendered`,
    /// `reconciled`, `existing`) is passed on as it is and not kept here, too. This key is given back; a repeat goes on to
    /// the one inside, which has the answer, and may have it in the transaction of its work. What is left of this layer
    /// is that of concurrent requests one goes in. The one inside has to [tell its status](Self::tell_status), by the same
    /// key, and to be trusted with it: set this for services of your own. Default: off, each keeps what it sees.
    ///
    /// ```
    /// use tower_claim::MemoryStore;
    /// use tower_idempotency::IdempotencyLayer;
    ///
    /// let gateway = IdempotencyLayer::builder(MemoryStore::new()).stand_down().build()?;
    /// # let _ = gateway;
    /// # Ok::<(), tower_claim::ConfigError>(())
    /// ```
    pub fn stand_down(mut self) -> Self {
        self.stands_down = true;
        self
    }

    /// Answers repeats of work that is done and whose response was not kept (it was too big, endless, a
    /// [tombstone](Outcome::Tombstone), or the store had no room): for instance from the resource that the first run
    /// made. What it answers is marked as a replay, and is not kept. `None`, or a panic: 409 `response-not-kept` all the
    /// same. Of a gRPC call: its message as it is sent (five bytes before it), or nothing, and `grpc-status` in the head;
    /// behind a message it is sent as a trailer. Default: none.
    ///
    /// ```
    /// use bytes::Bytes;
    /// use http::{Response, header::LOCATION};
    /// use tower_claim::MemoryStore;
    /// use tower_idempotency::{IdempotencyLayer, NotKept};
    ///
    /// // Sends whoever asks again to what was made.
    /// async fn see_other(not_kept: NotKept) -> Option<Response<Bytes>> {
    ///     let made = not_kept.headers()?.get(LOCATION)?.clone();
    ///     let response = Response::builder().status(303).header(LOCATION, made);
    ///     response.body(Bytes::new()).ok()
    /// }
    ///
    /// let layer = IdempotencyLayer::builder(MemoryStore::new()).on_not_kept(see_other).build()?;
    /// # let _ = layer;
    /// # Ok::<(), tower_claim::ConfigError>(())
    /// ```
    pub fn on_not_kept<F>(mut self, hook: impl Fn(NotKept) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Option<Response<Bytes>>> + Send + 'static,
    {
        self.on_not_kept = Some(OnNotKept::new(hook));
        self
    }

    /// Takes what is secret out of a response before it is kept; the first caller is sent it as it is, and so is who
    /// asks first for what a hook of yours made. Of a tombstone it is given the head. A panic: nothing of the response is
    /// kept, and the work is done all the same. Of trailers nothing but `grpc-status` is kept then, unless
    /// [`redact_trailers`](Self::redact_trailers) says what of them may be. Default: nothing is taken out.
    ///
    /// ```
    /// use tower_claim::MemoryStore;
    /// use tower_idempotency::IdempotencyLayer;
    ///
    /// let layer = IdempotencyLayer::builder(MemoryStore::new())
    ///     .redact(|mut response| {
    ///         response.headers_mut().remove("x-one-time-token");
    ///         response
    ///     })
    ///     .build()?;
    /// # let _ = layer;
    /// # Ok::<(), tower_claim::ConfigError>(())
    /// ```
    pub fn redact(
        mut self,
        hook: impl Fn(Response<Bytes>) -> Response<Bytes> + Send + Sync + 'static,
    ) -> Self {
        self.redact.response = Some(Arc::new(hook));
        self
    }

    /// The same for trailers, where there are any: of gRPC, `grpc-message`, `grpc-status-details-bin` and what the
    /// handler adds. `grpc-status` is not given to it, and stays. A panic: as above. Default: all trailers are kept;
    /// with [`redact`](Self::redact) alone, none but `grpc-status`.
    ///
    /// ```
    /// use tower_claim::MemoryStore;
    /// use tower_idempotency::IdempotencyLayer;
    ///
    /// let layer = IdempotencyLayer::builder(MemoryStore::new())
    ///     .redact_trailers(|mut trailers| {
    ///         trailers.remove("x-one-time-token-bin");
    ///         trailers
    ///     })
    ///     .build()?;
    /// # let _ = layer;
    /// # Ok::<(), tower_claim::ConfigError>(())
    /// ```
    pub fn redact_trailers(
        mut self,
        hook: impl Fn(HeaderMap) -> HeaderMap + Send + Sync + 'static,
    ) -> Self {
        self.redact.trailers = Some(Arc::new(hook));
        self
    }

    /// Seals kept responses with the current key of this ring: who can read the store cannot read them, and who can
    /// write to it cannot make one up. An example is at [`KeyRing`](crate::KeyRing). Default: they are not sealed.
    #[cfg(feature = "aead")]
    pub fn seal_with(mut self, ring: crate::KeyRing) -> Self {
        self.seal = Some(ring);
        self
    }
}
