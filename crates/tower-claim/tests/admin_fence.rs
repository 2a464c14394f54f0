//! An operator ends a hold and shuts its owner out at the guard, in one call.
#![cfg(feature = "testing")]
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test may fail")]

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tower_claim::store::{
    Admission, Broken, ClaimRequest, Claimed, Owner, Resolution, Resolved, Value, break_and_fence,
    resolve_and_fence,
};
use tower_claim::testing::{Fault, FaultStore};
use tower_claim::{
    ClaimStore, FenceStore, Key, LapsePolicy, MemoryFenceStore, MemoryStore, Nonce, OsEntropy,
    Settings, StoreError, Token,
};

const KEY: Key = Key::from_bytes([7; 32]);
const RESOURCE: &str = "the ledger";

/// A guard that can be out of order.
#[derive(Debug)]
struct Guard {
    marks: MemoryFenceStore,
    down: AtomicBool,
}

impl Guard {
    fn new() -> Self {
        Self {
            marks: MemoryFenceStore::new(),
            down: AtomicBool::new(false),
        }
    }

    fn set_down(&self, down: bool) {
        self.down.store(down, Ordering::SeqCst);
    }

    fn up(&self) -> Result<(), StoreError> {
        match self.down.load(Ordering::SeqCst) {
            true => Err(StoreError::unavailable("the guard is down on command")),
            false => Ok(()),
        }
    }

    async fn writes(&self, owner: Owner) -> Admission {
        self.admit(RESOURCE, owner.token, owner.nonce)
            .await
            .unwrap()
    }
}

impl FenceStore for Guard {
    async fn admit(
        &self,
        resource: &str,
        token: Token,
        nonce: Nonce,
    ) -> Result<Admission, StoreError> {
        self.up()?;
        self.marks.admit(resource, token, nonce).await
    }

    async fn raise_floor(&self, resource: &str, floor: Token) -> Result<Token, StoreError> {
        self.up()?;
        self.marks.raise_floor(resource, floor).await
    }

    async fn high_water(&self, resource: &str) -> Result<Token, StoreError> {
        self.up()?;
        self.marks.high_water(resource).await
    }
}

/// A claim that is granted, and has written once.
async fn holds(store: &impl ClaimStore, guard: &Guard) -> Owner {
    let settings = Settings::new(Duration::from_secs(30));
    holds_under(store, guard, &settings).await
}

async fn holds_under(store: &impl ClaimStore, guard: &Guard, settings: &Settings) -> Owner {
    let nonce = Nonce::draw(&OsEntropy);
    let request = ClaimRequest {
        key: KEY,
        nonce,
        fingerprint: None,
        settings,
        floor: Token::ZERO,
        not_after: store.now().saturating_add(Duration::from_secs(60)),
    };
    let token = match store.claim(request).await.unwrap() {
        Claimed::Granted(grant) => grant.token,
        other => panic!("not granted: {other:?}"),
    };
    let key = KEY;
    let owner = Owner { key, nonce, token };
    assert_eq!(guard.writes(owner).await, Admission::Admitted);
    owner
}

/// A hold whose outcome nobody knows: it was broken behind its point of no return.
async fn unknown(store: &MemoryStore, guard: &Guard) -> (Owner, Token) {
    use tower_claim::ClaimAdmin;
    let mut settings = Settings::new(Duration::from_secs(30));
    settings.on_lapse = LapsePolicy::Hold;
    let owner = holds_under(store, guard, &settings).await;
    let token = match store.break_claim(KEY, owner.token).await.unwrap() {
        Broken::Broken { token } => token,
        other => panic!("not broken: {other:?}"),
    };
    // The break alone does not reach the guard: whoever held the key could write on.
    assert_eq!(guard.writes(owner).await, Admission::Admitted);
    (owner, token)
}

#[tokio::test]
async fn a_broken_owner_is_stale_before_the_next_owner_writes() {
    let (store, guard) = (MemoryStore::new(), Guard::new());
    let old = holds(&store, &guard).await;
    let broken = break_and_fence(&store, KEY, old.token, &guard, RESOURCE).await;
    let broken = broken.unwrap();
    let Broken::Broken { token } = broken else {
        panic!("not broken: {broken:?}");
    };
    assert!(token > old.token, "{token} after {}", old.token);
    let stale = Admission::Stale { high: token };
    assert_eq!(guard.writes(old).await, stale);

    let next = holds(&store, &guard).await;
    assert!(next.token > token, "{} after {token}", next.token);
    let stale = Admission::Stale { high: next.token };
    assert_eq!(guard.writes(old).await, stale);
}

