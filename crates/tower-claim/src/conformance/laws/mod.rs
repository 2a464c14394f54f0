//! The laws, in files by operation.

mod admin_after;
mod admin_break;
mod admin_purge;
mod admin_resolve;
mod admin_terms;
mod claim;
mod claim_lapse;
mod claim_nonce;
mod claim_token;
mod crowds;
mod extremes;
mod fence;
mod finish;
mod many;
mod many_sizes;
mod mark;
mod peek;
mod release;
mod renew;
mod terms;
mod watch;

use super::bench::{AdminBench, Bench, FenceBench, ManyBench};
use super::law::Law;
use crate::Token;
use crate::store::Owner;

pub(super) fn claim_store() -> Vec<&'static Law<Bench>> {
    let files = [
        claim::LAWS,
        claim_nonce::LAWS,
        claim_token::LAWS,
        claim_lapse::LAWS,
        terms::LAWS,
        renew::LAWS,
        mark::LAWS,
        finish::LAWS,
        release::LAWS,
        watch::LAWS,
        peek::LAWS,
        extremes::LAWS,
        crowds::LAWS,
    ];
    files.into_iter().flatten().collect()
}

pub(super) fn claim_many() -> Vec<&'static Law<ManyBench>> {
    let files = [many::LAWS, many_sizes::LAWS];
    files.into_iter().flatten().collect()
}

pub(super) fn claim_admin() -> Vec<&'static Law<AdminBench>> {
    let files = [
        admin_resolve::LAWS,
        admin_break::LAWS,
        admin_purge::LAWS,
        admin_after::LAWS,
        admin_terms::LAWS,
    ];
    files.into_iter().flatten().collect()
}

pub(super) fn fence_store() -> Vec<&'static Law<FenceBench>> {
    fence::LAWS.iter().collect()
}

pub(super) fn names() -> impl Iterator<Item = (&'static str, &'static str)> {
    let store = claim_store().into_iter().map(|l| ("claim_store", l.name));
    let many = claim_many().into_iter().map(|l| ("claim_many", l.name));
    let admin = claim_admin().into_iter().map(|l| ("claim_admin", l.name));
    let fence = fence_store().into_iter().map(|l| ("fence_store", l.name));
    store.chain(many).chain(admin).chain(fence)
}

/// The right nonce with a token that is not its own.
fn another_token(owner: Owner) -> Owner {
    let token = Token::new(owner.token.get() + 1).unwrap_or(Token::ZERO);
    Owner { token, ..owner }
}

/// The right token with a nonce that is not its own.
fn another_nonce(b: &Bench, owner: Owner) -> Owner {
    let nonce = b.nonce();
    Owner { nonce, ..owner }
}
