//! Which answers are kept.

use crate::kit::Kit;
use crate::verdict::{Outcome, Stop};

pub(super) async fn failures(kit: &Kit) -> Outcome {
    kit.misbehaves()?;
    for flag in ["reject=503", "status=503"] {
        let call = kit.post(&kit.key());
        let first = call.clone().flag(flag).send().await?;
        first.must(first.is(503), "503, as asked for")?;
        let again = kit.until_free(&call).await?;
        again.must(
            again.ok() && again.marker().is_none(),
            "a run: the failure is over",
        )?;
    }
    match behind_the_point_of_no_return(kit).await {
        Err(Stop::Skip(_)) => {
            Ok("503 frees the key (no point of no return here: `commit` is unknown)".to_owned())
        }
        outcome => outcome,
    }
}

async fn behind_the_point_of_no_return(kit: &Kit) -> Outcome {
    let call = kit.post(&kit.key());
    let tally = kit.tally().await?;
    let first = call.clone().flag("commit&status=500").send().await?;
    first.must(first.is(500), "500, as asked for")?;
    let again = kit.until_free(&call).await?;
    again.must(
        !again.ok(),
        "the failure again, or that the outcome is unknown: never a second run",
    )?;
    kit.must_have_run(&tally, 1, &again.request).await?;
    Ok(format!(
        "503 frees the key; behind the point of no return: {}",
        again.status.as_u16()
    ))
}

pub(super) async fn rejections(kit: &Kit) -> Outcome {
    kit.misbehaves()?;
    for status in [400, 415, 422] {
        let call = kit.post(&kit.key());
        let tally = kit.tally().await?;
        let first = call
            .clone()
            .flag(&format!("reject={status}"))
            .send()
            .await?;
        first.must(first.is(status), &format!("{status}, as asked for"))?;
        let corrected = call.body(kit.other_body());
        let again = kit.until_free(&corrected).await?;
        let ran = again.ok() && again.marker().is_none();
        again.must(ran, "a run: the first was rejected before any effect")?;
        kit.must_have_run(&tally, 1, &again.request).await?;
    }
    Ok("400, 415 and 422 before any effect free the key".to_owned())
}
