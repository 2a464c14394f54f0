//! A guard with more resources than it keeps marks of.

use tower_claim::store::{Admission, FenceStore};

use super::*;
use crate::marks;

const MOST: u64 = 8;

fn token(n: u64) -> Token {
    Token::new(n).unwrap()
}

fn counted(store: &RedbStore) -> (u64, u64) {
    store.inner.file.read(marks::count).unwrap()
}

/// A guard that forgot the mark of a resource would admit there a token that it refused before.
#[tokio::test]
async fn marks_stay_bounded_and_no_resource_is_ever_behind_its_mark() {
    let folder = folder();
    let path = folder.path().join("claims");
    let mut refused = 0;
    for opening in 0..3_u64 {
        let store = RedbStore::builder().guard_marks(MOST).open(&path).unwrap();
        let guard = store.fence_store();
        for n in 0..40 {
            let (resource, nonce) = (format!("r{n}"), Nonce::draw(&OsEntropy));
            let high = token(1_000 * (opening + 1) + (n * 7) % 40);
            let before = guard.high_water(&resource).await.unwrap();
            match guard.admit(&resource, high, nonce).await.unwrap() {
                Admission::Admitted => assert!(high > before),
                Admission::Stale { .. } => {
                    refused += 1;
                    assert!(high <= before);
                    // It heals with a token above what the guard tells.
                    let healed = token(before.get() + 1);
                    let admitted = guard.admit(&resource, healed, nonce).await.unwrap();
                    assert_eq!(admitted, Admission::Admitted);
                }
                other => panic!("{other:?}"),
            }
            assert_eq!(
                counted(&store),
                (
                    MOST.min(n + 1 + 40 * opening),
                    MOST.min(n + 1 + 40 * opening)
                )
            );
            for m in 0..=n {
                let now = guard.high_water(&format!("r{m}")).await.unwrap();
                let was = token(1_000 * (opening + 1) + (m * 7) % 40);
                assert!(now >= was, "the mark of r{m} fell below {was}");
                let stale = guard
                    .admit(&format!("r{m}"), was, Nonce::draw(&OsEntropy))
                    .await;
                let stale = stale.unwrap();
                assert!(stale != Admission::Admitted, "r{m} at {was} again");
            }
        }
        store.close().await;
    }
    assert!(refused > 0, "the floor never stood in anybody's way");
}

/// The floor bears no nonce: who was admitted before its mark was folded cannot be told from a thief.
#[tokio::test]
async fn a_floor_refuses_its_own_token_also_to_the_nonce_it_had() {
    let folder = folder();
    let path = folder.path().join("claims");
    let store = RedbStore::builder().guard_marks(1).open(&path).unwrap();
    let guard = store.fence_store();
    let nonce = Nonce::draw(&OsEntropy);
    let admit = |resource: &'static str, n| guard.admit(resource, token(n), nonce);
    assert_eq!(admit("a", 5).await.unwrap(), Admission::Admitted);
    assert_eq!(admit("a", 5).await.unwrap(), Admission::Admitted);
    assert_eq!(admit("b", 6).await.unwrap(), Admission::Admitted);
    let folded = admit("a", 5).await.unwrap();
    assert_eq!(folded, Admission::Stale { high: token(5) });
    assert_eq!(admit("b", 6).await.unwrap(), Admission::Admitted);
    // A floor as high as what is asked for writes no row.
    assert_eq!(guard.raise_floor("c", token(5)).await.unwrap(), token(5));
    assert_eq!(counted(&store), (1, 1));
    assert_eq!(admit("c", 6).await.unwrap(), Admission::Admitted);
    assert_eq!(
        admit("b", 6).await.unwrap(),
        Admission::Stale { high: token(6) }
    );
}

#[tokio::test]
async fn a_lowered_bound_is_reached_a_few_marks_at_a_time() {
    let folder = folder();
    let path = folder.path().join("claims");
    let store = RedbStore::open(&path).unwrap();
    let nonce = Nonce::draw(&OsEntropy);
    let guard = store.fence_store();
    for n in 1..=200 {
        let admitted = guard.admit(&format!("r{n}"), token(n), nonce).await;
        assert_eq!(admitted.unwrap(), Admission::Admitted);
    }
    store.close().await;
    let store = RedbStore::builder().guard_marks(2).open(&path).unwrap();
    let guard = store.fence_store();
    let mut left = 200_u64;
    for n in 201..210 {
        let admitted = guard.admit(&format!("r{n}"), token(n), nonce).await;
        assert_eq!(admitted.unwrap(), Admission::Admitted);
        left = left.saturating_sub(64).max(1) + 1;
        let (marks, lowest) = counted(&store);
        assert_eq!(marks, lowest);
        if marks == 2 {
            assert_eq!(guard.high_water("r1").await.unwrap(), token(n - 2));
            return;
        }
        assert_eq!(marks, left);
    }
    panic!("the bound was not reached");
}
