//! How much the store keeps, and for how long.

use super::*;

#[test]
fn released_keys_cost_nothing_for_long() {
    let (store, hand) = by_hand(MemoryStore::builder());
    let settings = Settings::new(secs(10));
    for k in 0..1000 {
        granted(claim(&store, k, k, &settings));
        assert_eq!(release(&store, k, k), Release::Released);
    }
    assert_eq!(store.stats().records, 1000);
    hand.advance(secs(3));
    // Each call clears a few of its shard.
    for k in 0..1000 {
        assert_eq!(now(store.peek(key(k))).unwrap(), None);
    }
    assert_eq!((store.stats().records, store.stats().bytes), (0, 0));
}

#[test]
fn random_keys_fill_the_store_and_no_finished_record_is_lost() {
    let limit = 10 << 20;
    let (store, hand) = by_hand(MemoryStore::builder().memory_limit(limit));
    let settings = Settings::new(secs(10));
    let mut finished = Vec::new();
    let mut refused = 0;
    for k in 0..60_000 {
        match claim(&store, k, k, &settings) {
            Ok(Claimed::Granted(grant)) => {
                let body = Bytes::from(vec![7; 100]);
                let done = finish(&store, k, k, grant.token, body, secs(3600));
                assert_eq!(done, Finish::Finished);
                finished.push(k);
            }
            Err(StoreError::Full) => refused += 1,
            other => panic!("{other:?}"),
        }
        assert!(store.stats().bytes <= limit);
    }
    assert!(refused > 1000, "{refused}");
    assert!(finished.len() > 20_000);
    let tombstones = finished
        .iter()
        .filter(|k| match claim(&store, **k, 1_000_000, &settings) {
            Ok(Claimed::Done(done)) => done.value == Value::Tombstone,
            other => panic!("finished and lost: {other:?}"),
        })
        .count();
    assert!(tombstones < 10, "{tombstones}");

    hand.advance(secs(3600));
    for k in 100_000..130_000 {
        granted(claim(&store, k, k, &settings));
    }
}

