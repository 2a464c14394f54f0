//! `POST /claims/{key}/resolve`: an operator says what a run of unknown outcome came to.

use axum::extract::{Path, Query, State};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::{HeaderName, HeaderValue, StatusCode};
use serde::Deserialize;
use serde_json::{Map, Value};
use tower_claim::store::{Resolved, State as RecordState};
use tower_claim::{Key, StoreError};
use tower_idempotency::{Explanation, UnknownOutcome};

use crate::operators::Desk;
use crate::problem::bad_request;

#[derive(Debug, Deserialize)]
pub(crate) struct ResolveQuery {
    r#as: Option<String>,
}

pub(crate) async fn resolve(
    State(desk): State<Desk>,
    Path(key): Path<String>,
    Query(query): Query<ResolveQuery>,
    body: Bytes,
) -> Response {
    let verdict = match (query.r#as.as_deref(), &body[..]) {
        (Some("absent"), _) => Verdict::Absent,
        (Some("done"), []) => Verdict::Done(None),
        (Some("done"), body) => match answer(body) {
            Ok(answer) => Verdict::Done(Some(answer)),
            Err(reason) => return bad_request(reason),
        },
        _ => return bad_request("as is missing: done or absent".to_owned()),
    };
    let resolved = match unknown(&desk, &key).await {
        Ok(Ok(outcome)) => say(&desk, &outcome, verdict).await,
        Ok(Err(status)) => return (status, why(status)).into_response(),
        Err(error) => Err(error),
    };
    match resolved {
        Ok(Resolved::Resolved { .. }) => StatusCode::NO_CONTENT.into_response(),
        Ok(Resolved::Absent) => (StatusCode::NOT_FOUND, why(StatusCode::NOT_FOUND)).into_response(),
        Ok(_) => (StatusCode::CONFLICT, why(StatusCode::CONFLICT)).into_response(),
        Err(error) => (StatusCode::SERVICE_UNAVAILABLE, error.to_string()).into_response(),
    }
}

enum Verdict {
    /// It happened, and this is its answer, if it is known.
    Done(Option<http::Response<Bytes>>),
    /// It did not.
    Absent,
}

fn why(status: StatusCode) -> &'static str {
    match status {
        StatusCode::NOT_FOUND => "no record has this key",
        _ => "the outcome of this key is not unknown",
    }
}

/// The run of this key, if nobody knows what it came to; else the status to answer with.
async fn unknown(desk: &Desk, key: &str) -> Result<Result<UnknownOutcome, StatusCode>, StoreError> {
    let Ok(key) = key.parse::<Key>() else {
        return Ok(Err(StatusCode::NOT_FOUND));
    };
    // Asked past the faults, as all that operators ask.
    match desk.store.dyn_peek(key).await? {
        None => return Ok(Err(StatusCode::NOT_FOUND)),
        Some(record) if record.state != RecordState::Unknown => {
            return Ok(Err(StatusCode::CONFLICT));
        }
        Some(_) => {}
    }
    Ok(match desk.runs.explain(key).await? {
        Explanation::Unknown(outcome) => Ok(outcome),
        _ => Err(StatusCode::CONFLICT),
    })
}

async fn say(
    desk: &Desk,
    outcome: &UnknownOutcome,
    verdict: Verdict,
) -> Result<Resolved, StoreError> {
    match verdict {
        Verdict::Done(Some(answer)) => desk.runs.resolve_with(outcome, answer).await,
        Verdict::Done(None) => desk.runs.resolve_done(outcome).await,
        Verdict::Absent => desk.runs.run_again(outcome).await,
    }
}

/// What is to be replayed.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Told {
    status: u16,
    /// Values are texts, or lists of texts where a header has several lines.
    #[serde(default)]
    headers: Map<String, Value>,
    /// A text as it is; any other value as JSON.
    #[serde(default)]
    body: Value,
}

fn answer(json: &[u8]) -> Result<http::Response<Bytes>, String> {
    let told: Told = serde_json::from_slice(json)
        .map_err(|error| format!("write {{\"status\", \"headers\", \"body\"}}: {error}"))?;
    let mut response = http::Response::new(match told.body {
        Value::Null => Bytes::new(),
        Value::String(text) => text.into(),
        json => json.to_string().into(),
    });
    *response.status_mut() = StatusCode::from_u16(told.status)
        .ok()
        .filter(|status| (200..600).contains(&status.as_u16()))
        .ok_or("status: a number from 200 to 599")?;
    for (name, value) in &told.headers {
        let name: HeaderName = name
            .parse()
            .map_err(|_| format!("headers: `{name}` is no name"))?;
        let lines = match value {
            Value::Array(lines) => &lines[..],
            line => std::slice::from_ref(line),
        };
        for line in lines {
            let line = line
                .as_str()
                .and_then(|line| HeaderValue::from_str(line).ok())
                .ok_or_else(|| format!("headers: `{name}` has a value that is no header's"))?;
            response.headers_mut().append(&name, line);
        }
    }
    Ok(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_told_in_json() {
        let told = br#"{"status":201,"headers":{"location":"/orders/1","link":["<a>","<b>"]},"body":{"n":1}}"#;
        let told = answer(told).unwrap();
        assert_eq!(
            (told.status().as_u16(), &told.body()[..]),
            (201, &b"{\"n\":1}"[..])
        );
        assert_eq!(told.headers()["location"], "/orders/1");
        assert_eq!(told.headers().get_all("link").iter().count(), 2);
        let text = answer(br#"{"status":200,"body":"as it is"}"#).unwrap();
        assert_eq!(text.body(), "as it is");
    }

    #[test]
    fn what_cannot_be_replayed_is_refused() {
        for bad in [
            "x",
            "[]",
            "{}",
            "{\"status\":99}",
            "{\"status\":600}",
            "{\"status\":\"ok\"}",
            "{\"status\":200,\"headers\":{\"a b\":\"x\"}}",
            "{\"status\":200,\"headers\":{\"a\":1}}",
            "{\"status\":200,\"headers\":{\"a\":\"x\\n\"}}",
            "{\"status\":200,\"staus\":1}",
        ] {
            assert!(answer(bad.as_bytes()).is_err(), "{bad}");
        }
    }
}
