//! What there is a bound for.

use super::Chapter;
use crate::policy::words;
use crate::quota;
use crate::wait::WaitLimits;

/// What there is a bound for.
pub(super) struct Limits {
    pub(super) repeats_wait: bool,
    pub(super) max_request_body: usize,
    pub(super) stream_uploads: Option<u64>,
    pub(super) max_in_flight: usize,
    pub(super) waits: WaitLimits,
    pub(super) quota: Option<quota::Limits>,
}

pub(super) fn limits(limits: Limits) -> Chapter {
    let mut chapter = Chapter::new("limits", "Limits");
    let bytes = limits.max_request_body;
    let size = words::size(bytes as u64);
    chapter.tell(
        "max_request_bytes",
        bytes,
        match limits.stream_uploads {
            None => format!(
                "The body of a request with a key has {size} at most; a larger one is refused (413 `body-too-large`)."
            ),
            Some(_) => format!("The body of a request with a key is read before anything runs, up to {size}."),
        },
    );
    match limits.stream_uploads {
        None => chapter.tell("streamed_bytes", "null", "It is read before anything runs."),
        Some(bytes) => chapter.tell(
            "streamed_bytes",
            bytes,
            format!(
                "A larger one runs while it still comes, up to {}; over that it is refused (413 `body-too-large`). With \
                 a SHA-256 in its `Content-Digest`, where that is verified, it is known from the beginning; without one \
                 when all of it was there.",
                words::size(bytes)
            ),
        ),
    }
    let runs = limits.max_in_flight;
    chapter.tell(
        "max_running",
        runs,
        format!("{runs} requests with keys run at once in each process; one more is refused (503 `overloaded`)."),
    );
    let WaitLimits {
        in_all,
        per_key,
        bytes,
    } = limits.waits;
    // Who asks what became of a key may wait also where repeats do not.
    let who = if limits.repeats_wait {
        "repeats, and questions about keys,"
    } else {
        "questions about keys"
    };
    chapter.tell(
        "max_waiting",
        in_all,
        format!("{in_all} {who} may wait for an answer at once, in each process."),
    );
    chapter.tell(
        "max_waiting_for_one_key",
        per_key,
        format!("{per_key} of them may wait for one key."),
    );
    let text = if limits.repeats_wait {
        format!(
            "The bodies of all that wait have {} at most.",
            words::size(bytes as u64)
        )
    } else {
        String::new()
    };
    chapter.tell("max_waiting_bytes", bytes, text);
    let quota::Limits { records, bytes } = limits.quota.unwrap_or(quota::Limits::NONE);
    if records == u64::MAX {
        chapter.tell(
            "max_keys_per_caller",
            "null",
            "A caller may have any number of keys.",
        );
    } else {
        chapter.tell(
            "max_keys_per_caller",
            records,
            format!("A caller may have {records} keys at once in each process; one more is refused (429 `quota-exceeded`)."),
        );
    }
    if bytes == u64::MAX {
        chapter.tell("max_bytes_per_caller", "null", "");
    } else {
        chapter.tell(
            "max_bytes_per_caller",
            bytes,
            format!(
                "The kept answers of a caller may have {} together in each process; beyond that a new key is refused (429 \
                 `quota-exceeded`), and an answer that does not fit is sent once and not kept.",
                words::size(bytes)
            ),
        );
    }
    chapter
}
