//! What all clones of one layer value share.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use tokio::sync::Semaphore;
use tower_claim::http::RenderRefusal;
use tower_claim::store::Value;
use tower_claim::{Clock, Detached, Keeper, Key, Refusal, Terms};

use crate::admit::OnBusy;
use crate::counts::Counters;
use crate::entry::{Entry, EntryRules, Sight};
use crate::headers::HeaderRules;
use crate::outcome::OutcomeRules;
use crate::quota::Quotas;
use crate::record::{self, KeptResponse, Record, Unreadable};
use crate::reply::Responder;
use crate::wait::Followers;
use crate::weak::Warned;

/// The settings and the state of one layer value.
pub(crate) struct Shared {
    pub(crate) keeper: Keeper,
    pub(crate) terms: Terms,
    pub(crate) entry: EntryRules,
    pub(crate) on_busy: OnBusy,
    pub(crate) followers: Followers,
    pub(crate) retention: Duration,
    pub(crate) unfinished_keep: Duration,
    pub(crate) quotas: Option<Arc<Quotas>>,
    pub(crate) max_request_body: usize,
    /// Up to this many bytes an upload with a digest is streamed.
    pub(crate) stream_uploads: Option<u64>,
    pub(crate) max_response_body: usize,
    pub(crate) headers: HeaderRules,
    pub(crate) outcome: OutcomeRules,
    pub(crate) tell_status: bool,
    pub(crate) render: Option<RenderRefusal>,
    pub(crate) detached: Detached,
    pub(crate) max_in_flight: usize,
    /// The free places.
    pub(crate) in_flight: Arc<Semaphore>,
    pub(crate) counters: Counters,
}

impl Shared {
    pub(crate) fn clock(&self) -> &dyn Clock {
        &**self.keeper.clock()
    }

    pub(crate) fn look_at(&self, parts: &Parts, warned: &Warned) -> Entry {
        let sight = Sight {
            counters: &self.counters,
            clock: self.clock(),
            warned,
        };
        self.entry.look_at(parts, &sight)
    }

    pub(crate) fn responder(&self, parts: &Parts) -> Responder {
        Responder::to(&parts.headers, self.render.as_ref(), self.tell_status)
    }

    /// A record as the store is to keep it, and whether it is whole.
    pub(crate) fn seal_up(&self, _key: Key, record: Record) -> (Value, bool) {
        (Value::Kept(record.bytes), record.is_whole)
    }

    /// The response that the store kept under this key.
    ///
    /// # Errors
    ///
    /// Why there is none to be read.
    pub(crate) fn read_record(&self, _key: Key, bytes: &Bytes) -> Result<KeptResponse, Unreadable> {
        record::decode(bytes)
    }

    /// A refusal that is not counted by its own name.
    pub(crate) fn refused(&self, refusal: Refusal) -> Refusal {
        self.counters.other_refusals.add();
        refusal
    }
}
