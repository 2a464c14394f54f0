//! Tokens strictly rise (S2).

use std::time::Duration;

use crate::Token;
use crate::conformance::bench::Bench;
use crate::conformance::law::Judged;
use crate::store::{Finish, Owner};

laws![Bench;
    the_token_is_above_the_floor,
    a_floor_below_changes_nothing,
    tokens_rise_over_release,
    tokens_rise_over_lapse,
    tokens_rise_over_the_keep_of_a_result,
    tokens_rise_over_the_unfinished_keep,
    tokens_rise_when_the_key_was_forgotten,
    tokens_rise_when_wall_time_goes_back: ManualTime,
];

async fn the_token_is_above_the_floor(b: &Bench) -> Judged {
    let first = b.ask(b.key()).granted().await?.owner;
    b.release(first).await?;
    // Far above every clock, as a guard that has seen a token from the future.
    let floor = above(first.token, 1 << 40)?;
    let next = b.ask(first.key).floor(floor).granted().await?.owner;
    ensure!(
        next.token > floor,
        "{} is not above the floor {floor}",
        next.token
    );
    Ok(())
}

async fn a_floor_below_changes_nothing(b: &Bench) -> Judged {
    let first = b.ask(b.key()).granted().await?.owner;
    b.release(first).await?;
    let floor = Token::new(1).unwrap_or(Token::ZERO);
    risen(first, b.ask(first.key).floor(floor).granted().await?.owner)
}

async fn tokens_rise_over_release(b: &Bench) -> Judged {
    let mut last = b.ask(b.key()).granted().await?.owner;
    for _ in 0..5 {
        b.release(last).await?;
        let next = b.ask(last.key).granted().await?.owner;
        risen(last, next)?;
        last = next;
    }
    Ok(())
}

async fn tokens_rise_over_lapse(b: &Bench) -> Judged {
    let first = b.ask(b.key()).lease(1).granted().await?.owner;
    b.at(2).await?;
    risen(first, b.ask(first.key).granted().await?.owner)
}

async fn tokens_rise_over_the_keep_of_a_result(b: &Bench) -> Judged {
    let first = b.ask(b.key()).granted().await?.owner;
    expect!(
        "finish",
        b.finish(first, "result", 1).await?,
        Finish::Finished
    );
    b.at(2).await?;
    risen(first, b.ask(first.key).granted().await?.owner)
}

async fn tokens_rise_over_the_unfinished_keep(b: &Bench) -> Judged {
    let mut terms = b.lease(1);
    terms.unfinished_keep = b.units(1);
    let first = b.ask(b.key()).terms(terms).granted().await?.owner;
    b.at(4).await?;
    risen(first, b.ask(first.key).granted().await?.owner)
}

/// A released key may be forgotten once every copy of its calls is too late.
async fn tokens_rise_when_the_key_was_forgotten(b: &Bench) -> Judged {
    let not_after = b.ahead(1);
    let first = b.ask(b.key()).not_after(not_after).granted().await?.owner;
    b.release_until(first, not_after).await?;
    // Long enough for an engine that sweeps; other keys give it cause to.
    for step in [2, 4, 6] {
        b.at(step).await?;
        let other = b.ask(b.key()).granted().await?.owner;
        b.release(other).await?;
    }
    risen(first, b.ask(first.key).granted().await?.owner)
}

async fn tokens_rise_when_wall_time_goes_back(b: &Bench) -> Judged {
    let (clock, hour) = (b.manual_clock()?, Duration::from_secs(3600));
    let first = b.ask(b.key()).granted().await?.owner;
    clock.jump_unix_back(hour);
    let released = b.release(first).await;
    let next = b.ask(first.key).granted().await;
    clock.jump_unix_ahead(hour);
    released?;
    risen(first, next?.owner)
}

fn risen(before: Owner, after: Owner) -> Judged {
    ensure!(
        after.token > before.token,
        "granted {} after {}",
        after.token,
        before.token
    );
    Ok(())
}

fn above(token: Token, by: u64) -> Judged<Token> {
    let token = Token::new(token.get() + by);
    Ok(expect!("tokens stay below 2^53", token, Some(token) => token))
}
