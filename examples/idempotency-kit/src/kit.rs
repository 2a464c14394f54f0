//! The examiner: how it asks, counts and tells a replay from a run.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::{Method, Version};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::Instant;

use crate::answer::Answer;
use crate::call::{Call, LARGEST, PATIENCE};
use crate::cases;
use crate::connection::dial;
use crate::probe::Known;
use crate::report::{CaseReport, Report};
use crate::settings::{Base, Settings, SettingsError};
use crate::shown::shown;
use crate::verdict::{Stop, fail, skip};

/// Why a service cannot be examined.
#[derive(Debug)]
#[non_exhaustive]
pub enum ExamineError {
    /// The settings are wrong.
    Settings(SettingsError),
    /// A case of this number does not exist. Those that do.
    NoSuchCase(String, Vec<&'static str>),
    /// Nothing answers.
    Unreachable(String),
    /// An ability that the settings name is not there. What was asked, and seen.
    NotAble(String),
}

impl fmt::Display for ExamineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Settings(error) => write!(f, "{error}"),
            Self::NoSuchCase(number, all) => {
                write!(f, "there is no case {number}, but {}", all.join(", "))
            }
            Self::Unreachable(why) => write!(f, "the service cannot be reached: {why}"),
            Self::NotAble(why) => write!(f, "{why}"),
        }
    }
}

impl std::error::Error for ExamineError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Settings(error) => Some(error),
            _ => None,
        }
    }
}

/// Runs the cases against a service, one after the other.
///
/// Must be called on a tokio runtime with I/O and time. It ends: each answer and each case has a limit.
///
/// # Errors
///
/// Where the settings are wrong, or the service is not there or has not the abilities they name.
pub async fn examine(settings: &Settings) -> Result<Report, ExamineError> {
    let kit = Kit::probe(settings).await?;
    let mut done = Vec::new();
    for case in cases::chosen(&settings.only)? {
        let run = tokio::time::timeout(CASE_LIMIT, (case.run)(&kit)).await;
        let outcome = run.unwrap_or_else(|_| {
            let limit = format!("the case to end within {CASE_LIMIT:?}");
            Err(fail(case.name, limit, "no end"))
        });
        done.push(CaseReport::new(case, outcome.into()));
    }
    Ok(Report::new(&kit, done))
}

/// No status line is longer than this.
const LARGEST_LINE: usize = 8 << 10;

/// A case that needs more hangs.
const CASE_LIMIT: Duration = Duration::from_secs(300);

#[derive(Debug)]
pub(crate) struct Kit {
    pub(crate) settings: Settings,
    pub(crate) base: Arc<Base>,
    pub(crate) known: Known,
}

impl Kit {
    pub(crate) fn new(settings: Settings) -> Self {
        let base = Arc::new(settings.base.clone());
        Self {
            settings,
            base,
            known: Known::default(),
        }
    }

    fn version(&self) -> Version {
        match self.settings.http2 {
            true => Version::HTTP_2,
            false => Version::HTTP_11,
        }
    }

    /// A key that names nothing else, in the form the service wants.
    pub(crate) fn key(&self) -> String {
        let key = uuid();
        match self.known.quoted {
            true => format!("\"{key}\""),
            false => key,
        }
    }

    pub(crate) fn call(&self, method: Method, path: &str) -> Call {
        // Case 43 asks for three times what is kept.
        let kept = self.settings.keeps.unwrap_or_default();
        Call::new(self.base.clone(), self.version(), method, path)
            .up_to(LARGEST.max(kept.saturating_mul(4)))
            .lines(&self.settings.headers)
    }

    /// The POST of the service, with its JSON body.
    pub(crate) fn post(&self, key: &str) -> Call {
        self.post_to(&self.settings.post, key)
    }

    pub(crate) fn post_to(&self, path: &str, key: &str) -> Call {
        self.unkeyed_to(path).key(key)
    }

    pub(crate) fn unkeyed(&self) -> Call {
        self.unkeyed_to(&self.settings.post)
    }

    fn unkeyed_to(&self, path: &str) -> Call {
        self.call(Method::POST, path)
            .media("application/json")
            .body(&self.settings.body)
    }

    /// Another body that the service takes.
    pub(crate) fn other_body(&self) -> String {
        let other = self.settings.other_body.clone();
        other.unwrap_or_else(|| self.with_member("\"kit_other\":2"))
    }

