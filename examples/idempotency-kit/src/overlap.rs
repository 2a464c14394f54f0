//! Requests that run while others are sent.

use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::answer::Answer;
use crate::call::{Call, PATIENCE};
use crate::kit::Kit;
use crate::tally::Tally;
use crate::verdict::{Stop, skip};

/// A request under way. A drop hangs up.
#[derive(Debug)]
pub(crate) struct Running(JoinHandle<Result<Answer, Stop>>);

impl Running {
    pub(crate) fn send(call: Call) -> Self {
        Self(tokio::spawn(async move { call.send().await }))
    }

    /// Whether it was answered.
    pub(crate) fn is_over(&self) -> bool {
        self.0.is_finished()
    }

    pub(crate) async fn answer(mut self) -> Result<Answer, Stop> {
        let ended = (&mut self.0).await;
        ended.unwrap_or_else(|error| Err(skip(format!("a request of the kit ended: {error}"))))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Kit {
    /// Sends the call, and goes on when its handler runs.
    pub(crate) async fn start(&self, call: Call, hold: Duration) -> Result<Running, Stop> {
        let tally = self.tally().await?;
        let running = Running::send(call.flag(&format!("delay={}", hold.as_millis())));
        self.until_it_runs(&tally, &running, hold).await?;
        Ok(running)
    }

    async fn until_it_runs(
        &self,
        tally: &Tally,
        running: &Running,
        hold: Duration,
    ) -> Result<(), Stop> {
        let end = Instant::now() + PATIENCE;
        while !running.is_over() && Instant::now() < end {
            match self.ran(tally).await? {
                Some(0) => tokio::time::sleep(Duration::from_millis(5)).await,
                Some(_) => return Ok(()),
                // The best that can be done where effects are not counted.
                None => {
                    tokio::time::sleep(hold / 4).await;
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Holds a request under a fresh key in its handler, and does `meanwhile` with that key. Where the request was over
    /// before `meanwhile` was, that proves nothing: once more, with a longer hold.
    pub(crate) async fn while_it_runs<T>(
        &self,
        first: impl Fn(&str) -> Call,
        meanwhile: impl AsyncFn(&str) -> Result<T, Stop>,
    ) -> Result<(Answer, T), Stop> {
        self.misbehaves()?;
        let mut hold = self.known.hold();
        for _ in 0..6 {
            let key = self.key();
            let running = self.start(first(&key), hold).await?;
            let done = meanwhile(&key).await?;
            if !running.is_over() {
                return Ok((running.answer().await?, done));
            }
            hold *= 2;
        }
        Err(skip(format!(
            "a handler that was asked to take {hold:?} was always over too soon: is `delay` of X-Lab obeyed, or \
             is there a timeout outside?"
        )))
    }
}
