//! One nonce, one grant: calls that are repeated, and copies that arrive late.

use crate::conformance::bench::Bench;
use crate::conformance::law::Judged;
use crate::store::{Claimed, Release};

laws![Bench;
    the_same_nonce_again_is_mine,
    mine_tells_what_is_left,
    mine_tells_the_attempt,
    mine_does_not_lengthen_the_lease,
    mine_after_a_lapse_changes_nothing,
    a_released_nonce_is_never_granted_again,
    a_superseded_nonce_is_never_granted_again,
    a_finished_nonce_is_never_granted_again,
    a_spent_nonce_is_remembered_beside_a_live_holder,
    every_spent_nonce_is_remembered,
    a_spent_nonce_is_remembered_until_its_not_after,
    a_nonce_released_before_its_claim_is_refused,
    a_nonce_refused_beside_a_live_holder_is_remembered,
    a_refused_nonce_bars_nobody_else,
];

async fn the_same_nonce_again_is_mine(b: &Bench) -> Judged {
    let owner = b.ask(b.key()).granted().await?.owner;
    let again = b.ask(owner.key).nonce(owner.nonce).send().await?;
    let token = expect!("the same nonce", again, Claimed::Mine { token, .. } => token);
    ensure!(
        token == owner.token,
        "one nonce has one token, not {token} too"
    );
    Ok(())
}

async fn mine_tells_what_is_left(b: &Bench) -> Judged {
    let owner = b.ask(b.key()).lease(5).granted().await?.owner;
    b.at(3).await?;
    let again = b.ask(owner.key).nonce(owner.nonce).lease(5).send().await?;
    let rest = expect!("the same nonce", again, Claimed::Mine { rest, .. } => rest);
    ensure!(b.about(rest, 2), "2 units are left, not {rest:?}");
    Ok(())
}

async fn mine_tells_the_attempt(b: &Bench) -> Judged {
    let key = b.key();
    for attempt in 1..=2u32 {
        b.at((attempt - 1) * 3).await?;
        let owner = b.ask(key).granted().await?.owner;
        let again = b.ask(key).nonce(owner.nonce).send().await?;
        let told = expect!("the same nonce", again, Claimed::Mine { attempt, .. } => attempt);
        ensure!(told == attempt, "this is attempt {attempt}, not {told}");
    }
    Ok(())
}

async fn mine_does_not_lengthen_the_lease(b: &Bench) -> Judged {
    let owner = b.ask(b.key()).lease(3).granted().await?.owner;
    b.at(2).await?;
    let again = b.ask(owner.key).nonce(owner.nonce).lease(9).send().await?;
    expect!("the same nonce", again, Claimed::Mine { .. });
    b.at(4).await?;
    b.ask(owner.key).granted().await?;
    Ok(())
}

async fn mine_after_a_lapse_changes_nothing(b: &Bench) -> Judged {
    let owner = b.ask(b.key()).granted().await?.owner;
    b.at(3).await?;
    let again = b.ask(owner.key).nonce(owner.nonce).send().await?;
    let rest = expect!("the same nonce, lapsed", again, Claimed::Mine { rest, .. } => rest);
    ensure!(rest.is_zero(), "nothing is left, not {rest:?}");
    b.ask(owner.key).granted().await?;
    Ok(())
}

async fn a_released_nonce_is_never_granted_again(b: &Bench) -> Judged {
    let owner = b.ask(b.key()).granted().await?.owner;
    b.release(owner).await?;
    let copy = b.ask(owner.key).nonce(owner.nonce).send().await?;
    expect!("a copy of the claim", copy, Claimed::Ended);
    b.ask(owner.key).granted().await?;
    Ok(())
}

async fn a_superseded_nonce_is_never_granted_again(b: &Bench) -> Judged {
    let first = b.ask(b.key()).granted().await?.owner;
    b.at(3).await?;
    let second = b.ask(first.key).granted().await?.owner;
    refused(b.ask(first.key).nonce(first.nonce).send().await?)?;
    b.release(second).await?;
    let copy = b.ask(first.key).nonce(first.nonce).send().await?;
    expect!("a copy of the first claim", copy, Claimed::Ended);
    Ok(())
}

