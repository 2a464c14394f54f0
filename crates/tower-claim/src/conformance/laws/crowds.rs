//! Many at once: beats in one call, watchers of one key and of many.

use futures_util::future::{join, join_all, try_join_all};

use crate::conformance::bench::Bench;
use crate::conformance::law::Judged;
use crate::store::{Beat, Owner, Renewed, Watched};

use super::another_nonce;

laws![Bench;
    a_long_batch_of_mixed_fates_is_answered_one_by_one,
    a_hundred_watchers_of_one_key_are_woken,
    watchers_of_many_keys_are_each_told_their_own,
];

/// None of them is bound to steps: what counts is how many.
async fn a_long_batch_of_mixed_fates_is_answered_one_by_one(b: &Bench) -> Judged {
    b.unhurried()?;
    let live = owners(b, 60).await?;
    let gone = owners(b, 20).await?;
    try_join_all(gone.iter().map(|owner| b.release(*owner))).await?;
    let mut beats = Vec::new();
    for n in 0..300 {
        let of_live = live[n % live.len()];
        let owner = match n % 5 {
            // Some twice in one batch.
            0 | 1 => of_live,
            2 => another_nonce(b, of_live),
            3 => gone[n % gone.len()],
            _ => Owner {
                key: b.key(),
                ..of_live
            },
        };
        let progress = n as u64;
        beats.push(Beat { owner, progress });
    }
    let answers = b.beats(&beats).await?;
    ensure!(answers.len() == 300, "300 beats, {} answers", answers.len());
    for (n, answer) in answers.into_iter().enumerate() {
        match n % 5 {
            0 | 1 => expect!("a live one", answer, Renewed::Renewed { .. }),
            _ => expect!("a lost one", answer, Renewed::Lost(_)),
        }
    }
    for owner in &live {
        let of_it = beats.iter().filter(|beat| beat.owner == *owner);
        let told = of_it.map(|beat| beat.progress).max().unwrap_or(0);
        let seen = b.peek(owner.key).await?;
        let progress = expect!("each record", seen, Some(record) => record.progress);
        ensure!(progress == told, "told {told}, kept {progress}");
    }
    Ok(())
}

async fn a_hundred_watchers_of_one_key_are_woken(b: &Bench) -> Judged {
    b.unhurried()?;
    let owner = b.ask(b.key()).lease(40).granted().await?.owner;
    let mut watching = Vec::new();
    for _ in 0..100 {
        watching.push(begun(b, owner).await?);
    }
    b.finished(owner, "result", 60).await?;
    for seen in join_all(watching.iter_mut().map(|watching| b.woken(watching))).await {
        expect!("a watcher", seen?, Watched::Done(_));
    }
    Ok(())
}

async fn watchers_of_many_keys_are_each_told_their_own(b: &Bench) -> Judged {
    b.unhurried()?;
    let owners = owners(b, 20).await?;
    let mut watching: Vec<_> = owners.iter().map(|owner| b.watch(*owner)).collect();
    // All are polled all the while: one that is left alone in the middle of its look keeps its connection.
    let seen = join_all(watching.iter_mut().map(|watching| b.woken(watching)));
    let ends = async {
        for (n, owner) in owners.iter().enumerate() {
            match n % 2 {
                0 => b.finished(*owner, "result", 60).await?,
                _ => b.release(*owner).await.map(drop)?,
            }
        }
        Ok(())
    };
    let (seen, ended): (_, Judged) = join(seen, ends).await;
    ended?;
    for (n, (seen, owner)) in seen.into_iter().zip(owners).enumerate() {
        match n % 2 {
            0 => {
                let token = expect!("finished", seen?, Watched::Done(done) => done.token);
                ensure!(
                    token == owner.token,
                    "told of {token}, not of {}",
                    owner.token
                );
            }
            _ => expect!("released", seen?, Watched::Ended),
        }
    }
    Ok(())
}

/// A watcher that has looked at its key once.
async fn begun(b: &Bench, owner: Owner) -> Judged<super::super::bench::Watching<'_>> {
    let mut watching = b.watch(owner);
    let early = b.beside(&mut watching, async {
        tokio::task::yield_now().await;
        Ok(())
    });
    let early = early.await?;
    ensure!(early.is_none(), "answered {early:?} while the hold went on");
    Ok(watching)
}

async fn owners(b: &Bench, n: usize) -> Judged<Vec<Owner>> {
    let claims = (0..n).map(|_| b.ask(b.key()).lease(40).granted());
    let holds = try_join_all(claims).await?;
    Ok(holds.into_iter().map(|hold| hold.owner).collect())
}
