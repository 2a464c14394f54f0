//! Claims of several keys: all or nothing in one step.

use futures_util::future::join;

use crate::conformance::bench::ManyBench;
use crate::conformance::law::Judged;
use crate::store::{
    ClaimManyRequest, Claimed, ClaimedMany, Grant, Owner, Release, ReleaseRequest, Renewed,
    StoreTime,
};
use crate::{Key, LapsePolicy, Nonce, Settings, StoreError, Token};

laws![ManyBench;
    several_free_keys_are_granted_together,
    one_held_key_refuses_all,
    a_refusal_takes_nothing,
    one_token_above_all_of_theirs,
    the_common_token_is_above_the_floor,
    several_keys_again_are_mine,
    a_lapsed_key_is_taken_over_with_the_others,
    a_done_key_refuses_all,
    a_cooling_key_refuses_all,
    an_unknown_key_refuses_all,
    keys_out_of_order_repeated_or_none_are_refused,
    several_keys_past_not_after_are_too_late,
    a_spent_nonce_is_not_granted_several_keys,
    the_common_terms_are_in_every_record,
    crossing_claims_are_never_both_granted,
    a_release_of_many_is_answered_in_order,
    a_release_of_many_frees_every_key,
];

async fn several_free_keys_are_granted_together(b: &ManyBench) -> Judged {
    let keys = keys(b, 3);
    let owners = granted(b, &keys).await?;
    for owner in owners {
        let answer = b.ask(owner.key).send().await?;
        let busy = expect!("each key", answer, Claimed::Busy(busy) => busy);
        ensure!(
            busy.token == owner.token,
            "token {}, not {}",
            busy.token,
            owner.token
        );
        expect!("each beat", b.renew(owner).await?, Renewed::Renewed { .. });
    }
    Ok(())
}

async fn one_held_key_refuses_all(b: &ManyBench) -> Judged {
    let keys = keys(b, 3);
    for held in &keys {
        let hold = b.ask(*held).lease(9).granted().await?.owner;
        let (key, by) = refused(many(b, &keys, b.nonce()).await?)?;
        ensure!(key == *held, "{held:?} stands in the way, not {key:?}");
        let busy = expect!("the refusal", by, Claimed::Busy(busy) => busy);
        ensure!(
            busy.token == hold.token,
            "the holder's token, not {}",
            busy.token
        );
        b.release(hold).await?;
    }
    Ok(())
}

async fn a_refusal_takes_nothing(b: &ManyBench) -> Judged {
    let keys = keys(b, 5);
    b.ask(keys[2]).granted().await?;
    refused(many(b, &keys, b.nonce()).await?)?;
    for key in [keys[0], keys[1], keys[3], keys[4]] {
        b.ask(key).granted().await?;
    }
    Ok(())
}

async fn one_token_above_all_of_theirs(b: &ManyBench) -> Judged {
    let keys = keys(b, 3);
    // The one in the middle is far ahead of the others and of every clock.
    let last = b.ask(keys[1]).granted().await?.owner;
    b.release(last).await?;
    let floor = Token::new(last.token.get() + (1 << 40)).unwrap_or(Token::ZERO);
    let ahead = b.ask(keys[1]).floor(floor).granted().await?.owner;
    b.release(ahead).await?;
    let owners = granted(b, &keys).await?;
    ensure!(
        owners[0].token > ahead.token,
        "{} after {}",
        owners[0].token,
        ahead.token
    );
    for owner in owners {
        let seen = b.peek(owner.key).await?;
        let token = expect!("each record", seen, Some(record) => record.token);
        ensure!(token == owner.token, "one token for all, not {token} too");
    }
    Ok(())
}

async fn the_common_token_is_above_the_floor(b: &ManyBench) -> Judged {
    let last = b.ask(b.key()).granted().await?.owner;
    let floor = Token::new(last.token.get() + (1 << 40)).unwrap_or(Token::ZERO);
    let (keys, terms) = (keys(b, 2), b.lease(2));
    let answer = send(b, &keys, b.nonce(), &terms, floor, b.far()).await?;
    let grant = expect!("the claim", answer, ClaimedMany::Granted(grant) => grant);
    ensure!(grant.token > floor, "{} is not above {floor}", grant.token);
    Ok(())
}

