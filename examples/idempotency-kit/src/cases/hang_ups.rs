//! Callers that are gone, and runs that end badly.

use http::Version;

use crate::answer::Answer;
use crate::call::Call;
use crate::connection::Connection;
use crate::kit::Kit;
use crate::tally::Tally;
use crate::upload::Upload;
use crate::verdict::{Outcome, Stop, fail, skip};

pub(super) async fn while_the_handler_runs(kit: &Kit) -> Outcome {
    kit.can_tell()?;
    let call = kit.post(&kit.key());
    let tally = kit.tally().await?;
    if !kit.settings.lab {
        return at_an_unknown_moment(kit, &call, &tally).await;
    }
    drop(kit.start(call.clone(), kit.known.hold() * 2).await?);
    let again = kit.until_free(&call).await?;
    must_be_the_only_run(kit, &call, &again, &tally).await?;
    Ok(format!("later replayed: {again}"))
}

/// Without a handler that can be held, the hang-up may come before, during or after the run.
async fn at_an_unknown_moment(kit: &Kit, call: &Call, tally: &Tally) -> Outcome {
    let mut connection = call.connect().await?;
    let soon = kit.known.round_trip / 2;
    let _ = tokio::time::timeout(soon, connection.send(call.request()?)).await;
    drop(connection);
    let again = kit.until_free(call).await?;
    again.must(again.ok(), "a success, or the replay of one")?;
    let third = call.send().await?;
    kit.must_replay(&again, &third)?;
    kit.must_have_run(tally, 1, &call.to_string()).await?;
    Ok(format!(
        "hung up after {soon:.1?} (not held: no --lab); later {again}"
    ))
}

/// The repeat is a replay of the run that nobody heard of.
async fn must_be_the_only_run(
    kit: &Kit,
    call: &Call,
    again: &Answer,
    tally: &Tally,
) -> Result<(), Stop> {
    let marked = kit.known.marker.is_none() || again.marker().is_some();
    again.must(
        again.ok() && marked,
        "a replay of the run whose caller hung up",
    )?;
    let third = call.send().await?;
    kit.must_replay(again, &third)?;
    kit.must_have_run(tally, 1, &format!("hung up: {call}"))
        .await
}

pub(super) async fn during_the_upload(kit: &Kit) -> Outcome {
    let key = kit.key();
    let whole = kit.post(&key);
    let half = whole
        .clone()
        .upload(Upload::Half(kit.settings.body.clone().into()));
    let tally = kit.tally().await?;
    let request = half.request()?;
    let mut connection = half.connect().await?;
    let early = tokio::time::timeout(kit.known.hold(), connection.send(request)).await;
    if let Ok(Ok(early)) = early {
        let refused = early.status().is_client_error() || early.status().is_server_error();
        if !refused {
            let seen = early.status().to_string();
            return Err(fail(
                half.to_string(),
                "no answer before the body is there",
                seen,
            ));
        }
    }
    kit.must_have_run(&tally, 0, &half.to_string()).await?;
    drop(connection);
    let again = kit.until_free(&whole).await?;
    let fresh = again.ok() && again.marker().is_none();
    again.must(fresh, "a run: the first request never came whole")?;
    kit.must_have_run(&tally, 1, &whole.to_string()).await?;
    Ok(format!("then ran: {again}"))
}

pub(super) async fn during_the_response(kit: &Kit) -> Outcome {
    const SIZE: usize = 4000;
    kit.misbehaves()?;
    let call = kit.post(&kit.key());
    let tally = kit.tally().await?;
    let pause = kit.known.hold().as_millis() / 4;
    let flags = format!("size={SIZE}&chunks=8&chunk_delay={pause}&nolen");
    let asked = call.clone().flag(&flags);
    let (connection, response) = asked.open().await?;
    if !response.status().is_success() {
        let refused = asked.rest(response).await?;
        return Err(fail(asked.to_string(), "a success", refused.to_string()));
    }
    drop((connection, response));
    let again = kit.until_free(&call).await?;
    let kept = again.ok() && again.complete && again.body.len() == SIZE;
    let told = again.is(409);
    again.must(kept || told, "the whole response, or that it was not kept")?;
    kit.must_have_run(&tally, 1, &format!("hung up: {asked}"))
        .await?;
    Ok(format!("later {again}"))
}

