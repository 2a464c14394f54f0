//! Rows as they are stored: of this format, and of a future one.

use tower_claim::store::{Claimed, Renewed, Resolution, State, Value};
use tower_claim::{ClaimAdmin, ClaimStore, Key, Nonce, StoreError};

use super::scene::{Ask, SECOND, beat, client, finish, hold, key, store};
use super::server;

/// Rows as format 1 writes them, in all states. Never change this text: later versions must read it.
const GOLDEN: &str = include_str!("golden_v1.sql");

fn golden(n: u8) -> Key {
    Key::from_bytes([n; 32])
}

#[tokio::test]
async fn rows_of_format_1_are_read() {
    let (store, schema) = store().await;
    let client = client(&server().url()).await;
    let rows = GOLDEN.replace("tower_claim.", &format!("{schema}."));
    client.batch_execute(&rows).await.expect("golden rows");
    let views = [
        (1, State::Free),
        (2, State::Held),
        (3, State::Done),
        (4, State::Unknown),
    ];
    for (n, state) in views {
        let view = store.peek(golden(n)).await.expect("an answer");
        let view = view.expect("a record");
        assert_eq!(view.state, state);
        assert_eq!(view.token.get(), 1_900_000_000_000_000 + u64::from(n));
        assert_eq!(view.nonce.as_bytes(), &[n; 16]);
    }
    let held = store.peek(golden(2)).await.expect("an answer");
    let held = held.expect("a record");
    assert_eq!(
        (&*held.label, held.progress, held.marked),
        ("lease 1", 7, true)
    );
    assert_eq!(held.fingerprint.map(|f| *f.as_bytes()), Some([9; 32]));
    let ask = Ask::new(&store, golden(3), SECOND);
    match store.claim(ask.request()).await {
        Ok(Claimed::Done(done)) => {
            let kept = Value::Kept("golden".into());
            assert_eq!(done.value, kept);
        }
        other => panic!("{other:?}"),
    }
    let mut spent = Ask::new(&store, golden(1), SECOND);
    spent.nonce = Nonce::from_bytes([5; 16]);
    assert_eq!(
        store.claim(spent.request()).await.ok(),
        Some(Claimed::Ended)
    );
}

#[tokio::test]
async fn a_row_of_a_future_format_is_refused_with_its_prefix() {
    let (store, schema) = store().await;
    let owner = hold(&store, key(), 60 * SECOND).await;
    let client = client(&server().url()).await;
    let newer = format!("update {schema}.claim set format = 2");
    client.batch_execute(&newer).await.expect("it is changed");
    let ask = Ask::new(&store, owner.key, SECOND);
    let answers = [
        store.claim(ask.request()).await.err(),
        store.finish(finish(owner, "done")).await.err(),
        store.mark(owner).await.err(),
        store.release(ask.release()).await.err(),
        store.peek(owner.key).await.err(),
        store.watch(owner.key, owner.token).await.err(),
        store.break_claim(owner.key, owner.token).await.err(),
        store
            .resolve(owner.key, owner.token, Resolution::Absent)
            .await
            .err(),
        store.purge(owner.key, owner.token).await.err(),
    ];
    for (n, error) in answers.into_iter().enumerate() {
        let Some(StoreError::Garbled { key_prefix, .. }) = error else {
            panic!("call {n}: {error:?}");
        };
        assert_eq!(key_prefix, owner.key.prefix(), "call {n}");
    }
    // In a batch it is doubt: the neighbours are renewed.
    let neighbour = hold(&store, key(), 60 * SECOND).await;
    let answers = store.renew(&[beat(owner), beat(neighbour)]).await;
    let answers = answers.expect("an answer");
    assert_eq!(answers[0], Renewed::Unsure);
    assert!(matches!(answers[1], Renewed::Renewed { .. }));
    assert!(store.purge_ended(100).await.is_ok());
}