async fn several_keys_again_are_mine(b: &ManyBench) -> Judged {
    let (keys, nonce) = (keys(b, 3), b.nonce());
    let grant = grant(many(b, &keys, nonce).await?)?;
    let (_, by) = refused(many(b, &keys, nonce).await?)?;
    let token = expect!("the same nonce", by, Claimed::Mine { token, .. } => token);
    ensure!(
        token == grant.token,
        "one nonce has one token, not {token} too"
    );
    b.at(3).await?;
    // It granted nothing: the lease was not lengthened.
    granted(b, &keys).await?;
    Ok(())
}

async fn a_lapsed_key_is_taken_over_with_the_others(b: &ManyBench) -> Judged {
    let keys = keys(b, 3);
    let lapsed = b.ask(keys[1]).granted().await?.owner;
    b.at(3).await?;
    let owners = granted(b, &keys).await?;
    ensure!(
        owners[0].token > lapsed.token,
        "{} after {}",
        owners[0].token,
        lapsed.token
    );
    expect!("the lapsed owner", b.renew(lapsed).await?, Renewed::Lost(_));
    Ok(())
}

async fn a_done_key_refuses_all(b: &ManyBench) -> Judged {
    let keys = keys(b, 3);
    let owner = b.ask(keys[2]).granted().await?.owner;
    b.finished(owner, "result", 9).await?;
    let (key, by) = refused(many(b, &keys, b.nonce()).await?)?;
    ensure!(
        key == keys[2],
        "{:?} stands in the way, not {key:?}",
        keys[2]
    );
    expect!("the refusal", by, Claimed::Done(_));
    b.ask(keys[0]).granted().await?;
    Ok(())
}

async fn a_cooling_key_refuses_all(b: &ManyBench) -> Judged {
    let keys = keys(b, 3);
    let mut terms = b.lease(2);
    terms.cooling = b.units(9);
    b.ask(keys[0]).terms(terms).granted().await?;
    b.at(3).await?;
    let (_, by) = refused(many(b, &keys, b.nonce()).await?)?;
    expect!("the refusal", by, Claimed::Cooling(_));
    b.ask(keys[2]).granted().await?;
    Ok(())
}

async fn an_unknown_key_refuses_all(b: &ManyBench) -> Judged {
    let keys = keys(b, 3);
    let mut terms = b.lease(2);
    terms.on_lapse = LapsePolicy::Hold;
    let lapsed = b.ask(keys[1]).terms(terms).granted().await?.owner;
    b.at(3).await?;
    let (key, by) = refused(many(b, &keys, b.nonce()).await?)?;
    ensure!(
        key == keys[1],
        "{:?} stands in the way, not {key:?}",
        keys[1]
    );
    let unknown = expect!("the refusal", by, Claimed::Unknown(unknown) => unknown);
    ensure!(
        unknown.token == lapsed.token,
        "the lapsed owner's token, not {}",
        unknown.token
    );
    b.ask(keys[0]).granted().await?;
    b.ask(keys[2]).granted().await?;
    Ok(())
}

/// Taken as they are, two crossing claims would wait for one another, and a key would be granted twice.
async fn keys_out_of_order_repeated_or_none_are_refused(b: &ManyBench) -> Judged {
    let (keys, nonce, terms) = (keys(b, 3), b.nonce(), b.lease(2));
    let [first, second, third] = [keys[0], keys[1], keys[2]];
    let wrong: [&[Key]; 5] = [
        &[second, first],
        &[first, third, second],
        &[first, first],
        &[first, second, second],
        &[],
    ];
    for wrong in wrong {
        let request = ClaimManyRequest {
            keys: wrong,
            nonce,
            settings: &terms,
            floor: Token::ZERO,
            not_after: b.far(),
        };
        let answer = b.power.dyn_claim_many(request).await;
        expect!(
            "keys that are no set in order",
            answer,
            Err(StoreError::Unsupported(_))
        );
    }
    // Nothing was taken, and the nonce was not spent.
    let answer = many(b, &keys, nonce).await?;
    let grant = grant(answer)?;
    ensure!(grant.took_over.is_none(), "taken over: {grant:?}");
    Ok(())
}

async fn several_keys_past_not_after_are_too_late(b: &ManyBench) -> Judged {
    let (keys, terms, not_after) = (keys(b, 2), b.lease(2), b.ahead(1));
    b.at(3).await?;
    let answer = send(b, &keys, b.nonce(), &terms, Token::ZERO, not_after).await?;
    expect!("two units late", refused(answer)?.1, Claimed::TooLate);
    b.ask(keys[0]).granted().await?;
    Ok(())
}

