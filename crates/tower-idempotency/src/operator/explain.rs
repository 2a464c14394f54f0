//! What became of a key.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use tower_claim::store::{DoneRecord, RecordView, State, Value};
use tower_claim::{Key, StoreError};

use super::{Operator, SeenRecord, UnknownOutcome, waits_for_hook};
use crate::admit::lead;
use crate::record::{Before, Marker, is_withdrawn};
use crate::shown;
use crate::way::{LONGEST_WAY, too_long};

/// What became of a key.
#[derive(Clone)]
#[non_exhaustive]
pub enum Explanation {
    /// No run is remembered.
    NeverSeen,
    /// A run is going; or one has just ended without having begun, since its mark was in doubt, and holds its key for
    /// the rest of a lease.
    Running {
        /// How long.
        since: Duration,
        /// What is left of its lease. Zero: it has lapsed, and the next repeat takes over.
        expires_in: Duration,
        /// How long ago it gave its last sign of life.
        last_beat: Duration,
        /// The last progress it told.
        progress: u64,
        /// Whether it has passed its point of no return.
        marked: bool,
    },
    /// The work is done.
    Done {
        /// Where the answer lies, for [`Operator::purge`].
        seen: SeenRecord,
        /// What a repeat is answered; `None` where it was not kept.
        response: Option<Response<Bytes>>,
        /// How long ago it was finished.
        finished: Duration,
        /// How long it is still kept.
        keep_left: Duration,
    },
    /// The work is done, and what is kept of its answer cannot be read.
    Unreadable {
        /// Where it lies, for [`Operator::purge`].
        seen: SeenRecord,
        /// Why not.
        why: String,
    },
    /// Nobody knows.
    Unknown(UnknownOutcome),
}

impl fmt::Debug for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NeverSeen => f.write_str("NeverSeen"),
            Self::Running {
                since,
                expires_in,
                last_beat,
                progress,
                marked,
            } => f
                .debug_struct("Running")
                .field("since", since)
                .field("expires_in", expires_in)
                .field("last_beat", last_beat)
                .field("progress", progress)
                .field("marked", marked)
                .finish(),
            Self::Done {
                seen,
                response,
                finished,
                keep_left,
            } => f
                .debug_struct("Done")
                .field("seen", seen)
                .field("response", &response.as_ref().map(shown::Answer))
                .field("finished", finished)
                .field("keep_left", keep_left)
                .finish(),
            Self::Unreadable { seen, why } => f
                .debug_struct("Unreadable")
                .field("seen", seen)
                .field("why", why)
                .finish(),
            Self::Unknown(unknown) => f.debug_tuple("Unknown").field(unknown).finish(),
        }
    }
}

impl Operator {
    /// What became of a key.
    ///
    /// # Errors
    ///
    /// The store's.
    pub async fn explain(&self, key: Key) -> Result<Explanation, StoreError> {
        let mut key = key;
        // The marker that leads to a hook.
        let mut led_by: Option<(RecordView, Before)> = None;
        for _ in 0..LONGEST_WAY {
            let record = self.store.dyn_peek(key).await?;
            if let Some((marker, before)) = &led_by
                && let Some(asked) = waits_for_hook(record.as_ref())
            {
                let waits = UnknownOutcome::waiting(marker, *before, asked);
                return Ok(Explanation::Unknown(waits));
            }
            let Some(record) = record.filter(|record| record.state != State::Free) else {
                return Ok(Explanation::NeverSeen);
            };
            match record.state {
                State::Done => match self.shared.finished(key, record.token).await? {
                    Some(done) if is_withdrawn(&done) => {
                        return Ok(Explanation::Running {
                            since: record.since,
                            expires_in: done.keep_left,
                            last_beat: record.last_beat,
                            progress: record.progress,
                            marked: record.marked,
                        });
                    }
                    Some(done) => {
                        let Some(marker) = lead(&done) else {
                            return Ok(self.explain_done(key, &done));
                        };
                        key = marker.leads_to(key, done.token).key;
                        led_by = match marker {
                            Marker::Ask(before) => Some((record, before)),
                            Marker::Run => None,
                        };
                    }
                    // It has changed meanwhile: the next look tells.
                    None => {}
                },
                State::Held => {
                    return Ok(Explanation::Running {
                        since: record.since,
                        expires_in: record.expires_in,
                        last_beat: record.last_beat,
                        progress: record.progress,
                        marked: record.marked,
                    });
                }
                _ => {
                    let unknown = UnknownOutcome::of(&record);
                    return Ok(unknown.map_or(Explanation::NeverSeen, Explanation::Unknown));
                }
            }
        }
        Err(too_long(key))
    }

    fn explain_done(&self, key: Key, done: &DoneRecord) -> Explanation {
        let seen = SeenRecord {
            key,
            token: done.token,
        };
        let response = match &done.value {
            Value::Kept(bytes) => match self.shared.read_record(key, bytes) {
                Ok(kept) if kept.is_whole => {
                    let mut response = Response::new(kept.body);
                    *response.status_mut() = kept.status;
                    *response.headers_mut() = kept.headers;
                    Some(response)
                }
                Ok(_) => None,
                Err(why) => {
                    let why = why.to_string();
                    return Explanation::Unreadable { seen, why };
                }
            },
            _ => None,
        };
        Explanation::Done {
            seen,
            response,
            finished: done.finished,
            keep_left: done.keep_left,
        }
    }
}

/// In one line, for people.
impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NeverSeen => f.write_str("never seen, or forgotten: a request would run"),
            Self::Running {
                since,
                expires_in,
                last_beat,
                progress,
                marked,
            } => {
                let past = if *marked { "past" } else { "before" };
                write!(
                    f,
                    "running for {since:?}, {past} its point of no return; last sign of life {last_beat:?} ago, progress \
                     {progress}; its lease ends in {expires_in:?}"
                )
            }
            Self::Done {
                response,
                finished,
                keep_left,
                ..
            } => {
                write!(f, "done {finished:?} ago")?;
                match response {
                    Some(response) => write!(f, " with {}", response.status())?,
                    None => f.write_str(", its response was not kept")?,
                }
                write!(f, "; forgotten in {keep_left:?}")
            }
            Self::Unreadable { why, .. } => write!(f, "done, but {why}"),
            Self::Unknown(unknown) => unknown.fmt(f),
        }
    }
}
