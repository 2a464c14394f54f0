//! Where the work of a request stands: under its own key, or, behind an unknown outcome, under one that leads on.
//!
//! Under a next key a run begins only while every marker on the way there outlasts all that the run may leave behind.
//! Else a marker could end first: its key would be free, and a repeat would run beside an outcome that is kept. After
//! that time the work is only looked at.

use std::time::Duration;

use tower_claim::store::State;
use tower_claim::{Fingerprint, Key, Moment, StoreError, Token};

use crate::admit::lead;
use crate::record::{Before, Marker, MovedTo};
use crate::reply::Reply;
use crate::shared::Shared;

/// How often the work of one key may lead on to another.
pub(crate) const LONGEST_WAY: u32 = 64;
/// What is set to last longer lasts so long, or engines would run out of numbers for the end of a marker.
const LONGEST_SPAN: Duration = Duration::from_secs(50 * 365 * 24 * 3600);

/// How far the work of a request has been followed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Way {
    pub(crate) key: Key,
    pub(crate) floor: Token,
    /// How the work goes on here.
    marker: Marker,
    /// When the first of the markers on the way here ends.
    leads_until: Option<Moment>,
    /// When the first run began, since the Unix epoch, where a marker on the way here tells.
    pub(crate) first_seen: Option<Duration>,
    /// How many runs were lost on the way here, at least.
    pub(crate) runs_before: u32,
}

impl Way {
    pub(crate) fn begin(key: Key) -> Self {
        Self {
            key,
            floor: Token::ZERO,
            marker: Marker::Run,
            leads_until: None,
            first_seen: None,
            runs_before: 0,
        }
    }

    /// By a marker that ends then.
    pub(crate) fn go_on(self, to: MovedTo, until: Moment) -> Self {
        Self {
            key: to.key,
            floor: to.floor,
            marker: to.marker,
            leads_until: Some(self.leads_until.map_or(until, |first| first.min(until))),
            first_seen: self.first_seen.or(to.marker.first_seen()),
            runs_before: self.runs_before.saturating_add(1),
        }
    }

    /// Whether the reconcile hook is asked before a handler runs here.
    pub(crate) fn asks(self) -> bool {
        self.before().is_some()
    }

    /// What is known of the run that the hook is asked about.
    pub(crate) fn before(self) -> Option<Before> {
        match self.marker {
            Marker::Ask(before) => Some(before),
            Marker::Run => None,
        }
    }
}

impl Shared {
    /// How long from now a run that begins may leave something behind, at the most: granted late, and held as long as
    /// may be, it lapses; its outcome stays unknown to the last moment, and the answer that an operator then gives is
    /// kept.
    fn longest_trace(&self) -> Duration {
        let leases = self.terms.lease().saturating_mul(2);
        let held = self.terms.max_hold().saturating_add(leases);
        let kept = self.unfinished_keep.saturating_add(self.retention);
        held.saturating_add(kept).min(LONGEST_SPAN)
    }

    /// How long a marker is kept: as long as an outcome stays unknown, runs may begin behind it; and as long again,
    /// where such a run becomes unknown itself, and an operator lets the next run.
    pub(crate) fn marker_keep(&self) -> Duration {
        let unknown = self.unfinished_keep.min(LONGEST_SPAN);
        self.longest_trace() + unknown + unknown
    }

    /// Whether a run may begin here.
    pub(crate) fn may_begin(&self, way: &Way) -> bool {
        let ends = self.clock().now() + self.longest_trace();
        way.leads_until.is_none_or(|until| ends <= until)
    }

    /// The answer to a repeat that may not begin any more: what its work came to, if it came to anything.
    pub(crate) async fn look_on(&self, way: &Way, print: Fingerprint) -> Reply {
        let looked = self.look_along(way.key, print).await;
        let reply = looked.unwrap_or_else(|error| self.store_failed(&error));
        reply.first_seen_by(way.first_seen)
    }

    async fn look_along(&self, mut key: Key, print: Fingerprint) -> Result<Reply, StoreError> {
        for _ in 0..LONGEST_WAY {
            let record = self.keeper.store().dyn_peek(key).await?;
            let Some(record) = record.filter(|record| record.state != State::Free) else {
                return Ok(self.unknown());
            };
            if record.fingerprint != Some(print) {
                return Ok(self.reused());
            }
            match record.state {
                State::Held if !record.lapsed => return Ok(self.in_progress(record.expires_in)),
                State::Done => {
                    // Where it has changed meanwhile, the next look tells.
                    if let Some(done) = self.finished(key, record.token).await? {
                        let Some(marker) = lead(&done) else {
                            return Ok(self.replay(key, &done));
                        };
                        key = marker.leads_to(key, done.token).key;
                    }
                }
                _ => return Ok(self.unknown()),
            }
        }
        Err(too_long(key))
    }
}

/// The way of a key whose records lead on and on.
pub(crate) fn too_long(key: Key) -> StoreError {
    StoreError::Garbled {
        key_prefix: key.prefix(),
        source: "it leads on and on to other records".into(),
    }
}
