//! An operator looks, and settles what is unknown.

use std::time::Duration;

use crate::conformance::bench::{AdminBench, kept};
use crate::conformance::law::Judged;
use crate::store::{Claimed, Finish, Owner, Resolution, Resolved};
use crate::{Key, LapsePolicy, Token};

use super::another_token;

laws![AdminBench;
    a_scan_shows_every_record_once,
    a_scan_keeps_its_limit,
    a_resolve_to_done_is_answered_as_done,
    a_resolve_to_done_is_kept_for_its_keep,
    a_resolve_to_absent_frees_the_key,
    a_resolve_raises_the_token,
    a_resolve_compares_the_token,
    a_resolve_leaves_held_alone,
    a_resolve_leaves_done_alone,
    a_resolve_of_nothing_is_absent,
    a_resolved_owner_cannot_finish,
    a_resolved_nonce_is_never_granted_again,
];

async fn a_scan_shows_every_record_once(b: &AdminBench) -> Judged {
    let mut mine = Vec::new();
    for _ in 0..7 {
        mine.push(b.ask(b.key()).lease(20).granted().await?.owner.key);
    }
    let seen = scan(b, 3).await?;
    for key in mine {
        let times = seen.iter().filter(|seen| **seen == key).count();
        ensure!(times == 1, "{key:?} was shown {times} times");
    }
    Ok(())
}

async fn a_scan_keeps_its_limit(b: &AdminBench) -> Judged {
    for _ in 0..5 {
        b.ask(b.key()).lease(20).granted().await?;
    }
    let page = b.power.dyn_scan(None, 2).await?;
    ensure!(
        page.records.len() <= 2,
        "{} records on a page of 2",
        page.records.len()
    );
    ensure!(
        page.next.is_some(),
        "5 records or more end after the first page of 2"
    );
    Ok(())
}

async fn a_resolve_to_done_is_answered_as_done(b: &AdminBench) -> Judged {
    let owner = unknown(b).await?;
    resolved(b, owner, done(b, 9)).await?;
    let answer = b.ask(owner.key).send().await?;
    let done = expect!("the key", answer, Claimed::Done(done) => done);
    ensure!(
        done.value == kept("found out"),
        "the operator's value, not {:?}",
        done.value
    );
    Ok(())
}

async fn a_resolve_to_done_is_kept_for_its_keep(b: &AdminBench) -> Judged {
    let owner = unknown(b).await?;
    resolved(b, owner, done(b, 3)).await?;
    b.at(5).await?;
    expect!(
        "within the keep",
        b.ask(owner.key).send().await?,
        Claimed::Done(_)
    );
    b.at(7).await?;
    b.ask(owner.key).granted().await?;
    Ok(())
}

async fn a_resolve_to_absent_frees_the_key(b: &AdminBench) -> Judged {
    let owner = unknown(b).await?;
    resolved(b, owner, Resolution::Absent).await?;
    b.ask(owner.key).granted().await?;
    Ok(())
}

async fn a_resolve_raises_the_token(b: &AdminBench) -> Judged {
    let owner = unknown(b).await?;
    let token = resolved(b, owner, Resolution::Absent).await?;
    ensure!(token > owner.token, "{token} after {}", owner.token);
    let next = b.ask(owner.key).granted().await?.owner;
    ensure!(next.token > token, "granted {} after {token}", next.token);
    Ok(())
}

async fn a_resolve_compares_the_token(b: &AdminBench) -> Judged {
    let owner = unknown(b).await?;
    let other = another_token(owner).token;
    for resolution in [Resolution::Absent, done(b, 9)] {
        let answer = b.power.dyn_resolve(owner.key, other, resolution).await?;
        expect!("another token", answer, Resolved::Conflict { .. });
    }
    expect!(
        "the key",
        b.ask(owner.key).send().await?,
        Claimed::Unknown(_)
    );
    Ok(())
}

