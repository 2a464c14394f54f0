//! What is asked of a request.

use http::HeaderName;
use tower_claim::http::{Gate, KeySyntax, Mode};

use super::Chapter;
use crate::derived::{Derived, Window};
use crate::entry::Source;
use crate::fingerprint::{BodyRules, Bound};
use crate::json::{self, Object};
use crate::policy::words;
use crate::weak::OnWeakKey;

pub(super) fn key(source: &Source, required: bool, on_weak_key: OnWeakKey) -> Chapter {
    let mut chapter = Chapter::new("key", "The key");
    match source {
        Source::Head(source) => match source.header_name().zip(source.syntax()) {
            Some((name, syntax)) => header_key(&mut chapter, name, syntax, on_weak_key),
            None => chapter.tell_word(
                "source",
                "server",
                "The server makes the key from the head of the request. Clients send none.",
            ),
        },
        Source::Fields(derived) => derived_key(&mut chapter, derived),
    }
    let text = if required {
        "A request without a key is refused (400 `key-missing`)."
    } else {
        "A request without a key is not protected: each time it is sent, it runs."
    };
    chapter.tell("required", required, text);
    chapter
}

fn header_key(chapter: &mut Chapter, name: &HeaderName, syntax: KeySyntax, weak: OnWeakKey) {
    let shown = words::header(name);
    chapter.tell_word(
        "source",
        "header",
        "The client makes the key: one for each business intent, sent again with each retry of it.",
    );
    let name = json::string(name.as_str());
    chapter.tell(
        "header",
        name,
        format!("It is sent in the request header {shown}, once."),
    );
    let (word, text) = match syntax {
        KeySyntax::Strict => (
            "strict",
            "It is written as a quoted string (RFC 9651), like `\"8e03978e\"`: 1 to 255 printable ASCII characters.",
        ),
        _ => (
            "lenient",
            "It has 1 to 255 printable ASCII characters, quoted or bare: `\"8e03978e\"` and `8e03978e` are one key.",
        ),
    };
    chapter.tell_word("syntax", word, text);
    let (word, text) = match weak {
        OnWeakKey::Allow => (
            "allow",
            "Any text may be a key. Best is a random one, such as a UUID.",
        ),
        OnWeakKey::Warn => (
            "warn",
            "Draw it at random, such as a UUID. A time, a counter or a plain word is taken, and noted as a fault.",
        ),
        OnWeakKey::Refuse => (
            "refuse",
            "Draw it at random, such as a UUID. A time, a counter or a plain word is refused (400 `key-invalid`).",
        ),
    };
    chapter.tell_word("weak_keys", word, text);
}

fn derived_key(chapter: &mut Chapter, derived: &Derived) {
    let Derived { fields, window } = derived;
    chapter.tell_word(
        "source",
        "fields",
        "The server makes the key from fields of the request. Clients send none.",
    );
    let (json, text) = fields.told();
    chapter.tell(
        "fields",
        json,
        format!("Requests that agree in these are one intent: {text}."),
    );
    match window {
        None => chapter.tell(
            "window_seconds",
            "null",
            "They are one intent whenever they come, as long as the answer is kept.",
        ),
        Some(Window { length, overlap }) => {
            let (every, after) = (words::span(*length), words::span(*overlap));
            chapter.tell(
                "window_seconds",
                words::seconds(*length),
                format!(
                    "They are one intent within a window of {every}, counted from 1970 in UTC."
                ),
            );
            chapter.tell(
                "window_overlap_seconds",
                words::seconds(*overlap),
                format!("For {after} after a window has begun, the one before it still counts."),
            );
        }
    }
}

pub(super) fn scope(is_set: bool, required: bool) -> Chapter {
    let mut chapter = Chapter::new("scope", "Whose key it is");
    let text = if is_set {
        "Keys belong to the caller, as the server tells it from the request: the same key of two callers is two keys."
    } else {
        "All callers share one space of keys: choose keys that nobody else will choose."
    };
    chapter.tell("by_caller", is_set, text);
    let text = if required {
        "A request of which the caller cannot be told is refused (400 `scope-missing`)."
    } else if is_set {
        "Requests of which the caller cannot be told share one space of keys."
    } else {
        ""
    };
    chapter.tell("required", required, text);
    chapter
}

