//! Cooling and minimum hold of what an operator has ended.

use crate::conformance::bench::{AdminBench, kept};
use crate::conformance::law::Judged;
use crate::store::{Broken, Claimed, Cooling, Owner, Purged, Resolution, Resolved};
use crate::{Key, LapsePolicy, Settings, Token};

laws![AdminBench;
    a_break_cools_like_a_lapse,
    a_break_after_the_lapse_cools_from_the_lapse,
    cooling_outlasts_the_keep_of_a_broken_hold,
    min_hold_outlives_a_break,
    a_resolve_to_absent_keeps_the_cooling,
    a_resolve_to_absent_keeps_the_min_hold,
    a_purge_keeps_the_min_hold,
    a_purge_begins_no_min_hold_anew,
    a_purge_after_a_clean_end_does_not_cool,
    a_purge_of_what_an_operator_told_keeps_the_cooling,
];

/// The owner may be at work still.
async fn a_break_cools_like_a_lapse(b: &AdminBench) -> Judged {
    let owner = b.ask(b.key()).terms(cooling(b, 3)).granted().await?.owner;
    broken(b, owner).await?;
    let cooling = cools(b, owner.key).await?;
    ensure!(
        b.about(cooling.remaining, 3),
        "3 more units, not {:?}",
        cooling.remaining
    );
    b.at(2).await?;
    cools(b, owner.key).await?;
    b.at(4).await?;
    b.ask(owner.key).granted().await?;
    Ok(())
}

async fn a_break_after_the_lapse_cools_from_the_lapse(b: &AdminBench) -> Judged {
    let mut terms = cooling(b, 3);
    terms.lease = b.units(1);
    let owner = b.ask(b.key()).terms(terms).granted().await?.owner;
    b.at(3).await?;
    broken(b, owner).await?;
    cools(b, owner.key).await?;
    b.at(5).await?;
    b.ask(owner.key).granted().await?;
    Ok(())
}

async fn cooling_outlasts_the_keep_of_a_broken_hold(b: &AdminBench) -> Judged {
    let mut terms = cooling(b, 3);
    terms.on_lapse = LapsePolicy::Hold;
    terms.unfinished_keep = b.units(1);
    let owner = b.ask(b.key()).terms(terms).granted().await?.owner;
    broken(b, owner).await?;
    b.at(2).await?;
    cools(b, owner.key).await?;
    b.at(4).await?;
    b.ask(owner.key).granted().await?;
    Ok(())
}

async fn min_hold_outlives_a_break(b: &AdminBench) -> Judged {
    let owner = b.ask(b.key()).terms(min_hold(b, 4)).granted().await?.owner;
    broken(b, owner).await?;
    b.at(3).await?;
    cools(b, owner.key).await?;
    b.at(5).await?;
    b.ask(owner.key).granted().await?;
    Ok(())
}

async fn a_resolve_to_absent_keeps_the_cooling(b: &AdminBench) -> Judged {
    let mut terms = cooling(b, 3);
    terms.lease = b.units(1);
    terms.on_lapse = LapsePolicy::Hold;
    let owner = b.ask(b.key()).terms(terms).granted().await?.owner;
    b.at(3).await?;
    absent(b, owner).await?;
    cools(b, owner.key).await?;
    b.at(5).await?;
    b.ask(owner.key).granted().await?;
    Ok(())
}

async fn a_resolve_to_absent_keeps_the_min_hold(b: &AdminBench) -> Judged {
    let owner = b.ask(b.key()).terms(min_hold(b, 4)).granted().await?.owner;
    b.marked(owner).await?;
    // A clean end, behind the point of no return: unknown, and nothing of it cools.
    b.release(owner).await?;
    absent(b, owner).await?;
    cools(b, owner.key).await?;
    b.at(3).await?;
    cools(b, owner.key).await?;
    b.at(5).await?;
    b.ask(owner.key).granted().await?;
    Ok(())
}

async fn a_purge_keeps_the_min_hold(b: &AdminBench) -> Judged {
    let mut terms = min_hold(b, 4);
    terms.lease = b.units(20);
    let owner = b.ask(b.key()).terms(terms).granted().await?.owner;
    b.at(2).await?;
    b.finished(owner, "result", 60).await?;
    purged(b, owner.key, owner.token).await?;
    cools(b, owner.key).await?;
    b.at(3).await?;
    cools(b, owner.key).await?;
    // Of the grant, not of the result or the purge.
    b.at(5).await?;
    b.ask(owner.key).granted().await?;
    Ok(())
}

async fn a_purge_begins_no_min_hold_anew(b: &AdminBench) -> Judged {
    let mut terms = min_hold(b, 1);
    terms.lease = b.units(20);
    let owner = b.ask(b.key()).terms(terms).granted().await?.owner;
    b.at(3).await?;
    b.finished(owner, "result", 60).await?;
    purged(b, owner.key, owner.token).await?;
    b.ask(owner.key).granted().await?;
    Ok(())
}

async fn a_purge_after_a_clean_end_does_not_cool(b: &AdminBench) -> Judged {
    let mut terms = cooling(b, 10);
    terms.lease = b.units(20);
    let owner = b.ask(b.key()).terms(terms).granted().await?.owner;
    b.finished(owner, "result", 60).await?;
    purged(b, owner.key, owner.token).await?;
    b.ask(owner.key).granted().await?;
    Ok(())
}

/// Its crashed owner may be at work still.
async fn a_purge_of_what_an_operator_told_keeps_the_cooling(b: &AdminBench) -> Judged {
    let mut terms = cooling(b, 3);
    terms.lease = b.units(1);
    terms.on_lapse = LapsePolicy::Hold;
    let owner = b.ask(b.key()).terms(terms).granted().await?.owner;
    b.at(3).await?;
    let told = Resolution::Done(kept("told"), b.units(60));
    let answer = b.power.dyn_resolve(owner.key, owner.token, told).await?;
    let token = expect!("resolve", answer, Resolved::Resolved { token } => token);
    purged(b, owner.key, token).await?;
    cools(b, owner.key).await?;
    b.at(5).await?;
    b.ask(owner.key).granted().await?;
    Ok(())
}

fn cooling(b: &AdminBench, units: u32) -> Settings {
    let mut terms = b.lease(2);
    terms.cooling = b.units(units);
    terms
}

fn min_hold(b: &AdminBench, units: u32) -> Settings {
    let mut terms = b.lease(2);
    terms.min_hold = b.units(units);
    terms
}

async fn broken(b: &AdminBench, owner: Owner) -> Judged {
    let answer = b.power.dyn_break_claim(owner.key, owner.token).await?;
    expect!("break", answer, Broken::Broken { .. });
    Ok(())
}

async fn absent(b: &AdminBench, owner: Owner) -> Judged {
    let answer = b
        .power
        .dyn_resolve(owner.key, owner.token, Resolution::Absent)
        .await?;
    expect!("resolve", answer, Resolved::Resolved { .. });
    Ok(())
}

async fn purged(b: &AdminBench, key: Key, token: Token) -> Judged {
    let answer = b.power.dyn_purge(key, token).await?;
    expect!("purge", answer, Purged::Purged { .. });
    Ok(())
}

async fn cools(b: &AdminBench, key: Key) -> Judged<Cooling> {
    let answer = b.ask(key).send().await?;
    Ok(expect!("another claim", answer, Claimed::Cooling(cooling) => cooling))
}
