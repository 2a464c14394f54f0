//! What is as large, as small or as odd as the words allow is kept whole: values, labels, progress, spans,
//! instants, tokens, keys.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::conformance::bench::{Bench, print};
use crate::conformance::law::Judged;
use crate::store::{
    Claimed, DoneRecord, Finish, FinishRequest, Owner, Renewed, State, StoreTime, Value, Watched,
};
use crate::{Key, Settings, StoreError, Token};

laws![Bench;
    an_empty_result_is_no_tombstone,
    every_byte_of_a_result_comes_back,
    a_large_result_comes_back_whole,
    labels_come_back_whole,
    progress_never_goes_back,
    the_highest_progress_is_kept_whole,
    a_lease_of_100_years_stands,
    a_span_without_end_is_a_long_one,
    a_claim_that_is_never_too_late_is_in_time,
    a_nonce_that_is_never_too_late_is_never_forgotten,
    above_the_last_token_nothing_is_granted,
    keys_that_share_all_but_one_byte_do_not_meet,
    no_fingerprint_is_another_than_any,
];

/// So long that no engine tells it from 100 years.
const YEARS_99: Duration = Duration::from_secs(99 * 365 * 24 * 60 * 60);
const YEARS_100: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

async fn an_empty_result_is_no_tombstone(b: &Bench) -> Judged {
    comes_back(b, Value::Kept(Bytes::new())).await?;
    comes_back(b, Value::Tombstone).await
}

async fn every_byte_of_a_result_comes_back(b: &Bench) -> Judged {
    b.unhurried()?;
    comes_back(b, Value::Kept(every_byte(256))).await?;
    // As text, as a number, as an engine's own word for nothing.
    for odd in [
        "0", "-1", "nil", "NULL", "\\x00", "%s", "'\"", "\u{feff}", "\0",
    ] {
        comes_back(b, Value::Kept(Bytes::from_static(odd.as_bytes()))).await?;
    }
    Ok(())
}

async fn a_large_result_comes_back_whole(b: &Bench) -> Judged {
    b.unhurried()?;
    comes_back(b, Value::Kept(every_byte(1 << 20))).await
}

/// A claim and a watcher are told the very value.
async fn comes_back(b: &Bench, value: Value) -> Judged {
    let owner = b.ask(b.key()).lease(40).granted().await?.owner;
    let request = FinishRequest {
        owner,
        value: value.clone(),
        keep: b.units(60),
    };
    expect!(
        "finish",
        b.store.dyn_finish(request).await?,
        Finish::Finished
    );
    let answer = b.ask(owner.key).send().await?;
    let claimed = expect!("the key", answer, Claimed::Done(done) => done);
    same(&claimed, &value, "a claim")?;
    let seen = b.watch(owner).await?;
    let watched = expect!("a watcher", seen, Watched::Done(done) => done);
    same(&watched, &value, "a watcher")
}

fn same(done: &DoneRecord, value: &Value, who: &str) -> Judged {
    ensure!(
        done.value == *value,
        "{who} was told {}, not {}",
        words(&done.value),
        words(value)
    );
    Ok(())
}

/// A value in few words: a megabyte would hide the report.
fn words(value: &Value) -> String {
    match value {
        Value::Tombstone => "a tombstone".to_owned(),
        Value::Kept(body) => {
            let start = body.get(..body.len().min(16)).unwrap_or_default();
            format!("{} bytes, {start:?}…", body.len())
        }
    }
}

fn every_byte(len: usize) -> Bytes {
    (0..=u8::MAX).cycle().take(len).collect()
}

async fn labels_come_back_whole(b: &Bench) -> Judged {
    b.unhurried()?;
    let long = "ключ 🗝 ".repeat(100);
    let odd = [
        "",
        " ",
        "a\n\t\r",
        "'\"\\{}%$1",
        "🗝\u{202e}\u{feff}",
        "e\u{301}",
        // Where an engine's text has no zero, it must be written otherwise, and so must what it is written as.
        "\0",
        "a\0b\0\0",
        "\u{2400}0\u{2400}\\0\u{fffd}",
        &long,
    ];
    for label in odd {
        let mut terms = b.lease(40);
        terms.label = Arc::from(label);
        let owner = b.ask(b.key()).terms(terms).granted().await?.owner;
        let answer = b.ask(owner.key).send().await?;
        let told = expect!("the key", answer, Claimed::Busy(busy) => busy.label);
        ensure!(&*told == label, "busy tells {told:?}, not {label:?}");
        let seen = b.peek(owner.key).await?;
        let shown = expect!("the record", seen, Some(record) => record.label);
        ensure!(&*shown == label, "peek shows {shown:?}, not {label:?}");
    }
    Ok(())
}

