//! Why a layer answers instead of the inner service: names and statuses.

/// Why a layer answers instead of the inner service. Each has its name (the `code` member and the end of
/// the problem `type`), an HTTP status and a gRPC status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Code {
    /// A business key is required and missing.
    KeyMissing,
    /// The business key is malformed.
    KeyInvalid,
    /// Whose request this is cannot be told.
    ScopeMissing,
    /// The request body is over the layer's limit.
    BodyTooLarge,
    /// The request body broke off.
    BodyBroken,
    /// The business key was used for another payload.
    KeyReused,
    /// The first run is still going.
    InProgress,
    /// The first run began, and nobody knows how it ended.
    OutcomeUnknown,
    /// The work is done, its response was not kept.
    ResponseNotKept,
    /// The resource is leased by another.
    Leased,
    /// The resource's last owner crashed or released early a moment ago.
    Cooling,
    /// The resource is leased by this very request.
    LeasedByCaller,
    /// The lease was lost while the work was going on.
    LeaseLost,
    /// A handler needs a lease, and no layer took one: the application is wired wrongly.
    LeaseMissing,
    /// A fencing token is required and missing.
    TokenMissing,
    /// The fencing token is older than one already admitted.
    TokenStale,
    /// The fencing token is malformed, forged or for another resource.
    TokenInvalid,
    /// Waited too long.
    WaitTimeout,
    /// The tenant has as many records as it may have, or as many bytes.
    QuotaExceeded,
    /// Too many wait or run already.
    Overloaded,
    /// The service is shutting down.
    ShuttingDown,
    /// The shared call ran longer than a flight may.
    FlightAged,
    /// The shared call failed.
    UpstreamFailed,
    /// The handler panicked.
    HandlerPanicked,
    /// The store cannot be reached.
    StoreUnavailable,
}

impl Code {
    /// Every code.
    pub const ALL: &'static [Code] = &[
        Code::KeyMissing,
        Code::KeyInvalid,
        Code::ScopeMissing,
        Code::BodyTooLarge,
        Code::BodyBroken,
        Code::KeyReused,
        Code::InProgress,
        Code::OutcomeUnknown,
        Code::ResponseNotKept,
        Code::Leased,
        Code::Cooling,
        Code::LeasedByCaller,
        Code::LeaseLost,
        Code::LeaseMissing,
        Code::TokenMissing,
        Code::TokenStale,
        Code::TokenInvalid,
        Code::WaitTimeout,
        Code::QuotaExceeded,
        Code::Overloaded,
        Code::ShuttingDown,
        Code::FlightAged,
        Code::UpstreamFailed,
        Code::HandlerPanicked,
        Code::StoreUnavailable,
    ];

    /// One row of the table: name, HTTP status, gRPC status, title.
    const fn row(self) -> (&'static str, u16, i32, &'static str) {
        const INVALID_ARGUMENT: i32 = 3;
        const DEADLINE_EXCEEDED: i32 = 4;
        const RESOURCE_EXHAUSTED: i32 = 8;
        const FAILED_PRECONDITION: i32 = 9;
        const ABORTED: i32 = 10;
        const INTERNAL: i32 = 13;
        const UNAVAILABLE: i32 = 14;
        match self {
            Code::KeyMissing => (
                "key-missing",
                400,
                INVALID_ARGUMENT,
                "A business key is required",
            ),
            Code::KeyInvalid => (
                "key-invalid",
                400,
                INVALID_ARGUMENT,
                "The business key is malformed",
            ),
            Code::ScopeMissing => (
                "scope-missing",
                400,
                INVALID_ARGUMENT,
                "Whose request this is cannot be told",
            ),
            Code::BodyTooLarge => (
                "body-too-large",
                413,
                RESOURCE_EXHAUSTED,
                "The request body is too large",
            ),
            Code::BodyBroken => (
                "body-broken",
                400,
                INVALID_ARGUMENT,
                "The request body broke off",
            ),
            Code::KeyReused => (
                "key-reused",
                422,
                FAILED_PRECONDITION,
                "The business key was used for another payload",
            ),
            Code::InProgress => (
                "in-progress",
                409,
                ABORTED,
                "The first request is still running",
            ),
            Code::OutcomeUnknown => (
                "outcome-unknown",
                409,
                ABORTED,
                "The outcome of the first request is unknown",
            ),
            Code::ResponseNotKept => (
                "response-not-kept",
                409,
                FAILED_PRECONDITION,
                "Done before; the response was not kept",
            ),
            Code::Leased => ("leased", 423, ABORTED, "The resource is leased by another"),
            Code::Cooling => (
                "cooling",
                423,
                ABORTED,
                "The resource is not leased again yet",
            ),
            Code::LeasedByCaller => (
                "leased-by-caller",
                423,
                ABORTED,
                "The resource is leased by this very request",
            ),
            Code::LeaseLost => (
                "lease-lost",
                409,
                ABORTED,
                "The lease was lost while working",
            ),
            Code::LeaseMissing => (
                "lease-missing",
                500,
                INTERNAL,
                "No lease was taken for this request",
            ),
            Code::TokenMissing => (
                "token-missing",
                428,
                FAILED_PRECONDITION,
                "A fencing token is required",
            ),
            Code::TokenStale => (
                "token-stale",
                412,
                FAILED_PRECONDITION,
                "The fencing token is stale",
            ),
            Code::TokenInvalid => (
                "token-invalid",
                400,
                FAILED_PRECONDITION,
                "The fencing token is invalid",
            ),
            Code::WaitTimeout => ("wait-timeout", 503, UNAVAILABLE, "Waited too long"),
            Code::QuotaExceeded => (
                "quota-exceeded",
                429,
                RESOURCE_EXHAUSTED,
                "The tenant has used up its quota of keys",
            ),
            Code::Overloaded => (
                "overloaded",
                503,
                UNAVAILABLE,
                "Too many requests wait or run already",
            ),
            Code::ShuttingDown => (
                "shutting-down",
                503,
                UNAVAILABLE,
                "The service is shutting down",
            ),
            Code::FlightAged => (
                "flight-aged",
                504,
                DEADLINE_EXCEEDED,
                "The shared call took too long",
            ),
            Code::UpstreamFailed => (
                "upstream-failed",
                502,
                UNAVAILABLE,
                "The shared call failed",
            ),
            Code::HandlerPanicked => ("handler-panicked", 500, INTERNAL, "The handler panicked"),
            Code::StoreUnavailable => (
                "store-unavailable",
                503,
                UNAVAILABLE,
                "The store is unavailable",
            ),
        }
    }

    /// The `code` member and the end of the problem `type`.
    pub const fn name(self) -> &'static str {
        self.row().0
    }

    /// The HTTP status.
    pub const fn http_status(self) -> u16 {
        self.row().1
    }

    /// The gRPC status.
    pub const fn grpc_status(self) -> i32 {
        self.row().2
    }

    /// A short sentence for people, the same for every occurrence.
    pub const fn title(self) -> &'static str {
        self.row().3
    }

    /// Whether a response with this code carries `Retry-After` when nothing better is known.
    pub(crate) const fn asks_to_retry(self) -> bool {
        matches!(
            self,
            Code::InProgress
                | Code::Leased
                | Code::Cooling
                | Code::LeasedByCaller
                | Code::WaitTimeout
                | Code::QuotaExceeded
                | Code::Overloaded
                | Code::ShuttingDown
                | Code::StoreUnavailable
        )
    }
}
