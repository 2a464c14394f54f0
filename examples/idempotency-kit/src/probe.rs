//! What the kit finds out about a service before it judges it.

use std::time::{Duration, Instant};

use http::Method;

use crate::answer::Answer;
use crate::connection::dial;
use crate::kit::{ExamineError, Kit};
use crate::settings::Settings;
use crate::verdict::Stop;

/// What was found out.
#[derive(Debug, Clone, Default)]
pub(crate) struct Known {
    /// The header that marks replays.
    pub(crate) marker: Option<&'static str>,
    /// Two runs answer other bytes.
    pub(crate) answers_differ: bool,
    /// Bare keys are refused.
    pub(crate) quoted: bool,
    /// Requests without a key are refused.
    pub(crate) key_required: bool,
    /// The slowest round trip so far.
    pub(crate) round_trip: Duration,
}

impl Known {
    /// How long a handler is held first, so that others can be sent meanwhile. Where that was too short for this
    /// machine, it is held longer.
    pub(crate) fn hold(&self) -> Duration {
        (self.round_trip * 5).clamp(Duration::from_millis(400), Duration::from_secs(5))
    }

    /// Between two questions while waiting for a condition.
    pub(crate) fn pause(&self) -> Duration {
        (self.hold() / 20).clamp(Duration::from_millis(10), Duration::from_millis(200))
    }
}

impl Kit {
    pub(crate) async fn probe(settings: &Settings) -> Result<Self, ExamineError> {
        let named = [
            ("--second-post", settings.second_post.as_slice()),
            (
                "--nested",
                settings.nested.as_ref().map_or(&[][..], |two| &two[..]),
            ),
        ];
        let settings = settings.completed().map_err(ExamineError::Settings)?;
        let mut kit = Kit::new(settings);
        let unreachable =
            |error: std::io::Error| ExamineError::Unreachable(format!("{}: {error}", kit.base));
        drop(dial(&kit.base).await.map_err(unreachable)?);
        if kit.settings.effects.is_some() {
            kit.tally()
                .await
                .map_err(|stop| not_able("--effects", stop))?;
        }
        let first = kit.ask(&kit.key()).await?;
        let first = if first.is(400) {
            kit.known.quoted = true;
            kit.ask(&kit.key()).await?
        } else {
            first
        };
        if !first.ok() {
            return Err(ExamineError::NotAble(format!(
                "a POST under a fresh key is not accepted; give --post, --body or --header. {}: {first}",
                first.request
            )));
        }
        if kit.settings.lab {
            let asked = kit.post(&kit.key()).flag("reject=418").send().await;
            let asked = asked.map_err(|stop| not_able("--lab", stop))?;
            let obeyed = asked.must(asked.is(418), "418, as the flag `reject=418` of X-Lab asks");
            obeyed.map_err(|stop| not_able("--lab", stop))?;
        }

        for (option, paths) in named {
            for path in paths {
                let there = kit.has(path).await.map_err(|stop| not_able(option, stop))?;
                if !there {
                    return Err(ExamineError::NotAble(format!(
                        "{option} was given, but a POST to {path} is not accepted"
                    )));
                }
            }
        }

        let key = kit.key();
        let one = kit.ask(&key).await?;
        let again = kit.ask(&key).await?;
        kit.known.marker = again.marker();
        kit.known.answers_differ = first.body != one.body;
        let keyless = kit.unkeyed().send().await;
        kit.known.key_required = keyless.is_ok_and(|answer| answer.is(400));
        Ok(kit)
    }

    /// Posts once, and remembers how long it took.
    async fn ask(&mut self, key: &str) -> Result<Answer, ExamineError> {
        let begun = Instant::now();
        let answer = self.post(key).send().await;
        self.known.round_trip = self.known.round_trip.max(begun.elapsed());
        answer.map_err(|stop| match stop {
            Stop::Fail(exchange) => ExamineError::Unreachable(exchange.to_string()),
            Stop::Skip(why) => ExamineError::NotAble(why),
        })
    }

    /// Whether there is a route: it answers something else than that it is not there.
    pub(crate) async fn has(&self, path: &str) -> Result<bool, Stop> {
        let asked = self.call(Method::POST, path).key(&self.key());
        let asked = asked.media("application/json").body(&self.settings.body);
        Ok(asked.send().await?.ok())
    }
}

fn not_able(option: &str, stop: Stop) -> ExamineError {
    match stop {
        Stop::Fail(exchange) => {
            ExamineError::NotAble(format!("{option} was given, but: {exchange}"))
        }
        Stop::Skip(why) => ExamineError::NotAble(format!("{option} was given, but: {why}")),
    }
}