async fn a_spent_nonce_is_not_granted_several_keys(b: &ManyBench) -> Judged {
    let (keys, nonce) = (keys(b, 3), b.nonce());
    b.release_by_nonce(keys[1], nonce).await?;
    let (_, by) = refused(many(b, &keys, nonce).await?)?;
    expect!("the refusal", by, Claimed::Ended);
    b.ask(keys[0]).granted().await?;
    Ok(())
}

async fn the_common_terms_are_in_every_record(b: &ManyBench) -> Judged {
    let (keys, mut terms) = (keys(b, 3), b.lease(2));
    terms.cooling = b.units(9);
    let answer = send(b, &keys, b.nonce(), &terms, Token::ZERO, b.far()).await?;
    grant(answer)?;
    b.at(3).await?;
    for key in keys {
        expect!("each key", b.ask(key).send().await?, Claimed::Cooling(_));
    }
    Ok(())
}

async fn crossing_claims_are_never_both_granted(b: &ManyBench) -> Judged {
    for _ in 0..4 {
        let keys = keys(b, 5);
        let (left, right) = (b.nonce(), b.nonce());
        let (left, right) = join(many(b, &keys[..3], left), many(b, &keys[2..], right)).await;
        let both = (left?, right?);
        if let (ClaimedMany::Granted(_), ClaimedMany::Granted(_)) = both {
            expect!(
                "two claims with a common key",
                both,
                (ClaimedMany::Refused { .. }, _)
            );
        }
    }
    Ok(())
}

async fn a_release_of_many_is_answered_in_order(b: &ManyBench) -> Judged {
    let owners = granted(b, &keys(b, 4)).await?;
    let mut requests = Vec::new();
    for owner in &owners {
        requests.push(giving_back(b, owner.key, owner.nonce));
        requests.push(giving_back(b, owner.key, b.nonce()));
    }
    let answers = b.power.dyn_release_many(&requests).await?;
    ensure!(answers.len() == requests.len(), "{} answers", answers.len());
    for (i, answer) in answers.into_iter().enumerate() {
        match i % 2 {
            0 => expect!("the owner", answer, Release::Released),
            _ => expect!("a stranger", answer, Release::Already),
        }
    }
    Ok(())
}

async fn a_release_of_many_frees_every_key(b: &ManyBench) -> Judged {
    let owners = granted(b, &keys(b, 3)).await?;
    let requests: Vec<_> = owners
        .iter()
        .map(|owner| giving_back(b, owner.key, owner.nonce))
        .collect();
    b.power.dyn_release_many(&requests).await?;
    for owner in owners {
        b.ask(owner.key).granted().await?;
    }
    Ok(())
}

pub(super) fn keys(b: &ManyBench, n: usize) -> Vec<Key> {
    let mut keys: Vec<_> = (0..n).map(|_| b.key()).collect();
    keys.sort_unstable();
    keys
}

pub(super) fn giving_back(b: &ManyBench, key: Key, nonce: Nonce) -> ReleaseRequest {
    ReleaseRequest {
        key,
        nonce,
        token: None,
        not_after: b.far(),
    }
}

async fn send(
    b: &ManyBench,
    keys: &[Key],
    nonce: Nonce,
    settings: &Settings,
    floor: Token,
    not_after: StoreTime,
) -> Judged<ClaimedMany> {
    let request = ClaimManyRequest {
        keys,
        nonce,
        settings,
        floor,
        not_after,
    };
    Ok(b.power.dyn_claim_many(request).await?)
}

pub(super) async fn many(b: &ManyBench, keys: &[Key], nonce: Nonce) -> Judged<ClaimedMany> {
    send(b, keys, nonce, &b.lease(2), Token::ZERO, b.far()).await
}

pub(super) async fn granted(b: &ManyBench, keys: &[Key]) -> Judged<Vec<Owner>> {
    let nonce = b.nonce();
    let token = grant(many(b, keys, nonce).await?)?.token;
    let owners = keys.iter().map(|&key| Owner { key, nonce, token });
    Ok(owners.collect())
}

fn grant(answer: ClaimedMany) -> Judged<Grant> {
    Ok(expect!("a claim of several keys", answer, ClaimedMany::Granted(grant) => grant))
}

fn refused(answer: ClaimedMany) -> Judged<(Key, Claimed)> {
    Ok(expect!("a claim of several keys", answer, ClaimedMany::Refused { key, by } => (key, by)))
}
