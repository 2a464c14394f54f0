//! One suite for every engine.
//!
//! An engine's own file calls, with a function that opens its store anew over one server:
//!
//! - [`every_law`]: the conformance suite, plain and behind each [`Trouble`].
//! - [`behind_the_relay`]: the same laws through a [`Relay`] that delays each byte; the function gets the
//!   relay's `HOST:PORT` and opens a store that connects there.
//! - [`lost_answers`]: the relay closes the connection behind each request of each call, and swallows its
//!   reply. The error must be honest (*unavailable* only where nothing was applied), and the repeat with the
//!   same nonce must have the effect of one.
//! - [`guard_laws`]: the laws of the engine's [`FenceStore`].

use std::fmt::Debug;
use std::sync::Arc;
use std::time::{Duration, Instant};

use system_tests::relay::{Relay, Way};
use tower_claim::conformance::{Report, Suite, Time, Trouble};
use tower_claim::store::{
    Beat, Broken, ClaimManyRequest, ClaimRequest, Claimed, ClaimedMany, Finish, FinishRequest,
    Marked, MultiKey, Owner, RecordView, Release, ReleaseRequest, Renewed, Resolution, Resolved,
    State, StoreTime, Value,
};
use tower_claim::{
    ClaimAdmin, ClaimMany, FenceStore, Key, LapsePolicy, Namespace, Nonce, OsEntropy, Settings,
    StoreError, Token, Use,
};

/// Steps of 100 ms: for engines that tell milliseconds and answer in few of them.
pub const QUICK: Time = Time::Real {
    unit: Duration::from_millis(100),
    tolerance: Duration::from_millis(20),
};

/// Every law of one key, of several keys where the engine takes any, and of operators: plain, then behind
/// each trouble.
pub async fn every_law<S: ClaimMany + ClaimAdmin>(time: Time, open: impl AsyncFn() -> S) {
    laws(Suite::new(time.clone()), &open).await;
    for trouble in Trouble::ALL {
        laws(Suite::new(time.clone()).behind(trouble), &open).await;
    }
}

/// Every law, plain, through a relay that delays each byte by 2 ms either way.
pub async fn behind_the_relay<S: ClaimMany + ClaimAdmin>(
    time: Time,
    server: &str,
    open: impl AsyncFn(String) -> S,
) {
    let relay = Relay::to(server);
    let (requests, replies) = (Duration::from_millis(2), Duration::from_millis(2));
    relay.set(Way::Delay { requests, replies });
    laws(Suite::new(time), &async || open(relay.address()).await).await;
    assert!(relay.requests() > 0, "the store went past the relay");
}

/// The laws of a guard.
pub async fn guard_laws<F: FenceStore>(open: impl AsyncFn() -> F) {
    held(Suite::new(QUICK).fence_store(open).await);
}

async fn laws<S: ClaimMany + ClaimAdmin>(suite: Suite, open: &impl AsyncFn() -> S) {
    let many = async {
        if open().await.capabilities().multi_key == MultiKey::Atomic {
            held(suite.claim_many(open).await);
        }
    };
    let one = async { held(suite.claim_store(open).await) };
    let admin = async { held(suite.claim_admin(open).await) };
    tokio::join!(one, many, admin);
}

/// The report is seen with `--nocapture`.
fn held(report: Report) {
    println!("{report}");
    report.assert();
}

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

/// The calls that change something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Call {
    Claim,
    ClaimMany,
    Renew,
    Mark,
    Finish,
    Release,
    Break,
    Resolve,
}

impl Call {
    const ALL: [Call; 8] = [
        Call::Claim,
        Call::ClaimMany,
        Call::Renew,
        Call::Mark,
        Call::Finish,
        Call::Release,
        Call::Break,
        Call::Resolve,
    ];
}

/// The longest call timeout that a store may have here, and some room.
const PATIENCE: Duration = Duration::from_secs(10);
/// Requests that no call has.
const TOO_MANY: usize = 40;

struct Trial<'a, S, D> {
    call: Call,
    relay: Relay,
    store: &'a S,
    direct: &'a D,
    reads_first: bool,
}

/// The record that a call is about.
struct Scene {
    owner: Owner,
    settings: Settings,
    not_after: StoreTime,
}

