//! What all clones of one layer value share.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use tokio::sync::Semaphore;
use tower_claim::http::RenderRefusal;
use tower_claim::store::Value;
use tower_claim::{Clock, Detached, Entropy, Keeper, Key, Moment, Refusal, Terms};

use crate::admit::OnBusy;
use crate::counts::Counters;
use crate::entry::{Entry, EntryRules, Sight};
use crate::existing::ExistingRows;
use crate::fingerprint::Secret;
use crate::headers::HeaderRules;
use crate::inside::ClaimInside;
use crate::order::Order;
use crate::outcome::OutcomeRules;
use crate::policy::PolicyLink;
use crate::quota::Quotas;
use crate::reconcile::Reconcile;
use crate::record::{self, KeptResponse, Marker, Record, Unreadable};
use crate::redact::Redact;
use crate::reply::Responder;
use crate::rerender::OnNotKept;
use crate::running::Running;
use crate::seal::Sealer;
use crate::store_down::OnStoreDown;
use crate::wait::Followers;
use crate::way::Way;
use crate::weak::Warned;

/// The settings and the state of one layer value.
pub(crate) struct Shared {
    pub(crate) keeper: Keeper,
    /// What its store is called: asked once, each run names it.
    pub(crate) engine: &'static str,
    pub(crate) terms: Terms,
    pub(crate) entropy: Arc<dyn Entropy>,
    pub(crate) entry: EntryRules,
    pub(crate) fingerprint_secret: Option<Secret>,
    pub(crate) on_busy: OnBusy,
    pub(crate) on_store_down: OnStoreDown,
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
    pub(crate) stands_down: bool,
    pub(crate) redact: Redact,
    pub(crate) sealer: Option<Sealer>,
    pub(crate) on_not_kept: Option<OnNotKept>,
    pub(crate) reconcile: Option<Reconcile>,
    /// Where claims are made inside the user's transactions.
    pub(crate) inside: Option<ClaimInside>,
    pub(crate) existing: ExistingRows,
    pub(crate) render: Option<RenderRefusal>,
    /// Where the policy is, for refusals.
    pub(crate) policy_link: Option<PolicyLink>,
    pub(crate) detached: Detached,
    pub(crate) max_in_flight: usize,
    /// The free places.
    pub(crate) in_flight: Arc<Semaphore>,
    pub(crate) counters: Counters,
    pub(crate) order: Order,
    pub(crate) running: Arc<Running>,
}

impl Shared {
    pub(crate) fn clock(&self) -> &dyn Clock {
        &**self.keeper.clock()
    }

    /// Whether any answer says how it came about.
    pub(crate) fn may_tell_status(&self) -> bool {
        self.tell_status || self.on_store_down == OnStoreDown::RunUnprotected
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
        let (render, policy) = (self.render.as_ref(), self.policy_link.as_ref());
        Responder::to(&parts.headers, render, self.tell_status, policy)
    }

    /// A record as the store is to keep it, and whether it is whole.
    /// What cannot be redacted or sealed is not kept; that the work is done always is.
    pub(crate) fn seal_up(&self, key: Key, record: Record) -> (Value, bool) {
        let record = self.redact.redacted(record, &self.headers);
        let sealed = record.and_then(|record| match &self.sealer {
            Some(sealer) => Some(Record {
                bytes: sealer.seal(&key, &record.bytes)?,
                is_whole: record.is_whole,
            }),
            None => Some(record),
        });
        match sealed {
            Some(record) => (Value::Kept(record.bytes), record.is_whole),
            None => (Value::Tombstone, false),
        }
    }

    /// The response that the store kept under this key.
    ///
    /// # Errors
    ///
    /// Why there is none to be read.
    pub(crate) fn read_record(&self, key: Key, bytes: &Bytes) -> Result<KeptResponse, Unreadable> {
        match &self.sealer {
            Some(_) if Marker::read(bytes).is_some() => Err(Unreadable::Moved),
            Some(sealer) => {
                let opened = sealer.open(&key, bytes).map_err(Unreadable::Sealed)?;
                record::decode(&opened)
            }
            None => record::decode(bytes),
        }
    }

    /// What a claim on this stretch of the way writes into its record.
    pub(crate) fn terms_on(&self, way: Way) -> &Terms {
        match &self.reconcile {
            Some(reconcile) if way.asks() => &reconcile.terms,
            _ => &self.terms,
        }
    }

    /// A call that is not the store's own, but a transaction's with it, took so long.
    pub(crate) fn store_was_called(&self, call: &'static str, began: Moment, is_ok: bool) {
        let took = self.clock().now().saturating_since(began);
        self.counters.meter.store_call(call, took, is_ok);
    }

    /// A refusal that is not counted by its own name.
    pub(crate) fn refused(&self, refusal: Refusal) -> Refusal {
        self.counters.other_refusals.add();
        refusal
    }
}
