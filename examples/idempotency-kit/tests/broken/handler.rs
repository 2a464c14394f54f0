//! The handler behind the layer: counts an effect, and misbehaves on command.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use percent_encoding::percent_decode;

use crate::flaw::Flaw;
use crate::service::Service;

/// What a handler answers.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) chunks: usize,
    pub(crate) pause: Duration,
    pub(crate) fails: bool,
    pub(crate) no_effect: bool,
    pub(crate) committed: bool,
}

/// Counts one effect and does what the flags say.
pub(crate) async fn work(service: Arc<Service>, head: Parts) -> Answer {
    let mut answer = Answer {
        status: StatusCode::CREATED,
        headers: HeaderMap::new(),
        body: Bytes::new(),
        chunks: 1,
        pause: Duration::ZERO,
        fails: false,
        no_effect: false,
        committed: false,
    };
    if head.headers.contains_key("x-deny") {
        answer.status = StatusCode::FORBIDDEN;
        answer.no_effect = true;
        return answer;
    }
    if !service.has(Flaw::ChecksNoncesOutside) && !fresh_nonce(&service, &head) {
        answer.status = StatusCode::CONFLICT;
        answer.no_effect = true;
        return answer;
    }
    let flags = flags(&head);
    let flag = |name: &str| {
        flags
            .iter()
            .find(|(n, _)| n == name)
            .map(|(_, value)| value)
    };
    let number = |name: &str| {
        let value = flag(name)?;
        std::str::from_utf8(value).unwrap().parse::<u64>().ok()
    };
    let status = |name| number(name).map(|n| StatusCode::from_u16(n as u16).unwrap());
    if let Some(status) = status("reject") {
        answer.status = status;
        answer.no_effect = true;
        return answer;
    }
    let n = {
        let mut effects = service.effects.lock().unwrap();
        let name = format!("{} {}", head.method, head.uri.path());
        let n = effects.entry(name).or_default();
        *n += 1;
        *n
    };
    tokio::time::sleep(Duration::from_millis(number("delay").unwrap_or(0))).await;
    assert!(flag("panic").is_none(), "the handler panics on command");
    answer.status = status("status").unwrap_or(answer.status);
    answer.committed = flag("commit").is_some();
    answer.chunks = number("chunks").unwrap_or(1) as usize;
    answer.pause = Duration::from_millis(number("chunk_delay").unwrap_or(0));
    answer.fails = flag("body_error").is_some();
    let headers = &mut answer.headers;
    let mut put = |name: &str, value: &[u8]| {
        let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
        headers.append(name, HeaderValue::from_bytes(value).unwrap());
    };
    put("location", format!("/orders/{n}").as_bytes());
    put("link", b"</a>");
    put("link", b"</b>");
    for (_, line) in flags.iter().filter(|(name, _)| name == "header") {
        let colon = line.iter().position(|byte| *byte == b':').unwrap();
        let name = std::str::from_utf8(&line[..colon]).unwrap();
        put(name, line[colon + 1..].trim_ascii());
    }
    if answer.status != StatusCode::NO_CONTENT {
        answer.body = match number("size") {
            Some(size) => vec![b'x'; size as usize].into(),
            None => format!("{{\"n\":{n},\"path\":{:?}}}", head.uri.path()).into(),
        };
    }
    answer
}

fn flags(head: &Parts) -> Vec<(String, Vec<u8>)> {
    let text = head
        .headers
        .get("x-lab")
        .map(|flags| flags.to_str().unwrap());
    let pairs = text.into_iter().flat_map(|text| text.split('&'));
    let flags = pairs.map(|pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        (name.to_owned(), percent_decode(value.as_bytes()).collect())
    });
    flags.collect()
}

pub(crate) fn fresh_nonce(service: &Service, head: &Parts) -> bool {
    match head.headers.get("x-nonce") {
        Some(nonce) => {
            let mut nonces = service.nonces.lock().unwrap();
            nonces.insert(nonce.as_bytes().to_vec())
        }
        None => true,
    }
}

/// Sends an answer; `ended` is called before its last byte.
pub(crate) fn respond(answer: Answer, ended: impl FnOnce() + Send + 'static) -> Response {
    let each = answer.body.len().div_ceil(answer.chunks).max(1);
    let mut chunks: Vec<Bytes> = answer
        .body
        .chunks(each)
        .map(Bytes::copy_from_slice)
        .collect();
    chunks.reverse();
    let body = match answer.chunks {
        1 => Body::from(answer.body.clone()),
        _ => Body::from_stream(futures_util::stream::unfold(
            (chunks, Some(ended), true),
            move |(mut chunks, mut ended, first)| async move {
                if !first {
                    tokio::time::sleep(answer.pause).await;
                }
                if answer.fails && !first {
                    return Some((Err("broken on command"), (vec![], None, first)));
                }
                let chunk = chunks.pop()?;
                if let Some(ended) = ended.take_if(|_| chunks.is_empty()) {
                    ended();
                }
                Some((Ok(chunk), (chunks, ended, false)))
            },
        )),
    };
    let mut response = Response::new(body);
    *response.status_mut() = answer.status;
    *response.headers_mut() = answer.headers;
    response
}
