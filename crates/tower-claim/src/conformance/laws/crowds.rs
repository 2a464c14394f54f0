//! Many at once: beats in one call, watchers of one key and of many, claims of one key.

use std::sync::{Mutex, PoisonError};

use futures_util::future::{join, join_all, try_join_all};

use crate::Key;
use crate::conformance::bench::{Bench, kept};
use crate::conformance::law::Judged;
use crate::store::{Beat, Claimed, Owner, Renewed, Watched};

use super::another_nonce;

laws![Bench;
    a_long_batch_of_mixed_fates_is_answered_one_by_one,
    a_hundred_watchers_of_one_key_are_woken,
    watchers_of_many_keys_are_each_told_their_own,
    tokens_rise_from_hand_to_hand,
    a_crowd_at_a_finished_key_is_answered_done,
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

/// Tokens drawn anew, or counted per owner, look well until owners take turns.
async fn tokens_rise_from_hand_to_hand(b: &Bench) -> Judged {
    b.unhurried()?;
    let (key, seen) = (b.key(), Mutex::new(Vec::new()));
    let contenders = (0..6).map(|_| async {
        for _ in 0..4 {
            let owner = waited_for(b, key).await?;
            // Nobody else is here.
            seen.lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(owner.token);
            b.release(owner).await?;
        }
        Judged::Ok(())
    });
    try_join_all(contenders).await.map(drop)?;
    let seen = seen.into_inner().unwrap_or_else(PoisonError::into_inner);
    ensure!(seen.len() == 24, "{} grants of 24", seen.len());
    ensure!(
        seen.is_sorted_by(|before, after| before < after),
        "not above the one before: {seen:?}"
    );
    Ok(())
}

/// Asks, and waits for whoever holds it, until it is granted. With one nonce: a copy of an ask that was refused
/// may arrive late, and be granted.
async fn waited_for(b: &Bench, key: Key) -> Judged<Owner> {
    let (nonce, not_after) = (b.nonce(), b.far());
    let owner = |token| Owner { key, nonce, token };
    loop {
        let ask = b.ask(key).nonce(nonce).not_after(not_after);
        match ask.lease(40).send().await? {
            Claimed::Granted(grant) => return Ok(owner(grant.token)),
            Claimed::Mine { token, .. } => return Ok(owner(token)),
            other => {
                let token = expect!("a contender", other, Claimed::Busy(busy) => busy.token);
                b.woken(&mut b.watch(owner(token))).await?;
            }
        }
    }
}

/// Where a claim locks the record before it looks, repeats at the same moment are in each other's way.
async fn a_crowd_at_a_finished_key_is_answered_done(b: &Bench) -> Judged {
    b.unhurried()?;
    let owner = b.ask(b.key()).lease(40).granted().await?.owner;
    b.finished(owner, "result", 60).await?;
    let crowd = (0..50).map(|_| b.ask(owner.key).send());
    for answer in join_all(crowd).await {
        let done = expect!("a repeat", answer?, Claimed::Done(done) => done);
        ensure!(done.token == owner.token, "the result of {}", done.token);
        ensure!(done.value == kept("result"), "answered {:?}", done.value);
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