impl<S: ClaimMany + ClaimAdmin, D: ClaimMany + ClaimAdmin> Trial<'_, S, D> {
    async fn run(self) {
        let mut lost = 0;
        // A server that sees the end of the connection may drop a call that it has not begun yet: where
        // most of a call is reading, a cut behind its commit may take a few rounds.
        let rounds = if self.reads_first { 20 } else { 1 };
        for _ in 0..rounds {
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
        let applied = self.judge(&scene, answer).await;
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
            lost += usize::from(self.judge(&scene, answer).await);
        }
        lost
    }

    /// Whether an applied call was answered by an error. It must be an honest one, and the repeat harmless.
    async fn judge(&self, scene: &Scene, answer: Result<(), StoreError>) -> bool {
        let call = self.call;
        let Err(error) = answer else {
            // The cut fell behind what the call needs, or the store asked again by itself.
            assert!(
                self.applied(scene).await,
                "{call:?}: a yes without an effect"
            );
            return false;
        };
        let applied = self.comes_to_be_applied(scene).await;
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

    /// A fresh record, made past the relay.
    async fn scene(&self) -> Scene {
        let not_after = self.direct.now().saturating_add(Duration::from_secs(60));
        let mut settings = Settings::new(Duration::from_secs(60));
        let owner = Owner {
            key: key(),
            nonce: nonce(),
            token: Token::ZERO,
        };
        match self.call {
            Call::Claim | Call::ClaimMany => {
                return Scene {
                    owner,
                    settings,
                    not_after,
                };
            }
            Call::Resolve => {
                settings.on_lapse = LapsePolicy::Hold;
                settings.lease = Duration::from_secs(1);
            }
            _ => {}
        }
        let request = claim(&owner, &settings, not_after);
        let token = match self.direct.claim(request).await {
            Ok(Claimed::Granted(grant)) => grant.token,
            other => panic!("a free key: {other:?}"),
        };
        let owner = Owner { token, ..owner };
        if self.call == Call::Resolve {
            // A marked claim that is released is unknown at once.
            assert_eq!(self.direct.mark(owner).await.ok(), Some(Marked::Marked));
            let released = self.direct.release(release(&owner, not_after)).await;
            assert_eq!(released.ok(), Some(Release::Released));
        }
        Scene {
            owner,
            settings,
            not_after,
        }
    }

    /// Sends the call through the relay. `Ok` for every answer that the only call or a repeat may get.
    async fn send_once(&self, scene: &Scene) -> Result<(), StoreError> {
        tokio::time::timeout(PATIENCE, self.send(scene))
            .await
            .unwrap_or_else(|_| panic!("{:?} waits for ever", self.call))
    }

    async fn send(&self, scene: &Scene) -> Result<(), StoreError> {
        let (store, owner) = (self.store, scene.owner);
        match self.call {
            Call::Claim => match store
                .claim(claim(&owner, &scene.settings, scene.not_after))
                .await?
            {
                Claimed::Granted(_) | Claimed::Mine { .. } => Ok(()),
                other => self.unexpected(other),
            },
            Call::ClaimMany => {
                let keys = [owner.key];
                let request = ClaimManyRequest {
                    keys: &keys,
                    nonce: owner.nonce,
                    settings: &scene.settings,
                    floor: Token::ZERO,
                    not_after: scene.not_after,
                };
                match store.claim_many(request).await? {
                    ClaimedMany::Granted(_)
                    | ClaimedMany::Refused {
                        by: Claimed::Mine { .. },
                        ..
                    } => Ok(()),
                    other => self.unexpected(other),
                }
            }
            Call::Renew => {
                let beat = Beat { owner, progress: 7 };
                match store.renew(&[beat]).await?.as_slice() {
                    [Renewed::Renewed { .. }] => Ok(()),
                    other => self.unexpected(other),
                }
            }
            Call::Mark => match store.mark(owner).await? {
                Marked::Marked => Ok(()),
                other => self.unexpected(other),
            },
            Call::Finish => {
                let request = FinishRequest {
                    owner,
                    value: Value::Kept("once".into()),
                    keep: Duration::from_secs(60),
                };
                match store.finish(request).await? {
                    Finish::Finished => Ok(()),
                    other => self.unexpected(other),
                }
            }
            Call::Release => match store.release(release(&owner, scene.not_after)).await? {
                Release::Released | Release::Already => Ok(()),
                other => self.unexpected(other),
            },
            Call::Break => match store.break_claim(owner.key, owner.token).await? {
                Broken::Broken { .. } | Broken::Absent => Ok(()),
                Broken::Conflict { token } if token > owner.token => Ok(()),
                other => self.unexpected(other),
            },
            Call::Resolve => {
                let result = Resolution::Done(Value::Tombstone, Duration::from_secs(60));
                match store.resolve(owner.key, owner.token, result).await? {
                    Resolved::Resolved { .. } => Ok(()),
                    Resolved::Conflict { token } if token > owner.token => Ok(()),
                    other => self.unexpected(other),
                }
            }
        }
    }

    fn unexpected(&self, answer: impl Debug) -> ! {
        panic!("{:?}: answered {answer:?}", self.call)
    }

    async fn record(&self, scene: &Scene) -> Option<RecordView> {
        let peeked = self.direct.peek(scene.owner.key).await;
        peeked.expect("nothing is between the test and the server")
    }

    async fn applied(&self, scene: &Scene) -> bool {
        let Some(record) = self.record(scene).await else {
            // Free and forgotten.
            return matches!(self.call, Call::Release | Call::Break);
        };
        match self.call {
            Call::Claim | Call::ClaimMany => {
                record.state == State::Held && record.nonce == scene.owner.nonce
            }
            Call::Renew => record.progress == 7,
            Call::Mark => record.marked,
            Call::Finish | Call::Resolve => record.state == State::Done,
            Call::Release => record.state == State::Free,
            Call::Break => record.state != State::Held,
        }
    }

    /// The server may need a moment for a request whose client is gone.
    async fn comes_to_be_applied(&self, scene: &Scene) -> bool {
        let until = Instant::now() + Duration::from_millis(150);
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

/// A claim without a fingerprint.
pub fn claim<'a>(owner: &Owner, settings: &'a Settings, not_after: StoreTime) -> ClaimRequest<'a> {
    ClaimRequest {
        key: owner.key,
        nonce: owner.nonce,
        fingerprint: None,
        settings,
        floor: Token::ZERO,
        not_after,
    }
}

/// The release of a claim.
pub fn release(owner: &Owner, not_after: StoreTime) -> ReleaseRequest {
    ReleaseRequest {
        key: owner.key,
        nonce: owner.nonce,
        token: Some(owner.token),
        not_after,
    }
}

/// A nonce drawn at random.
pub fn nonce() -> Nonce {
    Nonce::draw(&OsEntropy)
}

/// A key that no other test has.
pub fn key() -> Key {
    let part = format!("{:?}", nonce());
    Key::builder(Use::Lease, &Namespace::default())
        .part(part)
        .build()
}