    /// The body, with one more member at its end.
    pub(crate) fn with_member(&self, member: &str) -> String {
        let body = self.settings.body.trim_end();
        match body.strip_suffix('}').map(str::trim_end) {
            Some(rest) if rest.ends_with('{') => format!("{rest}{member}}}"),
            Some(rest) => format!("{rest},{member}}}"),
            None => format!("[{body},{{{member}}}]"),
        }
    }

    /// Goes on only where the service misbehaves on command.
    pub(crate) fn misbehaves(&self) -> Result<(), Stop> {
        match self.settings.lab {
            true => Ok(()),
            false => Err(skip(
                "needs a handler that misbehaves on command: teach it the header X-Lab (see the README), and give --lab",
            )),
        }
    }

    /// Goes on only where a replay can be told from a run.
    pub(crate) fn can_tell(&self) -> Result<(), Stop> {
        let known = &self.known;
        match known.marker.is_some() || known.answers_differ || self.settings.effects.is_some() {
            true => Ok(()),
            false => Err(skip(
                "a replay looks like a run here: answer each run differently, mark replays (Idempotent-Replayed: true), \
                 or count effects and give --effects",
            )),
        }
    }

    /// Whether `again` is the answer of the run that `first` answered.
    pub(crate) fn replays(&self, first: &Answer, again: &Answer) -> bool {
        match self.known.marker {
            Some(_) => again.marker().is_some(),
            None => again.status == first.status && again.body == first.body,
        }
    }

    /// Goes on only if `again` is a replay of `first`.
    pub(crate) fn must_replay(&self, first: &Answer, again: &Answer) -> Result<(), Stop> {
        let right = self.replays(first, again) && again.body == first.body;
        again.must(right, &format!("a replay of {first}"))
    }

    /// Goes on only if `again` is a success of its own, and no replay of `first`.
    pub(crate) fn must_run(&self, first: &Answer, again: &Answer) -> Result<(), Stop> {
        let tells = self.known.marker.is_some() || self.known.answers_differ;
        let right = again.ok() && !(tells && self.replays(first, again));
        again.must(right, "a run of its own")
    }

    /// Asks while it is told that the first run still goes, for a lease at most.
    pub(crate) async fn until_free(&self, call: &Call) -> Result<Answer, Stop> {
        let end = Instant::now() + self.settings.lease;
        loop {
            let answer = call.send().await?;
            if !answer.busy() {
                return Ok(answer);
            }
            if Instant::now() >= end {
                let lease = self.settings.lease;
                return Err(fail(
                    call.to_string(),
                    format!("no 409 for longer than a lease ({lease:?}; see --lease)"),
                    answer.to_string(),
                ));
            }
            tokio::time::sleep(self.known.pause()).await;
        }
    }

    /// Sends raw bytes, and answers the status that came back, if one did. Nothing: the connection was closed.
    pub(crate) async fn raw(&self, bytes: &[u8]) -> Result<Option<u16>, Stop> {
        let told = shown(bytes, 400);
        let exchange = async {
            let mut stream = dial(&self.base).await?;
            stream.write_all(bytes).await?;
            let mut head = Vec::new();
            // A server that refuses may reset the connection behind its answer.
            while !head.windows(2).any(|end| end == b"\r\n") && head.len() < LARGEST_LINE {
                if stream.read_buf(&mut head).await.unwrap_or(0) == 0 {
                    break;
                }
            }
            let status = head.get(9..12).and_then(|s| std::str::from_utf8(s).ok());
            Ok::<_, std::io::Error>(status.and_then(|s| s.parse().ok()))
        };
        match tokio::time::timeout(PATIENCE, exchange).await {
            Ok(Ok(status)) => Ok(status),
            Ok(Err(error)) => Err(fail(
                told,
                "an answer or a hang-up",
                format!("none: {error}"),
            )),
            Err(_) => Err(fail(told, "an answer or a hang-up", "neither")),
        }
    }
}

/// 122 random bits. Where the system has no randomness, this ends in a key that repeats, and says so by failing.
fn uuid() -> String {
    let mut bytes = [0; 16];
    let _ = getrandom::fill(&mut bytes);
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let hex = |range: std::ops::Range<usize>| {
        bytes[range]
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect::<String>()
    };
    [hex(0..4), hex(4..6), hex(6..8), hex(8..10), hex(10..16)].join("-")
}
