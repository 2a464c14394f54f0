//! `/metrics`: finished requests, and what the layers tell, as Prometheus text.

use std::fmt;

use http::StatusCode;
use metrics::Label;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use tower_claim::ConfigError;
use tower_stage::{Cause, Finished};

const DURATION: &str = "http_server_request_duration_seconds";
const STORE_CALLS: &str = "idempotency_store_seconds";
/// Seconds; the buckets that OpenTelemetry recommends for this metric.
const BUCKETS: [f64; 14] = [
    0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
];

/// One sample per response, by route, method and status. Clones share them.
#[derive(Clone)]
pub(crate) struct Requests(PrometheusHandle);

impl Requests {
    /// Once for each process: its layers tell what they do to its one recorder.
    pub(crate) fn new() -> Result<Self, ConfigError> {
        let mut builder = PrometheusBuilder::new();
        for seconds in [DURATION, STORE_CALLS] {
            builder = builder
                .set_buckets_for_metric(Matcher::Full(seconds.to_owned()), &BUCKETS)
                .unwrap_or_default();
        }
        let recorder = builder.build_recorder();
        let handle = recorder.handle();
        metrics::set_global_recorder(recorder)
            .map_err(|error| ConfigError::new("metrics", error.to_string()))?;
        Ok(Self(handle))
    }

    pub(crate) fn record(&self, finished: &Finished) {
        let status = match finished.outcome().cause {
            // Answered by the catch-panic layer, which stands outside the board.
            Cause::Panicked => finished
                .status()
                .or(Some(StatusCode::INTERNAL_SERVER_ERROR)),
            _ => finished.status(),
        };
        // Without a status there was no response.
        let Some(status) = status else {
            return;
        };
        let labels = vec![
            Label::new("http_route", finished.route().to_owned()),
            Label::new("http_request_method", finished.method()),
            Label::new("http_response_status_code", status.as_str().to_owned()),
        ];
        metrics::histogram!(DURATION, labels).record(finished.total());
    }

    pub(crate) fn text(&self) -> String {
        self.0.render()
    }
}

impl fmt::Debug for Requests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Requests").finish_non_exhaustive()
    }
}
