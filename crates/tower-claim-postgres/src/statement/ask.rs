//! From requests to statements: what owners, and those who wait for them, ask.

use std::sync::Arc;
use std::time::Duration;

use tower_claim::engine::{span_micros, time_micros};
use tower_claim::store::{
    Beat, ClaimManyRequest, ClaimRequest, FinishRequest, Owner, ReleaseRequest,
};
use tower_claim::{Key, Token};

use super::Call;
use super::param::{Param, key, millis, nonce, number, terms, token, value};
use super::texts::Texts;
use crate::Names;
use crate::lend::WHERE_LENT;

/// Makes the statements of one set of names.
#[derive(Debug, Clone)]
pub struct Statements {
    pub(super) texts: Arc<Texts>,
    /// How long a statement waits for a row that another has locked, in milliseconds; 0 would be for ever.
    pub(super) lock_ms: i32,
    in_transaction_ms: i32,
}

impl Statements {
    /// Statements for tables of these names. They wait for a locked row 1 s at most, and within a user's
    /// transaction 50 ms for a claim.
    pub fn new(names: &Names) -> Self {
        Self {
            texts: Arc::new(Texts::new(names)),
            lock_ms: 1_000,
            in_transaction_ms: 50,
        }
    }

    /// How long a statement waits for a row that another has locked: 1 ms at least. Default: 1 s.
    #[must_use]
    pub fn with_lock_wait(mut self, wait: Duration) -> Self {
        self.lock_ms = millis(wait);
        self
    }

    /// How long a claim within a user's transaction waits for a row that another has locked, before it is
    /// answered as busy: 1 ms at least. Default: 50 ms.
    #[must_use]
    pub fn with_lock_wait_in_transaction(mut self, wait: Duration) -> Self {
        self.in_transaction_ms = millis(wait);
        self
    }

    /// Read the answer by [`claimed`](super::answer::claimed).
    pub fn claim(&self, request: &ClaimRequest<'_>) -> Call {
        self.claim_by(&self.texts.claim, self.lock_ms, request)
    }

    /// A claim that leaves the transaction it is in alive, whatever it meets. Read the answer by
    /// [`claimed`](super::answer::claimed).
    pub fn claim_in(&self, request: &ClaimRequest<'_>) -> Call {
        self.claim_by(&self.texts.claim_in, self.in_transaction_ms, request)
    }

    fn claim_by(&self, text: &Arc<str>, lock_ms: i32, request: &ClaimRequest<'_>) -> Call {
        let fingerprint = request.fingerprint.map(|f| f.as_bytes().to_vec());
        let mut params = vec![
            key(request.key),
            nonce(request.nonce),
            Param::Bytes(fingerprint),
        ];
        params.extend(terms(request.settings));
        params.extend([
            token(request.floor),
            Param::Int(Some(time_micros(request.not_after))),
            Param::Small(lock_ms),
        ]);
        call(text, params)
    }

    /// Read the answer by [`claimed_many`](super::answer::claimed_many).
    pub fn claim_many(&self, request: &ClaimManyRequest<'_>) -> Call {
        let keys = request.keys.iter().map(|key| key.as_bytes().to_vec());
        let mut params = vec![Param::BytesList(keys.collect()), nonce(request.nonce)];
        params.extend(terms(request.settings));
        params.extend([
            token(request.floor),
            Param::Int(Some(time_micros(request.not_after))),
            Param::Small(self.lock_ms),
        ]);
        call(&self.texts.claim_many, params)
    }

    /// One row for each beat; `nth` counts from 1. Read each by [`renewed`](super::answer::renewed).
    pub fn renew(&self, beats: &[Beat]) -> Call {
        let owners = beats.iter().map(|beat| beat.owner);
        let progress = |beat: &Beat| Some(i64::try_from(beat.progress).unwrap_or(i64::MAX));
        call(
            &self.texts.renew,
            vec![
                Param::BytesList(owners.clone().map(|o| o.key.as_bytes().to_vec()).collect()),
                Param::BytesList(
                    owners
                        .clone()
                        .map(|o| o.nonce.as_bytes().to_vec())
                        .collect(),
                ),
                Param::IntList(owners.map(|o| Some(number(o.token))).collect()),
                Param::IntList(beats.iter().map(progress).collect()),
            ],
        )
    }

