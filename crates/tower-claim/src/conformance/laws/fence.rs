//! The check at the resource (S1): what was accepted never goes back.

use futures_util::future::join_all;

use crate::conformance::bench::FenceBench;
use crate::conformance::law::Judged;
use crate::store::Admission;
use crate::{Nonce, StoreError, Token};

laws![FenceBench;
    a_first_write_is_admitted,
    the_same_owner_writes_again,
    a_newer_token_is_admitted,
    a_stale_token_is_refused,
    a_stale_token_is_refused_whatever_its_nonce,
    an_equal_token_of_another_nonce_collides,
    a_refusal_raises_nothing,
    a_collision_leaves_the_owner_in_place,
    a_floor_refuses_tokens_up_to_it,
    a_floor_shuts_out_the_owner,
    a_floor_admits_tokens_above_it,
    a_floor_is_never_lowered,
    a_floor_below_the_mark_lowers_nothing,
    raising_the_floor_tells_the_mark,
    the_mark_of_a_resource_never_written_is_zero,
    the_high_water_mark_heals,
    two_resources_do_not_meet,
    racing_writes_leave_the_highest_mark,
    the_last_token_is_admitted_until_a_floor_bars_it,
    names_that_look_alike_are_told_apart,
];

async fn a_first_write_is_admitted(b: &FenceBench) -> Judged {
    admitted(b.store.dyn_admit(&b.resource(), t(5), n(1)).await)
}

async fn the_same_owner_writes_again(b: &FenceBench) -> Judged {
    let r = b.resource();
    for _ in 0..3 {
        admitted(b.store.dyn_admit(&r, t(5), n(1)).await)?;
    }
    Ok(())
}

async fn a_newer_token_is_admitted(b: &FenceBench) -> Judged {
    let r = b.resource();
    for (token, nonce) in [(5, 1), (6, 2), (90, 3)] {
        admitted(b.store.dyn_admit(&r, t(token), n(nonce)).await)?;
    }
    let high = b.store.dyn_high_water(&r).await?;
    ensure!(high == t(90), "the mark is 90, not {high}");
    Ok(())
}

async fn a_stale_token_is_refused(b: &FenceBench) -> Judged {
    let r = b.resource();
    admitted(b.store.dyn_admit(&r, t(5), n(1)).await)?;
    admitted(b.store.dyn_admit(&r, t(7), n(2)).await)?;
    for token in [5, 6, 1] {
        stale(b.store.dyn_admit(&r, t(token), n(1)).await, 7)?;
    }
    Ok(())
}

async fn a_stale_token_is_refused_whatever_its_nonce(b: &FenceBench) -> Judged {
    let r = b.resource();
    admitted(b.store.dyn_admit(&r, t(7), n(2)).await)?;
    stale(b.store.dyn_admit(&r, t(5), n(2)).await, 7)
}

async fn an_equal_token_of_another_nonce_collides(b: &FenceBench) -> Judged {
    let r = b.resource();
    admitted(b.store.dyn_admit(&r, t(7), n(1)).await)?;
    let answer = b.store.dyn_admit(&r, t(7), n(2)).await?;
    let high = expect!("another nonce", answer, Admission::Collision { high } => high);
    ensure!(high == t(7), "the mark is 7, not {high}");
    Ok(())
}

async fn a_refusal_raises_nothing(b: &FenceBench) -> Judged {
    let r = b.resource();
    admitted(b.store.dyn_admit(&r, t(7), n(1)).await)?;
    stale(b.store.dyn_admit(&r, t(3), n(2)).await, 7)?;
    let high = b.store.dyn_high_water(&r).await?;
    ensure!(high == t(7), "the mark is 7, not {high}");
    admitted(b.store.dyn_admit(&r, t(7), n(1)).await)
}

async fn a_collision_leaves_the_owner_in_place(b: &FenceBench) -> Judged {
    let r = b.resource();
    admitted(b.store.dyn_admit(&r, t(7), n(1)).await)?;
    let _ = b.store.dyn_admit(&r, t(7), n(2)).await?;
    admitted(b.store.dyn_admit(&r, t(7), n(1)).await)
}

async fn a_floor_refuses_tokens_up_to_it(b: &FenceBench) -> Judged {
    let r = b.resource();
    b.store.dyn_raise_floor(&r, t(10)).await?;
    for token in [1, 9, 10] {
        let answer = b.store.dyn_admit(&r, t(token), n(1)).await?;
        expect!("up to the floor", answer, Admission::Stale { .. });
    }
    Ok(())
}

async fn a_floor_shuts_out_the_owner(b: &FenceBench) -> Judged {
    let r = b.resource();
    admitted(b.store.dyn_admit(&r, t(7), n(1)).await)?;
    b.store.dyn_raise_floor(&r, t(7)).await?;
    let answer = b.store.dyn_admit(&r, t(7), n(1)).await?;
    expect!("the owner below the floor", answer, Admission::Stale { .. });
    Ok(())
}

