//! Files that are no file of claims, or not ours.

use std::fs;

use redb::{Database, TableDefinition};
use tower_claim::ClaimAdmin;
use tower_claim::store::{Beat, Renewed};

use super::*;
use crate::OpenError;

#[track_caller]
fn refused(path: &std::path::Path) -> OpenError {
    let error = RedbStore::open(path).unwrap_err();
    let text = error.to_string();
    assert!(
        !text.contains('\n') && text.contains(path.to_str().unwrap()),
        "{text}"
    );
    error
}

#[tokio::test]
async fn a_second_opener_is_refused_until_the_first_has_closed() {
    let folder = folder();
    let path = folder.path().join("claims");
    let store = RedbStore::open(&path).unwrap();
    let error = RedbStore::open(&path).unwrap_err();
    assert!(matches!(error.kind(), OpenError::InUse), "{error:?}");
    let clone = store.clone();
    store.close().await;
    let refused = claim(&clone, 1).await.unwrap_err();
    assert!(matches!(refused, StoreError::Unavailable(_)), "{refused:?}");
    RedbStore::open(&path).unwrap();
}

#[test]
fn a_file_that_is_not_redb_is_refused_untouched() {
    let folder = folder();
    let path = folder.path().join("notes.txt");
    for text in ["dear diary", &"dear diary, ".repeat(10_000)] {
        fs::write(&path, text).unwrap();
        let error = refused(&path);
        assert!(matches!(error.kind(), OpenError::NotRedb), "{error:?}");
        assert_eq!(fs::read(&path).unwrap(), text.as_bytes());
    }
}

#[test]
fn a_redb_file_of_something_else_is_refused_untouched() {
    let folder = folder();
    let path = folder.path().join("other.redb");
    let other = Database::create(&path).unwrap();
    let txn = other.begin_write().unwrap();
    let table: TableDefinition<'_, &str, u64> = TableDefinition::new("scores");
    txn.open_table(table).unwrap().insert("me", 7).unwrap();
    txn.commit().unwrap();
    drop(other);
    let bytes = fs::read(&path).unwrap();
    let error = refused(&path);
    assert!(matches!(error.kind(), OpenError::Foreign), "{error:?}");
    assert!(fs::read(&path).unwrap() == bytes, "the file was touched");
}

#[tokio::test]
async fn a_file_of_a_future_format_is_refused_untouched() {
    let folder = folder();
    let path = folder.path().join("claims");
    RedbStore::open(&path).unwrap().close().await;
    let later = Database::open(&path).unwrap();
    let txn = later.begin_write().unwrap();
    let meta: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("tower-claim.meta");
    let format = 2_u32.to_be_bytes();
    txn.open_table(meta)
        .unwrap()
        .insert("format", format.as_slice())
        .unwrap();
    txn.commit().unwrap();
    drop(later);
    let bytes = fs::read(&path).unwrap();
    let error = refused(&path);
    assert!(
        matches!(error.kind(), OpenError::FutureFormat(2)),
        "{error:?}"
    );
    assert!(fs::read(&path).unwrap() == bytes, "the file was touched");
}

#[test]
fn a_missing_folder_is_named() {
    let folder = folder();
    let path = folder.path().join("no/such/folder/claims");
    let error = RedbStore::open(&path).unwrap_err();
    assert!(matches!(error.kind(), OpenError::Storage(_)), "{error:?}");
    let text = error.to_string();
    assert!(text.contains("no/such/folder/claims") && text.contains("make the folder"));
}

#[test]
fn what_is_no_file_is_refused() {
    let folder = folder();
    let mut places = vec![folder.path()];
    if cfg!(unix) {
        places.push(std::path::Path::new("/dev/null"));
    }
    for place in places {
        let error = refused(place);
        assert!(matches!(error.kind(), OpenError::NotAFile), "{error:?}");
    }
}

#[cfg(unix)]
#[tokio::test]
async fn a_link_leads_to_its_file_also_to_one_that_is_not_there_yet() {
    let folder = folder();
    let (link, path) = (folder.path().join("link"), folder.path().join("claims"));
    std::os::unix::fs::symlink(&path, &link).unwrap();
    let store = RedbStore::open(&link).unwrap();
    let token = done(&store, 1).await;
    let error = refused(&path);
    assert!(matches!(error.kind(), OpenError::InUse), "{error:?}");
    store.close().await;
    let store = RedbStore::open(&path).unwrap();
    let kept = claim(&store, 1).await.unwrap();
    assert!(matches!(kept, Claimed::Done(done) if done.token == token));
}

#[test]
fn an_empty_file_becomes_one_of_claims() {
    let folder = folder();
    let path = folder.path().join("claims");
    fs::write(&path, "").unwrap();
    RedbStore::open(&path).unwrap();
}

#[tokio::test]
async fn a_garbled_record_is_an_error_with_its_key_and_leaves_the_others_alone() {
    let folder = folder();
    let path = folder.path().join("claims");
    let store = RedbStore::open(&path).unwrap();
    done(&store, 1).await;
    done(&store, 2).await;
    store.close().await;
    let raw = Database::open(&path).unwrap();
    let txn = raw.begin_write().unwrap();
    let records: TableDefinition<'_, &[u8; 32], &[u8]> =
        TableDefinition::new("tower-claim.records");
    let mut future = vec![0; 8];
    future.push(9);
    txn.open_table(records)
        .unwrap()
        .insert(key(1).as_bytes(), future.as_slice())
        .unwrap();
    txn.commit().unwrap();
    drop(raw);

    let store = RedbStore::open(&path).unwrap();
    for error in [
        claim(&store, 1).await.unwrap_err(),
        store.peek(key(1)).await.unwrap_err(),
    ] {
        let named = matches!(&error, StoreError::Garbled { key_prefix, .. } if *key_prefix == key(1).prefix());
        assert!(named, "{error:?}");
    }
    assert!(matches!(claim(&store, 2).await.unwrap(), Claimed::Done(_)));

    // The operator sees the others, and a batch of beats beats for them.
    let page = store.scan(None, 100).await.unwrap();
    let seen: Vec<Key> = page.records.iter().map(|record| record.key).collect();
    assert_eq!((seen, page.next), (vec![key(2)], None));
    let (nonce, settings) = (Nonce::draw(&OsEntropy), terms(LapsePolicy::TakeOver));
    let token = granted(claim_as(&store, 3, nonce, &settings).await).token;
    let beat = |n| Beat {
        owner: Owner {
            key: key(n),
            nonce,
            token,
        },
        progress: 0,
    };
    let answers = store.renew(&[beat(1), beat(3)]).await.unwrap();
    let held = matches!(answers[..], [Renewed::Unsure, Renewed::Renewed { .. }]);
    assert!(held, "{answers:?}");
}
