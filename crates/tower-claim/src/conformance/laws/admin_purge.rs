//! An operator drops a result.

use crate::conformance::bench::{AdminBench, kept, print};
use crate::conformance::law::Judged;
use crate::store::{
    Claimed, Finish, FinishRequest, Owner, Purged, Release, Renewed, State, Value, Watched,
};
use crate::{LapsePolicy, Token};

use super::another_token;

laws![AdminBench;
    a_purge_frees_the_key,
    a_purge_drops_a_tombstone_too,
    a_purge_raises_the_token,
    a_purge_compares_the_token,
    a_purge_leaves_held_alone,
    a_purge_leaves_a_lapsed_hold_alone,
    a_purge_leaves_unknown_alone,
    a_purge_of_nothing_is_absent,
    a_purge_of_a_released_key_is_absent,
    a_purge_after_the_keep_is_absent,
    a_purge_repeated_is_absent: FirstAnswer,
    a_purge_that_comes_late_leaves_the_next_owner_alone,
    a_purge_that_comes_late_leaves_the_next_result_alone,
    a_purged_owner_cannot_finish_again,
    a_purged_owner_cannot_finish_for_the_next,
    a_late_release_leaves_a_purged_key_free,
    a_purged_nonce_is_never_granted_again,
    a_purge_remembers_the_nonces_before,
    a_purged_key_binds_no_fingerprint,
    a_watcher_of_a_purged_result_is_told_that_it_ended,
    peek_shows_a_purged_key_as_free,
];

async fn a_purge_frees_the_key(b: &AdminBench) -> Judged {
    let owner = done(b).await?;
    purged(b, owner).await?;
    let next = b.ask(owner.key).granted().await?.owner;
    b.finished(next, "anew", 60).await?;
    let answer = b.ask(owner.key).send().await?;
    let value = expect!("the key", answer, Claimed::Done(done) => done.value);
    ensure!(
        value == kept("anew"),
        "the next owner's value, not {value:?}"
    );
    Ok(())
}

async fn a_purge_drops_a_tombstone_too(b: &AdminBench) -> Judged {
    let owner = b.ask(b.key()).lease(20).granted().await?.owner;
    let tombstone = FinishRequest {
        owner,
        value: Value::Tombstone,
        keep: b.units(60),
    };
    let finish = b.store.dyn_finish(tombstone).await?;
    expect!("finish", finish, Finish::Finished);
    purged(b, owner).await?;
    b.ask(owner.key).granted().await?;
    Ok(())
}

async fn a_purge_raises_the_token(b: &AdminBench) -> Judged {
    let owner = done(b).await?;
    let token = purged(b, owner).await?;
    ensure!(token > owner.token, "{token} after {}", owner.token);
    let next = b.ask(owner.key).granted().await?.owner;
    ensure!(next.token > token, "granted {} after {token}", next.token);
    Ok(())
}

async fn a_purge_compares_the_token(b: &AdminBench) -> Judged {
    let owner = done(b).await?;
    for other in [another_token(owner).token, Token::ZERO, Token::MAX] {
        let answer = b.power.dyn_purge(owner.key, other).await?;
        let token = expect!("another token", answer, Purged::Conflict { token } => token);
        ensure!(token == owner.token, "{token}, not {}", owner.token);
    }
    expect!("the key", b.ask(owner.key).send().await?, Claimed::Done(_));
    Ok(())
}

async fn a_purge_leaves_held_alone(b: &AdminBench) -> Judged {
    let owner = b.ask(b.key()).lease(20).granted().await?.owner;
    let answer = b.power.dyn_purge(owner.key, owner.token).await?;
    expect!("held", answer, Purged::Conflict { .. });
    expect!("its beat", b.renew(owner).await?, Renewed::Renewed { .. });
    b.finished(owner, "result", 9).await
}

async fn a_purge_leaves_a_lapsed_hold_alone(b: &AdminBench) -> Judged {
    let owner = b.ask(b.key()).lease(2).granted().await?.owner;
    b.at(3).await?;
    let answer = b.power.dyn_purge(owner.key, owner.token).await?;
    expect!("lapsed", answer, Purged::Conflict { .. });
    // It may be finished still.
    b.finished(owner, "result", 9).await
}

