//! Roles with settings and rights of their own, and the round that each of them must manage.

use std::time::Duration;

use tower_claim::store::{
    ClaimManyRequest, Claimed, ClaimedMany, Finish, Owner, Renewed, State, Value,
};
use tower_claim::{ClaimAdmin, ClaimMany, ClaimStore, FenceStore, LapsePolicy, Token};
use tower_claim_postgres::{ConnectError, Names, PostgresStore, PostgresStoreBuilder};

use super::scene::{Ask, SECOND, beat, client, finish, granted, key, nonce, tables};
use super::server;

/// A role with these settings and the documented rights, and the store's builder for it.
pub async fn as_role(settings: &[&str]) -> (PostgresStoreBuilder, String, String) {
    let (builder, schema) = tables().await;
    let role = format!("role_{schema}");
    let owner = client(&server().url()).await;
    let grants = Names::new(&schema, "").expect("a name").grants(&role);
    let make = format!("create role {role} login; {grants}");
    owner.batch_execute(&make).await.expect("a role");
    for setting in settings {
        let set = format!("alter role {role} set {setting}");
        owner.batch_execute(&set).await.expect("it is set");
    }
    let url = format!("postgres://{role}@127.0.0.1:{}/postgres", server().port());
    (builder.url(&url), schema, role)
}

/// Every call of one store once, and what it must answer; the owner of what was finished.
pub async fn works(store: &PostgresStore) -> Owner {
    let mut ask = Ask::new(store, key(), 60 * SECOND);
    ask.settings.label = "Grüße, \u{1f980} \0 ".into();
    let answer = store.claim(ask.request()).await.expect("an answer");
    let owner = ask.owner(granted(answer).token);
    let beats = store.renew(&[beat(owner)]).await.expect("an answer");
    assert!(matches!(beats[..], [Renewed::Renewed { rest, .. }] if rest > 59 * SECOND));
    let other = Ask::new(store, ask.key, SECOND);
    match store.claim(other.request()).await.expect("an answer") {
        Claimed::Busy(busy) => {
            assert!(busy.expires_in > 50 * SECOND, "{busy:?}");
            assert_eq!(busy.label, ask.settings.label);
        }
        other => panic!("{other:?}"),
    }
    assert!(store.mark(owner).await.is_ok());
    // Each byte there is, also where the server would write them in its own way.
    let bytes: Vec<u8> = (0..=255).collect();
    let mut done = finish(owner, "");
    done.value = Value::Kept(bytes.clone().into());
    done.keep = 30 * 24 * 60 * 60 * SECOND;
    let done = store.finish(done).await;
    assert_eq!(done.ok(), Some(Finish::Finished));
    match store.claim(other.request()).await.expect("an answer") {
        Claimed::Done(done) => {
            assert_eq!(done.value, Value::Kept(bytes.into()));
            let keep = done.keep_left;
            assert!(keep > (30 * 24 * 60 - 1) * 60 * SECOND, "{keep:?}");
        }
        other => panic!("{other:?}"),
    }
    let released = Ask::new(store, key(), SECOND);
    granted(store.claim(released.request()).await.expect("an answer"));
    assert!(store.release(released.release()).await.is_ok());
    let mut lapsing = Ask::new(store, key(), Duration::from_millis(1));
    lapsing.settings.on_lapse = LapsePolicy::Hold;
    granted(store.claim(lapsing.request()).await.expect("an answer"));
    tokio::time::sleep(Duration::from_millis(3)).await;
    let view = store.peek(lapsing.key).await.expect("an answer");
    assert_eq!(view.expect("a record").state, State::Unknown);
    let mut keys = [key(), key()];
    keys.sort_unstable();
    let many = ClaimManyRequest {
        keys: &keys,
        nonce: nonce(),
        settings: &ask.settings,
        floor: Token::ZERO,
        not_after: ask.not_after,
    };
    let answer = store.claim_many(many).await.expect("an answer");
    assert!(matches!(answer, ClaimedMany::Granted(_)));
    assert!(
        store
            .scan(None, 100)
            .await
            .expect("an answer")
            .records
            .len()
            >= 4
    );
    assert!(store.admit("seat", owner.token, owner.nonce).await.is_ok());
    assert!(store.purge_ended(100).await.is_ok());
    owner
}

#[track_caller]
pub fn says(answer: Result<PostgresStore, ConnectError>, mend: &str) {
    let text = answer.expect_err("it is refused").to_string();
    assert!(text.contains(mend) && text.lines().count() == 1, "{text}");
}
