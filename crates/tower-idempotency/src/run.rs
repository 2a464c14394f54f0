//! What the handler sees of its run.

use std::fmt::{self, Write as _};
use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tower_claim::http::BusinessKey;
use tower_claim::store::TookOver;
use tower_claim::{Fingerprint, Key, Loss, NoPointOfNoReturn, Token};

use crate::inside::Hold;
use crate::layer::LayerId;
use crate::refused::PointRefused;
use crate::unguarded::Unheld;
use crate::way::Way;

/// The run of a handler behind the layer, in the request's extensions (with the feature `axum` an
/// extractor): which intent it serves, which attempt it is, and the point of no return.
///
/// Clones are the same run. It is over with the handler's answer; kept longer it can do nothing more.
///
/// ```
/// use tower_idempotency::{IdempotentRun, PointRefused};
///
/// # struct Order;
/// async fn pay(run: IdempotentRun, order: Order) -> Result<(), PointRefused> {
///     // Whatever fails up to here may be tried again by a repeat of the request.
///     run.point_of_no_return().await?;
///     // From here on the answer is kept, also a 500; a crash leaves the outcome unknown.
///     # let _ = order;
///     Ok(())
/// }
/// ```
#[derive(Clone)]
pub struct IdempotentRun {
    inner: Arc<Inner>,
}

struct Inner {
    /// Names the intent among those of all tenants.
    record: Key,
    key: BusinessKey,
    token: Token,
    attempt: u32,
    took_over: Option<TookOver>,
    /// Also where the answer that told of whom was lost.
    took_over_here: bool,
    /// Gone when the run is over.
    hold: Mutex<Option<Hold>>,
    /// Where no claim protects it.
    unheld: Option<Unheld>,
    /// Marks that were sent and not clearly answered.
    marks_in_doubt: AtomicUsize,
    /// The store said yes.
    marked: AtomicBool,
    layer: LayerId,
    outer: Option<IdempotentRun>,
    way: Way,
}

impl IdempotentRun {
    pub(crate) fn new(
        (record, key): (Key, BusinessKey),
        hold: Hold,
        layer: LayerId,
        outer: Option<IdempotentRun>,
        way: Way,
    ) -> Self {
        Self {
            inner: Arc::new(Inner {
                record,
                key,
                token: hold.token(),
                attempt: hold.attempt().saturating_add(way.runs_before),
                took_over: hold.took_over().cloned(),
                took_over_here: hold.attempt() > 1,
                hold: Mutex::new(Some(hold)),
                unheld: None,
                marks_in_doubt: AtomicUsize::new(0),
                marked: AtomicBool::new(false),
                layer,
                outer,
                way,
            }),
        }
    }

    /// A run that no claim protects.
    pub(crate) fn unguarded(
        (record, key): (Key, BusinessKey),
        unheld: Unheld,
        layer: LayerId,
        outer: Option<IdempotentRun>,
    ) -> Self {
        Self {
            inner: Arc::new(Inner {
                record,
                key,
                token: Token::ZERO,
                attempt: 1,
                took_over: None,
                took_over_here: false,
                hold: Mutex::new(None),
                unheld: Some(unheld),
                marks_in_doubt: AtomicUsize::new(0),
                marked: AtomicBool::new(false),
                layer,
                outer,
                way: Way::begin(record),
            }),
        }
    }

    /// Whether a claim protects this run. `false` where the layer is switched off, only
    /// [observes](tower_claim::http::Mode::Observe), is told by its gate's predicate to leave the request alone, or goes on
    /// [without its store](crate::OnStoreDown::RunUnprotected): a repeat runs again then.
    ///
    /// A handler need not ask. Without a claim it finds attempt 1, the time that a claim could last, and a
    /// [point of no return](Self::point_of_no_return) that is passed without a store; but [token](Self::token) 0.
    ///
    /// ```
    /// use tower_idempotency::IdempotentRun;
    ///
    /// /// A payment that must not be made twice, whatever the layer is told.
    /// fn may_pay(run: &IdempotentRun) -> bool {
    ///     run.is_guarded()
    /// }
    /// ```
    pub fn is_guarded(&self) -> bool {
        self.inner.unheld.is_none()
    }

    /// The business key of this request. Where nobody has looked at it, since the layer is switched off or only observes
    /// and the key is in the body or malformed, one that no other request has.
    pub fn key(&self) -> &BusinessKey {
        &self.inner.key
    }

    /// The fencing token of this run: above those of all runs before it under this key. A resource that
    /// remembers the highest token it has seen can refuse a run that was taken over.
    ///
    /// [`Token::ZERO`] where the run [is not guarded](Self::is_guarded): no claim has drawn one. Such a resource refuses it.
    pub fn token(&self) -> Token {
        self.inner.token
    }

