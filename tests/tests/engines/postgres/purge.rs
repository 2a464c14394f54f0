//! What is dropped, and what is bounded.

use std::time::{Duration, Instant};

use tower_claim::store::{Claimed, Release, ReleaseRequest, Renewed};
use tower_claim::{ClaimMany, ClaimStore, LapsePolicy};

use super::scene::{
    Ask, SECOND, beat, client, finish, granted, hold, key, rows, store, tables, until,
};
use super::server;

#[tokio::test]
async fn a_purge_drops_what_has_nothing_left_to_say_and_nothing_else() {
    let (store, schema) = store().await;
    let client = client(&server().url()).await;
    // Long enough for what comes before the first look, on a busy machine too.
    let (begun, brief) = (Instant::now(), 4 * SECOND);
    let short = |key| Ask {
        not_after: store.now().saturating_add(brief),
        ..Ask::new(&store, key, brief)
    };
    let again = key();
    for _ in 0..5 {
        let ask = short(again);
        granted(store.claim(ask.request()).await.expect("an answer"));
        assert!(store.release(ask.release()).await.is_ok());
    }
    for _ in 0..20 {
        let ask = short(key());
        granted(store.claim(ask.request()).await.expect("an answer"));
        assert!(store.release(ask.release()).await.is_ok());
    }
    let live = hold(&store, key(), 60 * SECOND).await;
    let done = hold(&store, key(), brief).await;
    assert!(store.finish(finish(done, "done")).await.is_ok());
    let mut unknown = Ask::new(&store, key(), brief);
    unknown.settings.on_lapse = LapsePolicy::Hold;
    granted(store.claim(unknown.request()).await.expect("an answer"));

    let early = store.purge_ended(100).await.expect("an answer").dropped;
    assert!(early == 0 || begun.elapsed() > brief, "{early}");
    let over = store.now().saturating_add(brief);
    // A purge looks again a second after it has looked.
    tokio::time::sleep(brief + SECOND * 11 / 10).await;
    assert!(store.now() > over);
    let mut dropped = early;
    loop {
        let purged = store.purge_ended(7).await.expect("an answer");
        dropped += purged.dropped;
        if !purged.more {
            break;
        }
    }
    assert_eq!(dropped, 21);
    assert_eq!(rows(&client, &format!("{schema}.claim")).await, 3);
    assert_eq!(rows(&client, &format!("{schema}.spent")).await, 0);
    assert!(matches!(
        store.renew(&[beat(live)]).await.expect("an answer")[..],
        [Renewed::Renewed { .. }]
    ));
    let ask = Ask::new(&store, done.key, SECOND);
    let answer = store.claim(ask.request()).await.expect("an answer");
    assert!(matches!(answer, Claimed::Done(_)));
    let ask = Ask::new(&store, unknown.key, SECOND);
    let answer = store.claim(ask.request()).await.expect("an answer");
    assert!(matches!(answer, Claimed::Unknown(_)));
}

#[tokio::test]
async fn the_purger_needs_nobody_and_ends_with_the_store() {
    let (builder, schema) = tables().await;
    let url = format!("{}?application_name={schema}", server().url());
    let builder = builder.url(&url).purge_every(Some(SECOND / 10));
    let store = builder.connect().await.expect("it connects");
    let client = client(&server().url()).await;
    let ask = Ask {
        not_after: store.now().saturating_add(5 * SECOND),
        ..Ask::new(&store, key(), 5 * SECOND)
    };
    granted(store.claim(ask.request()).await.expect("an answer"));
    assert!(store.release(ask.release()).await.is_ok());
    let claims = format!("{schema}.claim");
    until("the row is gone", async || {
        rows(&client, &claims).await == 0
    })
    .await;
    drop(store);
    let sessions = "select count(*) from pg_stat_activity where application_name = $1";
    until("its sessions end", async || {
        let row = client.query_one(sessions, &[&schema]).await;
        row.expect("a count").get::<_, i64>(0) == 0
    })
    .await;
}

/// Its record would be unfinished for a day; a release says that it is over.
#[tokio::test]
async fn a_record_that_a_purge_saw_held_goes_soon_after_its_release() {
    let (store, _) = store().await;
    let ask = Ask {
        not_after: store.now().saturating_add(3 * SECOND),
        ..Ask::new(&store, key(), 3 * SECOND)
    };
    let grant = granted(store.claim(ask.request()).await.expect("an answer"));
    until("a purge has looked", async || {
        let purged = store.purge_ended(10).await.expect("an answer");
        assert_eq!(purged.dropped, 0, "it may be finished still");
        store.now() > ask.not_after.saturating_add(SECOND)
    })
    .await;
    let release = ReleaseRequest {
        token: Some(grant.token),
        ..ask.release()
    };
    assert_eq!(store.release(release).await.ok(), Some(Release::Released));
    until("it is dropped", async || {
        store.purge_ended(10).await.expect("an answer").dropped == 1
    })
    .await;
}

/// Beyond the bound the spent nonces of a key fold, and each is still refused.
#[tokio::test]
async fn spent_nonces_are_bounded_and_none_is_granted_again() {
    let (store, schema) = store().await;
    let key = key();
    let client = client(&server().url()).await;
    let first = Ask::new(&store, key, 60 * SECOND);
    granted(store.claim(first.request()).await.expect("an answer"));
    // Released by nonce, claims still under way: each is remembered beside the holder.
    let refused: Vec<Ask> = (0..4_400u64)
        .map(|n| Ask {
            not_after: first.not_after.saturating_add(Duration::from_millis(n)),
            ..Ask::new(&store, key, SECOND)
        })
        .collect();
    for batch in refused.chunks(400) {
        let releases: Vec<_> = batch.iter().map(Ask::release).collect();
        let answers = store.release_many(&releases).await;
        assert_eq!(answers.expect("an answer").len(), batch.len());
    }
    let kept = rows(&client, &format!("{schema}.spent")).await;
    assert!(
        (2_000..=4_200).contains(&kept),
        "{kept} are kept one by one"
    );
    assert!(store.release(first.release()).await.is_ok());
    for ask in refused.iter().step_by(97).chain([&first]) {
        let answer = store.claim(ask.request()).await.expect("an answer");
        assert_eq!(answer, Claimed::Ended);
    }
    let newcomer = Ask {
        not_after: store.now().saturating_add(200 * SECOND),
        ..Ask::new(&store, key, SECOND)
    };
    granted(store.claim(newcomer.request()).await.expect("an answer"));
}
