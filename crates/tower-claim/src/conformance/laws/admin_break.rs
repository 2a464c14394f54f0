//! An operator ends a hold.

use crate::conformance::bench::AdminBench;
use crate::conformance::law::Judged;
use crate::store::{Broken, Claimed, Finish, LostReason, Marked, Owner, Release, Renewed, Watched};
use crate::{LapsePolicy, Token};

use super::another_token;

laws![AdminBench;
    a_break_frees_the_key,
    a_break_raises_the_token,
    a_break_compares_the_token,
    a_break_leaves_done_alone,
    a_break_leaves_unknown_alone,
    a_break_of_nothing_is_absent,
    a_break_of_hold_is_unknown,
    a_break_of_a_marked_hold_is_unknown,
    a_broken_owner_is_told_so,
    a_broken_owner_cannot_finish,
    a_broken_owner_cannot_finish_the_unknown,
    a_broken_nonce_is_never_granted_again,
    a_late_release_leaves_a_broken_hold_unknown,
    a_watcher_sees_the_break,
    a_wish_to_stop_reaches_the_owner,
    a_wish_to_stop_compares_the_token,
    a_wish_to_stop_ends_with_its_hold,
];

async fn a_break_frees_the_key(b: &AdminBench) -> Judged {
    let owner = b.ask(b.key()).lease(9).granted().await?.owner;
    broken(b, owner).await?;
    b.ask(owner.key).granted().await?;
    Ok(())
}

async fn a_break_raises_the_token(b: &AdminBench) -> Judged {
    let owner = b.ask(b.key()).granted().await?.owner;
    let token = broken(b, owner).await?;
    ensure!(token > owner.token, "{token} after {}", owner.token);
    let next = b.ask(owner.key).granted().await?.owner;
    ensure!(next.token > token, "granted {} after {token}", next.token);
    Ok(())
}

async fn a_break_compares_the_token(b: &AdminBench) -> Judged {
    let owner = b.ask(b.key()).granted().await?.owner;
    let other = another_token(owner).token;
    let answer = b.power.dyn_break_claim(owner.key, other).await?;
    expect!("another token", answer, Broken::Conflict { .. });
    expect!(
        "the owner's beat",
        b.renew(owner).await?,
        Renewed::Renewed { .. }
    );
    Ok(())
}

async fn a_break_leaves_done_alone(b: &AdminBench) -> Judged {
    let owner = b.ask(b.key()).granted().await?.owner;
    b.finished(owner, "result", 9).await?;
    let answer = b.power.dyn_break_claim(owner.key, owner.token).await?;
    expect!("done", answer, Broken::Conflict { .. });
    expect!("the key", b.ask(owner.key).send().await?, Claimed::Done(_));
    Ok(())
}

async fn a_break_leaves_unknown_alone(b: &AdminBench) -> Judged {
    let owner = b.ask(b.key()).terms(hold(b)).granted().await?.owner;
    b.at(3).await?;
    let answer = b.power.dyn_break_claim(owner.key, owner.token).await?;
    expect!("unknown", answer, Broken::Conflict { .. });
    expect!(
        "the key",
        b.ask(owner.key).send().await?,
        Claimed::Unknown(_)
    );
    Ok(())
}

async fn a_break_of_nothing_is_absent(b: &AdminBench) -> Judged {
    let one = Token::new(1).unwrap_or(Token::ZERO);
    let answer = b.power.dyn_break_claim(b.key(), one).await?;
    expect!("a key never seen", answer, Broken::Absent);
    Ok(())
}

async fn a_break_of_hold_is_unknown(b: &AdminBench) -> Judged {
    let owner = b.ask(b.key()).terms(hold(b)).granted().await?.owner;
    broken(b, owner).await?;
    expect!(
        "the key",
        b.ask(owner.key).send().await?,
        Claimed::Unknown(_)
    );
    Ok(())
}

async fn a_break_of_a_marked_hold_is_unknown(b: &AdminBench) -> Judged {
    let owner = b.ask(b.key()).granted().await?.owner;
    b.marked(owner).await?;
    broken(b, owner).await?;
    expect!(
        "the key",
        b.ask(owner.key).send().await?,
        Claimed::Unknown(_)
    );
    Ok(())
}

async fn a_broken_owner_is_told_so(b: &AdminBench) -> Judged {
    let owner = b.ask(b.key()).granted().await?.owner;
    broken(b, owner).await?;
    expect!(
        "a beat",
        b.renew(owner).await?,
        Renewed::Lost(LostReason::Broken)
    );
    expect!(
        "a mark",
        b.mark(owner).await?,
        Marked::Lost(LostReason::Broken)
    );
    Ok(())
}

