//! One key, no key, and many keys at once.

use crate::conformance::bench::ManyBench;
use crate::conformance::law::Judged;
use crate::store::{Claimed, ClaimedMany, Release, Renewed};

use super::many::{giving_back, granted, keys, many};

laws![ManyBench;
    one_key_is_claimed_as_several,
    sixteen_keys_are_claimed_and_given_back_together,
    a_release_of_none_is_answered_empty,
    a_release_of_many_leaves_what_ended_alone,
];

async fn one_key_is_claimed_as_several(b: &ManyBench) -> Judged {
    let keys = keys(b, 1);
    let owner = granted(b, &keys).await?[0];
    let answer = b.ask(owner.key).send().await?;
    let token = expect!("the key", answer, Claimed::Busy(busy) => busy.token);
    ensure!(token == owner.token, "{token}, not {}", owner.token);
    expect!("a beat", b.renew(owner).await?, Renewed::Renewed { .. });
    let answer = many(b, &keys, b.nonce()).await?;
    let key = expect!("a rival", answer, ClaimedMany::Refused { key, by: Claimed::Busy(_) } => key);
    ensure!(key == owner.key, "{key:?} stands in the way");
    b.release(owner).await?;
    granted(b, &keys).await?;
    Ok(())
}

async fn sixteen_keys_are_claimed_and_given_back_together(b: &ManyBench) -> Judged {
    b.unhurried()?;
    let keys = keys(b, 16);
    for _ in 0..2 {
        let owners = granted(b, &keys).await?;
        let last = owners[owners.len() - 1];
        let seen = b.peek(last.key).await?;
        let token = expect!("the last record", seen, Some(record) => record.token);
        ensure!(token == last.token, "{token}, not {}", last.token);
        let back: Vec<_> = owners
            .iter()
            .map(|owner| giving_back(b, owner.key, owner.nonce))
            .collect();
        for answer in b.power.dyn_release_many(&back).await? {
            // The lease is short, and a lapsed one is given back as well.
            expect!("each", answer, Release::Released);
        }
    }
    Ok(())
}

async fn a_release_of_none_is_answered_empty(b: &ManyBench) -> Judged {
    let answers = b.power.dyn_release_many(&[]).await?;
    ensure!(answers.is_empty(), "no release, answered by {answers:?}");
    Ok(())
}

async fn a_release_of_many_leaves_what_ended_alone(b: &ManyBench) -> Judged {
    let owners = granted(b, &keys(b, 3)).await?;
    b.finished(owners[1], "result", 9).await?;
    let back: Vec<_> = owners
        .iter()
        .map(|owner| giving_back(b, owner.key, owner.nonce))
        .collect();
    let answers = b.power.dyn_release_many(&back).await?;
    expect!(
        "the one in the middle is done",
        &answers[..],
        [Release::Released, Release::Lost, Release::Released]
    );
    let answer = b.ask(owners[1].key).send().await?;
    expect!("its key", answer, Claimed::Done(_));
    Ok(())
}