async fn a_resolve_leaves_held_alone(b: &AdminBench) -> Judged {
    let owner = b.ask(b.key()).granted().await?.owner;
    let answer = b
        .power
        .dyn_resolve(owner.key, owner.token, Resolution::Absent)
        .await?;
    expect!("held", answer, Resolved::Conflict { .. });
    expect!("the key", b.ask(owner.key).send().await?, Claimed::Busy(_));
    b.at(3).await?;
    // A lapsed hold that may be taken over is held still.
    let answer = b
        .power
        .dyn_resolve(owner.key, owner.token, done(b, 9))
        .await?;
    expect!("lapsed", answer, Resolved::Conflict { .. });
    b.ask(owner.key).granted().await?;
    Ok(())
}

async fn a_resolve_leaves_done_alone(b: &AdminBench) -> Judged {
    let owner = b.ask(b.key()).granted().await?.owner;
    b.finished(owner, "result", 9).await?;
    for resolution in [Resolution::Absent, done(b, 9)] {
        let answer = b
            .power
            .dyn_resolve(owner.key, owner.token, resolution)
            .await?;
        expect!("done", answer, Resolved::Conflict { .. });
    }
    let answer = b.ask(owner.key).send().await?;
    let done = expect!("the key", answer, Claimed::Done(done) => done);
    ensure!(
        done.value == kept("result"),
        "the owner's value, not {:?}",
        done.value
    );
    Ok(())
}

async fn a_resolve_of_nothing_is_absent(b: &AdminBench) -> Judged {
    let one = Token::new(1).unwrap_or(Token::ZERO);
    let answer = b
        .power
        .dyn_resolve(b.key(), one, Resolution::Absent)
        .await?;
    expect!("a key never seen", answer, Resolved::Absent);
    Ok(())
}

async fn a_resolved_owner_cannot_finish(b: &AdminBench) -> Judged {
    let owner = unknown(b).await?;
    resolved(b, owner, done(b, 9)).await?;
    expect!("finish", b.finish(owner, "late", 9).await?, Finish::Lost);
    let answer = b.ask(owner.key).send().await?;
    let done = expect!("the key", answer, Claimed::Done(done) => done);
    ensure!(
        done.value == kept("found out"),
        "the operator's value, not {:?}",
        done.value
    );

    let owner = b.ask(b.key()).lease(9).granted().await?.owner;
    b.marked(owner).await?;
    b.release(owner).await?;
    resolved(b, owner, Resolution::Absent).await?;
    expect!("finish", b.finish(owner, "late", 9).await?, Finish::Lost);
    b.ask(owner.key).granted().await?;
    Ok(())
}

async fn a_resolved_nonce_is_never_granted_again(b: &AdminBench) -> Judged {
    let owner = unknown(b).await?;
    resolved(b, owner, Resolution::Absent).await?;
    let copy = b.ask(owner.key).nonce(owner.nonce).send().await?;
    expect!("a copy of the claim", copy, Claimed::Ended);
    Ok(())
}

/// A hold that has lapsed into unknown, at step 3.
async fn unknown(b: &AdminBench) -> Judged<Owner> {
    let mut terms = b.lease(2);
    terms.on_lapse = LapsePolicy::Hold;
    let owner = b.ask(b.key()).terms(terms).granted().await?.owner;
    b.at(3).await?;
    Ok(owner)
}

async fn resolved(b: &AdminBench, owner: Owner, resolution: Resolution) -> Judged<Token> {
    let answer = b
        .power
        .dyn_resolve(owner.key, owner.token, resolution)
        .await?;
    Ok(expect!("resolve", answer, Resolved::Resolved { token } => token))
}

fn done(b: &AdminBench, keep: u32) -> Resolution {
    let keep: Duration = b.units(keep);
    Resolution::Done(kept("found out"), keep)
}

/// The keys of all pages.
async fn scan(b: &AdminBench, limit: usize) -> Judged<Vec<Key>> {
    let (mut keys, mut from) = (Vec::new(), None);
    loop {
        let page = b.power.dyn_scan(from, limit).await?;
        keys.extend(page.records.iter().map(|record| record.key));
        match page.next {
            None => return Ok(keys),
            // A page that goes nowhere would never end.
            next => ensure!(next != from, "the page at {from:?} leads to itself"),
        }
        from = page.next;
    }
}
