//! The policy of a layer: what a client has to know, made from how the layer was built.

mod facts;
mod html;
mod link;
mod openapi;
mod refusals;
mod service;
mod words;

use http::{HeaderName, Method};

use crate::entry::Source;
use crate::json::{self, Object};
use crate::layer::IdempotencyLayer;
use crate::shared::Shared;
use facts::Chapter;
use refusals::MayRefuse;

pub(crate) use link::PolicyLink;
pub use service::{PolicyFuture, PolicyService};

/// The policy of a layer, as clients need it: how a key is made and sent, what must not change under it, what repeats
/// are answered, **how long a key is remembered**, what is refused and what to do then. The IETF draft on the
/// `Idempotency-Key` field demands that a server publishes it.
///
/// It is made from the built layer, never written by hand: rules that are functions are asked about every status,
/// refusals are shown as the layer sends them. What a function of yours does beyond that (a gate's predicate, a rule by
/// the head of an answer) it can only say to be there.
///
/// [`PolicyService`] serves it.
///
/// ```
/// use std::time::Duration;
/// use tower_claim::MemoryStore;
/// use tower_idempotency::IdempotencyLayer;
///
/// let once = IdempotencyLayer::builder(MemoryStore::new())
///     .retention(Duration::from_secs(7 * 24 * 3600))
///     .build()?;
/// let policy = once.policy();
/// assert!(policy.expiry().starts_with("An answer is kept for 7 days after its request was finished"));
/// assert!(policy.to_json().contains(r#""retention_seconds":604800"#));
/// assert!(policy.to_html().starts_with("<!DOCTYPE html>"));
/// assert!(policy.to_openapi().contains(r#""name":"Idempotency-Key""#));
/// # Ok::<(), tower_claim::ConfigError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    usage: Usage,
    expiry: String,
    chapters: Vec<Chapter>,
    refusals: Vec<MayRefuse>,
}

/// What a document for machines needs beside the facts.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Usage {
    /// Where the client makes the key.
    header: Option<HeaderName>,
    is_strict: bool,
    is_required: bool,
    /// `None`: all.
    methods: Option<Vec<Method>>,
    /// On some answer, at least.
    may_tell_status: bool,
    tells_status: bool,
    address: Option<String>,
}

impl IdempotencyLayer {
    /// The policy of this layer, as it stands now: the gate's switch is in it.
    pub fn policy(&self) -> Policy {
        Policy::of(self.shared())
    }
}

impl Policy {
    fn of(shared: &Shared) -> Self {
        let source = match &shared.entry.source {
            Source::Head(source) => Some(source),
            Source::Fields(_) => None,
        };
        let syntax = source.and_then(|source| source.syntax());
        let methods = shared.entry.gate.named_methods();
        let is_durable = shared.keeper.store().dyn_capabilities().durable;
        Self {
            usage: Usage {
                header: source.and_then(|source| source.header_name()).cloned(),
                is_strict: syntax == Some(tower_claim::http::KeySyntax::Strict),
                is_required: shared.entry.require_key,
                methods: methods.map(<[Method]>::to_vec),
                may_tell_status: shared.may_tell_status(),
                tells_status: shared.tell_status,
                address: shared
                    .policy_link
                    .as_ref()
                    .map(|link| link.uri().to_owned()),
            },
            expiry: facts::expiry(shared.retention, is_durable),
            chapters: facts::of(shared),
            refusals: refusals::of(shared),
        }
    }

    /// How long a key is remembered, in plain words.
    pub fn expiry(&self) -> &str {
        &self.expiry
    }

    /// As JSON (`application/json`): one member for each chapter, `expiry` in words, `refusals`. Members may be added.
    pub fn to_json(&self) -> String {
        let object = Object::new()
            .text("policy", "idempotency")
            .text("made_by", MADE_BY)
            .text("expiry", self.expiry());
        let chapters = self.chapters.iter();
        let object = chapters.fold(object, |object, chapter| {
            object.raw(chapter.name, chapter.json())
        });
        let refusals = json::list(self.refusals.iter().map(MayRefuse::json));
        object.raw("refusals", refusals).end()
    }

    /// As a page for people (`text/html; charset=utf-8`). It loads nothing.
    pub fn to_html(&self) -> String {
        html::page(self)
    }

    /// As a fragment of OpenAPI 3.1 (`application/vnd.oai.openapi+json;version=3.1`): a valid document with nothing but
    /// `components`, to be referred to or merged. `parameters/IdempotencyKey`, where clients send one; the responses of
    /// refusals by status, `responses/Idempotency409` and so on, with their problem types, examples and `Retry-After`;
    /// the markers of replays under `headers`; and `pathItems/Idempotent`, which shows how operations refer to them.
    pub fn to_openapi(&self) -> String {
        openapi::fragment(self)
    }
}

const MADE_BY: &str = concat!(env!("CARGO_PKG_NAME"), " ", env!("CARGO_PKG_VERSION"));
