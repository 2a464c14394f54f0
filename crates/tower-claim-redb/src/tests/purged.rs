//! What an operator has purged is gone from the file's records, and does not come back with it.

use std::path::Path;

use redb::{Database, ReadableDatabase, TableDefinition};
use tower_claim::ClaimAdmin;
use tower_claim::store::{Purged, State};

use super::*;

const RECORDS: TableDefinition<'static, &'static [u8; 32], &'static [u8]> =
    TableDefinition::new("tower-claim.records");
const TOLD: &[u8] = b"Ada Lovelace";

/// A key with a result that tells of somebody.
async fn told(store: &RedbStore, n: u32, keep: Duration) -> Owner {
    let (key, nonce) = (key(n), Nonce::draw(&OsEntropy));
    let claimed = claim_as(store, n, nonce, &terms(LapsePolicy::TakeOver)).await;
    let token = granted(claimed).token;
    let owner = Owner { key, nonce, token };
    assert_eq!(again(store, owner, keep).await, Finish::Finished);
    owner
}

async fn again(store: &RedbStore, owner: Owner, keep: Duration) -> Finish {
    let value = Value::Kept(TOLD.into());
    let finished = store.finish(FinishRequest { owner, value, keep }).await;
    finished.unwrap()
}

/// Whether the record of a closed file has these bytes.
fn record_tells(path: &Path, n: u32) -> bool {
    let file = Database::open(path).unwrap();
    let records = file.begin_read().unwrap().open_table(RECORDS).unwrap();
    let row = records.get(key(n).as_bytes()).unwrap().expect("a record");
    row.value().windows(TOLD.len()).any(|bytes| bytes == TOLD)
}

#[tokio::test]
async fn a_purge_leaves_nothing_of_the_result_in_the_record() {
    let (folder, clock) = (folder(), ManualClock::new());
    let path = folder.path().join("claims");
    let store = by_hand(&clock).open(&path).unwrap();
    let (first, brief) = (told(&store, 1, KEEP).await, told(&store, 2, secs(1)).await);
    let left = told(&store, 3, KEEP).await;
    clock.advance(secs(2));
    let purged = store.purge(first.key, first.token).await.unwrap();
    let Purged::Purged { token } = purged else {
        panic!("{purged:?}");
    };
    // Past its keep, and a copy of its claim may arrive still: the record is there.
    let purged = store.purge(brief.key, brief.token).await.unwrap();
    assert_eq!(purged, Purged::Absent);
    store.close().await;
    assert!(!record_tells(&path, 1));
    assert!(!record_tells(&path, 2));
    assert!(record_tells(&path, 3), "{left:?} is another's");

    let store = by_hand(&clock).open(&path).unwrap();
    let view = store.peek(first.key).await.unwrap().unwrap();
    assert_eq!((view.state, view.token), (State::Free, token));
    assert_eq!(again(&store, first, KEEP).await, Finish::Lost);
    let settings = terms(LapsePolicy::TakeOver);
    let copy = claim_as(&store, 1, first.nonce, &settings).await;
    assert_eq!(copy.unwrap(), Claimed::Ended);
    assert!(granted(claim(&store, 1).await).token > token);
}
