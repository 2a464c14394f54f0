//! What a claim answers, by the state of the key.

use std::sync::Arc;

use futures_util::future::join_all;

use crate::conformance::bench::{Bench, kept, print};
use crate::conformance::law::Judged;
use crate::store::{Busy, Claimed, DoneRecord, Finish, FinishRequest, Value};

laws![Bench;
    a_free_key_is_granted,
    a_grant_tells_lease_and_attempt: FirstAnswer,
    two_keys_do_not_meet,
    a_held_key_is_busy,
    busy_tells_of_the_holder,
    busy_tells_whether_the_fingerprint_is_the_same,
    of_racing_claims_one_is_granted,
    a_finished_key_is_done,
    done_tells_age_and_keep,
    done_tells_whether_the_fingerprint_is_the_same,
    done_outlives_the_lease,
    a_done_key_is_free_after_its_keep,
    a_tombstone_is_answered_as_one,
    a_claim_past_its_not_after_is_too_late,
    a_claim_before_its_not_after_is_in_time,
    the_stores_time_moves_on,
    the_keepers_store_is_the_same_store,
];

async fn a_free_key_is_granted(b: &Bench) -> Judged {
    b.ask(b.key()).granted().await?;
    Ok(())
}

async fn a_grant_tells_lease_and_attempt(b: &Bench) -> Judged {
    let grant = b.ask(b.key()).lease(5).granted().await?.grant;
    ensure!(
        b.about(grant.lease, 5),
        "asked for 5 units, granted {:?}",
        grant.lease
    );
    ensure!(
        grant.attempt == 1,
        "the first owner is attempt {}",
        grant.attempt
    );
    ensure!(
        grant.took_over.is_none(),
        "nobody was before: {:?}",
        grant.took_over
    );
    Ok(())
}

async fn two_keys_do_not_meet(b: &Bench) -> Judged {
    let (one, two) = (b.key(), b.key());
    let first = b.ask(one).granted().await?;
    let second = b.ask(two).nonce(first.owner.nonce).granted().await?;
    expect!(
        "finish of the first",
        b.finish(first.owner, "one", 9).await?,
        Finish::Finished
    );
    expect!("the second", b.ask(two).send().await?, Claimed::Busy(_));
    expect!(
        "finish of the second",
        b.finish(second.owner, "two", 9).await?,
        Finish::Finished
    );
    Ok(())
}

async fn a_held_key_is_busy(b: &Bench) -> Judged {
    let hold = b.ask(b.key()).granted().await?;
    for step in [0, 1] {
        b.at(step).await?;
        expect!(
            "another nonce",
            b.ask(hold.owner.key).send().await?,
            Claimed::Busy(_)
        );
    }
    Ok(())
}

async fn busy_tells_of_the_holder(b: &Bench) -> Judged {
    let mut terms = b.lease(5);
    terms.label = Arc::from("lease 1a2b3c4d");
    let hold = b.ask(b.key()).terms(terms).granted().await?;
    b.at(2).await?;
    let busy = busy(b.ask(hold.owner.key).send().await?)?;
    ensure!(
        busy.token == hold.owner.token,
        "the holder's token, not {}",
        busy.token
    );
    ensure!(
        b.about(busy.since, 2),
        "held for 2 units, not {:?}",
        busy.since
    );
    ensure!(
        b.about(busy.expires_in, 3),
        "3 units are left, not {:?}",
        busy.expires_in
    );
    ensure!(
        &*busy.label == "lease 1a2b3c4d",
        "the holder's label, not {:?}",
        busy.label
    );
    Ok(())
}

async fn busy_tells_whether_the_fingerprint_is_the_same(b: &Bench) -> Judged {
    let key = b.key();
    b.ask(key).fingerprint(print(1)).granted().await?;
    for (print, same) in [(print(1), true), (print(2), false)] {
        let busy = busy(b.ask(key).fingerprint(print).send().await?)?;
        ensure!(
            busy.same_fingerprint == same,
            "{print:?} told as same: {}",
            busy.same_fingerprint
        );
    }
    Ok(())
}

async fn of_racing_claims_one_is_granted(b: &Bench) -> Judged {
    let key = b.key();
    let answers = join_all((0..8).map(|_| b.ask(key).send())).await;
    let mut granted = 0;
    for answer in answers {
        match answer? {
            Claimed::Granted(_) => granted += 1,
            other => expect!("a loser", other, Claimed::Busy(_)),
        }
    }
    ensure!(granted == 1, "{granted} of 8 were granted");
    Ok(())
}

