//! What is true of a built layer. Each fact is said once, to machines and to people: no page can know less than
//! another.

mod answers;
mod interruptions;
mod limits;
mod requests;
mod statuses;

use std::time::Duration;

use crate::admit::OnBusy;
use crate::entry::EntryRules;
use crate::json::Object;
use crate::outcome::OutcomeRules;
use crate::shared::Shared;

/// Facts that belong together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Chapter {
    /// The member of the JSON document, and the anchor of the page.
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    pub(super) facts: Vec<Fact>,
}

/// One fact. In the text `…` is code; it is empty where there is nothing to be said to people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fact {
    name: &'static str,
    json: String,
    pub(super) text: String,
}

impl Chapter {
    fn new(name: &'static str, title: &'static str) -> Self {
        Self {
            name,
            title,
            facts: Vec::new(),
        }
    }

    /// Adds a fact: a member with what JSON it is, and the sentence.
    fn tell(&mut self, name: &'static str, json: impl ToString, text: impl Into<String>) {
        self.facts.push(Fact {
            name,
            json: json.to_string(),
            text: text.into(),
        });
    }

    /// A text for machines.
    fn tell_word(&mut self, name: &'static str, word: &str, text: impl Into<String>) {
        self.tell(name, crate::json::string(word), text);
    }

    pub(super) fn json(&self) -> String {
        let facts = self.facts.iter();
        facts
            .fold(Object::new(), |object, fact| {
                object.raw(fact.name, &fact.json)
            })
            .end()
    }
}

/// All of them.
///
/// The settings are taken apart without `..`, here and below: who adds one has to say whether it shows.
pub(super) fn of(shared: &Shared) -> Vec<Chapter> {
    let Shared {
        // Its store is told of.
        keeper,
        engine: _,
        terms,
        // Chance.
        entropy: _,
        entry,
        fingerprint_secret,
        on_busy,
        on_store_down,
        followers,
        retention,
        unfinished_keep,
        quotas,
        max_request_body,
        stream_uploads,
        max_response_body,
        headers,
        outcome,
        tell_status,
        stands_down: _, // who asks is answered alike
        redact,
        sealer,
        on_not_kept,
        reconcile,
        inside,
        existing,
        // Told by what it renders.
        render: _,
        policy_link,
        // What the handler's task carries along is between the host and its handler.
        detached: _,
        max_in_flight,
        // State, not settings.
        in_flight: _,
        counters: _,
        order: _,
        running: _,
    } = shared;
    let EntryRules {
        layer: _,
        gate,
        source,
        on_weak_key,
        require_key,
        scope,
        require_scope,
        // Numbers for the quotas.
        tenants: _,
        // Where the records lie: no client can tell.
        namespace: _,
        bound,
    } = entry;
    let OutcomeRules {
        by_head,
        by_status,
        by_grpc_status,
    } = outcome;
    let capabilities = keeper.store().dyn_capabilities();
    vec![
        requests::key(source, *require_key, *on_weak_key),
        requests::scope(scope.is_some(), *require_scope),
        requests::covered(gate),
        requests::payload(bound, inside.is_some()),
        answers::repeats(*on_busy, on_not_kept.is_some(), existing.count()),
        answers::kept(answers::Kept {
            retention: *retention,
            is_durable: capabilities.durable,
            max_response_body: *max_response_body,
            head_rules: by_head.len(),
            by_status: &**by_status,
            by_grpc_status: &**by_grpc_status,
            headers,
            is_redacted: redact.is_set(),
            is_sealed: sealer.is_some(),
            has_fingerprint_secret: fingerprint_secret.is_some(),
        }),
        answers::markers(*tell_status, policy_link.as_ref()),
        interruptions::interruptions(&interruptions::Interruptions {
            terms,
            asks_a_hook: reconcile.as_ref().map(|_| shared.marker_keep()),
            is_inside: inside.is_some(),
            unfinished_keep: *unfinished_keep,
            on_store_down: *on_store_down,
            store: &capabilities,
        }),
        limits::limits(limits::Limits {
            repeats_wait: *on_busy != OnBusy::Reject,
            max_request_body: *max_request_body,
            stream_uploads: *stream_uploads,
            max_in_flight: *max_in_flight,
            waits: followers.limits(),
            quota: quotas.as_ref().map(|quotas| quotas.limits()),
        }),
    ]
}

/// The expiry, in plain words: the IETF draft on the `Idempotency-Key` field wants it published.
pub(super) fn expiry(retention: Duration, is_durable: bool) -> String {
    let span = super::words::span(retention);
    let earlier = if is_durable {
        ""
    } else {
        ", or until the service restarts"
    };
    format!(
        "An answer is kept for {span} after its request was finished{earlier}. After that its key is forgotten: a request \
         with it runs as if it were new. So stop repeating a request before its key is {span} old."
    )
}