#[test]
fn where_there_is_no_room_for_the_body_the_outcome_is_kept() {
    let (store, _) = by_hand(MemoryStore::builder().memory_limit(4096).shards(1));
    let settings = Settings::new(secs(10));
    let token = granted(claim(&store, 1, 1, &settings));
    let done = finish(&store, 1, 1, token, Bytes::from(vec![0; 10_000]), secs(60));
    assert_eq!(done, Finish::Finished);
    match claim(&store, 1, 2, &settings) {
        Ok(Claimed::Done(done)) => assert_eq!(done.value, Value::Tombstone),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_full_store_takes_new_keys_once_a_keep_has_passed() {
    let (store, clock) = by_hand(MemoryStore::builder().max_records(100));
    let settings = Settings::new(secs(10));
    for k in 0..100 {
        let token = granted(claim(&store, k, k, &settings));
        let _ = finish(&store, k, k, token, Bytes::from_static(b"x"), secs(60));
    }
    assert!(matches!(
        claim(&store, 100, 100, &settings),
        Err(StoreError::Full)
    ));
    clock.advance(secs(59));
    assert!(matches!(
        claim(&store, 100, 100, &settings),
        Err(StoreError::Full)
    ));
    assert!(matches!(
        claim(&store, 7, 100, &settings),
        Ok(Claimed::Done(_))
    ));
    clock.advance(secs(1) + Duration::from_millis(2));
    for k in 100..200 {
        granted(claim(&store, k, k, &settings));
    }
    assert!(matches!(
        claim(&store, 200, 200, &settings),
        Err(StoreError::Full)
    ));
}

#[test]
fn a_live_claim_is_never_dropped_for_a_new_one() {
    let (store, clock) = by_hand(MemoryStore::builder().max_records(10));
    let settings = Settings::new(secs(1));
    let tokens: Vec<Token> = (0..10)
        .map(|k| granted(claim(&store, k, k, &settings)))
        .collect();
    // Lapsed, and not ended: its owner may come back, its fingerprint binds.
    clock.advance(secs(3600));
    assert!(matches!(
        claim(&store, 10, 10, &settings),
        Err(StoreError::Full)
    ));
    for (k, token) in (0..10).zip(tokens) {
        let done = finish(&store, k, k, token, Bytes::new(), secs(60));
        assert_eq!(done, Finish::Finished);
    }
}

#[test]
fn several_keys_find_room_for_all_or_take_none() {
    let (store, _) = by_hand(MemoryStore::builder().max_records(4));
    let settings = Settings::new(secs(10));
    granted(claim(&store, 0, 0, &settings));
    let mut keys: Vec<Key> = (1..5).map(key).collect();
    keys.sort();
    let ask = |keys| {
        now(store.claim_many(ClaimManyRequest {
            keys,
            nonce: nonce(1),
            settings: &settings,
            floor: Token::ZERO,
            not_after: StoreTime::NEVER,
        }))
    };
    assert!(matches!(ask(&keys), Err(StoreError::Full)));
    assert_eq!(store.stats().records, 1);
    assert!(matches!(ask(&keys[..3]), Ok(ClaimedMany::Granted(_))));
    assert_eq!(store.stats().records, 4);
}

#[test]
fn several_keys_must_be_sorted_and_differ() {
    let store = MemoryStore::new();
    let settings = Settings::new(secs(10));
    let mut keys = [key(1), key(2)];
    keys.sort();
    for wrong in [&[keys[1], keys[0]][..], &[keys[0], keys[0]], &[]] {
        let claimed = now(store.claim_many(ClaimManyRequest {
            keys: wrong,
            nonce: nonce(1),
            settings: &settings,
            floor: Token::ZERO,
            not_after: StoreTime::NEVER,
        }));
        assert!(matches!(claimed, Err(StoreError::Unsupported(_))));
    }
    assert_eq!(store.stats().records, 0);
}

#[test]
fn a_body_does_not_pin_the_buffer_it_was_cut_from() {
    let store = MemoryStore::new();
    let settings = Settings::new(secs(10));
    let token = granted(claim(&store, 1, 1, &settings));
    let large = Bytes::from(vec![7; 1 << 20]);
    let _ = finish(&store, 1, 1, token, large.slice(..10), secs(60));
    assert!(large.try_into_mut().is_ok(), "somebody shares it still");
}

#[test]
fn what_is_counted_is_given_back() {
    let (store, clock) = by_hand(MemoryStore::builder());
    let settings = Settings::new(secs(10));
    for round in 0..3 {
        for k in 0..500 {
            let n = 1000 * round + k;
            let token = granted(claim(&store, k, n, &settings));
            release(&store, k, n + 500);
            match k % 3 {
                0 => {
                    let _ = finish(&store, k, n, token, Bytes::from(vec![0; 1000]), secs(30));
                }
                1 => {
                    release(&store, k, n);
                }
                _ => {}
            }
        }
        assert!(store.stats().bytes > 500 * 100);
        clock.advance(secs(25 * 3600));
        assert!(claim(&store, 10_000, round, &settings).is_ok());
    }
    clock.advance(secs(25 * 3600));
    for k in 0..2000 {
        now(store.peek(key(k))).unwrap();
    }
    assert_eq!((store.stats().records, store.stats().bytes), (0, 0));
}

#[test]
fn a_scan_shows_every_record_once() {
    let (store, clock) = by_hand(MemoryStore::builder().shards(4));
    let settings = Settings::new(secs(10));
    for k in 0..1000 {
        granted(claim(&store, k, k, &settings));
    }
    clock.advance(secs(1));
    for k in 1000..1050 {
        granted(claim(&store, k, k, &settings));
        release(&store, k, k);
    }
    clock.advance(secs(5));
    for limit in [1, 7, 1000, usize::MAX] {
        let mut seen = Vec::new();
        let mut from = None;
        loop {
            let page = now(store.scan(from, limit)).unwrap();
            assert!(page.records.len() <= limit);
            seen.extend(page.records.into_iter().map(|view| view.key));
            from = page.next;
            if from.is_none() {
                break;
            }
        }
        let mut expected: Vec<Key> = (0..1000).map(key).collect();
        expected.sort();
        seen.sort();
        assert_eq!(seen, expected, "pages of {limit}");
    }
}

#[test]
fn a_scan_goes_on_where_its_next_record_has_gone() {
    let (store, clock) = by_hand(MemoryStore::builder());
    let settings = Settings::new(secs(10));
    for k in 0..100 {
        granted(claim(&store, k, k, &settings));
    }
    let first = now(store.scan(None, 50)).unwrap();
    let next = first.next.unwrap();
    let gone = (0..100).find(|k| key(*k) == next).unwrap();
    release(&store, gone, gone);
    clock.advance(secs(3));
    assert_eq!(now(store.peek(next)).unwrap(), None);
    let second = now(store.scan(Some(next), 50)).unwrap();
    assert_eq!(second.records.len(), 49);
    let known = |key| first.records.iter().any(|view| view.key == key);
    assert!(second.records.iter().all(|view| !known(view.key)));
}

#[test]
fn a_record_costs_150_bytes_beside_its_key_and_value() {
    use crate::memory::shard::{BUCKET_BYTES, SLOT_BYTES};
    // Tables grow at 7/8 to twice their size: on the average they are about 2/3 full.
    let beside = SLOT_BYTES - size_of::<Key>() + BUCKET_BYTES * 3 / 2;
    assert!(beside <= 150, "{beside} bytes");
}

/// Ten million records take 2 GB and half a minute: run it by name, optimised.
#[test]
#[ignore = "2 GB of memory"]
fn no_lock_is_held_for_a_millisecond_with_ten_million_records() {
    let builder = MemoryStore::builder().max_records(20_000_000);
    let (store, clock) = by_hand(builder.memory_limit(16 << 30));
    let mut settings = Settings::new(secs(10));
    settings.unfinished_keep = secs(60);
    for k in 0..10_000_000u64 {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&k.to_be_bytes());
        let claimed = now(store.claim(ClaimRequest {
            key: Key::from_bytes(bytes),
            nonce: nonce(k),
            fingerprint: None,
            settings: &settings,
            floor: Token::ZERO,
            not_after: store.now(),
        }));
        granted(claimed);
    }
    let page = now(store.scan(None, 1000)).unwrap();
    assert_eq!(page.records.len(), 256);
    assert_eq!(store.stats().records, 10_000_000);
    clock.advance(secs(80));
    for k in 0..5_000_000 {
        granted(claim(&store, k, k, &settings));
    }
    // Of fifteen million holds a few meet a pause of the machine itself.
    let over = store.inner.holds_over_a_millisecond();
    assert!(over <= 3, "{over} times");
}
