//! The laws, plain and behind every trouble.

use std::time::Duration;

use tower_claim::conformance::{Suite, Time, Trouble};

use super::store;

pub(super) fn time() -> Time {
    Time::Real {
        unit: Duration::from_millis(150),
        tolerance: Duration::from_millis(20),
    }
}

async fn all_laws(suite: Suite) {
    let (one, many, admin) = tokio::join!(
        suite.claim_store(store),
        suite.claim_many(store),
        suite.claim_admin(store),
    );
    one.assert();
    many.assert();
    admin.assert();
}

#[tokio::test]
async fn the_laws_hold() {
    let suite = Suite::new(time());
    suite.fence_store(store).await.assert();
    all_laws(suite).await;
}

macro_rules! behind {
    ($($name:ident = $trouble:ident;)+) => {$(
        #[tokio::test]
        async fn $name() {
            all_laws(Suite::new(time()).behind(Trouble::$trouble)).await;
        }
    )+};
}

behind! {
    the_laws_hold_where_calls_are_refused = Refuse;
    the_laws_hold_where_calls_are_slow = Delay;
    the_laws_hold_where_replies_are_lost = LoseReply;
    the_laws_hold_where_calls_come_twice = Repeat;
}