async fn a_finished_nonce_is_never_granted_again(b: &Bench) -> Judged {
    let owner = b.ask(b.key()).granted().await?.owner;
    b.finished(owner, "result", 2).await?;
    let copy = b.ask(owner.key).nonce(owner.nonce).send().await?;
    expect!(
        "a copy of the claim",
        copy,
        Claimed::Ended | Claimed::Done(_)
    );
    b.at(3).await?;
    let copy = b.ask(owner.key).nonce(owner.nonce).send().await?;
    expect!("a copy after the keep", copy, Claimed::Ended);
    Ok(())
}

async fn a_spent_nonce_is_remembered_beside_a_live_holder(b: &Bench) -> Judged {
    let spent = b.ask(b.key()).granted().await?.owner;
    b.release(spent).await?;
    let holder = b.ask(spent.key).granted().await?.owner;
    refused(b.ask(spent.key).nonce(spent.nonce).send().await?)?;
    b.release(holder).await?;
    let copy = b.ask(spent.key).nonce(spent.nonce).send().await?;
    expect!("a copy of the spent claim", copy, Claimed::Ended);
    Ok(())
}

async fn every_spent_nonce_is_remembered(b: &Bench) -> Judged {
    let key = b.key();
    let mut spent = Vec::new();
    for _ in 0..5 {
        let owner = b.ask(key).granted().await?.owner;
        b.release(owner).await?;
        spent.push(owner.nonce);
    }
    b.at(1).await?;
    for nonce in spent {
        let copy = b.ask(key).nonce(nonce).send().await?;
        expect!("a copy of a spent claim", copy, Claimed::Ended);
    }
    Ok(())
}

async fn a_spent_nonce_is_remembered_until_its_not_after(b: &Bench) -> Judged {
    let (key, not_after) = (b.key(), b.ahead(7));
    let owner = b.ask(key).not_after(not_after).granted().await?.owner;
    b.release(owner).await?;
    b.at(5).await?;
    let copy = b.ask(key).nonce(owner.nonce).not_after(not_after);
    expect!("a copy, still in time", copy.send().await?, Claimed::Ended);
    Ok(())
}

async fn a_nonce_released_before_its_claim_is_refused(b: &Bench) -> Judged {
    let (key, nonce) = (b.key(), b.nonce());
    expect!(
        "release",
        b.release_by_nonce(key, nonce).await?,
        Release::Already
    );
    b.at(1).await?;
    let late = b.ask(key).nonce(nonce).send().await?;
    expect!("the claim that arrives behind", late, Claimed::Ended);
    Ok(())
}

async fn a_nonce_refused_beside_a_live_holder_is_remembered(b: &Bench) -> Judged {
    let holder = b.ask(b.key()).granted().await?.owner;
    let nonce = b.nonce();
    expect!(
        "release",
        b.release_by_nonce(holder.key, nonce).await?,
        Release::Already
    );
    refused(b.ask(holder.key).nonce(nonce).send().await?)?;
    b.release(holder).await?;
    let late = b.ask(holder.key).nonce(nonce).send().await?;
    expect!("the claim that arrives behind", late, Claimed::Ended);
    Ok(())
}

async fn a_refused_nonce_bars_nobody_else(b: &Bench) -> Judged {
    let key = b.key();
    expect!(
        "release",
        b.release_by_nonce(key, b.nonce()).await?,
        Release::Already
    );
    b.ask(key).granted().await?;
    Ok(())
}

/// While another holds the key, `Busy` grants as little as `Ended`.
fn refused(answer: Claimed) -> Judged {
    expect!("a spent nonce", answer, Claimed::Ended | Claimed::Busy(_));
    Ok(())
}
