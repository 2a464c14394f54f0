//! Published idempotency bugs as black-box checks: base URL in, report out.
//!
//! Each case was once a bug report against somebody's idempotency layer, and is boiled down to what a client can see
//! over HTTP: requests under one key, at once, cut off, repeated; then what was answered, and how often the service
//! really worked. A case passes, fails with the exchange that shows it, or is skipped with the reason and the mend.
//!
//! It cannot see what HTTP does not show: a store that fails, a process that dies. It trusts no clock but its own, and
//! waits for conditions: a slow machine makes it slower, not wrong. It needs the service to itself where effects are counted.
//!
//! ```no_run
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use idempotency_kit::{Settings, examine};
//!
//! let mut settings = Settings::new("http://127.0.0.1:8080")?;
//! settings.post = "/payments".to_owned();
//! let report = examine(&settings).await?;
//! assert!(report.passed(), "{report}");
//! # Ok(()) }
//! ```

mod answer;
mod call;
mod cases;
mod connection;
mod kit;
mod overlap;
mod probe;
mod report;
mod settings;
mod shown;
mod tally;
mod upload;
mod verdict;

pub use kit::{ExamineError, examine};
pub use report::{CaseReport, Report};
pub use settings::{Settings, SettingsError};
pub use verdict::{Exchange, Verdict};
