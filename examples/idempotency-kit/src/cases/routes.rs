//! Endpoints, methods, and what stands around the layer.

use http::Method;

use crate::answer::Answer;
use crate::kit::Kit;
use crate::settings::SECOND_POST;
use crate::verdict::{Outcome, Stop, skip};

pub(super) async fn one_key_two_endpoints(kit: &Kit) -> Outcome {
    let second = kit.settings.second_post.as_deref();
    let second = second.unwrap_or(SECOND_POST);
    let seen = match kit.has(second).await? {
        true => apart(kit, &kit.settings.post, second).await?,
        false => "no second endpoint (see --second-post)",
    };
    let nested = match &kit.settings.nested {
        Some([a, b]) if kit.has(a).await? && kit.has(b).await? => apart(kit, a, b).await?,
        Some(_) | None if !kit.has(second).await? => {
            return Err(skip(format!(
                "there is no second endpoint at {second} that takes the same body; give --second-post, or --nested"
            )));
        }
        Some([a, b]) => return Ok(format!("{seen} (nested routers: none at {a} and {b})")),
        None => return Ok(format!("{seen} (nested routers: not tried, see --nested)")),
    };
    Ok(format!("{seen}; nested: {nested}"))
}

/// One key at two paths.
async fn apart(kit: &Kit, a: &str, b: &str) -> Result<&'static str, Stop> {
    let key = kit.key();
    let tally = kit.tally_of(b).await?;
    let first = kit.post_to(a, &key).send().await?;
    first.must(first.ok(), "a success")?;
    let other = kit.post_to(b, &key).send().await?;
    if other.is(422) {
        kit.must_have_run(&tally, 0, &other.request).await?;
        return Ok("422");
    }
    other.must(
        other.ok() && other.marker().is_none(),
        "422, or a run of its own",
    )?;
    match kit.ran(&tally).await? {
        Some(ran) => other.must(ran == 1, "422, or a run of its own")?,
        None => other.must(other.body != first.body, "422, or a run of its own")?,
    }
    Ok("a run of its own")
}

pub(super) async fn replay_needs_the_right_to_ask(kit: &Kit) -> Outcome {
    if kit.settings.denied.is_empty() {
        return Err(skip(
            "needs a caller without the right to ask: give the header lines that make one, for instance --denied Authorization:…",
        ));
    }
    let call = kit.post(&kit.key());
    let first = call.send().await?;
    first.must(first.ok(), "a success")?;
    let denied = call.lines(&kit.settings.denied).send().await?;
    denied.must(denied.is(401) || denied.is(403), "401 or 403")?;
    let leaked = ["location", "etag", "set-cookie"].into_iter().find(|name| {
        let stored = first.values(name);
        !stored.is_empty() && stored == denied.values(name)
    });
    let clean = leaked.is_none() && denied.marker().is_none() && denied.body != first.body;
    denied.must(clean, "nothing of what was stored")?;
    Ok(denied.to_string())
}

pub(super) async fn a_nonce_check_inside(kit: &Kit) -> Outcome {
    kit.misbehaves()?;
    let nonce = kit.key();
    let ask = |key: &str| kit.post(key).header("x-nonce", &nonce);
    let key = kit.key();
    let first = ask(&key).send().await?;
    first.must(first.ok(), "a success")?;
    let again = ask(&key).send().await?;
    kit.must_replay(&first, &again)?;
    let used = ask(&kit.key()).send().await?;
    if used.ok() {
        return Err(skip(
            "nothing inside refuses a repeated X-Nonce; start the service with such a layer (the lab: --inner nonce)",
        ));
    }
    Ok(format!("replayed; another key with the same nonce: {used}"))
}

pub(super) async fn safe_methods(kit: &Kit) -> Outcome {
    let path = &kit.settings.post;
    let key = kit.key();
    let ask = |method: Method| kit.call(method, path).key(&key);
    for method in [Method::GET, Method::HEAD, Method::OPTIONS] {
        for _ in 0..2 {
            let answer = ask(method.clone()).send().await?;
            answer.must(answer.marker().is_none(), "no replay of a safe method")?;
        }
    }
    let first = kit.post(&key).send().await?;
    let fresh = first.ok() && first.marker().is_none();
    first.must(fresh, "a run: GET, HEAD and OPTIONS left the key free")?;
    let got = ask(Method::GET).send().await?;
    let own = got.marker().is_none() && (got.body != first.body || !got.ok());
    got.must(own, "an answer of its own, not that of the POST")?;
    if let Some(effects) = &kit.settings.effects {
        let bare = kit.call(Method::GET, effects).raw_key(b"\"").send().await?;
        bare.must(bare.ok(), "a route without the layer to ignore the header")?;
    }
    let cors = preflight(kit).await?;
    Ok(format!("left alone; {cors}"))
}

/// Where there is CORS, it lets the header in and the markers out.
async fn preflight(kit: &Kit) -> Result<&'static str, Stop> {
    let origin = "https://kit.example";
    let answer = kit
        .call(Method::OPTIONS, &kit.settings.post)
        .header("origin", origin)
        .header("access-control-request-method", "POST")
        .header(
            "access-control-request-headers",
            "idempotency-key,content-type",
        )
        .send()
        .await?;
    if !answer.headers.contains_key("access-control-allow-origin") {
        return Ok("no CORS for a foreign origin");
    }
    let lists = |answer: &Answer, header: &str, name: &str| {
        let values = answer.values(header).join(&b","[..]);
        let values = String::from_utf8_lossy(&values).to_ascii_lowercase();
        values
            .split(',')
            .any(|value| [name, "*"].contains(&value.trim()))
    };
    let allowed = lists(&answer, "access-control-allow-headers", "idempotency-key");
    answer.must(allowed, "Access-Control-Allow-Headers with Idempotency-Key")?;
    if let Some(marker) = kit.known.marker {
        let asked = kit.post(&kit.key()).header("origin", origin).send().await?;
        let exposed = lists(&asked, "access-control-expose-headers", marker);
        asked.must(
            exposed,
            "Access-Control-Expose-Headers with the marker of replays",
        )?;
    }
    Ok("CORS allows the key")
}