/// A beat that was overtaken on its way tells less than a later one.
async fn progress_never_goes_back(b: &Bench) -> Judged {
    progresses(b, &[(9, 9), (3, 9), (10, 10), (0, 10)]).await
}

/// Beyond a double's. More than a signed number holds, an engine need not keep.
async fn the_highest_progress_is_kept_whole(b: &Bench) -> Judged {
    let (double, highest) = (1 << 53, (1 << 63) - 1);
    let steps = [
        (double, double),
        (double + 1, double + 1),
        (double, double + 1),
        (highest - 1, highest - 1),
        (highest, highest),
        (9, highest),
    ];
    progresses(b, &steps).await
}

/// Told so much, it shows so much.
async fn progresses(b: &Bench, steps: &[(u64, u64)]) -> Judged {
    let owner = b.ask(b.key()).granted().await?.owner;
    let mut last = 0;
    for &(told, expected) in steps {
        expect!(
            "a beat",
            b.beat(owner, told).await?,
            Renewed::Renewed { .. }
        );
        let seen = b.peek(owner.key).await?;
        last = expect!("the record", seen, Some(record) => record.progress);
        ensure!(
            last == expected,
            "told {told}, it shows {last}, not {expected}"
        );
    }
    b.at(3).await?;
    let next = b.ask(owner.key).granted().await?.grant;
    // Behind lost replies the first answer is missing.
    let before = next.took_over.map_or(last, |before| before.progress);
    ensure!(
        before == last,
        "the next owner is told {before}, not {last}"
    );
    Ok(())
}

async fn a_lease_of_100_years_stands(b: &Bench) -> Judged {
    long_terms(b, YEARS_100).await
}

/// Longer than any engine's clock: it must neither fail nor wrap around into the past.
async fn a_span_without_end_is_a_long_one(b: &Bench) -> Judged {
    long_terms(b, Duration::MAX).await
}

async fn long_terms(b: &Bench, span: Duration) -> Judged {
    let mut terms = Settings::new(span);
    (terms.cooling, terms.unfinished_keep) = (span, span);
    let hold = b.ask(b.key()).terms(terms).granted().await?;
    let (owner, lease) = (hold.owner, hold.grant.lease);
    ensure!(lease >= YEARS_99, "granted {lease:?}");
    b.at(3).await?;
    let answer = b.ask(owner.key).send().await?;
    let left = expect!("the key", answer, Claimed::Busy(busy) => busy.expires_in);
    ensure!(left >= YEARS_99, "{left:?} are left");
    let rest = expect!("a beat", b.renew(owner).await?, Renewed::Renewed { rest, .. } => rest);
    ensure!(rest >= YEARS_99, "renewed for {rest:?}");

    let request = FinishRequest {
        owner,
        value: Value::Tombstone,
        keep: span,
    };
    expect!(
        "finish",
        b.store.dyn_finish(request).await?,
        Finish::Finished
    );
    let answer = b.ask(owner.key).send().await?;
    let left = expect!("the key", answer, Claimed::Done(done) => done.keep_left);
    ensure!(left >= YEARS_99, "kept for {left:?}");

    let mut terms = b.lease(2);
    terms.min_hold = span;
    let owner = b.ask(b.key()).terms(terms).granted().await?.owner;
    b.release(owner).await?;
    let answer = b.ask(owner.key).send().await?;
    let left = expect!("released early", answer, Claimed::Cooling(it) => it.remaining);
    ensure!(left >= YEARS_99, "{left:?} of the least hold are left");
    Ok(())
}

