//! What a replay is made of.

use crate::answer::{Answer, MARKERS};
use crate::call::Call;
use crate::kit::Kit;
use crate::shown::shown;
use crate::verdict::{Outcome, Stop, skip};

async fn twice(kit: &Kit, first: Call, again: Call) -> Result<(Answer, Answer), Stop> {
    kit.can_tell()?;
    let tally = kit.tally().await?;
    let first = first.send().await?;
    let repeat = again.send().await?;
    kit.must_have_run(&tally, 1, &repeat.request).await?;
    Ok((first, repeat))
}

fn must_be_alike(first: &Answer, again: &Answer) -> Result<(), Stop> {
    again.must(
        again.status == first.status,
        &format!("the status {}", first.status.as_u16()),
    )?;
    again.must(
        again.complete && again.body == first.body,
        &format!("the body of {first}"),
    )?;
    for name in ["content-type", "location", "etag"] {
        let right = again.values(name) == first.values(name);
        again.must(right, &format!("{name}: {}", lines(&first.values(name))))?;
    }
    Ok(())
}

fn lines(values: &[&[u8]]) -> String {
    let values: Vec<_> = values.iter().map(|value| shown(value, 200)).collect();
    match values.is_empty() {
        true => "none".to_owned(),
        false => values.join(" | "),
    }
}

pub(super) async fn status_body_and_headers(kit: &Kit) -> Outcome {
    let call = kit.post(&kit.key());
    let (first, again) = twice(kit, call.clone(), call).await?;
    first.must(first.ok(), "a success")?;
    must_be_alike(&first, &again)?;
    if !kit.settings.lab {
        return Ok(format!(
            "{} twice (a kept error: not tried without --lab)",
            first.status.as_u16()
        ));
    }
    let call = kit.post(&kit.key());
    let problem = call
        .clone()
        .flag("status=422&ctype=application/problem%2Bjson&size=40");
    let (first, again) = twice(kit, problem, call).await?;
    first.must(first.is(422), "422, as asked for")?;
    must_be_alike(&first, &again)?;
    Ok("201 twice, 422 twice".to_owned())
}

/// Lines of one exchange; none may be replayed.
const ONCE: [&str; 9] = [
    "Date: Tue, 15 Nov 1994 08:12:31 GMT",
    "Set-Cookie: kit=1",
    "WWW-Authenticate: Bearer",
    "Proxy-Authenticate: Basic",
    "traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    "X-Request-Id: kit-first",
    "RateLimit-Remaining: 17",
    "X-RateLimit-Remaining: 17",
    "X-Kit-Hop: kit-first",
];

pub(super) async fn what_was_true_once(kit: &Kit) -> Outcome {
    let call = kit.post(&kit.key());
    let mut asking = call.clone();
    if kit.settings.lab {
        asking = ONCE
            .iter()
            .fold(asking, |asking, line| asking.answer_with(line));
        asking = asking.answer_with("X-Kit-Kept: kit-first");
        // HTTP/2 has no such header; elsewhere it takes what it names with it.
        asking = asking.answer_with("Connection: X-Kit-Hop");
    }
    let (first, again) = twice(kit, asking, call).await?;
    first.must(first.ok(), "a success")?;
    let mut seen = Vec::new();
    for name in ONCE
        .iter()
        .filter_map(|line| line.split_once(':'))
        .map(|(name, _)| name)
    {
        let name = name.to_ascii_lowercase();
        let once = first.values(&name);
        // A date of its own is right, and may be of the same second.
        let stored = |value: &&[u8]| name != "date" || value.ends_with(b"1994 08:12:31 GMT");
        let once: Vec<_> = once.into_iter().filter(stored).collect();
        if once.is_empty() {
            continue;
        }
        let leaked = again.values(&name).iter().any(|value| once.contains(value));
        again.must(
            !leaked,
            &format!("no `{name}: {}` of the first", lines(&once)),
        )?;
        seen.push(name);
    }
    if seen.is_empty() {
        return Err(skip(
            "the answers carry nothing of that kind; with --lab the kit asks for it",
        ));
    }
    let kept = first.values("x-kit-kept");
    again.must(
        again.values("x-kit-kept") == kept,
        "other headers intact: x-kit-kept",
    )?;
    Ok(format!("not replayed: {}", seen.join(", ")))
}

pub(super) async fn repeated_and_raw_headers(kit: &Kit) -> Outcome {
    let call = kit.post(&kit.key());
    let mut asking = call.clone();
    if kit.settings.lab {
        for line in ["X-Kit-Twice: b", "X-Kit-Twice: a", "X-Kit-Twice: b"] {
            asking = asking.answer_with(line);
        }
        asking = asking.flag("header=X-Kit-Raw%3Acaf%E9");
    }
    let (first, again) = twice(kit, asking, call).await?;
    let mut seen = Vec::new();
    for name in first.headers.keys().map(http::HeaderName::as_str) {
        let values = first.values(name);
        let odd = values.len() > 1 || values.iter().any(|value| !value.is_ascii());
        if name == "set-cookie" || MARKERS.contains(&name) || !odd {
            continue;
        }
        again.must(
            again.values(name) == values,
            &format!("{name}: {}", lines(&values)),
        )?;
        seen.push(name);
    }
    if seen.is_empty() {
        return Err(skip(
            "the answers carry no repeated nor non-UTF-8 header; with --lab the kit asks for them",
        ));
    }
    Ok(format!("byte for byte: {}", seen.join(", ")))
}

pub(super) async fn of_large_responses(kit: &Kit) -> Outcome {
    kit.misbehaves()?;
    let cap = kit.settings.keeps;
    let around = cap.unwrap_or(1 << 20);
    let mut seen = Vec::new();
    for (size, flags, fits) in [
        (around, "", true),
        (around, "&nolen&chunks=4", true),
        (around + 1, "", false),
        (around + 1, "&nolen&chunks=4", false),
        (3 * around, "&nolen&chunks=7", false),
    ] {
        let call = kit.post(&kit.key());
        let large = call.clone().flag(&format!("size={size}{flags}"));
        let tally = kit.tally().await?;
        let first = large.send().await?;
        let whole = first.ok() && first.complete && first.body.len() == size;
        first.must(whole, &format!("a success with all {size} bytes"))?;
        let again = kit.until_free(&call).await?;
        kit.must_have_run(&tally, 1, &again.request).await?;
        if again.ok() {
            kit.must_replay(&first, &again)?;
            let known_too_large = cap.is_some() && !fits;
            again.must(
                !known_too_large,
                "a refusal: it is larger than what is kept (--keeps)",
            )?;
            seen.push("replayed");
        } else {
            let known_to_fit = cap.is_some() && fits;
            let told = again.status.is_client_error() && !known_to_fit;
            again.must(
                told,
                "a replay, or a 4xx that tells that the response was not kept",
            )?;
            seen.push("not kept");
        }
    }
    Ok(format!("around {around} bytes: {}", seen.join(", ")))
}
