//! The status of a gRPC call: in the trailers, or in the head of a response without a body.

use http::HeaderMap;
use tower_claim::http::is_grpc;

/// What a gRPC response that ends without a status counts as.
const UNKNOWN: u16 = 2;

#[derive(Debug, Clone, Copy)]
pub(crate) enum GrpcStatus {
    /// No gRPC response.
    None,
    /// Not told yet. A missing status is no success.
    Awaited,
    Told(u16),
}

impl GrpcStatus {
    pub(crate) fn of_head(head: &HeaderMap) -> Self {
        if is_grpc(head) {
            told(head)
        } else {
            Self::None
        }
    }

    pub(crate) fn trailers(&mut self, trailers: &HeaderMap) {
        if self.is_awaited() {
            *self = told(trailers);
        }
    }

    pub(crate) fn is_awaited(self) -> bool {
        matches!(self, Self::Awaited)
    }

    /// The code, once the response is over.
    pub(crate) fn code(self) -> Option<u16> {
        match self {
            Self::None => None,
            Self::Awaited => Some(UNKNOWN),
            Self::Told(code) => Some(code),
        }
    }
}

fn told(headers: &HeaderMap) -> GrpcStatus {
    match headers.get("grpc-status") {
        Some(value) => {
            let code = value.to_str().ok().and_then(|text| text.parse().ok());
            GrpcStatus::Told(code.unwrap_or(UNKNOWN))
        }
        None => GrpcStatus::Awaited,
    }
}

/// The codes that OpenTelemetry's conventions call errors on the server's side: UNKNOWN,
/// DEADLINE_EXCEEDED, UNIMPLEMENTED, INTERNAL, UNAVAILABLE, DATA_LOSS.
pub(crate) fn is_server_fault(code: u16) -> bool {
    matches!(code, 2 | 4 | 12 | 13 | 14 | 15)
}
