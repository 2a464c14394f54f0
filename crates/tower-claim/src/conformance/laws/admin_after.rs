//! What operators see of records that are not held, and what late calls meet after them.

use crate::conformance::bench::{AdminBench, kept};
use crate::conformance::law::Judged;
use crate::store::{
    Broken, Claimed, Finish, Marked, Owner, Purged, Renewed, Resolution, Resolved, State,
};
use crate::{LapsePolicy, Settings};

laws![AdminBench;
    a_scan_shows_done_and_unknown,
    late_calls_after_a_break_leave_the_next_owner_alone,
    late_calls_after_a_resolve_leave_its_result_alone,
    late_calls_after_a_resolve_leave_the_next_owner_alone,
    late_calls_after_a_purge_leave_the_next_owner_alone,
];

async fn a_scan_shows_done_and_unknown(b: &AdminBench) -> Judged {
    let held = b.ask(b.key()).lease(40).granted().await?.owner;
    let done = b.ask(b.key()).granted().await?.owner;
    b.finished(done, "result", 60).await?;
    let lapsed = b.ask(b.key()).terms(hold(b)).granted().await?.owner;
    let marked = b.ask(b.key()).granted().await?.owner;
    b.marked(marked).await?;
    b.release(marked).await?;
    b.at(3).await?;
    let expected = [
        (held, State::Held),
        (done, State::Done),
        (lapsed, State::Unknown),
        (marked, State::Unknown),
    ];
    let (mut seen, mut from) = (Vec::new(), None);
    loop {
        let page = b.power.dyn_scan(from, 100).await?;
        seen.extend(page.records);
        match page.next {
            None => break,
            next => ensure!(next != from, "the page at {from:?} leads to itself"),
        }
        from = page.next;
    }
    for (owner, state) in expected {
        let record = seen.iter().find(|record| record.key == owner.key);
        let record = expect!("the scan", record, Some(record) => record);
        ensure!(
            record.state == state && record.token == owner.token,
            "{state:?} under {}, not {record:?}",
            owner.token
        );
    }
    Ok(())
}

async fn late_calls_after_a_break_leave_the_next_owner_alone(b: &AdminBench) -> Judged {
    let owner = b.ask(b.key()).lease(20).granted().await?.owner;
    let answer = b.power.dyn_break_claim(owner.key, owner.token).await?;
    expect!("break", answer, Broken::Broken { .. });
    let next = b.ask(owner.key).lease(20).granted().await?.owner;
    late(b, owner).await?;
    stands(b, next).await
}

async fn late_calls_after_a_resolve_leave_its_result_alone(b: &AdminBench) -> Judged {
    let owner = unknown(b).await?;
    let result = Resolution::Done(kept("found out"), b.units(60));
    resolve(b, owner, result).await?;
    late(b, owner).await?;
    let answer = b.ask(owner.key).send().await?;
    let value = expect!("the key", answer, Claimed::Done(done) => done.value);
    ensure!(
        value == kept("found out"),
        "the operator's value, not {value:?}"
    );
    Ok(())
}

async fn late_calls_after_a_resolve_leave_the_next_owner_alone(b: &AdminBench) -> Judged {
    let owner = unknown(b).await?;
    resolve(b, owner, Resolution::Absent).await?;
    let next = b.ask(owner.key).lease(20).granted().await?.owner;
    late(b, owner).await?;
    stands(b, next).await
}

async fn late_calls_after_a_purge_leave_the_next_owner_alone(b: &AdminBench) -> Judged {
    let owner = b.ask(b.key()).lease(20).granted().await?.owner;
    b.finished(owner, "result", 60).await?;
    let answer = b.power.dyn_purge(owner.key, owner.token).await?;
    expect!("purge", answer, Purged::Purged { .. });
    let next = b.ask(owner.key).lease(20).granted().await?.owner;
    late(b, owner).await?;
    stands(b, next).await
}

/// All that an owner may send who has heard nothing yet.
async fn late(b: &AdminBench, owner: Owner) -> Judged {
    expect!("a late beat", b.renew(owner).await?, Renewed::Lost(_));
    expect!("a late mark", b.mark(owner).await?, Marked::Lost(_));
    expect!(
        "a late finish",
        b.finish(owner, "late", 9).await?,
        Finish::Lost
    );
    // Behind lost replies a client takes `Already` for its own doing: what counts is what they leave.
    for _ in 0..2 {
        b.release(owner).await?;
        b.release_by_nonce(owner.key, owner.nonce).await?;
    }
    Ok(())
}

async fn stands(b: &AdminBench, next: Owner) -> Judged {
    expect!("its beat", b.renew(next).await?, Renewed::Renewed { .. });
    let seen = b.peek(next.key).await?;
    let record = expect!("its record", seen, Some(record) => record);
    ensure!(
        record.state == State::Held && record.token == next.token && !record.marked,
        "the next owner's hold, not {record:?}"
    );
    b.finished(next, "result", 9).await
}

async fn resolve(b: &AdminBench, owner: Owner, resolution: Resolution) -> Judged {
    let answer = b.power.dyn_resolve(owner.key, owner.token, resolution);
    expect!("resolve", answer.await?, Resolved::Resolved { .. });
    Ok(())
}

/// A hold that has lapsed into unknown, at step 3.
async fn unknown(b: &AdminBench) -> Judged<Owner> {
    let owner = b.ask(b.key()).terms(hold(b)).granted().await?.owner;
    b.at(3).await?;
    Ok(owner)
}

fn hold(b: &AdminBench) -> Settings {
    let mut terms = b.lease(2);
    terms.on_lapse = LapsePolicy::Hold;
    terms
}
