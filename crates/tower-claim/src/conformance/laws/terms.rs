//! Cooling and minimum hold; and that the record's own terms judge it, never the asker's.

use crate::conformance::bench::{Bench, print};
use crate::conformance::law::Judged;
use crate::store::{Claimed, Cooling};
use crate::{LapsePolicy, Settings};

laws![Bench;
    a_lapsed_hold_cools,
    cooling_ends,
    cooling_tells_how_long_and_whether_the_same,
    a_clean_release_does_not_cool,
    a_release_after_the_lapse_does_not_cool,
    cooling_outlasts_the_unfinished_keep,
    min_hold_outlives_the_release,
    min_hold_ends,
    min_hold_outlives_the_claims_not_after,
    min_hold_outlives_the_result,
    min_hold_outlives_the_lapse,
    min_hold_outlives_the_marked_release,
    min_hold_does_not_lengthen_a_lease,
    the_records_own_cooling_judges,
    the_records_own_policy_judges,
    the_records_own_keep_judges,
    a_released_key_binds_no_fingerprint,
];

async fn a_lapsed_hold_cools(b: &Bench) -> Judged {
    let first = b.ask(b.key()).terms(cooling(b, 4)).granted().await?.owner;
    b.at(3).await?;
    cools(b.ask(first.key).send().await?)?;
    b.at(5).await?;
    cools(b.ask(first.key).send().await?)?;
    Ok(())
}

async fn cooling_ends(b: &Bench) -> Judged {
    let first = b.ask(b.key()).terms(cooling(b, 2)).granted().await?.owner;
    b.at(5).await?;
    b.ask(first.key).granted().await?;
    Ok(())
}

async fn cooling_tells_how_long_and_whether_the_same(b: &Bench) -> Judged {
    let terms = cooling(b, 4);
    let first = b
        .ask(b.key())
        .fingerprint(print(1))
        .terms(terms)
        .granted()
        .await?
        .owner;
    b.at(3).await?;
    for (print, same) in [(print(1), true), (print(2), false)] {
        let cooling = cools(b.ask(first.key).fingerprint(print).send().await?)?;
        ensure!(
            b.about(cooling.remaining, 3),
            "3 more units, not {:?}",
            cooling.remaining
        );
        ensure!(
            cooling.same_fingerprint == same,
            "{print:?} same: {}",
            !same
        );
    }
    Ok(())
}

async fn a_clean_release_does_not_cool(b: &Bench) -> Judged {
    let first = b.ask(b.key()).terms(cooling(b, 9)).granted().await?.owner;
    b.release(first).await?;
    b.ask(first.key).granted().await?;
    Ok(())
}

async fn a_release_after_the_lapse_does_not_cool(b: &Bench) -> Judged {
    let first = b.ask(b.key()).terms(cooling(b, 9)).granted().await?.owner;
    b.at(3).await?;
    b.release(first).await?;
    b.ask(first.key).granted().await?;
    Ok(())
}

/// The record binds nobody any more, and the owner's late effects may still be under way.
async fn cooling_outlasts_the_unfinished_keep(b: &Bench) -> Judged {
    let mut terms = b.lease(1);
    terms.unfinished_keep = b.units(1);
    terms.cooling = b.units(3);
    let first = b.ask(b.key()).terms(terms).granted().await?.owner;
    b.at(3).await?;
    cools(b.ask(first.key).send().await?)?;
    b.at(5).await?;
    b.ask(first.key).granted().await?;
    Ok(())
}

async fn min_hold_outlives_the_release(b: &Bench) -> Judged {
    let first = b.ask(b.key()).terms(min_hold(b, 4)).granted().await?.owner;
    b.release(first).await?;
    b.at(2).await?;
    let cooling = cools(b.ask(first.key).send().await?)?;
    ensure!(
        b.about(cooling.remaining, 2),
        "2 more units, not {:?}",
        cooling.remaining
    );
    Ok(())
}

async fn min_hold_ends(b: &Bench) -> Judged {
    let first = b.ask(b.key()).terms(min_hold(b, 2)).granted().await?.owner;
    b.release(first).await?;
    b.at(3).await?;
    b.ask(first.key).granted().await?;
    Ok(())
}

