//! A whole file of format 1, kept as it was written: what this version makes of it.
//!
//! redb's own format is part of the promise: a version that reads another one fails here first.

use std::fs;
use std::path::PathBuf;

use tower_claim::ClaimAdmin;
use tower_claim::store::{
    Admission, Beat, FenceStore, LostReason, Marked, Release, ReleaseRequest, Renewed, StoreTime,
};

use super::*;

const WROTE: [u8; 16] = *b"wrote the golden";
/// Above every clock: so the tokens are known.
const FLOOR: u64 = 1 << 52;

fn golden() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/file-v1")
}

fn nonce(n: u8) -> Nonce {
    Nonce::from_bytes([n; 16])
}

fn token(n: u64) -> Token {
    Token::new(FLOOR + n).unwrap()
}

fn owner(n: u8) -> Owner {
    Owner {
        key: key(n.into()),
        nonce: nonce(n),
        token: token(u64::from(n) + 1),
    }
}

async fn claims(store: &RedbStore, n: u8, settings: &Settings) {
    let request = ClaimRequest {
        key: key(n.into()),
        nonce: nonce(n),
        fingerprint: None,
        settings,
        floor: token(n.into()),
        not_after: StoreTime::NEVER,
    };
    let grant = granted(store.claim(request).await);
    assert_eq!(grant.token, owner(n).token);
}

/// Of every kind of row one at least.
#[tokio::test]
#[ignore = "writes the golden file of a new format: run it once for each"]
async fn write_the_golden_file() {
    let (folder, clock) = (folder(), ManualClock::new());
    let path = folder.path().join("claims");
    let store = by_hand(&clock).process(WROTE).guard_marks(2).open(&path);
    let store = store.unwrap();
    let (take_over, hold) = (terms(LapsePolicy::TakeOver), terms(LapsePolicy::Hold));
    for n in 1..=6 {
        claims(&store, n, &take_over).await;
    }
    claims(&store, 7, &hold).await;
    assert_eq!(store.mark(owner(2)).await.unwrap(), Marked::Marked);
    let finished = finish(&store, owner(3)).await;
    assert_eq!(finished.unwrap(), Finish::Finished);
    let tombstone = FinishRequest {
        owner: owner(4),
        value: Value::Tombstone,
        keep: KEEP,
    };
    assert_eq!(store.finish(tombstone).await.unwrap(), Finish::Finished);
    let release = ReleaseRequest {
        key: key(5),
        nonce: nonce(5),
        token: None,
        not_after: StoreTime::NEVER,
    };
    assert_eq!(store.release(release).await.unwrap(), Release::Released);
    store.break_claim(key(6), owner(6).token).await.unwrap();
    store.break_claim(key(7), owner(7).token).await.unwrap();
    let guard = store.fence_store();
    for (n, resource) in (1..).zip(["folded", "written", "raised"]) {
        let admitted = guard.admit(resource, token(n), nonce(n as u8)).await;
        assert_eq!(admitted.unwrap(), Admission::Admitted);
    }
    guard.raise_floor("raised", token(9)).await.unwrap();
    store.close().await;
    fs::create_dir_all(golden().parent().unwrap()).unwrap();
    fs::copy(&path, golden()).unwrap();
}

async fn opened(process: [u8; 16]) -> (RedbStore, ManualClock, TempDir) {
    let (folder, clock) = (folder(), ManualClock::new());
    let path = folder.path().join("claims");
    fs::copy(golden(), &path).unwrap();
    let store = by_hand(&clock).process(process).guard_marks(2).open(&path);
    (store.unwrap(), clock, folder)
}

/// What every process finds, whoever wrote it.
async fn finds_what_has_ended(store: &RedbStore) {
    for (n, value) in [
        (3, Value::Kept(b"done".as_slice().into())),
        (4, Value::Tombstone),
    ] {
        let kept = claim(store, n.into()).await.unwrap();
        let Claimed::Done(kept) = kept else {
            panic!("{n}: {kept:?}");
        };
        assert_eq!((kept.token, kept.value), (owner(n).token, value));
        assert!(kept.keep_left > KEEP - secs(1), "{:?}", kept.keep_left);
    }
    let broken = claim(store, 6).await.unwrap();
    assert!(
        matches!(&broken, Claimed::Cooling(cooling) if cooling.remaining > secs(2)),
        "{broken:?}"
    );
    let unknown = claim(store, 7).await.unwrap();
    let raised = token(9);
    assert!(
        matches!(&unknown, Claimed::Unknown(unknown) if unknown.token == raised),
        "{unknown:?}"
    );
    // Spent nonces are remembered, and tokens rise above those of the file.
    let settings = terms(LapsePolicy::TakeOver);
    let copy = claim_as(store, 5, nonce(5), &settings).await.unwrap();
    assert_eq!(copy, Claimed::Ended);
    assert_eq!(granted(claim(store, 5).await).token, token(7));

    let guard = store.fence_store();
    let writes = async |resource, n: u64| {
        let admission = guard.admit(resource, token(n), nonce(n as u8)).await;
        admission.unwrap()
    };
    let stale = |n| Admission::Stale { high: token(n) };
    assert_eq!(writes("written", 2).await, Admission::Admitted);
    let thief = guard.admit("written", token(2), nonce(99)).await.unwrap();
    assert_eq!(thief, Admission::Collision { high: token(2) });
    assert_eq!(writes("raised", 9).await, stale(9));
    assert_eq!(writes("folded", 1).await, stale(1));
    assert_eq!(writes("never seen", 1).await, stale(1));
}

#[tokio::test]
async fn a_file_of_format_1_is_read_by_the_process_that_wrote_it() {
    let (store, clock, _folder) = opened(WROTE).await;
    finds_what_has_ended(&store).await;
    let beats = [1, 2].map(|n| Beat {
        owner: owner(n),
        progress: 1,
    });
    for renewed in store.renew(&beats).await.unwrap() {
        assert!(
            matches!(renewed, Renewed::Renewed { rest, .. } if rest == secs(10)),
            "{renewed:?}"
        );
    }
    let busy = claim(&store, 1).await.unwrap();
    assert!(
        matches!(&busy, Claimed::Busy(busy) if busy.token == owner(1).token),
        "{busy:?}"
    );
    clock.advance(secs(14));
    let next = granted(claim(&store, 1).await);
    assert_eq!(next.took_over.unwrap().token, owner(1).token);
    let unknown = claim(&store, 2).await.unwrap();
    assert!(matches!(unknown, Claimed::Unknown(_)), "the mark is lost");
}

#[tokio::test]
async fn a_file_of_format_1_is_read_by_another_process() {
    let (store, clock, _folder) = opened([2; 16]).await;
    finds_what_has_ended(&store).await;
    let beat = Beat {
        owner: owner(1),
        progress: 1,
    };
    let lost = store.renew(&[beat]).await.unwrap();
    assert_eq!(lost, [Renewed::Lost(LostReason::Lapsed)]);
    let unknown = claim(&store, 2).await.unwrap();
    assert!(matches!(unknown, Claimed::Unknown(_)), "the mark is lost");
    clock.advance(secs(4));
    granted(claim(&store, 1).await);
}
