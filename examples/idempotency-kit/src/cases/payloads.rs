//! What must not change under one key.

use bytes::Bytes;
use http::Version;

use crate::answer::Answer;
use crate::call::Call;
use crate::kit::Kit;
use crate::upload::Upload;
use crate::verdict::{Outcome, Stop, fail, skip};

const JSON: &str = "application/json";
const FORM: &str = "application/x-www-form-urlencoded";
const MULTIPART: &str = "multipart/form-data; boundary=kit";
const BINARY: &str = "application/octet-stream";

/// Two payloads that are not one.
struct Pair {
    name: &'static str,
    media: &'static str,
    bodies: [Upload; 2],
}

fn pairs(kit: &Kit) -> Vec<Pair> {
    let whole = |body: &str| Upload::Whole(Bytes::copy_from_slice(body.as_bytes()));
    let part = |value: &str| {
        whole(&format!(
            "--kit\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n{value}\r\n--kit--\r\n"
        ))
    };
    let pair = |name, media, a, b| Pair {
        name,
        media,
        bodies: [a, b],
    };
    vec![
        pair(
            "JSON",
            JSON,
            whole(&kit.settings.body),
            whole(&kit.other_body()),
        ),
        pair("form", FORM, whole("a=1&b=2"), whole("a=1&b=3")),
        pair("multipart", MULTIPART, part("1"), part("2")),
        pair(
            "binary",
            BINARY,
            Upload::Whole(Bytes::from_static(b"\x00\xff\x00")),
            Upload::Whole(Bytes::from_static(b"\x00\xff\x01")),
        ),
        pair("empty and {}", JSON, whole(""), whole("{}")),
        pair("{} and none", JSON, whole("{}"), Upload::Absent),
        pair(
            "something and empty",
            JSON,
            whole(&kit.settings.body),
            whole(""),
        ),
    ]
}

/// Whether the service takes the payload at all, and so would refuse it for its key only.
async fn takes(kit: &Kit, call: &Call) -> Result<bool, Stop> {
    // With misbehaviour on command, the handler reads anything.
    if kit.settings.lab {
        return Ok(true);
    }
    Ok(call.clone().key(&kit.key()).send().await?.ok())
}

/// Whether the pair could be tried; the second under the key of the first must be 422.
async fn must_be_two(kit: &Kit, a: &Call, b: &Call) -> Result<bool, Stop> {
    if !takes(kit, a).await? || !takes(kit, b).await? {
        return Ok(false);
    }
    let key = kit.key();
    let tally = kit.tally().await?;
    let first = a.clone().key(&key).send().await?;
    first.must(first.ok(), "a success")?;
    let other = b.clone().key(&key).send().await?;
    other.must(other.is(422), &format!("422: the key was used by {a}"))?;
    kit.must_have_run(&tally, 1, &other.request).await?;
    Ok(true)
}

fn tried(done: &[&str], left_out: &[&str]) -> Outcome {
    match (done, left_out) {
        ([], _) => Err(skip(
            "the service takes none of the bodies; see --body and --other-body",
        )),
        (done, []) => Ok(done.join(", ")),
        (done, left) => Ok(format!(
            "{}; not taken by the service: {}",
            done.join(", "),
            left.join(", ")
        )),
    }
}

pub(super) async fn two_under_one_key(kit: &Kit) -> Outcome {
    let (mut done, mut left) = (vec![], vec![]);
    for pair in pairs(kit) {
        let [a, b] = pair
            .bodies
            .map(|body| kit.unkeyed().media(pair.media).upload(body));
        match must_be_two(kit, &a, &b).await? {
            true => done.push(pair.name),
            false => left.push(pair.name),
        }
    }
    tried(&done, &left)
}

pub(super) async fn without_a_length(kit: &Kit) -> Outcome {
    let (mut done, mut left) = (vec![], vec![]);
    for pair in pairs(kit) {
        let [a, b] = pair.bodies.map(|body| match body {
            Upload::Whole(bytes) => kit
                .unkeyed()
                .media(pair.media)
                .upload(Upload::pieces(&bytes, 3)),
            other => kit.unkeyed().media(pair.media).upload(other),
        });
        match must_be_two(kit, &a, &b).await? {
            true => done.push(pair.name),
            false => left.push(pair.name),
        }
    }
    let body = kit.settings.body.clone();
    let call = kit.post(&kit.key());
    let first = call
        .clone()
        .upload(Upload::pieces(body.as_bytes(), 1))
        .send()
        .await?;
    if first.ok() {
        for each in [2, 5, 7, usize::MAX] {
            let again = call.clone().upload(Upload::pieces(body.as_bytes(), each));
            kit.must_replay(&first, &again.send().await?)?;
        }
        kit.must_replay(&first, &call.send().await?)?;
        done.push("any boundaries");
    }
    if !kit.settings.http2 && http2_without_a_length(kit, &call).await? {
        done.push("HTTP/2");
    }
    tried(&done, &left)
}

