//! What follows a lease that lapses, by the record's own terms.

use crate::conformance::bench::{Bench, print};
use crate::conformance::law::Judged;
use crate::store::{Claimed, Finish};
use crate::{LapsePolicy, Settings};

laws![Bench;
    a_lapsed_hold_is_taken_over,
    a_hold_does_not_lapse_early,
    a_lease_counts_from_the_grant_however_long_the_wait,
    a_takeover_tells_of_the_owner_before: FirstAnswer,
    attempts_count_takeovers,
    a_takeover_needs_the_same_fingerprint,
    a_lapsed_hold_keeps_its_fingerprint_until_free,
    an_unfinished_record_is_free_after_its_keep,
    a_finish_after_the_unfinished_keep_is_lost,
    hold_lapses_into_unknown,
    unknown_tells_whose_and_whether_the_same,
    unknown_does_not_end_before_its_keep,
    unknown_is_free_after_its_keep,
    a_finish_after_the_unknown_keep_is_lost,
    no_keep_ends_a_live_hold,
];

async fn a_lapsed_hold_is_taken_over(b: &Bench) -> Judged {
    let first = b.ask(b.key()).granted().await?.owner;
    b.at(3).await?;
    b.ask(first.key).granted().await?;
    Ok(())
}

async fn a_hold_does_not_lapse_early(b: &Bench) -> Judged {
    let first = b.ask(b.key()).lease(4).granted().await?.owner;
    b.at(3).await?;
    expect!(
        "one unit before",
        b.ask(first.key).lease(1).send().await?,
        Claimed::Busy(_)
    );
    Ok(())
}

/// Whoever waited for longer than its own lease would be handed a dead one.
async fn a_lease_counts_from_the_grant_however_long_the_wait(b: &Bench) -> Judged {
    let owner = b.ask(b.key()).lease(8).granted().await?.owner;
    let nonce = b.nonce();
    let early = b.ask(owner.key).nonce(nonce).send().await?;
    expect!("while it is held", early, Claimed::Busy(_));
    b.at(4).await?;
    b.release(owner).await?;
    b.ask(owner.key).nonce(nonce).granted().await?;
    b.at(5).await?;
    expect!(
        "within the lease",
        b.ask(owner.key).send().await?,
        Claimed::Busy(_)
    );
    b.at(7).await?;
    b.ask(owner.key).granted().await?;
    Ok(())
}

async fn a_takeover_tells_of_the_owner_before(b: &Bench) -> Judged {
    let first = b.ask(b.key()).granted().await?.owner;
    b.at(1).await?;
    b.beat(first, 42).await?;
    b.at(5).await?;
    let grant = b.ask(first.key).granted().await?.grant;
    let before = expect!("the grant", grant.took_over, Some(before) => before);
    ensure!(
        before.token == first.token,
        "token {}, not {}",
        before.token,
        first.token
    );
    ensure!(
        b.about(before.since, 5),
        "held since 5 units ago, not {:?}",
        before.since
    );
    ensure!(
        b.about(before.last_beat, 4),
        "last beat 4 units ago, not {:?}",
        before.last_beat
    );
    ensure!(before.progress == 42, "progress {}", before.progress);
    Ok(())
}

async fn attempts_count_takeovers(b: &Bench) -> Judged {
    let key = b.key();
    for attempt in 1..=3u32 {
        b.at((attempt - 1) * 3).await?;
        let hold = b.ask(key).granted().await?;
        ensure!(
            hold.grant.attempt == attempt,
            "attempt {} of {attempt}",
            hold.grant.attempt
        );
        if attempt == 3 {
            b.release(hold.owner).await?;
        }
    }
    let fresh = b.ask(key).granted().await?.grant;
    ensure!(
        fresh.attempt == 1,
        "after a release attempt {}",
        fresh.attempt
    );
    Ok(())
}

async fn a_takeover_needs_the_same_fingerprint(b: &Bench) -> Judged {
    let first = b.ask(b.key()).fingerprint(print(1)).granted().await?.owner;
    b.at(3).await?;
    let other = b.ask(first.key).fingerprint(print(2)).send().await?;
    let busy = expect!("another fingerprint", other, Claimed::Busy(busy) => busy);
    ensure!(!busy.same_fingerprint, "told as the same");
    ensure!(
        busy.expires_in.is_zero(),
        "it has lapsed, yet {:?} are left",
        busy.expires_in
    );
    b.ask(first.key).fingerprint(print(1)).granted().await?;
    Ok(())
}

