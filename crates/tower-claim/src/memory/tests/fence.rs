//! The guard's store.

use proptest::prelude::*;

use super::*;

fn t(n: u64) -> Token {
    Token::new(n).unwrap()
}

fn admit(store: &MemoryFenceStore, resource: &str, token: u64, n: u64) -> Admission {
    now(store.admit(resource, t(token), nonce(n))).unwrap()
}

#[test]
fn a_guard_admits_one_nonce_per_token_and_never_goes_back() {
    let store = MemoryFenceStore::new();
    assert_eq!(admit(&store, "a", 5, 1), Admission::Admitted);
    assert_eq!(admit(&store, "a", 5, 1), Admission::Admitted);
    assert_eq!(
        admit(&store, "a", 5, 2),
        Admission::Collision { high: t(5) }
    );
    assert_eq!(admit(&store, "a", 4, 1), Admission::Stale { high: t(5) });
    assert_eq!(admit(&store, "a", 6, 2), Admission::Admitted);
    assert_eq!(admit(&store, "a", 5, 1), Admission::Stale { high: t(6) });
    assert_eq!(
        admit(&store, "b", 1, 1),
        Admission::Admitted,
        "another resource"
    );
}

#[test]
fn a_raised_floor_refuses_the_token_it_was_raised_to() {
    let store = MemoryFenceStore::new();
    let _ = admit(&store, "a", 5, 1);
    assert_eq!(now(store.raise_floor("a", t(3))).unwrap(), t(5));
    assert_eq!(admit(&store, "a", 5, 1), Admission::Admitted);
    assert_eq!(now(store.raise_floor("a", t(5))).unwrap(), t(5));
    assert_eq!(admit(&store, "a", 5, 1), Admission::Stale { high: t(5) });
    assert_eq!(now(store.raise_floor("a", t(9))).unwrap(), t(9));
    assert_eq!(admit(&store, "a", 9, 2), Admission::Stale { high: t(9) });
    assert_eq!(admit(&store, "a", 10, 2), Admission::Admitted);
    assert_eq!(now(store.high_water("a")).unwrap(), t(10));
    assert_eq!(now(store.high_water("never seen")).unwrap(), Token::ZERO);
}

#[test]
fn marks_beyond_the_bound_fold_into_a_floor() {
    let store = MemoryFenceStore::with_max_resources(640);
    for n in 1..100_000u64 {
        // A token below a floor is stale: its owner heals, and claims above the mark.
        let resource = format!("account {n}");
        let above = now(store.high_water(&resource)).unwrap();
        let token = n.max(above.get() + 1);
        assert_eq!(admit(&store, &resource, token, n), Admission::Admitted);
        assert!(store.resources() <= 640);
    }
    assert!(store.resources() > 400);
    for n in 1..100_000u64 {
        let old = admit(&store, &format!("account {n}"), 1, n);
        assert_ne!(old, Admission::Admitted, "an old token passes again");
    }
}

proptest! {
    /// Whatever is pruned: per resource what is admitted never goes back, and a token has one nonce.
    #[test]
    fn admitted_tokens_never_go_back(
        calls in prop::collection::vec((0u8..200, 0u64..100, 0u64..3, any::<bool>()), 1..600),
        most in 0usize..200,
    ) {
        let store = MemoryFenceStore::with_max_resources(most);
        let mut admitted: Vec<(u8, u64, Option<u64>)> = Vec::new();
        for (resource, token, n, raise) in calls {
            let name = resource.to_string();
            let highest = admitted.iter().filter(|a| a.0 == resource).max_by_key(|a| a.1).copied();
            if raise && token % 7 == 0 {
                now(store.raise_floor(&name, t(token))).unwrap();
                admitted.retain(|a| a.0 != resource || a.1 > token);
                admitted.push((resource, token.max(highest.map_or(0, |a| a.1)), None));
                if let Some((_, high, by)) = highest.filter(|a| a.1 > token) {
                    admitted.retain(|a| a.0 != resource);
                    admitted.push((resource, high, by));
                }
            } else if admit(&store, &name, token, n) == Admission::Admitted {
                if let Some((_, high, by)) = highest {
                    let right = token > high || (token == high && by == Some(n));
                    prop_assert!(right, "{token} of {n} at {resource} after {high} of {by:?}");
                }
                admitted.retain(|a| a.0 != resource);
                admitted.push((resource, token, Some(n)));
            } else {
                let room = 64 * most.div_ceil(64).max(1);
                let fits = room >= 64 * 200;
                prop_assert!(!fits || highest.is_some_and(|a| token <= a.1) || token == 0);
            }
        }
        prop_assert!(store.resources() <= 64 * most.div_ceil(64).max(1));
    }
}