async fn a_claim_that_is_never_too_late_is_in_time(b: &Bench) -> Judged {
    b.at(1).await?;
    let never = StoreTime::NEVER;
    let owner = b.ask(b.key()).not_after(never).granted().await?.owner;
    b.finished(owner, "result", 9).await?;
    let copy = b.ask(owner.key).nonce(owner.nonce).not_after(never);
    expect!("a copy", copy.send().await?, Claimed::Ended);
    Ok(())
}

async fn a_nonce_that_is_never_too_late_is_never_forgotten(b: &Bench) -> Judged {
    let never = StoreTime::NEVER;
    let owner = b.ask(b.key()).not_after(never).granted().await?.owner;
    b.release_until(owner, never).await?;
    for step in [2, 4] {
        b.at(step).await?;
        let copy = b.ask(owner.key).nonce(owner.nonce).not_after(never);
        expect!("a copy", copy.send().await?, Claimed::Ended);
    }
    b.ask(owner.key).granted().await?;
    Ok(())
}

/// A token given twice would be worse than none.
async fn above_the_last_token_nothing_is_granted(b: &Bench) -> Judged {
    let key = b.key();
    unsupported(b.ask(key).floor(Token::MAX).try_send().await)?;
    // It changed nothing.
    let owner = b.ask(key).granted().await?.owner;
    ensure!(owner.token < Token::MAX, "granted {}", owner.token);
    b.release(owner).await?;

    let last_but_one = Token::new(Token::MAX.get() - 1).unwrap_or(Token::MAX);
    let owner = b.ask(key).floor(last_but_one).granted().await?.owner;
    ensure!(owner.token == Token::MAX, "granted {}", owner.token);
    b.finished(owner, "result", 1).await?;
    b.at(3).await?;
    unsupported(b.ask(key).try_send().await)
}

fn unsupported(answer: Result<Claimed, StoreError>) -> Judged {
    match answer {
        Err(StoreError::Unsupported(_)) => Ok(()),
        other => {
            ensure!(false, "no token is left, yet: {other:?}");
            Ok(())
        }
    }
}

async fn keys_that_share_all_but_one_byte_do_not_meet(b: &Bench) -> Judged {
    b.unhurried()?;
    let base = *b.key().as_bytes();
    let mut owners: Vec<Owner> = Vec::new();
    for place in [0, 1, 7, 8, 15, 16, 30, 31] {
        let mut bytes = base;
        bytes[place] ^= 1;
        let key = Key::from_bytes(bytes);
        owners.push(b.ask(key).lease(40).granted().await?.owner);
    }
    let (last, others) = match owners.split_last() {
        Some((last, others)) => (*last, others),
        None => return Ok(()),
    };
    b.finished(last, "result", 60).await?;
    for owner in others {
        let seen = b.peek(owner.key).await?;
        let record = expect!("each record", seen, Some(record) => record);
        ensure!(
            record.state == State::Held && record.token == owner.token,
            "{:?} was touched: {record:?}",
            owner.key
        );
    }
    Ok(())
}

async fn no_fingerprint_is_another_than_any(b: &Bench) -> Judged {
    let (with, without) = (b.key(), b.key());
    let owner = b.ask(with).fingerprint(print(0)).granted().await?.owner;
    b.ask(without).granted().await?;
    told(b.ask(with).send().await?, false)?;
    told(b.ask(without).fingerprint(print(0)).send().await?, false)?;
    told(b.ask(without).send().await?, true)?;
    b.finished(owner, "result", 60).await?;
    told(b.ask(with).send().await?, false)?;
    b.at(3).await?;
    // It takes nothing over, either.
    told(b.ask(without).fingerprint(print(0)).send().await?, false)?;
    b.ask(without).granted().await?;
    Ok(())
}

/// Whether the answer calls the fingerprint the same.
fn told(answer: Claimed, expected: bool) -> Judged {
    let same = match answer {
        Claimed::Busy(busy) => busy.same_fingerprint,
        Claimed::Done(done) => done.same_fingerprint,
        other => expect!("the key", other, Claimed::Busy(busy) => busy.same_fingerprint),
    };
    ensure!(same == expected, "told as the same: {same}");
    Ok(())
}