async fn a_floor_admits_tokens_above_it(b: &FenceBench) -> Judged {
    let r = b.resource();
    b.store.dyn_raise_floor(&r, t(10)).await?;
    admitted(b.store.dyn_admit(&r, t(11), n(1)).await)
}

async fn a_floor_is_never_lowered(b: &FenceBench) -> Judged {
    let r = b.resource();
    b.store.dyn_raise_floor(&r, t(10)).await?;
    b.store.dyn_raise_floor(&r, t(4)).await?;
    let answer = b.store.dyn_admit(&r, t(9), n(1)).await?;
    expect!("below the first floor", answer, Admission::Stale { .. });
    Ok(())
}

async fn a_floor_below_the_mark_lowers_nothing(b: &FenceBench) -> Judged {
    let r = b.resource();
    admitted(b.store.dyn_admit(&r, t(20), n(1)).await)?;
    let stands = b.store.dyn_raise_floor(&r, t(10)).await?;
    ensure!(stands == t(20), "the mark of 20 stands, not {stands}");
    stale(b.store.dyn_admit(&r, t(15), n(2)).await, 20)?;
    admitted(b.store.dyn_admit(&r, t(20), n(1)).await)
}

async fn raising_the_floor_tells_the_mark(b: &FenceBench) -> Judged {
    let r = b.resource();
    let stands = b.store.dyn_raise_floor(&r, t(10)).await?;
    ensure!(stands == t(10), "raised to 10, told {stands}");
    Ok(())
}

async fn the_mark_of_a_resource_never_written_is_zero(b: &FenceBench) -> Judged {
    let high = b.store.dyn_high_water(&b.resource()).await?;
    ensure!(high == Token::ZERO, "never written, yet the mark is {high}");
    Ok(())
}

/// A claim with the mark as its floor gets a token that may write.
async fn the_high_water_mark_heals(b: &FenceBench) -> Judged {
    let r = b.resource();
    admitted(b.store.dyn_admit(&r, t(7), n(1)).await)?;
    b.store.dyn_raise_floor(&r, t(40)).await?;
    let floor = b.store.dyn_high_water(&r).await?;
    admitted(b.store.dyn_admit(&r, t(floor.get() + 1), n(2)).await)
}

async fn two_resources_do_not_meet(b: &FenceBench) -> Judged {
    let (one, two) = (b.resource(), b.resource());
    admitted(b.store.dyn_admit(&one, t(9), n(1)).await)?;
    b.store.dyn_raise_floor(&one, t(20)).await?;
    admitted(b.store.dyn_admit(&two, t(3), n(1)).await)
}

async fn racing_writes_leave_the_highest_mark(b: &FenceBench) -> Judged {
    let r = b.resource();
    let writes = (1..=8u8)
        .rev()
        .map(|i| b.store.dyn_admit(&r, t(i.into()), n(i)));
    for answer in join_all(writes).await {
        let _ = answer?;
    }
    let high = b.store.dyn_high_water(&r).await?;
    ensure!(high == t(8), "8 was admitted, the mark is {high}");
    stale(b.store.dyn_admit(&r, t(7), n(7)).await, 8)
}

async fn the_last_token_is_admitted_until_a_floor_bars_it(b: &FenceBench) -> Judged {
    let r = b.resource();
    let last = Token::MAX;
    b.store.dyn_raise_floor(&r, t(last.get() - 1)).await?;
    admitted(b.store.dyn_admit(&r, last, n(1)).await)?;
    let high = b.store.dyn_high_water(&r).await?;
    ensure!(high == last, "the mark is {last}, not {high}");
    b.store.dyn_raise_floor(&r, last).await?;
    stale(b.store.dyn_admit(&r, last, n(1)).await, last.get())
}

/// By case, by blanks at the end, by how an accent is written, by length.
async fn names_that_look_alike_are_told_apart(b: &FenceBench) -> Judged {
    let r = b.resource();
    let long = "x".repeat(4096);
    let ends = [
        "a", "A", "a ", " a", "é", "e\u{301}", "'", "\\", "%", "\n", "\0", "a\0", "a\0b", &long,
    ];
    for (i, end) in ends.iter().enumerate() {
        let name = format!("{r}{end}");
        let high = b.store.dyn_high_water(&name).await?;
        ensure!(high == Token::ZERO, "{end:?} is another's: {high}");
        admitted(b.store.dyn_admit(&name, t(100 - i as u64), n(1)).await)?;
    }
    Ok(())
}

fn t(token: u64) -> Token {
    Token::new(token).unwrap_or(Token::MAX)
}

fn n(byte: u8) -> Nonce {
    Nonce::from_bytes([byte; 16])
}

fn admitted(answer: Result<Admission, StoreError>) -> Judged {
    expect!("a write", answer?, Admission::Admitted);
    Ok(())
}

fn stale(answer: Result<Admission, StoreError>, mark: u64) -> Judged {
    let high = expect!("a stale write", answer?, Admission::Stale { high } => high);
    ensure!(high == t(mark), "the mark is {mark}, not {high}");
    Ok(())
}
