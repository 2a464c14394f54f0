//! The last requests that ended.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use http::StatusCode;
use serde::Serialize;

use super::route::Route;
use super::slot::{Closed, RowId, Slot};
use super::times::StageTimes;
use crate::{Cause, Outcome, Stage};

/// A request that ended.
#[derive(Debug, Clone, Serialize)]
pub struct Finished {
    #[serde(serialize_with = "super::json::text")]
    id: RowId,
    method: &'static str,
    route: Route,
    #[serde(rename = "outcome", serialize_with = "super::json::text")]
    cause: Cause,
    #[serde(serialize_with = "super::json::text")]
    stage: Stage,
    #[serde(serialize_with = "super::json::status")]
    status: Option<StatusCode>,
    #[serde(skip_serializing_if = "Option::is_none")]
    grpc_status: Option<u16>,
    bytes: u64,
    #[serde(rename = "total_ms", serialize_with = "super::json::nanos")]
    total: u64,
    stages: StageTimes,
}

/// What the layer saw of the response.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Sent {
    pub(crate) status: Option<StatusCode>,
    pub(crate) grpc_status: Option<u16>,
    pub(crate) bytes: u64,
}

impl Finished {
    /// Of no request, to be [written](Self::write) over.
    pub(crate) fn blank() -> Self {
        Self {
            id: RowId::default(),
            method: "",
            route: Route::Unmatched,
            cause: Cause::Done,
            stage: Stage::Received,
            status: None,
            grpc_status: None,
            bytes: 0,
            total: 0,
            stages: StageTimes::default(),
        }
    }

    /// What is left of a row, in place: it is big, and every move of it would be a copy. The times are read
    /// from the slot, which is not given back yet.
    pub(crate) fn write(
        &mut self,
        id: RowId,
        slot: &Slot,
        closed: Closed,
        cause: Cause,
        sent: Sent,
    ) {
        self.id = id;
        self.method = closed.method;
        self.route = closed.route;
        self.cause = cause;
        self.stage = closed.stage;
        self.status = sent.status;
        self.grpc_status = sent.grpc_status;
        self.bytes = sent.bytes;
        self.total = closed.total;
        slot.spent(&mut self.stages);
    }

    /// The row's id.
    pub fn id(&self) -> RowId {
        self.id
    }

    /// The method; `_OTHER` for what HTTP does not define.
    pub fn method(&self) -> &'static str {
        self.method
    }

    /// The template of the route; `unmatched` without one.
    pub fn route(&self) -> &str {
        self.route.as_str()
    }

    /// Why it ended, and where.
    pub fn outcome(&self) -> Outcome {
        Outcome {
            cause: self.cause,
            stage: self.stage,
        }
    }

    /// The status that was sent; `None` when there was no head.
    pub fn status(&self) -> Option<StatusCode> {
        self.status
    }

    /// The gRPC status, from the trailers or the head. `None` when the response was not gRPC; 2 (unknown)
    /// when it was and told none.
    pub fn grpc_status(&self) -> Option<u16> {
        self.grpc_status
    }

    /// Bytes of body handed to the host.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// From the layer's call to the end of the response.
    pub fn total(&self) -> Duration {
        Duration::from_nanos(self.total)
    }

    /// The parts of the total.
    pub fn stages(&self) -> &StageTimes {
        &self.stages
    }
}

/// A ring with a lock per entry: who writes one entry waits at most for who copies that very entry.
#[derive(Debug)]
pub(crate) struct Recent {
    entries: Box<[Mutex<Entry>]>,
    next: AtomicU64,
}

#[derive(Debug)]
struct Entry {
    /// Tells the row from the one that had the place a round ago. 0 is no row.
    number: u64,
    row: Finished,
}

impl Recent {
    pub(crate) fn new(capacity: usize) -> Self {
        let blank = || Entry {
            number: 0,
            row: Finished::blank(),
        };
        Self {
            entries: (0..capacity).map(|_| Mutex::new(blank())).collect(),
            next: AtomicU64::new(1),
        }
    }

    /// Has the next row written in place.
    pub(crate) fn push(&self, write: impl FnOnce(&mut Finished)) {
        let number = self.next.fetch_add(1, Relaxed);
        let Some(entry) = self.entry(number) else {
            return;
        };
        let mut entry = entry.lock().unwrap_or_else(PoisonError::into_inner);
        // A slow writer must not put an old row over a newer one.
        if entry.number < number {
            entry.number = number;
            write(&mut entry.row);
        }
    }

    /// Newest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Finished> + '_ {
        let end = self.next.load(Relaxed);
        let start = end.saturating_sub(self.entries.len() as u64).max(1);
        (start..end).rev().filter_map(|number| {
            let entry = self.entry(number)?.lock();
            let entry = entry.unwrap_or_else(PoisonError::into_inner);
            (entry.number == number).then(|| entry.row.clone())
        })
    }

    fn entry(&self, number: u64) -> Option<&Mutex<Entry>> {
        let index = number.checked_rem(self.entries.len() as u64)?;
        self.entries.get(usize::try_from(index).ok()?)
    }
}
