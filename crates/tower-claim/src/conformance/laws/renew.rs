//! Heartbeats.

use futures_util::future::join_all;

use crate::conformance::bench::Bench;
use crate::conformance::law::Judged;
use crate::store::{Beat, Claimed, LostReason, Owner, Renewed};

use super::{another_nonce, another_token};

laws![Bench;
    a_renewal_lengthens_the_hold,
    a_renewed_hold_still_lapses,
    a_renewal_never_shortens,
    a_renewal_tells_what_is_left,
    a_renewal_compares_the_token,
    a_renewal_compares_the_nonce,
    a_lapsed_hold_is_not_renewed,
    a_superseded_hold_is_not_renewed,
    a_lost_beat_leaves_the_next_lease_as_it_is,
    a_released_hold_is_not_renewed,
    a_finished_hold_is_not_renewed,
    an_unknown_hold_is_not_renewed,
    beats_are_answered_in_order,
    a_batch_renews_every_hold,
    an_empty_batch_is_answered_empty,
    a_beat_carries_progress,
];

async fn a_renewal_lengthens_the_hold(b: &Bench) -> Judged {
    let owner = b.ask(b.key()).lease(3).granted().await?.owner;
    b.at(2).await?;
    expect!(
        "a beat",
        b.renew(owner).await?,
        Renewed::Renewed {
            revoke_asked: false,
            ..
        }
    );
    b.at(4).await?;
    expect!(
        "past the first lease",
        b.ask(owner.key).send().await?,
        Claimed::Busy(_)
    );
    Ok(())
}

async fn a_renewed_hold_still_lapses(b: &Bench) -> Judged {
    let owner = b.ask(b.key()).lease(2).granted().await?.owner;
    b.at(1).await?;
    expect!("a beat", b.renew(owner).await?, Renewed::Renewed { .. });
    b.at(4).await?;
    b.ask(owner.key).granted().await?;
    Ok(())
}

async fn a_renewal_never_shortens(b: &Bench) -> Judged {
    let owner = b.ask(b.key()).lease(4).granted().await?.owner;
    for _ in 0..3 {
        expect!(
            "a beat at once",
            b.renew(owner).await?,
            Renewed::Renewed { .. }
        );
    }
    b.at(3).await?;
    expect!(
        "within the lease",
        b.ask(owner.key).send().await?,
        Claimed::Busy(_)
    );
    Ok(())
}

async fn a_renewal_tells_what_is_left(b: &Bench) -> Judged {
    let owner = b.ask(b.key()).lease(4).granted().await?.owner;
    b.at(3).await?;
    let rest = expect!("a beat", b.renew(owner).await?, Renewed::Renewed { rest, .. } => rest);
    ensure!(b.about(rest, 4), "a full lease of 4 units, not {rest:?}");
    Ok(())
}

async fn a_renewal_compares_the_token(b: &Bench) -> Judged {
    let owner = b.ask(b.key()).lease(3).granted().await?.owner;
    changes_nothing(b, owner, another_token(owner)).await
}

async fn a_renewal_compares_the_nonce(b: &Bench) -> Judged {
    let owner = b.ask(b.key()).lease(3).granted().await?.owner;
    changes_nothing(b, owner, another_nonce(b, owner)).await
}

async fn changes_nothing(b: &Bench, owner: Owner, stranger: Owner) -> Judged {
    b.at(2).await?;
    expect!(
        "a stranger's beat",
        b.beat(stranger, 9).await?,
        Renewed::Lost(_)
    );
    b.at(4).await?;
    b.ask(owner.key).granted().await?;
    Ok(())
}

async fn a_lapsed_hold_is_not_renewed(b: &Bench) -> Judged {
    let owner = b.ask(b.key()).granted().await?.owner;
    b.at(3).await?;
    expect!(
        "too late",
        b.renew(owner).await?,
        Renewed::Lost(LostReason::Lapsed)
    );
    b.ask(owner.key).granted().await?;
    Ok(())
}

async fn a_superseded_hold_is_not_renewed(b: &Bench) -> Judged {
    let owner = b.ask(b.key()).granted().await?.owner;
    b.at(3).await?;
    let next = b.ask(owner.key).granted().await?.owner;
    expect!(
        "the first",
        b.renew(owner).await?,
        Renewed::Lost(LostReason::Superseded)
    );
    expect!("the second", b.renew(next).await?, Renewed::Renewed { .. });
    Ok(())
}

