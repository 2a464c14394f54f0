//! Many at once, thousands of nonces, and futures that are dropped.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tower_claim::store::{ClaimMany, ClaimRequest, Claimed, Release, ReleaseRequest, StoreTime};
use tower_claim::{Attempt, ClaimStore, Keeper, Nonce, Settings, StoreError, Terms, Token};

use super::{ask, granted, granted_for, key, nonce, raw, release_of, store};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_grants_of_one_key_have_rising_tokens() {
    let store = store().await;
    let key = key();
    let tokens: Arc<Mutex<Vec<Token>>> = Arc::default();
    let workers = (0..16).map(|_| {
        let (store, tokens) = (store.clone(), Arc::clone(&tokens));
        tokio::spawn(async move {
            let settings = Settings::new(Duration::from_secs(20));
            while tokens.lock().unwrap().len() < 10_000 {
                // A quick retry: owners of a hot key have short call timeouts.
                let request = ClaimRequest {
                    not_after: store.now().saturating_add(Duration::from_millis(500)),
                    ..ask(&store, key, &settings)
                };
                if let Claimed::Granted(grant) = store.claim(request).await.unwrap() {
                    // Told while it is held: in the order of grants.
                    tokens.lock().unwrap().push(grant.token);
                    let release = ReleaseRequest {
                        key,
                        nonce: request.nonce,
                        token: Some(grant.token),
                        not_after: request.not_after,
                    };
                    assert_eq!(store.release(release).await.unwrap(), Release::Released);
                }
            }
        })
    });
    for worker in workers.collect::<Vec<_>>() {
        worker.await.unwrap();
    }
    let tokens = tokens.lock().unwrap();
    assert!(tokens.len() >= 10_000);
    assert!(
        tokens.windows(2).all(|pair| pair[0] < pair[1]),
        "a token did not rise"
    );
}

#[tokio::test]
async fn beyond_the_bound_every_folded_nonce_is_still_refused() {
    let store = store().await;
    let owner = granted(&store, key()).await;
    let base = store.now();
    let not_after =
        |n: usize| base.saturating_add(Duration::from_secs(60) + Duration::from_millis(n as u64));
    let refused: Vec<ReleaseRequest> = (0..6000)
        .map(|n| ReleaseRequest {
            key: owner.key,
            nonce: nonce(),
            token: None,
            not_after: not_after(n),
        })
        .collect();
    for some in refused.chunks(500) {
        let answers = store.release_many(some).await.unwrap();
        assert!(answers.iter().all(|answer| *answer == Release::Already));
    }
    let kept: i64 = redis::cmd("HLEN")
        .arg(store.name_of(&owner.key))
        .query_async(&mut raw().await)
        .await
        .unwrap();
    assert!((2048..4200).contains(&kept), "{kept} fields");
    assert_eq!(
        store.release(release_of(&store, owner)).await.unwrap(),
        Release::Released
    );
    let settings = Settings::new(Duration::from_secs(20));
    for n in (0..6000).step_by(40) {
        let request = ClaimRequest {
            nonce: refused[n].nonce,
            not_after: refused[n].not_after,
            ..ask(&store, owner.key, &settings)
        };
        assert_eq!(
            store.claim(request).await.unwrap(),
            Claimed::Ended,
            "nonce {n}"
        );
    }
    let newcomer = ClaimRequest {
        not_after: not_after(6000),
        ..ask(&store, owner.key, &settings)
    };
    assert!(matches!(
        store.claim(newcomer).await.unwrap(),
        Claimed::Granted(_)
    ));
}

/// A release without a `not_after` is remembered for good: a flood of them must not close the key.
#[tokio::test]
async fn nonces_without_an_end_stay_few_and_close_no_key() {
    let store = store().await;
    let owner = granted(&store, key()).await;
    for _ in 0..12 {
        let forever = |_| ReleaseRequest {
            key: owner.key,
            nonce: nonce(),
            token: None,
            not_after: StoreTime::NEVER,
        };
        let some: Vec<ReleaseRequest> = (0..500).map(forever).collect();
        store.release_many(&some).await.unwrap();
    }
    let kept: i64 = redis::cmd("HLEN")
        .arg(store.name_of(&owner.key))
        .query_async(&mut raw().await)
        .await
        .unwrap();
    assert!((2048..4200).contains(&kept), "{kept} fields");
    assert_eq!(
        store.release(release_of(&store, owner)).await.unwrap(),
        Release::Released
    );
    granted(&store, owner.key).await;
}

fn dice(n: u64) -> u64 {
    let mut x = n.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x ^= x >> 29;
    x.wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 32
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropped_futures_mix_no_answers_up_and_leave_the_key_free() {
    let store = store().await;
    let mut settings = Settings::new(Duration::from_secs(20));
    settings.label = "mine".into();
    let mine = granted_for(&store, key(), &settings).await;
    let keeper = Keeper::new(store.clone());
    let terms = Terms::builder(Duration::from_secs(3)).build().unwrap();
    let hot = key();
    for n in 0..1000 {
        let limit = Duration::from_micros(dice(n) % 600);
        let _ = tokio::time::timeout(limit, keeper.claim(hot, None, &terms, Token::ZERO)).await;
        let view = store.peek(mine.key);
        match n % 2 {
            0 => drop(tokio::time::timeout(limit, view).await),
            _ => {
                let view = view.await.unwrap().expect("it is held");
                assert_eq!(
                    (view.key, view.token, &*view.label),
                    (mine.key, mine.token, "mine")
                );
            }
        }
    }
    let until = Instant::now() + Duration::from_secs(30);
    loop {
        match keeper.claim(hot, None, &terms, Token::ZERO).await {
            Ok(Attempt::Granted(claim)) => {
                claim.release().await.unwrap();
                break;
            }
            other => assert!(Instant::now() < until, "the key stays taken: {other:?}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn the_store_outlives_the_runtime_it_was_made_on() {
    let store = std::thread::spawn(|| {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(store())
    });
    let store = store.join().unwrap();
    // Its connection died with that runtime: one call is in doubt, the next is served.
    let first = store.peek(key()).await;
    assert!(
        matches!(&first, Ok(None) | Err(StoreError::Ambiguous(_))),
        "{first:?}"
    );
    assert!(store.peek(key()).await.unwrap().is_none());
}

#[tokio::test]
async fn a_floor_near_the_end_of_tokens_is_refused() {
    let store = store().await;
    let settings = Settings::new(Duration::from_secs(20));
    let request = ClaimRequest {
        floor: Token::MAX,
        nonce: Nonce::from_bytes([9; 16]),
        ..ask(&store, key(), &settings)
    };
    assert!(matches!(
        store.claim(request).await,
        Err(StoreError::Unsupported(_))
    ));
}
