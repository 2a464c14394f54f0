//! Giving a key back.

use crate::LapsePolicy;
use crate::conformance::bench::Bench;
use crate::conformance::law::Judged;
use crate::store::{Claimed, Finish, Release, Renewed, State};

use super::{another_nonce, another_token};

laws![Bench;
    a_release_frees_the_key,
    a_release_by_nonce_alone_frees_the_key,
    a_release_repeated_is_already,
    a_release_compares_the_nonce,
    a_release_compares_the_token,
    a_lapsed_hold_can_be_released,
    a_late_release_leaves_the_next_owner_alone: FirstAnswer,
    a_release_never_touches_done,
    a_strangers_release_never_touches_done,
    a_marked_release_is_unknown: FirstAnswer,
    a_release_never_touches_unknown,
    a_release_leaves_other_keys_alone,
];

async fn a_release_frees_the_key(b: &Bench) -> Judged {
    let owner = b.ask(b.key()).granted().await?.owner;
    expect!("release", b.release(owner).await?, Release::Released);
    b.ask(owner.key).granted().await?;
    Ok(())
}

async fn a_release_by_nonce_alone_frees_the_key(b: &Bench) -> Judged {
    let owner = b.ask(b.key()).granted().await?.owner;
    let answer = b.release_by_nonce(owner.key, owner.nonce).await?;
    expect!("release", answer, Release::Released);
    b.ask(owner.key).granted().await?;
    Ok(())
}

async fn a_release_repeated_is_already(b: &Bench) -> Judged {
    let owner = b.ask(b.key()).granted().await?.owner;
    expect!("release", b.release(owner).await?, Release::Released);
    expect!("release again", b.release(owner).await?, Release::Already);
    Ok(())
}

async fn a_release_compares_the_nonce(b: &Bench) -> Judged {
    let owner = b.ask(b.key()).granted().await?.owner;
    let stranger = another_nonce(b, owner);
    expect!("a stranger's", b.release(stranger).await?, Release::Already);
    let by_nonce = b.release_by_nonce(owner.key, stranger.nonce).await?;
    expect!("a stranger's, by nonce", by_nonce, Release::Already);
    expect!(
        "the owner's beat",
        b.renew(owner).await?,
        Renewed::Renewed { .. }
    );
    expect!("the key", b.ask(owner.key).send().await?, Claimed::Busy(_));
    Ok(())
}

async fn a_release_compares_the_token(b: &Bench) -> Judged {
    let owner = b.ask(b.key()).granted().await?.owner;
    let answer = b.release(another_token(owner)).await?;
    expect!("another token", answer, Release::Already | Release::Lost);
    expect!(
        "the owner's beat",
        b.renew(owner).await?,
        Renewed::Renewed { .. }
    );
    expect!("the key", b.ask(owner.key).send().await?, Claimed::Busy(_));
    Ok(())
}

async fn a_lapsed_hold_can_be_released(b: &Bench) -> Judged {
    let print = crate::conformance::bench::print;
    let owner = b.ask(b.key()).fingerprint(print(1)).granted().await?.owner;
    b.at(3).await?;
    expect!("release", b.release(owner).await?, Release::Released);
    b.ask(owner.key).fingerprint(print(2)).granted().await?;
    Ok(())
}

async fn a_late_release_leaves_the_next_owner_alone(b: &Bench) -> Judged {
    let first = b.ask(b.key()).granted().await?.owner;
    b.at(3).await?;
    let next = b.ask(first.key).granted().await?.owner;
    expect!("late", b.release(first).await?, Release::Already);
    let by_nonce = b.release_by_nonce(first.key, first.nonce).await?;
    expect!("late, by nonce", by_nonce, Release::Already);
    expect!(
        "the next owner's beat",
        b.renew(next).await?,
        Renewed::Renewed { .. }
    );
    Ok(())
}

async fn a_release_never_touches_done(b: &Bench) -> Judged {
    let owner = b.ask(b.key()).granted().await?.owner;
    b.finished(owner, "result", 9).await?;
    expect!("release", b.release(owner).await?, Release::Lost);
    let by_nonce = b.release_by_nonce(owner.key, owner.nonce).await?;
    expect!("release by nonce", by_nonce, Release::Lost);
    expect!("the key", b.ask(owner.key).send().await?, Claimed::Done(_));
    Ok(())
}

async fn a_strangers_release_never_touches_done(b: &Bench) -> Judged {
    let owner = b.ask(b.key()).granted().await?.owner;
    b.finished(owner, "result", 9).await?;
    let stranger = another_nonce(b, owner);
    expect!("release", b.release(stranger).await?, Release::Already);
    expect!("the key", b.ask(owner.key).send().await?, Claimed::Done(_));
    Ok(())
}

async fn a_marked_release_is_unknown(b: &Bench) -> Judged {
    let owner = b.ask(b.key()).granted().await?.owner;
    b.marked(owner).await?;
    expect!("release", b.release(owner).await?, Release::Released);
    expect!(
        "the key",
        b.ask(owner.key).send().await?,
        Claimed::Unknown(_)
    );
    let state = expect!("the record", b.peek(owner.key).await?, Some(record) => record.state);
    ensure!(state == State::Unknown, "shown as {state:?}");
    Ok(())
}

async fn a_release_never_touches_unknown(b: &Bench) -> Judged {
    let mut terms = b.lease(2);
    terms.on_lapse = LapsePolicy::Hold;
    let owner = b.ask(b.key()).terms(terms).granted().await?.owner;
    b.at(3).await?;
    expect!("release", b.release(owner).await?, Release::Lost);
    expect!(
        "the key",
        b.ask(owner.key).send().await?,
        Claimed::Unknown(_)
    );
    expect!(
        "finish",
        b.finish(owner, "late", 9).await?,
        Finish::Finished
    );
    Ok(())
}

async fn a_release_leaves_other_keys_alone(b: &Bench) -> Judged {
    let owner = b.ask(b.key()).granted().await?.owner;
    let other = b.ask(b.key()).nonce(owner.nonce).granted().await?.owner;
    expect!("release", b.release(owner).await?, Release::Released);
    expect!("the other", b.renew(other).await?, Renewed::Renewed { .. });
    Ok(())
}
