//! What may be refused, and what a client does then.

use std::panic::{AssertUnwindSafe, catch_unwind};

use bytes::Bytes;
use http::Response;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use tower_claim::{Code, Refusal};

use crate::json::{self, Object};
use crate::shared::Shared;

/// A refusal that this layer may answer with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MayRefuse {
    pub(super) code: &'static str,
    pub(super) status: u16,
    pub(super) title: &'static str,
    pub(super) retry_after: RetryAfter,
    pub(super) advice: &'static str,
    /// As the layer sends it, in the user's words where there are some.
    pub(super) media_type: Option<String>,
    pub(super) body: Bytes,
    /// In this crate's own words.
    is_own: bool,
}

/// Whether a refusal says when to come back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RetryAfter {
    Always,
    /// Where a reconcile hook could not tell yet.
    Sometimes,
    Never,
}

impl RetryAfter {
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Always => "always",
            Self::Sometimes => "sometimes",
            Self::Never => "never",
        }
    }
}

/// All of them, by status.
pub(super) fn of(shared: &Shared) -> Vec<MayRefuse> {
    let mut all: Vec<_> = Code::ALL
        .iter()
        .filter_map(|code| may_refuse(shared, *code))
        .collect();
    all.sort_by_key(|refusal| refusal.status);
    all
}

fn may_refuse(shared: &Shared, code: Code) -> Option<MayRefuse> {
    let possible = match code {
        Code::KeyMissing => shared.entry.require_key,
        Code::ScopeMissing => shared.entry.require_scope,
        Code::QuotaExceeded => shared.quotas.is_some(),
        _ => true,
    };
    let is_inside = shared.inside.is_some();
    let advice = possible.then(|| advice(code, is_inside)).flatten()?;
    let refusal = Refusal::new(code);
    let own = refusal.to_response(false);
    let retry_after = match code {
        Code::OutcomeUnknown if shared.reconcile.is_some() => RetryAfter::Sometimes,
        _ if own.headers().contains_key(RETRY_AFTER) => RetryAfter::Always,
        _ => RetryAfter::Never,
    };
    // The user's own words may come from a function that does not expect to be asked without a request.
    let render = || refusal.to_response_by(shared.render.as_ref(), false);
    let sent: Response<Bytes> = match &shared.render {
        Some(_) => catch_unwind(AssertUnwindSafe(render)).unwrap_or_else(|_| own.clone()),
        None => own.clone(),
    };
    let media_type = sent.headers().get(CONTENT_TYPE);
    Some(MayRefuse {
        code: code.name(),
        status: sent.status().as_u16(),
        title: code.title(),
        retry_after,
        advice,
        media_type: media_type
            .and_then(|value| value.to_str().ok())
            .map(str::to_owned),
        is_own: sent.body() == own.body(),
        body: sent.into_body(),
    })
}

/// What a client does. `None`: this layer does not answer so.
fn advice(code: Code, is_inside: bool) -> Option<&'static str> {
    Some(match code {
        Code::KeyMissing => "Send a key. Nothing was run.",
        Code::KeyInvalid => "Mend the key. Nothing was run.",
        Code::ScopeMissing => "Say who you are, as the service asks for it. Nothing was run.",
        Code::BodyBroken => "Send the request again with the same key. Nothing was kept.",
        Code::BodyTooLarge => "Send a smaller body. Nothing was run.",
        Code::KeyReused => {
            "This key belongs to another request. Draw a new key for a new intent; send what is repeated unchanged."
        }
        Code::InProgress if is_inside => {
            "Wait as long as `Retry-After` says, then send the same request with the same key. Another request under this key \
             may be told so, too, and is told apart (422) when the first one is over."
        }
        Code::InProgress => {
            "Wait as long as `Retry-After` says, then send the same request with the same key."
        }
        Code::OutcomeUnknown => {
            "Do not send it under a new key: it may have been done. Ask again later with the same key, or ask the operator."
        }
        Code::ResponseNotKept => {
            "It was done. Look at the resource; do not send it under a new key."
        }
        Code::QuotaExceeded => {
            "Too many keys or answers are kept for you. Wait, then send the same request with the same key. Nothing was run."
        }
        Code::HandlerPanicked => {
            "The server failed. Send the same request with the same key; it tells whether the work was done."
        }
        Code::StoreUnavailable | Code::Overloaded | Code::ShuttingDown => {
            "Wait as long as `Retry-After` says, then send the same request with the same key."
        }
        _ => return None,
    })
}

impl MayRefuse {
    pub(super) fn json(&self) -> String {
        Object::new()
            .text("code", self.code)
            .text("type", &self.problem_type())
            .raw("status", self.status)
            .text("retry_after", self.retry_after.word())
            .text("advice", &self.advice.replace('`', ""))
            .end()
    }

    /// As in the documents that [`Refusal::to_response`] makes.
    pub(super) fn problem_type(&self) -> String {
        format!("/problems/{}", self.code)
    }

    /// Its body as a value of JSON; `None` where the user's own words claim to be JSON, and nobody can tell.
    pub(super) fn example(&self) -> Option<String> {
        let text = std::str::from_utf8(&self.body).ok()?;
        let media_type = self.media_type.as_deref()?;
        let essence = media_type.split(';').next().unwrap_or_default().trim();
        if !(essence.ends_with("/json") || essence.ends_with("+json")) {
            return Some(json::string(text));
        }
        (self.is_own || is_json(text)).then(|| text.to_owned())
    }
}

#[cfg(feature = "json")]
fn is_json(text: &str) -> bool {
    serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok()
}

#[cfg(not(feature = "json"))]
fn is_json(_: &str) -> bool {
    false
}
