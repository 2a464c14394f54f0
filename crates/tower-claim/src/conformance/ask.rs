//! One claim, with what a law does not care about filled in.

use super::bench::Bench;
use super::law::Judged;
use crate::store::{ClaimRequest, Claimed, Grant, Owner, StoreTime};
use crate::{Fingerprint, Key, Nonce, Settings, StoreError, Token};

/// A claim with a fresh nonce, a lease of 2 units, no fingerprint, no floor, and a long `not_after`.
pub(super) struct Ask<'a> {
    bench: &'a Bench,
    key: Key,
    nonce: Nonce,
    fingerprint: Option<Fingerprint>,
    terms: Settings,
    floor: Token,
    not_after: StoreTime,
}

/// A granted claim.
#[derive(Debug, Clone)]
pub(super) struct Hold {
    pub(super) owner: Owner,
    pub(super) grant: Grant,
}

impl<'a> Ask<'a> {
    pub(super) fn new(bench: &'a Bench, key: Key) -> Self {
        Self {
            bench,
            key,
            nonce: bench.nonce(),
            fingerprint: None,
            terms: bench.lease(2),
            floor: Token::ZERO,
            not_after: bench.far(),
        }
    }

    pub(super) fn nonce(mut self, nonce: Nonce) -> Self {
        self.nonce = nonce;
        self
    }

    pub(super) fn fingerprint(mut self, fingerprint: Fingerprint) -> Self {
        self.fingerprint = Some(fingerprint);
        self
    }

    pub(super) fn terms(mut self, terms: Settings) -> Self {
        self.terms = terms;
        self
    }

    pub(super) fn lease(self, units: u32) -> Self {
        let terms = self.bench.lease(units);
        self.terms(terms)
    }

    pub(super) fn floor(mut self, floor: Token) -> Self {
        self.floor = floor;
        self
    }

    pub(super) fn not_after(mut self, not_after: StoreTime) -> Self {
        self.not_after = not_after;
        self
    }

    pub(super) async fn send(self) -> Judged<Claimed> {
        Ok(self.try_send().await?)
    }

    /// For laws about a claim that must fail.
    pub(super) async fn try_send(self) -> Result<Claimed, StoreError> {
        let request = ClaimRequest {
            key: self.key,
            nonce: self.nonce,
            fingerprint: self.fingerprint,
            settings: &self.terms,
            floor: self.floor,
            not_after: self.not_after,
        };
        self.bench.store.dyn_claim(request).await
    }

    /// Sends it; anything but a grant breaks the law.
    pub(super) async fn granted(self) -> Judged<Hold> {
        let (key, nonce) = (self.key, self.nonce);
        let grant = expect!("a claim", self.send().await?, Claimed::Granted(grant) => grant);
        let owner = Owner {
            key,
            nonce,
            token: grant.token,
        };
        Ok(Hold { owner, grant })
    }
}