    /// 1 for the first run, one more for each that took over after a lapse, or was let run by a
    /// [reconcile hook](crate::IdempotencyBuilder::reconcile).
    pub fn attempt(&self) -> u32 {
        self.inner.attempt
    }

    /// The run before this one, if it lapsed (a crash, a pause) and this one took over. Its effects may be
    /// there already, and it may not be dead. A run that took over and was then no outcome itself (a 5xx) lapses, too,
    /// so that the next one is told; and so does a claim that took over and whose caller hung up before it ran. (Where
    /// the store did not answer in that moment, `None` may be told though [`attempt`](Self::attempt) is above 1.)
    pub fn took_over(&self) -> Option<&TookOver> {
        self.inner.took_over.as_ref()
    }

    /// Whether the claim is still held, by comparing clocks.
    ///
    /// # Errors
    ///
    /// How it was lost; [`Loss::Ended`] when the run is over.
    pub fn check(&self) -> Result<(), Loss> {
        if let Some(unheld) = &self.inner.unheld {
            return unheld.check();
        }
        self.hold().map_or(Err(Loss::Ended), |hold| hold.check())
    }

    /// How long the claim is held from now on if nothing is renewed any more; zero when it is lost, or the run over. A
    /// call that must not outlast it takes this for its timeout.
    pub fn remaining(&self) -> Duration {
        if let Some(unheld) = &self.inner.unheld {
            return unheld.remaining();
        }
        self.hold().map_or(Duration::ZERO, |hold| hold.remaining())
    }

    /// An idempotency key for a call that the handler makes in its turn: 32 hex digits, the same in every attempt under
    /// this business key (and its scope), another one for each `purpose`. The next service then tells the repeat of a run
    /// that crashed from a new request. It tells nobody the business key.
    ///
    /// ```
    /// use tower_idempotency::IdempotentRun;
    ///
    /// fn charge(run: &IdempotentRun) -> http::Result<http::Request<&'static str>> {
    ///     http::Request::post("https://payments.example/charges")
    ///         .header("idempotency-key", run.downstream_key("charge"))
    ///         .body("…")
    /// }
    /// ```
    pub fn downstream_key(&self, purpose: &str) -> String {
        let parts: [&[u8]; 3] = [
            b"downstream",
            self.inner.record.as_bytes(),
            purpose.as_bytes(),
        ];
        let hash = parts
            .into_iter()
            .fold(Fingerprint::builder(), |hash, part| hash.part(Some(part)));
        let hash = hash.build();
        let digits = hash.as_bytes()[..16].iter();
        digits.fold(String::with_capacity(32), |mut text, byte| {
            // Writing to a string does not fail.
            let _ = write!(text, "{byte:02x}");
            text
        })
    }

