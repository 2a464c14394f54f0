//! What a request is answered, and for how long.

use std::time::Duration;

use http::StatusCode;

use super::Chapter;
use super::statuses::Judged;
use crate::admit::OnBusy;
use crate::headers::HeaderRules;
use crate::json::{self};
use crate::outcome::Outcome;
use crate::policy::PolicyLink;
use crate::policy::words;
use crate::reply::{FIRST_SEEN, REPLAYED, STATUS, Status};

/// The largest status of gRPC.
const LAST_GRPC: u16 = 16;

pub(super) fn repeats(on_busy: OnBusy, on_not_kept: bool, existing: usize) -> Chapter {
    let mut chapter = Chapter::new("repeats", "What a repeat is answered");
    let wait = match on_busy {
        OnBusy::Reject => Duration::ZERO,
        OnBusy::Wait(limit) => limit,
    };
    let text = if wait.is_zero() {
        "While the first request runs: 409 `in-progress` at once, with `Retry-After`.".to_owned()
    } else {
        let wait = words::span(wait);
        format!(
            "While the first request runs, a repeat waits up to {wait} for its answer; then 409 `in-progress`, with \
             `Retry-After`."
        )
    };
    chapter.tell("wait_seconds", words::seconds(wait), text);
    let text = if on_not_kept {
        "Where the work is done and its answer was not kept: what the server can still tell of it, else 409 \
         `response-not-kept`. Nothing runs again."
    } else {
        "Where the work is done and its answer was not kept: 409 `response-not-kept`. Nothing runs again."
    };
    chapter.tell("rendered_anew", on_not_kept, text);
    let text = match existing {
        0 => "",
        _ => "The same work under another key may be answered from what is there already.",
    };
    chapter.tell("known_constraints", existing, text);
    chapter
}

/// What is kept of an answer.
pub(super) struct Kept<'a> {
    pub(super) retention: Duration,
    pub(super) is_durable: bool,
    pub(super) max_response_body: usize,
    pub(super) head_rules: usize,
    pub(super) by_status: &'a (dyn Fn(StatusCode) -> Outcome + Send + Sync),
    pub(super) by_grpc_status: &'a (dyn Fn(u8) -> Outcome + Send + Sync),
    pub(super) headers: &'a HeaderRules,
    pub(super) is_redacted: bool,
    pub(super) is_sealed: bool,
    pub(super) has_fingerprint_secret: bool,
}