pub(super) async fn of_an_http2_stream(kit: &Kit) -> Outcome {
    kit.misbehaves()?;
    let call = kit.post(&kit.key()).http(Version::HTTP_2);
    let mut connection = match speaks_http2(kit).await {
        Some(connection) => connection,
        None => {
            return Err(skip(
                "the service does not speak HTTP/2 without TLS (h2c, prior knowledge)",
            ));
        }
    };
    let tally = kit.tally().await?;
    let held = call
        .clone()
        .flag(&format!("delay={}", 2 * kit.known.hold().as_millis()));
    {
        let request = held.request()?;
        let mut stream = std::pin::pin!(connection.send(request));
        loop {
            tokio::select! {
                _ = &mut stream => break,
                () = tokio::time::sleep(kit.known.pause()) => {}
            }
            match kit.ran(&tally).await? {
                Some(0) => {}
                _ => break,
            }
        }
        // The end of this block takes the request back, and leaves the connection.
    }
    let alive = kit.post(&kit.key()).http(Version::HTTP_2);
    alive.send_over(&mut connection).await?;
    let again = kit.until_free(&call).await?;
    let marked = kit.known.marker.is_none() || again.marker().is_some();
    again.must(
        again.ok() && marked,
        "a replay of the run whose stream was reset",
    )?;
    // The one that showed that the connection lives ran, too.
    kit.must_have_run(
        &tally,
        2,
        &format!("reset: {call}; then one under another key"),
    )
    .await?;
    Ok(format!("later replayed: {again}"))
}

async fn speaks_http2(kit: &Kit) -> Option<Connection> {
    let call = kit.post(&kit.key()).http(Version::HTTP_2);
    let mut connection = call.connect().await.ok()?;
    let answer = call.send_over(&mut connection).await.ok()?;
    answer.ok().then_some(connection)
}

pub(super) async fn by_an_outer_timeout(kit: &Kit) -> Outcome {
    kit.misbehaves()?;
    let call = kit.post(&kit.key());
    let tally = kit.tally().await?;
    let beyond = kit.settings.times_out.unwrap_or_default() * 2;
    let hold = kit.known.hold() * 2 + beyond;
    let first = call
        .clone()
        .flag(&format!("delay={}", hold.as_millis()))
        .send()
        .await?;
    if first.ok() {
        return Err(skip(format!(
            "no timeout outside of the layer fired within {hold:?}; start the service with one (the lab: --outer-timeout 2s), \
             and say when it fires with --times-out"
        )));
    }
    let again = kit.until_free(&call).await?;
    must_be_the_only_run(kit, &call, &again, &tally).await?;
    Ok(format!(
        "the caller was told {}; later replayed: {again}",
        first.status.as_u16()
    ))
}

pub(super) async fn every_way_to_end(kit: &Kit) -> Outcome {
    const WAYS: [&str; 5] = [
        "panic",
        "status=204",
        "size=3000&chunks=3&nolen",
        "status=500",
        "size=3000&chunks=3&nolen&body_error=1",
    ];
    kit.misbehaves()?;
    for way in WAYS {
        let call = kit.post(&kit.key());
        // A connection that dies of it is one more way to end.
        if let Err(Stop::Skip(reason)) = call.clone().flag(way).send().await {
            return Err(Stop::Skip(reason));
        }
        let again = kit.until_free(&call).await?;
        again.must(again.complete, "a whole answer")?;
    }
    Ok(format!("free or answered after {}", WAYS.join(", ")))
}