async fn a_lapsed_hold_keeps_its_fingerprint_until_free(b: &Bench) -> Judged {
    let terms = unfinished(b, 5);
    let first = b
        .ask(b.key())
        .fingerprint(print(1))
        .terms(terms)
        .granted()
        .await?;
    b.at(4).await?;
    let other = b.ask(first.owner.key).fingerprint(print(2)).send().await?;
    expect!("within the unfinished keep", other, Claimed::Busy(_));
    Ok(())
}

async fn an_unfinished_record_is_free_after_its_keep(b: &Bench) -> Judged {
    let terms = unfinished(b, 2);
    let first = b
        .ask(b.key())
        .fingerprint(print(1))
        .terms(terms)
        .granted()
        .await?;
    b.at(5).await?;
    b.ask(first.owner.key)
        .fingerprint(print(2))
        .granted()
        .await?;
    Ok(())
}

async fn a_finish_after_the_unfinished_keep_is_lost(b: &Bench) -> Judged {
    let first = b
        .ask(b.key())
        .terms(unfinished(b, 2))
        .granted()
        .await?
        .owner;
    b.at(5).await?;
    expect!("finish", b.finish(first, "late", 9).await?, Finish::Lost);
    b.ask(first.key).granted().await?;
    Ok(())
}

async fn hold_lapses_into_unknown(b: &Bench) -> Judged {
    let first = b.ask(b.key()).terms(hold(b, 60)).granted().await?.owner;
    b.at(3).await?;
    expect!(
        "after the lapse",
        b.ask(first.key).send().await?,
        Claimed::Unknown(_)
    );
    Ok(())
}

async fn unknown_tells_whose_and_whether_the_same(b: &Bench) -> Judged {
    let terms = hold(b, 60);
    let first = b
        .ask(b.key())
        .fingerprint(print(1))
        .terms(terms)
        .granted()
        .await?
        .owner;
    b.at(3).await?;
    for (print, same) in [(print(1), true), (print(2), false)] {
        let answer = b.ask(first.key).fingerprint(print).send().await?;
        let unknown = expect!("after the lapse", answer, Claimed::Unknown(unknown) => unknown);
        ensure!(unknown.token == first.token, "token {}", unknown.token);
        ensure!(
            unknown.same_fingerprint == same,
            "{print:?} same: {}",
            !same
        );
    }
    Ok(())
}

async fn unknown_does_not_end_before_its_keep(b: &Bench) -> Judged {
    let first = b.ask(b.key()).terms(hold(b, 4)).granted().await?.owner;
    b.at(5).await?;
    expect!(
        "within the keep",
        b.ask(first.key).send().await?,
        Claimed::Unknown(_)
    );
    Ok(())
}

async fn unknown_is_free_after_its_keep(b: &Bench) -> Judged {
    let first = b.ask(b.key()).terms(hold(b, 2)).granted().await?.owner;
    b.at(5).await?;
    b.ask(first.key).granted().await?;
    Ok(())
}

async fn a_finish_after_the_unknown_keep_is_lost(b: &Bench) -> Judged {
    let first = b.ask(b.key()).terms(hold(b, 2)).granted().await?.owner;
    b.at(5).await?;
    expect!("finish", b.finish(first, "late", 9).await?, Finish::Lost);
    Ok(())
}

/// Nothing live ends by time: neither a keep nor an engine's TTL.
async fn no_keep_ends_a_live_hold(b: &Bench) -> Judged {
    let first = b
        .ask(b.key())
        .terms(unfinished(b, 1))
        .granted()
        .await?
        .owner;
    for step in 1..=6 {
        b.at(step).await?;
        b.renew(first).await?;
    }
    expect!(
        "a beating hold",
        b.ask(first.key).send().await?,
        Claimed::Busy(_)
    );
    expect!(
        "its finish",
        b.finish(first, "result", 9).await?,
        Finish::Finished
    );
    Ok(())
}

fn unfinished(b: &Bench, keep: u32) -> Settings {
    let mut terms = b.lease(2);
    terms.unfinished_keep = b.units(keep);
    terms
}

fn hold(b: &Bench, keep: u32) -> Settings {
    let mut terms = unfinished(b, keep);
    terms.on_lapse = LapsePolicy::Hold;
    terms
}