pub(super) fn covered(gate: &Gate) -> Chapter {
    let mut chapter = Chapter::new("requests", "Which requests are protected");
    let methods = gate.named_methods().map(|methods| {
        let names: Vec<_> = methods.iter().map(|method| method.as_str()).collect();
        (
            json::list(names.iter().map(|name| json::string(name))),
            words::list(names),
        )
    });
    let (json, text) = methods.unwrap_or_else(|| ("null".to_owned(), "any".to_owned()));
    chapter.tell("methods", json, format!("Methods: {text}."));
    match gate.named_routes() {
        None => chapter.tell("routes", "null", "Every path behind this layer."),
        Some(routes) => {
            let json = json::list(routes.iter().map(|route| json::string(route)));
            let text = words::list(routes.iter().map(|route| format!("`{route}`")));
            chapter.tell("routes", json, format!("Paths: {text}."));
        }
    }
    let text = if gate.has_predicate() {
        "The server leaves out some of these requests, by a rule of its own."
    } else {
        ""
    };
    chapter.tell("by_rule", gate.has_predicate(), text);
    let (word, text) = match gate.switched() {
        Mode::Off => (
            "off",
            "Just now the protection is switched off: keys are ignored.",
        ),
        Mode::Observe => (
            "observe",
            "Just now the protection only looks on: keys are counted, and nothing is refused or replayed.",
        ),
        _ => ("on", "The protection is on."),
    };
    chapter.tell_word("mode", word, text);
    chapter
}

pub(super) fn payload(bound: &Bound, is_inside: bool) -> Chapter {
    let mut chapter = Chapter::new("payload", "What must not change under one key");
    match bound {
        Bound::Target => chapter.tell_word(
            "compared",
            "target",
            "Method and path. Another body under the same key is answered with the first one's answer.",
        ),
        Bound::Fields(fields) => {
            chapter.tell_word(
                "compared",
                "fields",
                "Method and path, and some fields. Another value in one of them is refused (422 `key-reused`).",
            );
            let (json, text) = fields.told();
            chapter.tell("fields", json, format!("These fields: {text}. Everything else may change."));
        }
        Bound::Payload(rules) => {
            chapter.tell_word(
                "compared",
                "payload",
                "Method, path, query, content type and body. Another one under the same key is refused (422 `key-reused`).",
            );
            body_rules(&mut chapter, *rules);
        }
    }
    // Of a claim that is not committed others know no more than that it is there.
    let text = if is_inside {
        "While the first request runs, another one under its key may be told what its repeats are: 409 `in-progress`."
    } else {
        "That is so also while the first request runs."
    };
    chapter.tell("told_while_running", !is_inside, text);
    chapter
}

fn body_rules(chapter: &mut Chapter, rules: BodyRules) {
    let BodyRules {
        #[cfg(feature = "json")]
        canonical_json,
        multipart,
        content_digest,
    } = rules;
    #[cfg(not(feature = "json"))]
    let canonical_json = false;
    let object = Object::new()
        .raw("canonical_json", canonical_json)
        .raw("multipart_parts", multipart)
        .raw("content_digest", content_digest);
    let mut text = match (canonical_json, multipart) {
        (false, false) => "Every byte of the body counts.",
        (true, false) => "JSON bodies are compared in their canonical form (RFC 8785), others byte by byte.",
        (false, true) => "Multipart bodies are compared part by part, others byte by byte.",
        (true, true) => {
            "JSON bodies are compared in their canonical form (RFC 8785), multipart bodies part by part, others byte by byte."
        }
    }
    .to_owned();
    if content_digest {
        text.push_str(" A body that is not what its `Content-Digest` (SHA-256) says is refused (400 `body-broken`).");
    }
    chapter.tell("body", object.end(), text);
}
