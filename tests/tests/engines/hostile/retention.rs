//! What is over is forgotten.

use std::time::{Duration, Instant};

use tower_claim::store::{Claimed, Finish, FinishRequest, Marked, Owner, Release, Value};
use tower_claim::{Settings, Token};

use super::Engine;
use super::scene::{ANSWER, Party};
use crate::suite::{claim, key, nonce, release};

/// Keys of each end.
const EACH: usize = 10;

/// Finished and past its keep, released, lapsed and past its unfinished keep, unknown and past it: of all these
/// nothing is kept, and the next token is higher all the same.
pub async fn nothing_is_kept<E: Engine>() {
    let engine = E::start().await;
    let before = engine.kept().await;
    let store = E::connect(engine.address()).await;
    let mut settings = Settings::new(Duration::from_secs(1));
    settings.unfinished_keep = Duration::from_secs(1);
    let mut ended = Vec::new();
    for nth in 0..EACH * 4 {
        let mut owner = Owner {
            key: key(),
            nonce: nonce(),
            token: Token::ZERO,
        };
        let not_after = store.dyn_now().saturating_add(Duration::from_secs(3));
        match store.dyn_claim(claim(&owner, &settings, not_after)).await {
            Ok(Claimed::Granted(grant)) => owner.token = grant.token,
            other => panic!("a free key: {other:?}"),
        }
        if nth % 4 == 1 {
            let request = FinishRequest {
                owner,
                value: Value::Kept("once".into()),
                keep: Duration::from_secs(1),
            };
            assert_eq!(store.dyn_finish(request).await.ok(), Some(Finish::Finished));
        }
        if nth % 4 == 2 {
            assert_eq!(store.dyn_mark(owner).await.ok(), Some(Marked::Marked));
        }
        if nth % 4 >= 2 {
            let released = store.dyn_release(release(&owner, not_after)).await;
            assert_eq!(released.ok(), Some(Release::Released));
        }
        ended.push(owner);
    }
    assert!(engine.kept().await > before, "`kept` sees nothing");
    let store = E::connect(engine.address()).await;

    let until = Instant::now() + E::forgets_within();
    loop {
        let kept = engine.kept().await;
        if kept <= before {
            break;
        }
        assert!(
            Instant::now() < until,
            "{kept} of {} are kept, {before} were before",
            ended.len()
        );
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
    drop(store);
    let next = Party::at::<E>(engine.address()).await;
    let terms = super::scene::unheard();
    for owner in ended {
        let claim = next.take(owner.key, &terms, ANSWER).await;
        assert!(claim.token() > owner.token, "a forgotten token came again");
    }
}