/// No copy of the claim is under way any more: a store may forget its nonce, and not the hold.
async fn min_hold_outlives_the_claims_not_after(b: &Bench) -> Judged {
    let not_after = b.ahead(1);
    let ask = b.ask(b.key()).terms(min_hold(b, 4)).not_after(not_after);
    let first = ask.granted().await?.owner;
    b.release_until(first, not_after).await?;
    b.at(3).await?;
    let cooling = cools(b.ask(first.key).send().await?)?;
    ensure!(
        b.about(cooling.remaining, 1),
        "1 more unit, not {:?}",
        cooling.remaining
    );
    b.at(5).await?;
    b.ask(first.key).granted().await?;
    Ok(())
}

async fn min_hold_outlives_the_result(b: &Bench) -> Judged {
    let first = b.ask(b.key()).terms(min_hold(b, 4)).granted().await?.owner;
    b.finished(first, "result", 1).await?;
    b.at(3).await?;
    expect!(
        "a claim after the keep",
        b.ask(first.key).send().await?,
        Claimed::Done(_)
    );
    b.at(5).await?;
    b.ask(first.key).granted().await?;
    Ok(())
}

async fn min_hold_outlives_the_lapse(b: &Bench) -> Judged {
    let first = b.ask(b.key()).terms(min_hold(b, 4)).granted().await?.owner;
    b.at(3).await?;
    cools(b.ask(first.key).send().await?)?;
    b.at(5).await?;
    b.ask(first.key).granted().await?;
    Ok(())
}

/// Past the keep of what is unknown.
async fn min_hold_outlives_the_marked_release(b: &Bench) -> Judged {
    let mut terms = min_hold(b, 4);
    terms.unfinished_keep = b.units(1);
    let first = b.ask(b.key()).terms(terms).granted().await?.owner;
    b.marked(first).await?;
    b.release(first).await?;
    b.at(3).await?;
    cools(b.ask(first.key).send().await?)?;
    b.at(5).await?;
    b.ask(first.key).granted().await?;
    Ok(())
}

async fn min_hold_does_not_lengthen_a_lease(b: &Bench) -> Judged {
    let first = b.ask(b.key()).terms(min_hold(b, 1)).granted().await?.owner;
    b.at(3).await?;
    b.release(first).await?;
    // The minimum counts from the grant, not from the release.
    b.ask(first.key).granted().await?;
    Ok(())
}

async fn the_records_own_cooling_judges(b: &Bench) -> Judged {
    let first = b.ask(b.key()).granted().await?.owner;
    let other = b.ask(b.key()).terms(cooling(b, 4)).granted().await?.owner;
    b.at(3).await?;
    let greedy = b.ask(other.key).terms(cooling(b, 0)).send().await?;
    cools(greedy)?;
    b.ask(first.key).terms(cooling(b, 9)).granted().await?;
    Ok(())
}

async fn the_records_own_policy_judges(b: &Bench) -> Judged {
    let mut hold = b.lease(2);
    hold.on_lapse = LapsePolicy::Hold;
    let first = b.ask(b.key()).terms(hold.clone()).granted().await?.owner;
    let other = b.ask(b.key()).granted().await?.owner;
    b.at(3).await?;
    expect!(
        "a TakeOver asker of Hold",
        b.ask(first.key).send().await?,
        Claimed::Unknown(_)
    );
    b.ask(other.key).terms(hold).granted().await?;
    Ok(())
}

async fn the_records_own_keep_judges(b: &Bench) -> Judged {
    let first = b.ask(b.key()).fingerprint(print(1)).granted().await?.owner;
    b.at(5).await?;
    let mut short = b.lease(2);
    short.unfinished_keep = b.units(1);
    let other = b
        .ask(first.key)
        .fingerprint(print(2))
        .terms(short)
        .send()
        .await?;
    expect!("an asker with a shorter keep", other, Claimed::Busy(_));
    Ok(())
}

async fn a_released_key_binds_no_fingerprint(b: &Bench) -> Judged {
    let first = b.ask(b.key()).fingerprint(print(1)).granted().await?.owner;
    b.release(first).await?;
    b.ask(first.key).fingerprint(print(2)).granted().await?;
    Ok(())
}

fn cooling(b: &Bench, units: u32) -> Settings {
    let mut terms = b.lease(2);
    terms.cooling = b.units(units);
    terms
}

fn min_hold(b: &Bench, units: u32) -> Settings {
    let mut terms = b.lease(2);
    terms.min_hold = b.units(units);
    terms
}

fn cools(answer: Claimed) -> Judged<Cooling> {
    Ok(expect!("another claim", answer, Claimed::Cooling(cooling) => cooling))
}