async fn a_purge_leaves_unknown_alone(b: &AdminBench) -> Judged {
    let mut terms = b.lease(2);
    terms.on_lapse = LapsePolicy::Hold;
    let lapsed = b.ask(b.key()).terms(terms).granted().await?.owner;
    let marked = b.ask(b.key()).lease(20).granted().await?.owner;
    b.marked(marked).await?;
    b.release(marked).await?;
    b.at(3).await?;
    for owner in [lapsed, marked] {
        let answer = b.power.dyn_purge(owner.key, owner.token).await?;
        expect!("unknown", answer, Purged::Conflict { .. });
        let answer = b.ask(owner.key).send().await?;
        expect!("the key", answer, Claimed::Unknown(_));
    }
    Ok(())
}

async fn a_purge_of_nothing_is_absent(b: &AdminBench) -> Judged {
    let one = Token::new(1).unwrap_or(Token::ZERO);
    let answer = b.power.dyn_purge(b.key(), one).await?;
    expect!("a key never seen", answer, Purged::Absent);
    Ok(())
}

async fn a_purge_of_a_released_key_is_absent(b: &AdminBench) -> Judged {
    let owner = b.ask(b.key()).granted().await?.owner;
    expect!("release", b.release(owner).await?, Release::Released);
    for token in [owner.token, another_token(owner).token] {
        let answer = b.power.dyn_purge(owner.key, token).await?;
        expect!("a free key", answer, Purged::Absent);
    }
    Ok(())
}

async fn a_purge_after_the_keep_is_absent(b: &AdminBench) -> Judged {
    let owner = b.ask(b.key()).lease(20).granted().await?.owner;
    b.finished(owner, "result", 2).await?;
    b.at(4).await?;
    let answer = b.power.dyn_purge(owner.key, owner.token).await?;
    expect!("past its keep", answer, Purged::Absent);
    let next = b.ask(owner.key).granted().await?.owner;
    ensure!(
        next.token > owner.token,
        "{} after {}",
        next.token,
        owner.token
    );
    Ok(())
}

async fn a_purge_repeated_is_absent(b: &AdminBench) -> Judged {
    let owner = done(b).await?;
    let raised = purged(b, owner).await?;
    for token in [owner.token, raised] {
        let answer = b.power.dyn_purge(owner.key, token).await?;
        expect!("again", answer, Purged::Absent);
    }
    b.ask(owner.key).granted().await?;
    Ok(())
}

async fn a_purge_that_comes_late_leaves_the_next_owner_alone(b: &AdminBench) -> Judged {
    let owner = done(b).await?;
    let raised = purged(b, owner).await?;
    let next = b.ask(owner.key).lease(20).granted().await?.owner;
    for token in [owner.token, raised] {
        let answer = b.power.dyn_purge(owner.key, token).await?;
        expect!("too late", answer, Purged::Conflict { .. });
    }
    expect!("its beat", b.renew(next).await?, Renewed::Renewed { .. });
    b.finished(next, "anew", 9).await
}

async fn a_purge_that_comes_late_leaves_the_next_result_alone(b: &AdminBench) -> Judged {
    let owner = done(b).await?;
    let raised = purged(b, owner).await?;
    let next = b.ask(owner.key).lease(20).granted().await?.owner;
    b.finished(next, "anew", 60).await?;
    for token in [owner.token, raised] {
        let answer = b.power.dyn_purge(owner.key, token).await?;
        expect!("too late", answer, Purged::Conflict { .. });
    }
    expect!("the key", b.ask(owner.key).send().await?, Claimed::Done(_));
    Ok(())
}

/// The repeat of a finish whose answer was lost.
async fn a_purged_owner_cannot_finish_again(b: &AdminBench) -> Judged {
    let owner = done(b).await?;
    purged(b, owner).await?;
    let again = b.finish(owner, "result", 60).await?;
    expect!("finish", again, Finish::Lost);
    b.ask(owner.key).granted().await?;
    Ok(())
}