/// The same request over HTTP/2, where the service speaks it.
async fn http2_without_a_length(kit: &Kit, call: &Call) -> Result<bool, Stop> {
    let two = call.clone().http(Version::HTTP_2);
    if two.send().await.is_err() {
        return Ok(false);
    }
    let other = kit.other_body();
    let other = two
        .upload(Upload::pieces(other.as_bytes(), 3))
        .send()
        .await?;
    other.must(other.is(422), "422 over HTTP/2, too")?;
    Ok(true)
}

pub(super) async fn as_they_came(kit: &Kit) -> Outcome {
    kit.can_tell()?;
    let tally = kit.tally().await?;
    let key = kit.key();
    let call = kit.post(&key).query("kit=%7E%2f&kit");
    let first = call.send().await?;
    first.must(first.ok(), "a success")?;
    for _ in 0..2 {
        kit.must_replay(&first, &kit.until_free(&call).await?)?;
    }
    let other = kit
        .post(&key)
        .body(kit.other_body())
        .query("kit=%7E%2f&kit")
        .send()
        .await?;
    other.must(other.is(422), "422: the key was used by the other body")?;
    kit.must_have_run(&tally, 1, &call.to_string()).await?;
    Ok("replayed (whether layers inside rewrite requests cannot be seen from here)".to_owned())
}

pub(super) async fn member_order(kit: &Kit) -> Outcome {
    let body = |member: &str| kit.unkeyed().body(kit.with_member(member));
    let (ab, ba) = (
        body(r#""kit_a":1,"kit_b":2"#),
        body(r#""kit_b":2,"kit_a":1"#),
    );
    if !takes(kit, &ab).await? {
        return Err(skip(
            "the service takes no JSON body with members of the kit's; see --body",
        ));
    }
    let key = kit.key();
    let tally = kit.tally().await?;
    let first = ab.key(&key).send().await?;
    first.must(first.ok(), "a success")?;
    let turned = ba.key(&key).send().await?;
    let compared = if turned.is(422) {
        "bytes are compared"
    } else {
        kit.must_replay(&first, &turned)?;
        "canonical JSON is compared"
    };
    kit.must_have_run(&tally, 1, &turned.request).await?;
    for (a, b) in [
        (r#""kit_a":1"#, r#""kit_a":1.0"#),
        (r#""kit_a":9007199254740992"#, r#""kit_a":9007199254740993"#),
        (r#""kit_a":1,"kit_a":2"#, r#""kit_a":2"#),
    ] {
        must_not_blur(kit, &body(a), &body(b)).await?;
    }
    Ok(compared.to_owned())
}

async fn must_not_blur(kit: &Kit, a: &Call, b: &Call) -> Result<(), Stop> {
    let key = kit.key();
    let first = a.clone().key(&key).send().await?;
    // Doubled members may be refused by themselves.
    if !first.ok() {
        return Ok(());
    }
    let tally = kit.tally().await?;
    let other = b.clone().key(&key).send().await?;
    other.must(
        other.status.is_client_error(),
        &format!("422: the key was used by {a}"),
    )?;
    kit.must_have_run(&tally, 0, &other.request).await
}

pub(super) async fn content_type(kit: &Kit) -> Outcome {
    let key = kit.key();
    let first = kit.post(&key).send().await?;
    first.must(first.ok(), "a success")?;
    let tally = kit.tally().await?;
    let other = kit.post(&key).media("text/plain").send().await?;
    if replayed_or_ran(&other) {
        return Err(fail(
            &other.request,
            "a refusal: the key was used with another content type",
            other.to_string(),
        ));
    }
    kit.must_have_run(&tally, 0, &other.request).await?;
    Ok(format!("refused: {}", other.status.as_u16()))
}

fn replayed_or_ran(answer: &Answer) -> bool {
    answer.ok() || answer.marker().is_some()
}