async fn a_broken_owner_cannot_finish(b: &AdminBench) -> Judged {
    let owner = b.ask(b.key()).granted().await?.owner;
    broken(b, owner).await?;
    expect!("finish", b.finish(owner, "late", 9).await?, Finish::Lost);
    b.ask(owner.key).granted().await?;
    Ok(())
}

async fn a_broken_owner_cannot_finish_the_unknown(b: &AdminBench) -> Judged {
    let owner = b.ask(b.key()).terms(hold(b)).granted().await?.owner;
    broken(b, owner).await?;
    expect!("finish", b.finish(owner, "late", 9).await?, Finish::Lost);
    expect!(
        "the key",
        b.ask(owner.key).send().await?,
        Claimed::Unknown(_)
    );
    Ok(())
}

async fn a_broken_nonce_is_never_granted_again(b: &AdminBench) -> Judged {
    let owner = b.ask(b.key()).granted().await?.owner;
    broken(b, owner).await?;
    let copy = b.ask(owner.key).nonce(owner.nonce).send().await?;
    expect!("a copy of the claim", copy, Claimed::Ended);
    Ok(())
}

async fn a_late_release_leaves_a_broken_hold_unknown(b: &AdminBench) -> Judged {
    let owner = b.ask(b.key()).terms(hold(b)).granted().await?.owner;
    broken(b, owner).await?;
    expect!(
        "release",
        b.release(owner).await?,
        Release::Lost | Release::Already
    );
    expect!(
        "the key",
        b.ask(owner.key).send().await?,
        Claimed::Unknown(_)
    );
    Ok(())
}

async fn a_watcher_sees_the_break(b: &AdminBench) -> Judged {
    let owner = b.ask(b.key()).lease(20).granted().await?.owner;
    let mut watching = b.watch(owner);
    let seen = b.beside(&mut watching, async {
        b.at(1).await?;
        broken(b, owner).await.map(drop)
    });
    let seen = match seen.await? {
        Some(seen) => seen,
        None => b.woken(&mut watching).await?,
    };
    expect!("the watcher", seen, Watched::Ended);
    Ok(())
}

async fn a_wish_to_stop_reaches_the_owner(b: &AdminBench) -> Judged {
    let owner = b.ask(b.key()).granted().await?.owner;
    ensure!(
        b.power.dyn_ask_revoke(owner.key, owner.token).await?,
        "no such hold"
    );
    // It is a wish: the hold goes on, and is told at every beat.
    for _ in 0..2 {
        expect!(
            "a beat",
            b.renew(owner).await?,
            Renewed::Renewed {
                revoke_asked: true,
                ..
            }
        );
    }
    expect!(
        "finish",
        b.finish(owner, "result", 9).await?,
        Finish::Finished
    );
    Ok(())
}

async fn a_wish_to_stop_compares_the_token(b: &AdminBench) -> Judged {
    let owner = b.ask(b.key()).granted().await?.owner;
    let other = another_token(owner).token;
    ensure!(
        !b.power.dyn_ask_revoke(owner.key, other).await?,
        "asked under another token"
    );
    ensure!(
        !b.power.dyn_ask_revoke(b.key(), owner.token).await?,
        "asked of nobody"
    );
    expect!(
        "a beat",
        b.renew(owner).await?,
        Renewed::Renewed {
            revoke_asked: false,
            ..
        }
    );
    Ok(())
}

async fn a_wish_to_stop_ends_with_its_hold(b: &AdminBench) -> Judged {
    let owner = b.ask(b.key()).granted().await?.owner;
    b.power.dyn_ask_revoke(owner.key, owner.token).await?;
    b.at(3).await?;
    let next = b.ask(owner.key).granted().await?.owner;
    expect!(
        "the next",
        b.renew(next).await?,
        Renewed::Renewed {
            revoke_asked: false,
            ..
        }
    );
    Ok(())
}

async fn broken(b: &AdminBench, owner: Owner) -> Judged<Token> {
    let answer = b.power.dyn_break_claim(owner.key, owner.token).await?;
    Ok(expect!("break", answer, Broken::Broken { token } => token))
}

fn hold(b: &AdminBench) -> crate::Settings {
    let mut terms = b.lease(2);
    terms.on_lapse = LapsePolicy::Hold;
    terms
}