pub(super) fn kept(kept: Kept<'_>) -> Chapter {
    let mut chapter = Chapter::new("answers", "Which answers are kept, and for how long");
    chapter.tell(
        "retention_seconds",
        words::seconds(kept.retention),
        super::expiry(kept.retention, kept.is_durable),
    );
    let by_status = Judged::by(100..=599, |status| match StatusCode::from_u16(status) {
        Ok(status) => (kept.by_status)(status),
        Err(_) => Outcome::Release,
    });
    chapter.tell(
        "kept_statuses",
        by_status.json(Outcome::Keep),
        format!("Kept and replayed: {}.", by_status.text(Outcome::Keep)),
    );
    let text = if by_status.has(Outcome::Tombstone) {
        let statuses = by_status.text(Outcome::Tombstone);
        format!("Done for good, but shown once only: {statuses}.")
    } else {
        String::new()
    };
    chapter.tell(
        "once_only_statuses",
        by_status.json(Outcome::Tombstone),
        text,
    );
    chapter.tell(
        "released_statuses",
        by_status.json(Outcome::Release),
        format!(
            "Not kept, so that a repeat runs: {}; and any 4xx with `Retry-After`. An answer that the server gave past its point \
             of no return is kept whatever it is.",
            by_status.text(Outcome::Release)
        ),
    );
    let by_grpc = Judged::by(0..=LAST_GRPC, |status| {
        (kept.by_grpc_status)(u8::try_from(status).unwrap_or(u8::MAX))
    });
    chapter.tell(
        "kept_grpc_statuses",
        by_grpc.json(Outcome::Keep),
        format!(
            "Of gRPC calls, by their status: kept are {}.",
            by_grpc.numbers(Outcome::Keep)
        ),
    );
    chapter.tell(
        "once_only_grpc_statuses",
        by_grpc.json(Outcome::Tombstone),
        if by_grpc.has(Outcome::Tombstone) {
            let statuses = by_grpc.numbers(Outcome::Tombstone);
            format!("Of gRPC calls, done for good, but shown once only: {statuses}.")
        } else {
            String::new()
        },
    );
    let text = match kept.head_rules {
        0 => String::new(),
        1 => "A rule of the server's own looks at the head of an answer before these.".to_owned(),
        n => format!("{n} rules of the server's own look at the head of an answer before these."),
    };
    chapter.tell("rules_by_head", kept.head_rules, text);
    chapter.tell(
        "max_response_bytes",
        kept.max_response_body,
        format!(
            "An answer of more than {} is sent once and not kept: the work is done, and is not done again.",
            words::size(kept.max_response_body as u64)
        ),
    );
    headers(&mut chapter, kept.headers);
    let text = if kept.is_redacted {
        "What is secret is taken out of an answer before it is kept."
    } else {
        "An answer is kept as it was sent."
    };
    chapter.tell("redacted", kept.is_redacted, text);
    let text = if kept.is_sealed {
        "Kept answers are encrypted at rest."
    } else {
        "Kept answers are not encrypted by this layer."
    };
    chapter.tell("sealed", kept.is_sealed, text);
    let text = if kept.has_fingerprint_secret {
        "Of a request nothing is kept but a hash under a secret key."
    } else {
        "Of a request nothing is kept but a hash (SHA-256)."
    };
    chapter.tell("hash_is_keyed", kept.has_fingerprint_secret, text);
    chapter
}

fn headers(chapter: &mut Chapter, rules: &HeaderRules) {
    let told = rules.told();
    let names = |names: &[http::HeaderName]| {
        let json = json::list(names.iter().map(|name| json::string(name.as_str())));
        (json, words::list(names.iter().map(words::header)))
    };
    match told.only {
        None => chapter.tell(
            "only_headers",
            "null",
            "Headers are kept, except those that were true of one exchange only: cookies, challenges, dates, traces, quotas.",
        ),
        Some(only) => {
            let (json, text) = names(only);
            chapter.tell("only_headers", json, format!("Of the headers these are kept: {text}."));
        }
    }
    for (name, names_of, words) in [
        ("also_kept_headers", told.kept, "Kept besides"),
        ("dropped_headers", told.dropped, "Left out besides"),
    ] {
        let (json, text) = names(names_of);
        let text = match names_of {
            [] => String::new(),
            _ => format!("{words}: {text}."),
        };
        chapter.tell(name, json, text);
    }
}

pub(super) fn markers(tell_status: bool, link: Option<&PolicyLink>) -> Chapter {
    let mut chapter = Chapter::new("markers", "How to tell a replay");
    let name = |name: &http::HeaderName| json::string(name.as_str());
    chapter.tell(
        "replayed",
        name(&REPLAYED),
        format!(
            "An answer from the record carries `{}: true`.",
            words::title_case(&REPLAYED)
        ),
    );
    chapter.tell(
        "first_seen",
        name(&FIRST_SEEN),
        format!(
            "It carries {}, the date at which the first request was seen.",
            words::header(&FIRST_SEEN)
        ),
    );
    if tell_status {
        chapter.tell(
            "status",
            name(&STATUS),
            format!(
                "Each answer to a request with a key carries {}: {}, or the code of a refusal. Where it is `ignored`, nobody has \
                 looked at the key, and a repeat runs.",
                words::header(&STATUS),
                Status::ALL
                    .map(|status| format!("`{}`", status.as_str()))
                    .join(", ")
            ),
        );
    } else {
        chapter.tell("status", "null", "");
    }
    match link {
        None => chapter.tell("described_by", "null", ""),
        Some(link) => chapter.tell(
            "described_by",
            json::string(link.uri()),
            format!(
                "Refusals link to this policy (`rel=\"describedby\"`), at `{}`.",
                link.uri()
            ),
        ),
    }
    chapter
}