    /// Resolves when the claim is lost. The handler is *not* stopped then: stop by yourself where that is
    /// safe. A run that is over resolves at once.
    pub fn lost(&self) -> impl Future<Output = Loss> + Send + 'static + use<> {
        let unheld = self.inner.unheld.clone();
        let lost = self.hold().map(|hold| hold.lost());
        async move {
            match (lost, unheld) {
                (Some(lost), _) => lost.await,
                (None, Some(unheld)) => unheld.lost().await,
                (None, None) => Loss::Ended,
            }
        }
    }

    /// The work moved, and is now at `progress`, a number of its own: whoever takes over is told. Under
    /// [`Renewal::Progress`](tower_claim::Renewal::Progress) the claim is renewed only while this is called,
    /// or while the frames of the response come.
    pub fn progress(&self, progress: u64) {
        if let Some(hold) = self.hold() {
            hold.progress(progress);
        }
    }

    /// A frame of the response came.
    pub(crate) fn touch(&self) {
        if let Some(hold) = self.hold() {
            hold.touch();
        }
    }

    /// Says that what follows cannot be taken back or tried twice: a payment, a letter. Go on only after
    /// `Ok`. One trip to the store; none in a run that a [reconcile hook](crate::IdempotencyBuilder::reconcile) let
    /// run, since it is asked again before the next; nor in one that [is not guarded](Self::is_guarded), of which nobody
    /// will know.
    ///
    /// From then on every answer is kept and replayed, also a 5xx; and after a crash, a panic or a lapse the
    /// outcome is *unknown*: nobody runs again until an operator resolves it or its unfinished keep has
    /// passed. So it is where the handler's transaction (of tower-claim-sqlx or tower-claim-postgres) is not committed, be it
    /// that another transaction came first (SQLSTATE 40001), that a statement failed, or that the handler ended it itself:
    /// the rows are gone, what the mark stands for is not, and no answer can be kept that says so. 409 `outcome-unknown` then.
    ///
    /// # Errors
    ///
    /// [`PointRefused`] when the claim is lost, when the store does not answer clearly, when its
    /// engine may forget what it answered, or when the claim is [inside](crate::IdempotencyBuilder::claim_inside) a
    /// transaction, where a crash leaves no mark. The work must not begin then: answer with the error, and a repeat
    /// runs; where the mark may be in the record all the same, since the store's answer was lost, after one lease
    /// (503 `store-unavailable` until then). A run that [took over](Self::took_over) lapses instead, so that the crash
    /// before it is not forgotten; with the mark in the record its outcome is unknown.
    ///
    /// # Cancellation
    ///
    /// After a drop the mark may or may not be in the record.
    pub async fn point_of_no_return(&self) -> Result<(), PointRefused> {
        if let Some(unheld) = &self.inner.unheld {
            unheld.check().map_err(NoPointOfNoReturn::Lost)?;
            self.inner.marked.store(true, Ordering::Release);
            return Ok(());
        }
        let Some(hold) = self.hold() else {
            return Err(NoPointOfNoReturn::Lost(Loss::Ended).into());
        };
        if self.inner.way.asks() {
            // Whatever becomes of this run, the hook is asked before another: nothing has to be marked for that.
            hold.check().map_err(NoPointOfNoReturn::Lost)?;
            self.inner.marked.store(true, Ordering::Release);
            return Ok(());
        }
        // A claim that is lost by its own clock sends nothing: there is no doubt then.
        hold.check().map_err(NoPointOfNoReturn::Lost)?;
        // Before the call, which may be dropped at any time.
        self.inner.marks_in_doubt.fetch_add(1, Ordering::AcqRel);
        let marked = hold.point_of_no_return().await;
        if is_clear(&marked) {
            self.inner.marks_in_doubt.fetch_sub(1, Ordering::AcqRel);
        }
        marked?;
        self.inner.marked.store(true, Ordering::Release);
        Ok(())
    }

    pub(crate) fn is_marked(&self) -> bool {
        self.inner.marked.load(Ordering::Acquire)
    }

    /// Whether the store has its mark, so that its outcome is unknown without an answer.
    pub(crate) fn would_be_unknown(&self) -> bool {
        self.is_marked() && !self.inner.way.asks()
    }

    /// Whether it must not be given back, but lapses: a run under this key crashed. Its effects may be there; given
    /// back, the key would be free, and the next run, with another payload even, would not know. Not past the point of
    /// no return, nor where the hook is asked again in any case.
    pub(crate) fn must_lapse(&self) -> bool {
        self.inner.took_over_here && !self.is_marked() && !self.inner.way.asks()
    }

    /// Whether the store may have its mark, though nobody was told so.
    pub(crate) fn mark_is_in_doubt(&self) -> bool {
        self.inner.marks_in_doubt.load(Ordering::Acquire) > 0 && !self.is_marked()
    }

    /// This run, or the one around it that is of this layer.
    pub(crate) fn of(&self, layer: LayerId) -> Option<&Self> {
        let mut run = Some(self);
        while let Some(at) = run {
            if at.inner.layer == layer {
                break;
            }
            run = at.inner.outer.as_ref();
        }
        run
    }

    /// Ends the run: the claim goes to who settles it. Clones that a handler left behind cannot hold it up.
    pub(crate) fn end(&self) -> Option<Hold> {
        let hold = self.lock().take();
        hold.iter().for_each(Hold::end);
        self.inner.unheld.iter().for_each(Unheld::end);
        hold
    }

    fn hold(&self) -> Option<Hold> {
        self.lock().clone()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Hold>> {
        self.inner
            .hold
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether it is known that there is a mark, or that there is none.
fn is_clear(marked: &Result<(), NoPointOfNoReturn>) -> bool {
    match marked {
        Ok(()) | Err(NoPointOfNoReturn::Forgetful { .. }) => true,
        Err(NoPointOfNoReturn::Store(error)) => !error.is_ambiguous(),
        // Perhaps by a copy of the mark that came after one that was applied.
        Err(_) => false,
    }
}

impl fmt::Debug for IdempotentRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdempotentRun")
            .field("key", &self.inner.key)
            .field("token", &self.inner.token)
            .field("attempt", &self.inner.attempt)
            .field("guarded", &self.is_guarded())
            .field("marked", &self.is_marked())
            .finish_non_exhaustive()
    }
}
