//! `/items/{id}`: a real origin with an entity tag, conditional requests and ranges (RFC 9110).

use std::ops::RangeInclusive;

use axum::response::Response;
use http::header::{
    ACCEPT_RANGES, CONTENT_RANGE, CONTENT_TYPE, ETAG, IF_NONE_MATCH, IF_RANGE, RANGE,
};
use http::{HeaderMap, HeaderValue, Method, StatusCode};

use crate::filler::Content;
use crate::handler::{Answer, Route};

const TAG: &str = "\"v1\"";

/// Turns a 200 into 304, 206 or 416 where the request asks for it.
pub(crate) fn respond(answer: Answer) -> Response {
    let (asks, method) = (&answer.parts.headers, &answer.parts.method);
    if answer.status != StatusCode::OK || !(method == Method::GET || method == Method::HEAD) {
        return answer.into_response(Route::Items);
    }
    let mut response = answer.head(Route::Items);
    let headers = response.headers_mut();
    headers.insert(ETAG, HeaderValue::from_static(TAG));
    headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    if matches_tag(asks) {
        return without_content(response, StatusCode::NOT_MODIFIED);
    }

    let content = answer.content();
    let whole = content.len();
    // Ranges are defined for GET only.
    let wanted = if method == Method::GET {
        wanted(asks, whole)
    } else {
        Wanted::Whole
    };
    match wanted {
        Wanted::Whole => answer.fill(&mut response, content),
        Wanted::Part(range) => {
            let (start, end) = range.into_inner();
            set_range(&mut response, &format!("bytes {start}-{end}/{whole}"));
            *response.status_mut() = StatusCode::PARTIAL_CONTENT;
            let part = match content {
                Content::Filler(_) => Content::Filler(end - start + 1),
                Content::Bytes(bytes) => Content::Bytes(bytes.slice(start as usize..=end as usize)),
            };
            answer.fill(&mut response, part);
        }
        Wanted::Unsatisfiable => {
            set_range(&mut response, &format!("bytes */{whole}"));
            return without_content(response, StatusCode::RANGE_NOT_SATISFIABLE);
        }
    }
    response
}

fn without_content(mut response: Response, status: StatusCode) -> Response {
    *response.status_mut() = status;
    response.headers_mut().remove(CONTENT_TYPE);
    response
}

fn set_range(response: &mut Response, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        response.headers_mut().insert(CONTENT_RANGE, value);
    }
}

/// Weak comparison with any listed tag, or `*`.
fn matches_tag(headers: &HeaderMap) -> bool {
    headers
        .get_all(IF_NONE_MATCH)
        .iter()
        .filter_map(|line| line.to_str().ok())
        .any(|line| {
            line.split(',')
                .map(str::trim)
                .any(|tag| tag == "*" || tag.trim_start_matches("W/") == TAG)
        })
}

#[derive(Debug, PartialEq, Eq)]
enum Wanted {
    Whole,
    Part(RangeInclusive<u64>),
    Unsatisfiable,
}

/// One range of the whole; several, other units and bad syntax are ignored, as the RFC allows.
fn wanted(headers: &HeaderMap, whole: u64) -> Wanted {
    if headers.get(IF_RANGE).is_some_and(|tag| tag != TAG) {
        return Wanted::Whole;
    }
    let line = headers.get(RANGE).and_then(|line| line.to_str().ok());
    let Some((unit, spec)) = line.and_then(|line| line.split_once('=')) else {
        return Wanted::Whole;
    };
    if !unit.eq_ignore_ascii_case("bytes") {
        return Wanted::Whole;
    }
    let Some((first, last)) = spec.trim().split_once('-') else {
        return Wanted::Whole;
    };
    let number = |text: &str| match text {
        "" => Ok(None),
        digits if digits.bytes().all(|b| b.is_ascii_digit()) => {
            Ok(Some(digits.parse::<u64>().unwrap_or(u64::MAX)))
        }
        _ => Err(()),
    };
    match (number(first), number(last)) {
        (Ok(Some(first)), Ok(last)) if last.is_none_or(|last| first <= last) => {
            if first >= whole {
                return Wanted::Unsatisfiable;
            }
            Wanted::Part(first..=last.unwrap_or(u64::MAX).min(whole - 1))
        }
        (Ok(None), Ok(Some(suffix))) if suffix > 0 && whole > 0 => {
            Wanted::Part(whole.saturating_sub(suffix)..=whole - 1)
        }
        (Ok(None), Ok(Some(_))) => Wanted::Unsatisfiable,
        _ => Wanted::Whole,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(range: &'static str) -> Wanted {
        let mut headers = HeaderMap::new();
        headers.insert(RANGE, HeaderValue::from_static(range));
        wanted(&headers, 100)
    }

    #[test]
    fn one_range_is_a_part_and_all_else_the_whole() {
        assert_eq!(of("bytes=0-9"), Wanted::Part(0..=9));
        assert_eq!(of("bytes=90-"), Wanted::Part(90..=99));
        assert_eq!(of("bytes=90-900"), Wanted::Part(90..=99));
        assert_eq!(
            of("Bytes=90-99999999999999999999999"),
            Wanted::Part(90..=99)
        );
        assert_eq!(of("bytes=-5"), Wanted::Part(95..=99));
        assert_eq!(of("bytes=100-"), Wanted::Unsatisfiable);
        assert_eq!(of("bytes=-0"), Wanted::Unsatisfiable);
        for whole in [
            "bytes=0-1,5-6",
            "bytes=9-1",
            "bytes=x-",
            "lines=1-2",
            "bytes=-",
            "bytes=5",
        ] {
            assert_eq!(of(whole), Wanted::Whole, "{whole}");
        }
    }

    #[test]
    fn tags_match_weakly_and_in_lists() {
        let of = |line: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(IF_NONE_MATCH, HeaderValue::from_static(line));
            matches_tag(&headers)
        };
        assert!(of("\"v1\"") && of("W/\"v1\"") && of("\"v0\", \"v1\"") && of("*"));
        assert!(!of("\"v2\"") && !of("v1"));
    }
}
