//! Connections that are cut between commit and reply, and replies that are swallowed.

use std::sync::Arc;
use std::time::{Duration, Instant};

use system_tests::relay::{Relay, Way};
use tower_claim::store::{MultiKey, RecordView, State};
use tower_claim::{ClaimAdmin, ClaimMany, Nonce, StoreError, Token};

use super::calls::{Call, Scene};

/// For each kind of call: the relay closes the connection behind its first request, behind its second, and
/// so on until the call needs no more; then it swallows the replies. `through` opens a store that connects
/// to the relay's `HOST:PORT`, `direct` is one on the same server.
///
/// # Panics
///
/// Where an error lied, a call waited for ever, or its repeat had an effect of its own.
pub async fn lost_answers<S, D>(server: &str, through: impl AsyncFn(String) -> S, direct: D)
where
    S: ClaimMany + ClaimAdmin,
    D: ClaimMany + ClaimAdmin,
{
    lose_answers(server, through, direct, false).await;
}

/// As [`lost_answers`], for an engine that reads before it writes: a call whose first reply is swallowed has
/// read, and no more.
pub async fn lost_answers_of_a_reader<S, D>(
    server: &str,
    through: impl AsyncFn(String) -> S,
    direct: D,
) where
    S: ClaimMany + ClaimAdmin,
    D: ClaimMany + ClaimAdmin,
{
    lose_answers(server, through, direct, true).await;
}

async fn lose_answers<S, D>(
    server: &str,
    through: impl AsyncFn(String) -> S,
    direct: D,
    reads_first: bool,
) where
    S: ClaimMany + ClaimAdmin,
    D: ClaimMany + ClaimAdmin,
{
    let several = direct.capabilities().multi_key != MultiKey::None;
    let calls = Call::ALL
        .into_iter()
        .filter(|call| several || *call != Call::ClaimMany);
    let each = calls.map(async |call| {
        let relay = Relay::to(server);
        let store = through(relay.address()).await;
        Trial {
            call,
            relay,
            store: &store,
            direct: &direct,
            reads_first,
        }
        .run()
        .await;
    });
    futures_util::future::join_all(each).await;
}
/// The longest call timeout that a store may have here, and some room.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long a server may need for a request whose client is gone, if it takes it up at all.
const MOMENT: Duration = Duration::from_millis(150);
/// Requests that no call has.
const TOO_MANY: usize = 40;

pub(super) struct Trial<'a, S, D> {
    pub(super) call: Call,
    pub(super) relay: Relay,
    pub(super) store: &'a S,
    pub(super) direct: &'a D,
    pub(super) reads_first: bool,
}

impl<S: ClaimMany + ClaimAdmin, D: ClaimMany + ClaimAdmin> Trial<'_, S, D> {
    async fn run(self) {
        let mut lost = 0;
        // A server that sees the end of the connection may drop a call that it has not begun yet, or be slow
        // with it: a cut behind its commit may take a few rounds.
        for _ in 0..20 {
            lost += self.cut_everywhere().await;
            if lost > 0 {
                break;
            }
        }
        assert!(
            lost > 0,
            "{:?}: no cut fell between commit and reply",
            self.call
        );

        self.warm_up().await;
        let scene = self.scene().await;
        self.relay.set(Way::SwallowReplies);
        let answer = self.send_once(&scene).await;
        self.relay.set(Way::Pass);
        self.relay.cut();
        assert!(answer.is_err(), "{:?}: no reply came back", self.call);
        // It has the request, and nothing keeps it from it.
        let moment = if self.reads_first { MOMENT } else { PATIENCE };
        let applied = self.judge(&scene, answer, moment).await;
        assert!(applied || self.reads_first, "{:?} was served", self.call);
    }

    /// How often an applied call was answered by an error.
    async fn cut_everywhere(&self) -> usize {
        let mut lost = 0;
        for before in 0..TOO_MANY {
            // Statements are prepared, scripts loaded: the call itself is cut, not its first use.
            self.warm_up().await;
            let scene = self.scene().await;
            self.relay.cut_after(before);
            let answer = self.send_once(&scene).await;
            if self.relay.call_off() {
                answer.unwrap_or_else(|error| panic!("{:?}: nothing was cut: {error}", self.call));
                assert!(before > 0, "{:?} went past the relay", self.call);
                break;
            }
            lost += usize::from(self.judge(&scene, answer, MOMENT).await);
        }
        lost
    }

    /// Whether an applied call was answered by an error. It must be an honest one, and the repeat harmless.
    async fn judge(&self, scene: &Scene, answer: Result<(), StoreError>, moment: Duration) -> bool {
        let call = self.call;
        let Err(error) = answer else {
            // The cut fell behind what the call needs, or the store asked again by itself.
            assert!(
                self.applied(scene).await,
                "{call:?}: a yes without an effect"
            );
            return false;
        };
        let applied = self.comes_to_be_applied(scene, moment).await;
        match &error {
            StoreError::Ambiguous(_) => {}
            StoreError::Unavailable(source) => {
                assert!(!applied, "{call:?} was applied, yet answered: {source}");
            }
            other => panic!("{call:?}: a lost answer is no `{other:?}`"),
        }
        let once = self.record(scene).await;
        self.repeat(scene).await;
        assert!(
            self.applied(scene).await,
            "{call:?}: the repeat has no effect"
        );
        if applied {
            let twice = self.record(scene).await;
            assert_eq!(
                twice.as_ref().map(lasting),
                once.as_ref().map(lasting),
                "{call:?}: the repeat has an effect of its own"
            );
        }
        applied
    }

    async fn warm_up(&self) {
        for attempt in 0.. {
            let scene = self.scene().await;
            match self.send_once(&scene).await {
                Ok(()) => return,
                Err(error) => assert!(attempt < 20, "{:?}: {error}", self.call),
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// The same call with the same nonce, until it is answered; its answer must be that of one call.
    async fn repeat(&self, scene: &Scene) {
        let until = Instant::now() + PATIENCE;
        while let Err(error) = self.send_once(scene).await {
            assert!(error.is_retryable(), "{:?}: {error:?}", self.call);
            assert!(
                Instant::now() < until,
                "{:?} does not recover: {error:?}",
                self.call
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Sends the call through the relay. `Ok` for every answer that the only call or a repeat may get.
    async fn send_once(&self, scene: &Scene) -> Result<(), StoreError> {
        tokio::time::timeout(PATIENCE, self.send(scene))
            .await
            .unwrap_or_else(|_| panic!("{:?} waits for ever", self.call))
    }

    pub(super) async fn record(&self, scene: &Scene) -> Option<RecordView> {
        let peeked = self.direct.peek(scene.owner.key).await;
        peeked.expect("nothing is between the test and the server")
    }

    async fn comes_to_be_applied(&self, scene: &Scene, moment: Duration) -> bool {
        let until = Instant::now() + moment;
        while Instant::now() < until {
            if self.applied(scene).await {
                return true;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        false
    }
}

/// What does not change while time passes.
fn lasting(record: &RecordView) -> (State, Token, Nonce, u64, bool, Arc<str>) {
    let label = Arc::clone(&record.label);
    (
        record.state,
        record.token,
        record.nonce,
        record.progress,
        record.marked,
        label,
    )
}
