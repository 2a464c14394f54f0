//! Waiting for somebody else's hold to end (L2: nobody waits for ever).

use futures_util::future::join_all;

use crate::LapsePolicy;
use crate::conformance::bench::{Bench, kept};
use crate::conformance::law::Judged;
use crate::store::{Owner, Watched};

laws![Bench;
    a_watcher_sees_the_result,
    a_watcher_sees_the_release,
    a_watcher_sees_the_lapse,
    a_watcher_sees_hold_lapse,
    a_watcher_sees_the_next_owner,
    a_late_watcher_is_answered_at_once,
    a_watcher_of_nothing_is_answered_at_once,
    a_watcher_outlasts_a_renewal,
    a_watcher_of_a_renewed_hold_sees_the_lapse,
    every_watcher_is_woken,
    no_wake_up_is_lost,
];

async fn a_watcher_sees_the_result(b: &Bench) -> Judged {
    let owner = b.ask(b.key()).lease(20).granted().await?.owner;
    let seen = seen(b, owner, async {
        b.at(1).await?;
        b.finish(owner, "result", 9).await.map(drop)
    });
    let done = expect!("the watcher", seen.await?, Watched::Done(done) => done);
    ensure!(
        done.value == kept("result"),
        "the value, not {:?}",
        done.value
    );
    ensure!(
        done.token == owner.token,
        "the owner's token, not {}",
        done.token
    );
    ensure!(done.same_fingerprint, "a watcher asks with no fingerprint");
    Ok(())
}

async fn a_watcher_sees_the_release(b: &Bench) -> Judged {
    let owner = b.ask(b.key()).lease(20).granted().await?.owner;
    let seen = seen(b, owner, async {
        b.at(1).await?;
        b.release(owner).await.map(drop)
    });
    expect!("the watcher", seen.await?, Watched::Ended);
    Ok(())
}

async fn a_watcher_sees_the_lapse(b: &Bench) -> Judged {
    let owner = b.ask(b.key()).granted().await?.owner;
    expect!(
        "the watcher",
        seen(b, owner, b.at(3)).await?,
        Watched::Ended
    );
    Ok(())
}

async fn a_watcher_sees_hold_lapse(b: &Bench) -> Judged {
    let mut terms = b.lease(2);
    terms.on_lapse = LapsePolicy::Hold;
    let owner = b.ask(b.key()).terms(terms).granted().await?.owner;
    expect!(
        "the watcher",
        seen(b, owner, b.at(3)).await?,
        Watched::Ended
    );
    Ok(())
}

async fn a_watcher_sees_the_next_owner(b: &Bench) -> Judged {
    let first = b.ask(b.key()).granted().await?.owner;
    b.at(3).await?;
    let next = b.ask(first.key).lease(20).granted().await?.owner;
    let seen = b.woken(&mut b.watch(first)).await?;
    let token = expect!("the watcher", seen, Watched::Superseded { token } => token);
    ensure!(token == next.token, "the next owner's token, not {token}");
    Ok(())
}

async fn a_late_watcher_is_answered_at_once(b: &Bench) -> Judged {
    let owner = b.ask(b.key()).granted().await?.owner;
    b.finished(owner, "result", 30).await?;
    expect!(
        "done",
        b.woken(&mut b.watch(owner)).await?,
        Watched::Done(_)
    );
    let owner = b.ask(b.key()).granted().await?.owner;
    b.release(owner).await?;
    expect!(
        "released",
        b.woken(&mut b.watch(owner)).await?,
        Watched::Ended
    );
    Ok(())
}

async fn a_watcher_of_nothing_is_answered_at_once(b: &Bench) -> Judged {
    let owner = b.ask(b.key()).granted().await?.owner;
    let never = Owner {
        key: b.key(),
        ..owner
    };
    expect!(
        "the watcher",
        b.woken(&mut b.watch(never)).await?,
        Watched::Ended
    );
    Ok(())
}

async fn a_watcher_outlasts_a_renewal(b: &Bench) -> Judged {
    let owner = b.ask(b.key()).lease(3).granted().await?.owner;
    let mut watching = b.watch(owner);
    let early = b.beside(&mut watching, async {
        b.at(2).await?;
        b.renew(owner).await?;
        b.at(4).await
    });
    let early = early.await?;
    ensure!(early.is_none(), "answered {early:?} while the hold went on");
    Ok(())
}

async fn a_watcher_of_a_renewed_hold_sees_the_lapse(b: &Bench) -> Judged {
    let owner = b.ask(b.key()).granted().await?.owner;
    let seen = seen(b, owner, async {
        b.at(1).await?;
        b.renew(owner).await?;
        b.at(4).await
    });
    expect!("the watcher", seen.await?, Watched::Ended);
    Ok(())
}

async fn every_watcher_is_woken(b: &Bench) -> Judged {
    let owner = b.ask(b.key()).lease(20).granted().await?.owner;
    let seen = join_all((0..8).map(|i| {
        seen(b, owner, async move {
            if i < 7 {
                // The last one finishes; these only look on.
                tokio::task::yield_now().await;
                return Ok(());
            }
            b.at(1).await?;
            b.finish(owner, "result", 30).await.map(drop)
        })
    }));
    for seen in seen.await {
        expect!("a watcher", seen?, Watched::Done(_));
    }
    Ok(())
}

/// The end comes just before, while, and just after the watcher begins.
async fn no_wake_up_is_lost(b: &Bench) -> Judged {
    for pause in 0..6 {
        let owner = b.ask(b.key()).lease(20).granted().await?.owner;
        let seen = seen(b, owner, async {
            for _ in 0..pause {
                tokio::task::yield_now().await;
            }
            b.release(owner).await.map(drop)
        });
        expect!("the watcher", seen.await?, Watched::Ended);
    }
    Ok(())
}

/// What a watcher sees who began before this work.
async fn seen(b: &Bench, owner: Owner, work: impl Future<Output = Judged>) -> Judged<Watched> {
    let mut watching = b.watch(owner);
    match b.beside(&mut watching, work).await? {
        Some(seen) => Ok(seen),
        None => b.woken(&mut watching).await,
    }
}