    /// Read the answer by [`marked`](super::answer::marked).
    pub fn mark(&self, owner: Owner) -> Call {
        self.of_owner(&self.texts.mark, owner)
    }

    /// Whether the owner holds the key still, and nobody may take it over before the transaction ends. Read
    /// the answer by [`still_held`](super::answer::still_held).
    pub fn still_held(&self, owner: Owner) -> Call {
        self.of_owner(&self.texts.still_held, owner)
    }

    fn of_owner(&self, text: &Arc<str>, owner: Owner) -> Call {
        call(
            text,
            vec![
                key(owner.key),
                nonce(owner.nonce),
                token(owner.token),
                Param::Small(self.lock_ms),
            ],
        )
    }

    /// Auto-commit, or within a transaction. Read the answer by [`finished`](super::answer::finished).
    pub fn finish(&self, request: &FinishRequest) -> Call {
        self.finish_by(&self.texts.finish, request)
    }

    /// No row where its transaction is none that was lent, or is over: nothing is finished then.
    pub(crate) fn finish_lent(&self, request: &FinishRequest) -> Call {
        self.finish_by(&self.texts.finish_lent, request)
    }

    /// No row where its transaction is none that was lent, or is over.
    pub(crate) fn is_lent(&self) -> Call {
        call(&format!("select 1 {WHERE_LENT}").into(), Vec::new())
    }

    fn finish_by(&self, text: &Arc<str>, request: &FinishRequest) -> Call {
        let owner = request.owner;
        call(
            text,
            vec![
                key(owner.key),
                nonce(owner.nonce),
                token(owner.token),
                value(&request.value),
                Param::Int(Some(span_micros(request.keep))),
                Param::Small(self.lock_ms),
            ],
        )
    }

    /// Read the answer by [`released`](super::answer::released).
    pub fn release(&self, request: &ReleaseRequest) -> Call {
        call(
            &self.texts.release,
            vec![
                key(request.key),
                nonce(request.nonce),
                Param::Int(request.token.map(number)),
                Param::Int(Some(time_micros(request.not_after))),
                Param::Small(self.lock_ms),
            ],
        )
    }

    /// One row for each; `nth` counts from 1. Read each by [`released`](super::answer::released).
    pub fn release_many(&self, requests: &[ReleaseRequest]) -> Call {
        let all = requests.iter();
        let keys = all.clone().map(|r| r.key.as_bytes().to_vec()).collect();
        let nonces = all.clone().map(|r| r.nonce.as_bytes().to_vec()).collect();
        let tokens = all.clone().map(|r| r.token.map(number)).collect();
        let limits = all.map(|r| Some(time_micros(r.not_after))).collect();
        call(
            &self.texts.release_many,
            vec![
                Param::BytesList(keys),
                Param::BytesList(nonces),
                Param::IntList(tokens),
                Param::IntList(limits),
                Param::Small(self.lock_ms),
            ],
        )
    }

    /// Read the answer by [`watching`](super::answer::watching). `announce`: the asker listens for
    /// notifications.
    pub fn look(&self, of: Key, at: Token, announce: bool) -> Call {
        call(
            &self.texts.look,
            vec![key(of), token(at), Param::Flag(announce)],
        )
    }
}

impl Default for Statements {
    /// For the default [`Names`].
    fn default() -> Self {
        Self::new(&Names::default())
    }
}

pub(super) fn call(text: &Arc<str>, params: Vec<Param>) -> Call {
    Call {
        text: Arc::clone(text),
        params,
    }
}