/// A beat that is told that it lost, and moves the record's end all the same, keeps a dead owner's key taken.
async fn a_lost_beat_leaves_the_next_lease_as_it_is(b: &Bench) -> Judged {
    let first = b.ask(b.key()).granted().await?.owner;
    b.at(3).await?;
    b.ask(first.key).granted().await?;
    b.at(5).await?;
    let late = b.renew(first).await?;
    expect!("late", late, Renewed::Lost(LostReason::Superseded));
    b.at(6).await?;
    b.ask(first.key).granted().await?;
    Ok(())
}

async fn a_released_hold_is_not_renewed(b: &Bench) -> Judged {
    let owner = b.ask(b.key()).granted().await?.owner;
    b.release(owner).await?;
    expect!("a beat", b.renew(owner).await?, Renewed::Lost(_));
    b.ask(owner.key).granted().await?;
    Ok(())
}

async fn a_finished_hold_is_not_renewed(b: &Bench) -> Judged {
    let owner = b.ask(b.key()).lease(9).granted().await?.owner;
    b.finished(owner, "result", 2).await?;
    b.at(1).await?;
    expect!("a beat", b.renew(owner).await?, Renewed::Lost(_));
    b.at(3).await?;
    b.ask(owner.key).granted().await?;
    Ok(())
}

async fn an_unknown_hold_is_not_renewed(b: &Bench) -> Judged {
    let mut terms = b.lease(2);
    terms.on_lapse = crate::LapsePolicy::Hold;
    let owner = b.ask(b.key()).terms(terms).granted().await?.owner;
    b.at(3).await?;
    expect!(
        "a beat",
        b.renew(owner).await?,
        Renewed::Lost(LostReason::Lapsed)
    );
    expect!(
        "the key",
        b.ask(owner.key).send().await?,
        Claimed::Unknown(_)
    );
    Ok(())
}

async fn beats_are_answered_in_order(b: &Bench) -> Judged {
    let mut owners = Vec::new();
    for _ in 0..8 {
        let owner = b.ask(b.key()).lease(9).granted().await?.owner;
        owners.push(owner);
        // Lost ones between, and one key never claimed.
        owners.push(another_nonce(b, owner));
        owners.push(Owner {
            key: b.key(),
            ..owner
        });
    }
    let beats: Vec<_> = owners
        .into_iter()
        .map(|owner| Beat { owner, progress: 0 })
        .collect();
    let answers = b.beats(&beats).await?;
    ensure!(
        answers.len() == beats.len(),
        "{} beats, {} answers",
        beats.len(),
        answers.len()
    );
    for (i, answer) in answers.into_iter().enumerate() {
        match i % 3 {
            0 => expect!("a live one", answer, Renewed::Renewed { .. }),
            _ => expect!("a lost one", answer, Renewed::Lost(_)),
        }
    }
    Ok(())
}

async fn a_batch_renews_every_hold(b: &Bench) -> Judged {
    let claims = (0..20).map(|_| b.ask(b.key()).lease(3).granted());
    let mut beats = Vec::new();
    for hold in join_all(claims).await {
        let owner = hold?.owner;
        beats.push(Beat { owner, progress: 0 });
    }
    b.at(2).await?;
    b.beats(&beats).await?;
    b.at(4).await?;
    for answer in join_all(beats.iter().map(|beat| b.ask(beat.owner.key).send())).await {
        expect!("past the first lease", answer?, Claimed::Busy(_));
    }
    Ok(())
}

async fn an_empty_batch_is_answered_empty(b: &Bench) -> Judged {
    let answers = b.beats(&[]).await?;
    ensure!(answers.is_empty(), "no beat, answered by {answers:?}");
    Ok(())
}

async fn a_beat_carries_progress(b: &Bench) -> Judged {
    let owner = b.ask(b.key()).granted().await?.owner;
    b.beat(owner, 7).await?;
    let seen = b.peek(owner.key).await?;
    let progress = expect!("the record", seen, Some(record) => record.progress);
    ensure!(progress == 7, "told 7, kept {progress}");
    Ok(())
}
