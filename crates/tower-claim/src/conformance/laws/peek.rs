//! What people see of a record.

use std::sync::Arc;

use crate::LapsePolicy;
use crate::conformance::bench::{Bench, print};
use crate::conformance::law::Judged;
use crate::store::{RecordView, State};

laws![Bench;
    peek_shows_the_owner,
    peek_shows_age_and_end,
    peek_shows_progress_and_last_beat,
    peek_shows_the_attempt,
    peek_shows_the_mark,
    peek_shows_a_lapse,
    peek_shows_hold_lapsed_as_unknown,
    peek_shows_done_until_its_keep_has_passed,
    peek_shows_a_released_key_as_free,
    peek_of_a_key_never_seen_is_free,
    peek_changes_nothing,
];

async fn peek_shows_the_owner(b: &Bench) -> Judged {
    let mut terms = b.lease(2);
    terms.label = Arc::from("lease 1a2b3c4d");
    let owner = b
        .ask(b.key())
        .terms(terms)
        .fingerprint(print(1))
        .granted()
        .await?
        .owner;
    let record = record(b.peek(owner.key).await?)?;
    ensure!(record.key == owner.key, "the key, not {:?}", record.key);
    ensure!(record.state == State::Held, "held, not {:?}", record.state);
    ensure!(
        record.token == owner.token,
        "the owner's token, not {}",
        record.token
    );
    ensure!(
        record.nonce == owner.nonce,
        "the owner's nonce, not {:?}",
        record.nonce
    );
    ensure!(
        record.fingerprint == Some(print(1)),
        "{:?}",
        record.fingerprint
    );
    ensure!(
        &*record.label == "lease 1a2b3c4d",
        "the label, not {:?}",
        record.label
    );
    ensure!(
        !record.marked && !record.lapsed,
        "neither marked nor lapsed: {record:?}"
    );
    Ok(())
}

async fn peek_shows_age_and_end(b: &Bench) -> Judged {
    let owner = b.ask(b.key()).lease(5).granted().await?.owner;
    b.at(2).await?;
    let record = record(b.peek(owner.key).await?)?;
    ensure!(
        b.about(record.since, 2),
        "held for 2 units, not {:?}",
        record.since
    );
    ensure!(
        b.about(record.expires_in, 3),
        "3 are left, not {:?}",
        record.expires_in
    );
    Ok(())
}

async fn peek_shows_progress_and_last_beat(b: &Bench) -> Judged {
    let owner = b.ask(b.key()).lease(9).granted().await?.owner;
    b.at(1).await?;
    b.beat(owner, 5).await?;
    b.at(4).await?;
    let record = record(b.peek(owner.key).await?)?;
    ensure!(record.progress == 5, "progress {}", record.progress);
    ensure!(
        b.about(record.last_beat, 3),
        "3 units ago, not {:?}",
        record.last_beat
    );
    Ok(())
}

async fn peek_shows_the_attempt(b: &Bench) -> Judged {
    let key = b.key();
    for attempt in 1..=2u32 {
        b.at((attempt - 1) * 3).await?;
        let owner = b.ask(key).granted().await?.owner;
        let seen = record(b.peek(key).await?)?.attempt;
        ensure!(seen == attempt, "attempt {seen}, not {attempt}");
        if attempt == 2 {
            b.finished(owner, "result", 2).await?;
        }
    }
    let seen = record(b.peek(key).await?)?.attempt;
    ensure!(seen == 0, "a finished record has no attempt, not {seen}");
    Ok(())
}

async fn peek_shows_the_mark(b: &Bench) -> Judged {
    let owner = b.ask(b.key()).granted().await?.owner;
    b.marked(owner).await?;
    ensure!(
        record(b.peek(owner.key).await?)?.marked,
        "not shown as marked"
    );
    Ok(())
}

async fn peek_shows_a_lapse(b: &Bench) -> Judged {
    let owner = b.ask(b.key()).granted().await?.owner;
    b.at(3).await?;
    let record = record(b.peek(owner.key).await?)?;
    ensure!(
        record.state == State::Held && record.lapsed,
        "held and lapsed: {record:?}"
    );
    ensure!(
        record.expires_in.is_zero(),
        "nothing is left: {:?}",
        record.expires_in
    );
    Ok(())
}

async fn peek_shows_hold_lapsed_as_unknown(b: &Bench) -> Judged {
    let mut terms = b.lease(2);
    terms.on_lapse = LapsePolicy::Hold;
    let owner = b.ask(b.key()).terms(terms).granted().await?.owner;
    b.at(3).await?;
    let state = record(b.peek(owner.key).await?)?.state;
    ensure!(state == State::Unknown, "shown as {state:?}");
    Ok(())
}

async fn peek_shows_done_until_its_keep_has_passed(b: &Bench) -> Judged {
    let owner = b.ask(b.key()).granted().await?.owner;
    b.finished(owner, "result", 2).await?;
    b.at(1).await?;
    let state = record(b.peek(owner.key).await?)?.state;
    ensure!(state == State::Done, "shown as {state:?}");
    b.at(3).await?;
    free(b.peek(owner.key).await?)
}

async fn peek_shows_a_released_key_as_free(b: &Bench) -> Judged {
    let owner = b.ask(b.key()).granted().await?.owner;
    b.release(owner).await?;
    free(b.peek(owner.key).await?)
}

async fn peek_of_a_key_never_seen_is_free(b: &Bench) -> Judged {
    free(b.peek(b.key()).await?)
}

async fn peek_changes_nothing(b: &Bench) -> Judged {
    let owner = b.ask(b.key()).granted().await?.owner;
    for step in [1, 3] {
        b.at(step).await?;
        b.peek(owner.key).await?;
    }
    b.ask(owner.key).granted().await?;
    Ok(())
}

fn record(seen: Option<RecordView>) -> Judged<RecordView> {
    Ok(expect!("peek", seen, Some(record) => record))
}

/// No record, or one that is free.
fn free(seen: Option<RecordView>) -> Judged {
    let state = seen.as_ref().map_or(State::Free, |record| record.state);
    ensure!(state == State::Free, "free, not {seen:?}");
    Ok(())
}