async fn a_purged_owner_cannot_finish_for_the_next(b: &AdminBench) -> Judged {
    let owner = done(b).await?;
    purged(b, owner).await?;
    let next = b.ask(owner.key).lease(20).granted().await?.owner;
    let again = b.finish(owner, "result", 60).await?;
    expect!("finish", again, Finish::Lost);
    b.finished(next, "anew", 60).await?;
    let again = b.finish(owner, "result", 60).await?;
    expect!("finish", again, Finish::Lost);
    let answer = b.ask(owner.key).send().await?;
    let value = expect!("the key", answer, Claimed::Done(done) => done.value);
    ensure!(
        value == kept("anew"),
        "the next owner's value, not {value:?}"
    );
    Ok(())
}

async fn a_late_release_leaves_a_purged_key_free(b: &AdminBench) -> Judged {
    let owner = done(b).await?;
    purged(b, owner).await?;
    // Behind lost replies a client takes `Already` for its own doing: what counts is what it leaves.
    b.release(owner).await?;
    let next = b.ask(owner.key).lease(20).granted().await?.owner;
    b.release_by_nonce(owner.key, owner.nonce).await?;
    expect!("its beat", b.renew(next).await?, Renewed::Renewed { .. });
    Ok(())
}

async fn a_purged_nonce_is_never_granted_again(b: &AdminBench) -> Judged {
    let owner = done(b).await?;
    purged(b, owner).await?;
    let copy = || b.ask(owner.key).nonce(owner.nonce).send();
    expect!("a copy of the claim", copy().await?, Claimed::Ended);
    b.ask(owner.key).lease(20).granted().await?;
    let copy = copy().await?;
    expect!("a copy beside the next owner", copy, Claimed::Ended);
    Ok(())
}

async fn a_purge_remembers_the_nonces_before(b: &AdminBench) -> Judged {
    let first = b.ask(b.key()).lease(20).granted().await?.owner;
    expect!("release", b.release(first).await?, Release::Released);
    let owner = b.ask(first.key).lease(20).granted().await?.owner;
    let refused = b.nonce();
    b.release_by_nonce(owner.key, refused).await?;
    b.finished(owner, "result", 60).await?;
    purged(b, owner).await?;
    for nonce in [first.nonce, refused] {
        let copy = b.ask(owner.key).nonce(nonce).send().await?;
        expect!("a copy of a claim before", copy, Claimed::Ended);
    }
    b.ask(owner.key).granted().await?;
    Ok(())
}

async fn a_purged_key_binds_no_fingerprint(b: &AdminBench) -> Judged {
    let claim = b.ask(b.key()).fingerprint(print(1)).lease(20);
    let owner = claim.granted().await?.owner;
    b.finished(owner, "result", 60).await?;
    purged(b, owner).await?;
    b.ask(owner.key).fingerprint(print(2)).granted().await?;
    Ok(())
}

/// One that looks only now, or whose wake-up was lost.
async fn a_watcher_of_a_purged_result_is_told_that_it_ended(b: &AdminBench) -> Judged {
    let owner = done(b).await?;
    purged(b, owner).await?;
    let seen = b.woken(&mut b.watch(owner)).await?;
    expect!("the watcher", seen, Watched::Ended);
    Ok(())
}

async fn peek_shows_a_purged_key_as_free(b: &AdminBench) -> Judged {
    let claim = b.ask(b.key()).fingerprint(print(1)).lease(20);
    let owner = claim.granted().await?.owner;
    b.finished(owner, "result", 60).await?;
    let token = purged(b, owner).await?;
    // A store may forget it at once: its tokens rise by the clock.
    if let Some(record) = b.peek(owner.key).await? {
        ensure!(
            record.state == State::Free
                && record.token == token
                && record.fingerprint.is_none()
                && record.expires_in.is_zero(),
            "free under {token}, not {record:?}"
        );
    }
    Ok(())
}

/// A result, kept to the end of the law.
async fn done(b: &AdminBench) -> Judged<Owner> {
    let owner = b.ask(b.key()).lease(20).granted().await?.owner;
    b.finished(owner, "result", 60).await?;
    Ok(owner)
}

async fn purged(b: &AdminBench, owner: Owner) -> Judged<Token> {
    let answer = b.power.dyn_purge(owner.key, owner.token).await?;
    Ok(expect!("purge", answer, Purged::Purged { token } => token))
}
