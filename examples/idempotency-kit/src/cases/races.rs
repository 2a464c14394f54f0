//! Many at once.

use std::time::{Duration, Instant};

use futures_util::future::join_all;

use crate::answer::Answer;
use crate::call::Call;
use crate::kit::Kit;
use crate::overlap::Running;
use crate::verdict::{Outcome, Stop, fail, skip};

const MANY: usize = 50;

/// A call whose handler stands still where it can be told to: without that a run may be over before the next one has
/// come, and a service without any lock passes.
fn held(kit: &Kit) -> Call {
    let call = kit.post(&kit.key());
    match kit.settings.lab {
        true => call.flag(&format!("delay={}", kit.known.hold().as_millis())),
        false => call,
    }
}

/// What is not shown by it: that they met.
fn unheld(kit: &Kit, refused: usize) -> &'static str {
    match kit.settings.lab || refused > 0 {
        true => "",
        false => " (could not show that they met: no handler was held, see --lab)",
    }
}

async fn at_once(call: &Call) -> Result<Vec<Answer>, Stop> {
    let running: Vec<_> = (0..MANY).map(|_| Running::send(call.clone())).collect();
    let answers = join_all(running.into_iter().map(Running::answer)).await;
    answers.into_iter().collect()
}

/// The one answer of a run among these; whoever else succeeded must have got it, too.
fn the_run<'a>(kit: &Kit, call: &Call, answers: &'a [Answer]) -> Result<&'a Answer, Stop> {
    let of_runs = |answer: &&Answer| answer.ok() && answer.marker().is_none();
    let first = answers.iter().find(of_runs).ok_or_else(|| {
        let seen = answers.first().map(Answer::to_string).unwrap_or_default();
        fail(call.to_string(), "one of them to run", seen)
    })?;
    let others = answers.iter().filter(|other| !std::ptr::eq(*other, first));
    for other in others.filter(|other| other.ok()) {
        kit.must_replay(first, other)?;
    }
    Ok(first)
}

pub(super) async fn identical_requests_at_once(kit: &Kit) -> Outcome {
    const ROUNDS: usize = 4;
    kit.can_tell()?;
    let mut refused = 0;
    for _ in 0..ROUNDS {
        let call = held(kit);
        let tally = kit.tally().await?;
        let answers = at_once(&call).await?;
        the_run(kit, &call, &answers)?;
        refused += answers.iter().filter(|answer| answer.is(409)).count();
        let after = format!("{MANY} times at once: {call}");
        kit.must_have_run(&tally, 1, &after).await?;
    }
    Ok(format!(
        "{ROUNDS} times {MANY} at once, one run each{}",
        unheld(kit, refused)
    ))
}

pub(super) async fn losers_of_the_race(kit: &Kit) -> Outcome {
    let call = held(kit);
    let answers = at_once(&call).await?;
    let first = the_run(kit, &call, &answers)?;
    for answer in &answers {
        let right = answer.ok() || answer.is(409);
        answer.must(right, "409, or the answer of the one run")?;
    }
    let refused = answers.iter().filter(|answer| answer.is(409)).count();
    let replayed = answers.len() - refused - 1;
    Ok(format!(
        "one {}, {replayed} replays, {refused} times 409{}",
        first.status.as_u16(),
        unheld(kit, refused)
    ))
}

pub(super) async fn mismatch_beats_in_progress(kit: &Kit) -> Outcome {
    let tally = kit.tally().await?;
    let other = |key: &str| kit.post(key).body(kit.other_body());
    let (_, answer) = kit
        .while_it_runs(|key| kit.post(key), async |key| other(key).send().await)
        .await?;
    answer.must(answer.is(422), "422: the key is taken by another payload")?;
    let ran = kit.ran(&tally).await?;
    // Each try of an overlap runs once.
    Ok(match ran {
        Some(ran) => format!("422 while the first ran; {ran} effect(s)"),
        None => "422 while the first ran".to_owned(),
    })
}

pub(super) async fn replays_at_once(kit: &Kit) -> Outcome {
    kit.can_tell()?;
    let call = kit.post(&kit.key());
    let first = call.send().await?;
    first.must(first.ok(), "a success")?;
    let tally = kit.tally().await?;
    for answer in at_once(&call).await? {
        kit.must_replay(&first, &answer)?;
    }
    kit.must_have_run(&tally, 0, &call.to_string()).await?;
    Ok(format!("{MANY} replays at once"))
}

pub(super) async fn waiting(kit: &Kit) -> Outcome {
    kit.misbehaves()?;
    let limit = kit.settings.waits;
    for _ in 0..4 {
        let key = kit.key();
        let hold = kit
            .known
            .hold()
            .min(limit.map_or(Duration::MAX, |limit| limit / 2));
        let first = kit.start(kit.post(&key), hold).await?;
        let begun = Instant::now();
        let repeat = kit.post(&key).send().await?;
        match limit {
            None if repeat.busy() => {
                return Err(skip(
                    "the service refuses concurrent repeats; start it so that they wait (the lab: --on-busy wait:2s), \
                     and say how long with --waits",
                ));
            }
            // The machine was too slow: it had the right to refuse by then.
            Some(limit) if repeat.busy() && begun.elapsed() >= limit => continue,
            _ => {}
        }
        let first = first.answer().await?;
        kit.must_replay(&first, &repeat)?;
        // It may be polling, but it must be looking: far below the time of a run that it missed.
        let lag = repeat.ended.saturating_duration_since(first.ended);
        let soon = Duration::from_secs(20);
        repeat.must(
            lag < soon,
            &format!("the replay within {soon:?} of the first answer"),
        )?;
        return match limit {
            Some(limit) => too_long(kit, limit).await,
            None => Ok(
                "replayed when the first run ended (its limit is not known: --waits)".to_owned(),
            ),
        };
    }
    Err(skip(
        "every first run took longer than the wait: the machine is too slow for it",
    ))
}

/// A run that outlasts the wait.
async fn too_long(kit: &Kit, limit: Duration) -> Outcome {
    let mut hold = limit * 2 + kit.known.hold() * 2;
    for _ in 0..4 {
        let key = kit.key();
        let first = kit.start(kit.post(&key), hold).await?;
        let begun = Instant::now();
        let repeat = kit.post(&key).send().await?;
        let waited = begun.elapsed();
        if first.is_over() {
            hold *= 2;
            continue;
        }
        let told = repeat.is(409) && repeat.headers.contains_key("retry-after");
        repeat.must(told, "409 with Retry-After when the wait is over")?;
        repeat.must(waited >= limit, &format!("no refusal before {limit:?}"))?;
        return Ok(format!(
            "replayed when the first run ended; refused after {waited:.1?} of one that took longer"
        ));
    }
    Err(skip("every first run was over before the wait was"))
}
