//! Keys: whose they are, and which are none.

use crate::answer::Answer;
use crate::call::Call;
use crate::kit::Kit;
use crate::shown::shown;
use crate::verdict::{Outcome, Stop, fail, skip};

pub(super) async fn of_two_callers(kit: &Kit) -> Outcome {
    kit.can_tell()?;
    if kit.settings.other_caller.is_empty() {
        return Err(skip(
            "needs a second caller: give the header lines that make one, for instance --other-caller Authorization:…",
        ));
    }
    let call = kit.post(&kit.key());
    let tally = kit.tally().await?;
    let first = call.send().await?;
    first.must(first.ok(), "a success")?;
    let other = call.clone().lines(&kit.settings.other_caller);
    let theirs = other.send().await?;
    kit.must_run(&first, &theirs)?;
    kit.must_have_run(&tally, 2, &theirs.request).await?;
    // Both are kept apart afterwards, too.
    kit.must_replay(&first, &call.send().await?)?;
    kit.must_replay(&theirs, &other.send().await?)?;
    Ok("two runs, two answers".to_owned())
}

pub(super) async fn odd_ones(kit: &Kit) -> Outcome {
    let tally = kit.tally().await?;
    for key in [
        &b""[..],
        b"\"\"",
        b"   ",
        b"caf\xE9",
        b"a,b",
        b"\"a",
        b"\"a\", \"b\"",
    ] {
        let answer = kit.unkeyed().raw_key(key).send().await?;
        answer.must(answer.is(400), "400")?;
    }
    let two = kit.unkeyed().key(&kit.key()).key(&kit.key()).send().await?;
    two.must(two.is(400), "400 for two lines")?;
    if !kit.settings.http2 {
        broken_lines(kit).await?;
    }
    kit.must_have_run(&tally, 0, "POST with keys that are none")
        .await?;
    long_ones(kit).await?;
    let with_marks = kit.key().replacen('-', ":", 1).replacen('-', "/", 1);
    let answer = kit.post(&with_marks).send().await?;
    answer.must(answer.ok(), "a success: `:` and `/` are allowed")?;
    one_key_in_three_forms(kit).await
}

/// What no client library sends.
async fn broken_lines(kit: &Kit) -> Result<(), Stop> {
    for key in [&b"a\r\n b"[..], b"a\rb", b"a\0b", b"a\nb"] {
        let line = [b"idempotency-key: ", key].concat();
        let wire = kit.unkeyed().wire(&line);
        let status = kit.raw(&wire).await?;
        if status.is_some_and(|status| status != 400) {
            let seen = status.map(|status| status.to_string()).unwrap_or_default();
            return Err(fail(shown(&wire, 400), "400, or a hang-up", seen));
        }
    }
    Ok(())
}

/// Too long is refused; what is taken is taken whole.
async fn long_ones(kit: &Kit) -> Result<(), Stop> {
    let stem = format!("{}{}", kit.key().replace('"', ""), "k".repeat(300));
    let long = |end: &str| match kit.known.quoted {
        true => format!("\"{stem}{end}\""),
        false => format!("{stem}{end}"),
    };
    let (a, b) = (long("a"), long("b"));
    let first = kit.post(&a).send().await?;
    if first.is(400) {
        return Ok(());
    }
    first.must(first.ok(), "400, or a success for a key of 337 characters")?;
    let other = kit.post(&b).body(kit.other_body()).send().await?;
    other.must(
        !other.is(422),
        "another key, though only its last character differs",
    )?;
    kit.must_run(&first, &other)
}

/// `"abc"`, `abc`, `"abc";x=1`.
async fn one_key_in_three_forms(kit: &Kit) -> Outcome {
    let bare = kit.key().replace('"', "");
    let quoted = format!("\"{bare}\"");
    let first = kit.post(&quoted).send().await?;
    if !first.ok() {
        return Ok("refused; quoted keys are refused, too".to_owned());
    }
    let with = kit.post(&format!("{quoted};x=1"));
    let with = must_be_one_key(kit, &first, &with).await?;
    if kit.known.quoted {
        return Ok(format!(
            "refused; bare keys, too (strict); with a parameter: {with}"
        ));
    }
    must_be_one_key(kit, &first, &kit.post(&bare)).await?;
    Ok("refused; quoted and bare are one key".to_owned())
}

async fn must_be_one_key(kit: &Kit, first: &Answer, call: &Call) -> Result<String, Stop> {
    let answer = call.send().await?;
    // Not to know parameters is no harm, as long as they make no other key.
    if answer.is(400) {
        return Ok("400".to_owned());
    }
    kit.must_replay(first, &answer)?;
    Ok("one key".to_owned())
}