async fn a_finished_key_is_done(b: &Bench) -> Judged {
    let hold = b.ask(b.key()).granted().await?;
    expect!(
        "finish",
        b.finish(hold.owner, "result", 9).await?,
        Finish::Finished
    );
    let done = done(b.ask(hold.owner.key).send().await?)?;
    ensure!(
        done.value == kept("result"),
        "the value, not {:?}",
        done.value
    );
    ensure!(
        done.token == hold.owner.token,
        "the finisher's token, not {}",
        done.token
    );
    Ok(())
}

async fn done_tells_age_and_keep(b: &Bench) -> Judged {
    let hold = b.ask(b.key()).granted().await?;
    b.finished(hold.owner, "result", 9).await?;
    b.at(2).await?;
    let done = done(b.ask(hold.owner.key).send().await?)?;
    ensure!(
        b.about(done.finished, 2),
        "finished 2 units ago, not {:?}",
        done.finished
    );
    ensure!(
        b.about(done.keep_left, 7),
        "kept for 7 more, not {:?}",
        done.keep_left
    );
    Ok(())
}

async fn done_tells_whether_the_fingerprint_is_the_same(b: &Bench) -> Judged {
    let hold = b.ask(b.key()).fingerprint(print(1)).granted().await?;
    b.finished(hold.owner, "result", 9).await?;
    for (print, same) in [(print(1), true), (print(2), false)] {
        let done = done(b.ask(hold.owner.key).fingerprint(print).send().await?)?;
        ensure!(
            done.same_fingerprint == same,
            "{print:?} told as same: {}",
            done.same_fingerprint
        );
    }
    Ok(())
}

async fn done_outlives_the_lease(b: &Bench) -> Judged {
    let mut terms = b.lease(1);
    terms.unfinished_keep = b.units(1);
    let hold = b.ask(b.key()).terms(terms).granted().await?;
    b.finished(hold.owner, "result", 9).await?;
    b.at(5).await?;
    done(b.ask(hold.owner.key).send().await?)?;
    Ok(())
}

async fn a_done_key_is_free_after_its_keep(b: &Bench) -> Judged {
    let hold = b.ask(b.key()).fingerprint(print(1)).granted().await?;
    b.finished(hold.owner, "result", 2).await?;
    b.at(1).await?;
    done(b.ask(hold.owner.key).send().await?)?;
    b.at(3).await?;
    let next = b
        .ask(hold.owner.key)
        .fingerprint(print(2))
        .granted()
        .await?;
    ensure!(
        next.grant.took_over.is_none(),
        "finished work is not taken over"
    );
    Ok(())
}

async fn a_tombstone_is_answered_as_one(b: &Bench) -> Judged {
    let hold = b.ask(b.key()).granted().await?;
    let request = FinishRequest {
        owner: hold.owner,
        value: Value::Tombstone,
        keep: b.units(9),
    };
    expect!(
        "finish",
        b.store.dyn_finish(request).await?,
        Finish::Finished
    );
    let done = done(b.ask(hold.owner.key).send().await?)?;
    ensure!(
        done.value == Value::Tombstone,
        "a tombstone, not {:?}",
        done.value
    );
    Ok(())
}

async fn a_claim_past_its_not_after_is_too_late(b: &Bench) -> Judged {
    let (key, nonce) = (b.key(), b.nonce());
    let not_after = b.ahead(1);
    b.at(3).await?;
    let late = b.ask(key).nonce(nonce).not_after(not_after).send().await?;
    expect!("two units late", late, Claimed::TooLate);
    // It changed nothing.
    b.ask(key).granted().await?;
    Ok(())
}

async fn a_claim_before_its_not_after_is_in_time(b: &Bench) -> Judged {
    let not_after = b.ahead(3);
    b.at(1).await?;
    b.ask(b.key()).not_after(not_after).granted().await?;
    Ok(())
}

async fn the_stores_time_moves_on(b: &Bench) -> Judged {
    let before = b.store.dyn_now();
    b.at(3).await?;
    let passed = b.store.dyn_now().saturating_since(before);
    ensure!(b.about(passed, 3), "3 units passed, told as {passed:?}");
    Ok(())
}

async fn the_keepers_store_is_the_same_store(b: &Bench) -> Judged {
    let hold = b.ask(b.key()).granted().await?;
    let keeper = b.store.dyn_keeper_store().await?;
    let seen = keeper.dyn_peek(hold.owner.key).await?;
    let token = seen.as_ref().map(|record| record.token);
    ensure!(token == Some(hold.owner.token), "the keeper sees {seen:?}");
    Ok(())
}

fn busy(answer: Claimed) -> Judged<Busy> {
    Ok(expect!("another claim", answer, Claimed::Busy(busy) => busy))
}

fn done(answer: Claimed) -> Judged<DoneRecord> {
    Ok(expect!("another claim", answer, Claimed::Done(done) => done))
}
