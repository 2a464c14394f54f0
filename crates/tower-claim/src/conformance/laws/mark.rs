//! The point of no return.

use crate::conformance::bench::Bench;
use crate::conformance::law::Judged;
use crate::store::{Claimed, Finish, LostReason, Marked, Owner};

use super::{another_nonce, another_token};

laws![Bench;
    a_marked_hold_lapses_into_unknown,
    a_mark_repeated_is_marked,
    a_mark_compares_the_token,
    a_mark_compares_the_nonce,
    a_lapsed_hold_is_not_marked,
    a_superseded_hold_is_not_marked,
    a_mark_does_not_renew,
    a_marked_owner_finishes,
    a_mark_ends_with_its_record,
];

async fn a_marked_hold_lapses_into_unknown(b: &Bench) -> Judged {
    let owner = b.ask(b.key()).granted().await?.owner;
    expect!("mark", b.mark(owner).await?, Marked::Marked);
    b.at(3).await?;
    expect!(
        "under TakeOver, marked",
        b.ask(owner.key).send().await?,
        Claimed::Unknown(_)
    );
    Ok(())
}

async fn a_mark_repeated_is_marked(b: &Bench) -> Judged {
    let owner = b.ask(b.key()).granted().await?.owner;
    expect!("mark", b.mark(owner).await?, Marked::Marked);
    expect!("mark again", b.mark(owner).await?, Marked::Marked);
    Ok(())
}

async fn a_mark_compares_the_token(b: &Bench) -> Judged {
    let owner = b.ask(b.key()).granted().await?.owner;
    changes_nothing(b, owner, another_token(owner)).await
}

async fn a_mark_compares_the_nonce(b: &Bench) -> Judged {
    let owner = b.ask(b.key()).granted().await?.owner;
    changes_nothing(b, owner, another_nonce(b, owner)).await
}

async fn changes_nothing(b: &Bench, owner: Owner, stranger: Owner) -> Judged {
    expect!(
        "a stranger's mark",
        b.mark(stranger).await?,
        Marked::Lost(_)
    );
    b.at(3).await?;
    b.ask(owner.key).granted().await?;
    Ok(())
}

async fn a_lapsed_hold_is_not_marked(b: &Bench) -> Judged {
    let owner = b.ask(b.key()).granted().await?.owner;
    b.at(3).await?;
    expect!(
        "too late",
        b.mark(owner).await?,
        Marked::Lost(LostReason::Lapsed)
    );
    b.ask(owner.key).granted().await?;
    Ok(())
}

async fn a_superseded_hold_is_not_marked(b: &Bench) -> Judged {
    let owner = b.ask(b.key()).granted().await?.owner;
    b.at(3).await?;
    let next = b.ask(owner.key).granted().await?.owner;
    expect!(
        "the first",
        b.mark(owner).await?,
        Marked::Lost(LostReason::Superseded)
    );
    b.at(6).await?;
    // The second is unmarked, so it can be taken over.
    b.ask(next.key).granted().await?;
    Ok(())
}

async fn a_mark_does_not_renew(b: &Bench) -> Judged {
    let owner = b.ask(b.key()).lease(3).granted().await?.owner;
    b.at(2).await?;
    expect!("mark", b.mark(owner).await?, Marked::Marked);
    b.at(4).await?;
    expect!(
        "past the lease",
        b.ask(owner.key).send().await?,
        Claimed::Unknown(_)
    );
    Ok(())
}

async fn a_marked_owner_finishes(b: &Bench) -> Judged {
    let owner = b.ask(b.key()).granted().await?.owner;
    b.marked(owner).await?;
    b.at(3).await?;
    expect!(
        "finish",
        b.finish(owner, "result", 9).await?,
        Finish::Finished
    );
    expect!("the key", b.ask(owner.key).send().await?, Claimed::Done(_));
    Ok(())
}

async fn a_mark_ends_with_its_record(b: &Bench) -> Judged {
    let owner = b.ask(b.key()).granted().await?.owner;
    b.marked(owner).await?;
    b.finished(owner, "result", 1).await?;
    b.at(2).await?;
    b.ask(owner.key).granted().await?;
    b.at(5).await?;
    // The new hold was never marked.
    b.ask(owner.key).granted().await?;
    Ok(())
}
