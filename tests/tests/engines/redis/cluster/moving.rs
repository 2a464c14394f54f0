//! A slot moves from one primary to another, record by record, while its keys are in use.

use std::time::Duration;

use system_tests::servers::Redis;
use tower_claim::store::{
    Beat, ClaimMany, ClaimManyRequest, Claimed, ClaimedMany, Finish, FinishRequest, Owner, Release,
    Renewed, Value,
};
use tower_claim::{ClaimStore, Key, Settings, Token};
use tower_claim_redis::RedisStore;

use super::{Cluster, SLOTS, connect, slot, told};
use crate::redis::{ask, claim, granted_for, key, nonce, release_of};

/// What a tool that moves slots says to its nodes.
struct Move<'a> {
    slot: u16,
    from: &'a Redis,
    to: &'a Redis,
}

impl Move<'_> {
    fn say(&self, node: &Redis, words: &str) {
        let said = told(node, &format!("CLUSTER SETSLOT {} {words}", self.slot));
        assert_eq!(said, "+OK", "{words}");
    }

    fn begin(&self) {
        let id = |node: &Redis| told(node, "CLUSTER MYID");
        self.say(self.to, &format!("IMPORTING {}", id(self.from)));
        self.say(self.from, &format!("MIGRATING {}", id(self.to)));
    }

    async fn take(&self, name: &str) {
        let mut from = connect(self.from).await;
        let moved: String = redis::cmd("MIGRATE")
            .arg("127.0.0.1")
            .arg(self.to.port())
            .arg(name)
            .arg(0)
            .arg(5000)
            .query_async(&mut from)
            .await
            .unwrap();
        assert_eq!(moved, "OK", "{name}");
    }

    async fn end(&self) {
        let mut from = connect(self.from).await;
        let left: Vec<String> = redis::cmd("CLUSTER")
            .arg("GETKEYSINSLOT")
            .arg(self.slot)
            .arg(100)
            .query_async(&mut from)
            .await
            .unwrap();
        for name in left {
            self.take(&name).await;
        }
        let owner = format!("NODE {}", told(self.to, "CLUSTER MYID"));
        self.say(self.to, &owner);
        self.say(self.from, &owner);
    }
}

async fn renew(store: &RedisStore, owners: &[Owner]) {
    let beats: Vec<_> = owners
        .iter()
        .map(|owner| Beat {
            owner: *owner,
            progress: 1,
        })
        .collect();
    let answers = store.renew(&beats).await.unwrap();
    for (n, answer) in answers.iter().enumerate() {
        assert!(
            matches!(answer, Renewed::Renewed { .. }),
            "hold {n}: {answer:?}"
        );
    }
}

/// A lease that is renewed and does not end meanwhile.
async fn held(store: &RedisStore) -> Owner {
    granted_for(store, key(), &Settings::new(Duration::from_secs(300))).await
}

#[tokio::test]
async fn a_slot_that_moves_takes_its_claims_along_and_no_hold_lapses_on_the_way() {
    let cluster = Cluster::start(0).await;
    // With the rights that the README names, and no more.
    for node in &cluster.nodes {
        let rights = "ACL SETUSER app on >right ~claim:* &claim:* -@all +ping +eval +evalsha +time +hmget +hget \
                      +hset +hdel +hscan +exists +unlink +persist +pexpireat +publish +subscribe +scan \
                      +cluster|slots +asking";
        assert_eq!(told(node, rights), "+OK");
    }
    let urls = cluster.nodes.iter();
    let urls = urls.map(|node| format!("redis://app:right@{}", node.address()));
    // All keys in one slot.
    let store = RedisStore::builder().cluster(urls).hash_tag("moves");
    let store = store.connect().await.unwrap();
    let slot = slot(&store, &key());
    let at = SLOTS.iter().position(|slots| slots.contains(&slot));
    let at = at.expect("every slot has a primary");
    let moving = Move {
        slot,
        from: &cluster.nodes[at],
        to: &cluster.nodes[(at + 1) % 3],
    };
    let (moved, stays) = (held(&store).await, held(&store).await);
    let left = held(&store).await;
    moving.begin();
    // Who is there is served there, who is new is served by the next node (`ASK`).
    let new = held(&store).await;
    for owner in [moved, new] {
        let busy = claim(&store, owner.key).await;
        assert!(
            matches!(&busy, Claimed::Busy(busy) if busy.token == owner.token),
            "{busy:?}"
        );
    }

    moving.take(&store.name_of(&moved.key)).await;
    // Some here, some there: Redis refuses the script over all of them (`TRYAGAIN`).
    renew(&store, &[moved, stays, new]).await;
    let done = FinishRequest {
        owner: moved,
        value: Value::Kept("out".into()),
        keep: Duration::from_secs(60),
    };
    assert_eq!(store.finish(done.clone()).await.unwrap(), Finish::Finished);
    assert_eq!(store.finish(done.clone()).await.unwrap(), Finish::Finished);
    let all = [left, stays].map(|owner| release_of(&store, owner));
    assert_eq!(
        store.release_many(&all[..1]).await.unwrap(),
        [Release::Released]
    );
    let settings = Settings::new(Duration::from_secs(20));
    let mut keys: Vec<Key> = vec![left.key, key()];
    keys.sort_unstable();
    let several = ClaimManyRequest {
        keys: &keys,
        nonce: nonce(),
        settings: &settings,
        floor: Token::ZERO,
        not_after: ask(&store, key(), &settings).not_after,
    };
    // All of them or none: in doubt, and repeated by whoever asked.
    let torn = store.claim_many(several).await.unwrap_err();
    assert!(torn.is_retryable(), "{torn:?}");
    for key in &keys {
        let view = store.peek(*key).await.unwrap();
        let free = view.is_none_or(|view| view.state == tower_claim::store::State::Free);
        assert!(free, "nothing of it was applied");
    }

    moving.end().await;
    // The client's map is old (`MOVED`).
    renew(&store, &[stays, new]).await;
    let replayed = claim(&store, moved.key).await;
    assert!(
        matches!(&replayed, Claimed::Done(replay) if replay.value == done.value),
        "{replayed:?}"
    );
    let several = ClaimManyRequest {
        nonce: nonce(),
        not_after: ask(&store, key(), &settings).not_after,
        ..several
    };
    let granted = store.claim_many(several).await.unwrap();
    assert!(
        matches!(&granted, ClaimedMany::Granted(grant) if grant.token > left.token),
        "{granted:?}"
    );
}
