//! Results. The token decides, not time (S4).

use crate::LapsePolicy;
use crate::conformance::bench::{Bench, kept};
use crate::conformance::law::Judged;
use crate::store::{Claimed, Finish, Owner};

use super::{another_nonce, another_token};

laws![Bench;
    finish_compares_the_token,
    finish_compares_the_nonce,
    a_finish_without_a_grant_is_lost,
    a_lapsed_owner_can_finish,
    an_unknown_by_lapse_can_be_finished,
    a_stale_owner_cannot_finish,
    a_released_owner_cannot_finish,
    a_marked_and_released_owner_cannot_finish,
    a_finish_repeated_is_finished,
    the_first_value_wins,
    a_finish_repeated_does_not_lengthen_the_keep,
    a_finish_over_its_keep_never_replaces_a_new_result,
    a_stale_owner_cannot_replace_a_result,
    a_finish_binds_its_fingerprint,
];

async fn finish_compares_the_token(b: &Bench) -> Judged {
    let owner = b.ask(b.key()).granted().await?.owner;
    changes_nothing(b, owner, another_token(owner)).await
}

async fn finish_compares_the_nonce(b: &Bench) -> Judged {
    let owner = b.ask(b.key()).granted().await?.owner;
    changes_nothing(b, owner, another_nonce(b, owner)).await
}

async fn changes_nothing(b: &Bench, owner: Owner, stranger: Owner) -> Judged {
    expect!(
        "a stranger's finish",
        b.finish(stranger, "forged", 9).await?,
        Finish::Lost
    );
    expect!("the key", b.ask(owner.key).send().await?, Claimed::Busy(_));
    expect!(
        "the owner's",
        b.finish(owner, "result", 9).await?,
        Finish::Finished
    );
    has(b, owner, "result").await
}

async fn a_finish_without_a_grant_is_lost(b: &Bench) -> Judged {
    let owner = b.ask(b.key()).granted().await?.owner;
    let never = Owner {
        key: b.key(),
        ..owner
    };
    expect!("finish", b.finish(never, "forged", 9).await?, Finish::Lost);
    b.ask(never.key).granted().await?;
    Ok(())
}

async fn a_lapsed_owner_can_finish(b: &Bench) -> Judged {
    let owner = b.ask(b.key()).granted().await?.owner;
    b.at(3).await?;
    expect!(
        "finish",
        b.finish(owner, "late", 9).await?,
        Finish::Finished
    );
    has(b, owner, "late").await
}

async fn an_unknown_by_lapse_can_be_finished(b: &Bench) -> Judged {
    let mut terms = b.lease(2);
    terms.on_lapse = LapsePolicy::Hold;
    let owner = b.ask(b.key()).terms(terms).granted().await?.owner;
    b.at(3).await?;
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
    has(b, owner, "late").await
}

async fn a_stale_owner_cannot_finish(b: &Bench) -> Judged {
    let stale = b.ask(b.key()).granted().await?.owner;
    b.at(3).await?;
    let next = b.ask(stale.key).granted().await?.owner;
    expect!(
        "the stale owner's",
        b.finish(stale, "stale", 9).await?,
        Finish::Lost
    );
    expect!("the key", b.ask(stale.key).send().await?, Claimed::Busy(_));
    expect!(
        "the next owner's",
        b.finish(next, "result", 9).await?,
        Finish::Finished
    );
    has(b, next, "result").await
}

async fn a_released_owner_cannot_finish(b: &Bench) -> Judged {
    let owner = b.ask(b.key()).granted().await?.owner;
    b.release(owner).await?;
    expect!("finish", b.finish(owner, "late", 9).await?, Finish::Lost);
    b.ask(owner.key).granted().await?;
    Ok(())
}

/// It is unknown, but not by lapse.
async fn a_marked_and_released_owner_cannot_finish(b: &Bench) -> Judged {
    let owner = b.ask(b.key()).granted().await?.owner;
    b.marked(owner).await?;
    b.release(owner).await?;
    expect!("finish", b.finish(owner, "late", 9).await?, Finish::Lost);
    expect!(
        "the key",
        b.ask(owner.key).send().await?,
        Claimed::Unknown(_)
    );
    Ok(())
}

async fn a_finish_repeated_is_finished(b: &Bench) -> Judged {
    let owner = b.ask(b.key()).granted().await?.owner;
    for _ in 0..2 {
        expect!(
            "finish",
            b.finish(owner, "result", 9).await?,
            Finish::Finished
        );
    }
    b.at(3).await?;
    expect!(
        "past the lease",
        b.finish(owner, "result", 9).await?,
        Finish::Finished
    );
    has(b, owner, "result").await
}

async fn the_first_value_wins(b: &Bench) -> Judged {
    let owner = b.ask(b.key()).granted().await?.owner;
    expect!(
        "finish",
        b.finish(owner, "first", 9).await?,
        Finish::Finished
    );
    expect!(
        "finish again",
        b.finish(owner, "second", 9).await?,
        Finish::Finished
    );
    has(b, owner, "first").await
}

async fn a_finish_repeated_does_not_lengthen_the_keep(b: &Bench) -> Judged {
    let owner = b.ask(b.key()).granted().await?.owner;
    b.finished(owner, "result", 2).await?;
    b.at(1).await?;
    expect!(
        "finish again",
        b.finish(owner, "result", 9).await?,
        Finish::Finished
    );
    b.at(3).await?;
    b.ask(owner.key).granted().await?;
    Ok(())
}

async fn a_finish_over_its_keep_never_replaces_a_new_result(b: &Bench) -> Judged {
    let owner = b.ask(b.key()).granted().await?.owner;
    b.finished(owner, "old", 1).await?;
    b.at(2).await?;
    let next = b.ask(owner.key).granted().await?.owner;
    expect!(
        "the old one, repeated",
        b.finish(owner, "old", 9).await?,
        Finish::Lost
    );
    expect!(
        "the new one",
        b.finish(next, "new", 9).await?,
        Finish::Finished
    );
    expect!(
        "the old one, again",
        b.finish(owner, "old", 9).await?,
        Finish::Lost
    );
    has(b, next, "new").await
}

async fn a_stale_owner_cannot_replace_a_result(b: &Bench) -> Judged {
    let stale = b.ask(b.key()).granted().await?.owner;
    b.at(3).await?;
    let next = b.ask(stale.key).granted().await?.owner;
    expect!(
        "the next owner's",
        b.finish(next, "result", 9).await?,
        Finish::Finished
    );
    expect!(
        "the stale owner's",
        b.finish(stale, "stale", 9).await?,
        Finish::Lost
    );
    has(b, next, "result").await
}

async fn a_finish_binds_its_fingerprint(b: &Bench) -> Judged {
    let print = crate::conformance::bench::print(7);
    let owner = b.ask(b.key()).fingerprint(print).granted().await?.owner;
    b.finished(owner, "result", 9).await?;
    let seen = b.peek(owner.key).await?;
    let bound = expect!("the record", seen, Some(record) => record.fingerprint);
    ensure!(
        bound == Some(print),
        "the owner's fingerprint, not {bound:?}"
    );
    Ok(())
}

/// The key is done, with this value of this owner.
async fn has(b: &Bench, owner: Owner, text: &'static str) -> Judged {
    let answer = b.ask(owner.key).send().await?;
    let done = expect!("the key", answer, Claimed::Done(done) => done);
    ensure!(
        done.value == kept(text),
        "the value {text:?}, not {:?}",
        done.value
    );
    ensure!(
        done.token == owner.token,
        "the token {}, not {}",
        owner.token,
        done.token
    );
    Ok(())
}
