//! What all clones of one layer value share.

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use http::request::Parts;
use tokio::sync::Semaphore;
use tower_claim::http::RenderRefusal;
use tower_claim::{Clock, Detached, Keeper, Refusal, Terms};

use crate::admit::OnBusy;
use crate::counts::Counters;
use crate::entry::{Entry, EntryRules, Sight};
use crate::headers::HeaderRules;
use crate::outcome::Outcome;
use crate::reply::Responder;
use crate::wait::Followers;
use crate::weak::Warned;

pub(crate) type OutcomeRule = Arc<dyn Fn(StatusCode) -> Outcome + Send + Sync>;

/// The settings and the state of one layer value.
pub(crate) struct Shared {
    pub(crate) keeper: Keeper,
    pub(crate) terms: Terms,
    pub(crate) entry: EntryRules,
    pub(crate) on_busy: OnBusy,
    pub(crate) followers: Followers,
    pub(crate) retention: Duration,
    pub(crate) max_request_body: usize,
    /// Up to this many bytes an upload with a digest is streamed.
    pub(crate) stream_uploads: Option<u64>,
    pub(crate) max_response_body: usize,
    pub(crate) headers: HeaderRules,
    pub(crate) outcome: OutcomeRule,
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
        Responder::to(&parts.headers, self.render.as_ref())
    }

    /// A refusal that is not counted by its own name.
    pub(crate) fn refused(&self, refusal: Refusal) -> Refusal {
        self.counters.other_refusals.add();
        refusal
    }
}