#[tokio::test]
async fn a_resolved_owner_is_stale_before_the_next_owner_writes() {
    let done = Resolution::Done(
        Value::Kept(b"found out".as_slice().into()),
        Duration::from_secs(60),
    );
    for resolution in [Resolution::Absent, done] {
        let (store, guard) = (MemoryStore::new(), Guard::new());
        let (old, seen) = unknown(&store, &guard).await;
        let absent = resolution == Resolution::Absent;
        let resolved = resolve_and_fence(&store, KEY, seen, resolution, &guard, RESOURCE).await;
        let resolved = resolved.unwrap();
        let Resolved::Resolved { token } = resolved else {
            panic!("not resolved: {resolved:?}");
        };
        assert!(token > seen, "{token} after {seen}");
        assert_eq!(guard.writes(old).await, Admission::Stale { high: token });
        if absent {
            let next = holds(&store, &guard).await;
            assert!(next.token > token, "{} after {token}", next.token);
        }
    }
}

/// The owner an operator did not mean goes on.
#[tokio::test]
async fn what_was_not_broken_leaves_the_floor_as_it_is() {
    let (store, guard) = (MemoryStore::new(), Guard::new());
    let (one, nobody) = (Token::new(1).unwrap(), Key::from_bytes([8; 32]));
    let absent = break_and_fence(&store, nobody, one, &guard, RESOURCE).await;
    assert_eq!(absent.unwrap(), Broken::Absent);
    let owner = holds(&store, &guard).await;
    let ahead = Token::new(owner.token.get() + 1).unwrap();
    let conflict = break_and_fence(&store, KEY, ahead, &guard, RESOURCE).await;
    let token = owner.token;
    assert_eq!(conflict.unwrap(), Broken::Conflict { token });
    assert_eq!(guard.high_water(RESOURCE).await.unwrap(), owner.token);
    assert_eq!(guard.writes(owner).await, Admission::Admitted);
}

#[tokio::test]
async fn what_was_not_resolved_leaves_the_floor_as_it_is() {
    let (store, guard) = (MemoryStore::new(), Guard::new());
    let (one, nobody) = (Token::new(1).unwrap(), Key::from_bytes([8; 32]));
    let absent = resolve_and_fence(&store, nobody, one, Resolution::Absent, &guard, RESOURCE).await;
    assert_eq!(absent.unwrap(), Resolved::Absent);
    let owner = holds(&store, &guard).await;
    let held = resolve_and_fence(
        &store,
        KEY,
        owner.token,
        Resolution::Absent,
        &guard,
        RESOURCE,
    );
    let token = owner.token;
    assert_eq!(held.await.unwrap(), Resolved::Conflict { token });
    assert_eq!(guard.high_water(RESOURCE).await.unwrap(), owner.token);
    assert_eq!(guard.writes(owner).await, Admission::Admitted);
}

/// As the docs of `break_and_fence` say: the hold is broken, the floor is not raised, and can be later.
#[tokio::test]
async fn a_guard_that_failed_a_break_is_healed_by_raising_its_floor_later() {
    let (store, guard) = (MemoryStore::new(), Guard::new());
    let old = holds(&store, &guard).await;
    guard.set_down(true);
    let failed = break_and_fence(&store, KEY, old.token, &guard, RESOURCE).await;
    assert!(
        matches!(failed, Err(StoreError::Unavailable(_))),
        "{failed:?}"
    );
    guard.set_down(false);
    heals(&store, &guard, old).await;
}

#[tokio::test]
async fn a_guard_that_failed_a_resolve_is_healed_by_raising_its_floor_later() {
    let (store, guard) = (MemoryStore::new(), Guard::new());
    let (old, seen) = unknown(&store, &guard).await;
    guard.set_down(true);
    let failed = resolve_and_fence(&store, KEY, seen, Resolution::Absent, &guard, RESOURCE).await;
    assert!(
        matches!(failed, Err(StoreError::Unavailable(_))),
        "{failed:?}"
    );
    guard.set_down(false);
    heals(&store, &guard, old).await;
}

/// The token of the record is the floor that was not raised.
async fn heals(store: &MemoryStore, guard: &Guard, old: Owner) {
    assert_eq!(guard.high_water(RESOURCE).await.unwrap(), old.token);
    let token = store.peek(KEY).await.unwrap().unwrap().token;
    assert!(token > old.token, "the record was left as it was");
    assert_eq!(guard.raise_floor(RESOURCE, token).await.unwrap(), token);
    assert_eq!(guard.writes(old).await, Admission::Stale { high: token });
    let next = holds(store, guard).await;
    assert!(next.token > token, "{} after {token}", next.token);
}

#[tokio::test]
async fn an_error_of_the_store_leaves_the_floor_as_it_is() {
    let (store, guard) = (FaultStore::new(MemoryStore::new()), Guard::new());
    let owner = holds(&store, &guard).await;
    store.faults().set(Fault::Down);
    let failed = break_and_fence(&store, KEY, owner.token, &guard, RESOURCE).await;
    assert!(
        matches!(failed, Err(StoreError::Unavailable(_))),
        "{failed:?}"
    );
    assert_eq!(guard.high_water(RESOURCE).await.unwrap(), owner.token);
    assert_eq!(guard.writes(owner).await, Admission::Admitted);
}
