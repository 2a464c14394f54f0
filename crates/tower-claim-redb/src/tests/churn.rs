//! Many keys pass through.

use std::fs;

use futures_util::future::join_all;
use tower_claim::store::ReleaseRequest;

use super::*;

async fn pass(store: &RedbStore, n: u32) {
    let nonce = Nonce::draw(&OsEntropy);
    let settings = Settings::new(secs(10));
    let not_after = store.now().saturating_add(secs(2));
    let request = ClaimRequest {
        key: key(n),
        nonce,
        fingerprint: None,
        settings: &settings,
        floor: Token::ZERO,
        not_after,
    };
    let token = granted(store.claim(request).await).token;
    let key = key(n);
    if n.is_multiple_of(2) {
        let value = Value::Kept(vec![7; 100].into());
        let keep = secs(1);
        let owner = Owner { key, nonce, token };
        let finished = store.finish(FinishRequest { owner, value, keep }).await;
        assert_eq!(finished.unwrap(), Finish::Finished);
    } else {
        let token = Some(token);
        let release = ReleaseRequest {
            key,
            nonce,
            token,
            not_after,
        };
        store.release(release).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_file_stays_small_while_fifteen_thousand_keys_pass_through() {
    const TOGETHER: u32 = 1000;
    const ALL: u32 = 15_000;
    let (folder, clock) = (folder(), ManualClock::new());
    let path = folder.path().join("claims");
    let store = by_hand(&clock).call_timeout(secs(60)).open(&path).unwrap();
    let mut largest = 0;
    for first in (0..ALL).step_by(TOGETHER as usize) {
        join_all((first..first + TOGETHER).map(|n| pass(&store, n))).await;
        clock.advance(Duration::from_millis(500));
        largest = largest.max(fs::metadata(&path).unwrap().len());
    }
    // 2 s of claims are remembered: 5,000 records of about 200 bytes.
    println!("{ALL} keys: the file grew to {} KiB", largest >> 10);
    assert!(largest < 16 << 20, "the file grew to {largest} bytes");

    // Once all have ended, an idle store cleans up by itself.
    clock.advance(secs(10));
    let deadline = std::time::Instant::now() + secs(20);
    while records(&store) > 0 {
        assert!(
            std::time::Instant::now() < deadline,
            "{} are left",
            records(&store)
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn records(store: &RedbStore) -> u64 {
    store.inner.file.read(crate::book::count).unwrap()
}
