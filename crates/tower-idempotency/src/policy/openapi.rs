//! The policy as a fragment of OpenAPI 3.1.

use std::collections::BTreeMap;

use http::{HeaderName, Method};

use super::refusals::{MayRefuse, RetryAfter};
use super::words;
use super::{MADE_BY, Policy, Usage};
use crate::json::{self, Object};
use crate::reply::{FIRST_SEEN, REPLAYED, STATUS, Status};

/// The methods that a path item of OpenAPI knows.
const OPERATIONS: [Method; 8] = [
    Method::GET,
    Method::PUT,
    Method::POST,
    Method::DELETE,
    Method::OPTIONS,
    Method::HEAD,
    Method::PATCH,
    Method::TRACE,
];

/// The refusals of one status.
type ByStatus<'a> = BTreeMap<u16, Vec<&'a MayRefuse>>;

pub(super) fn fragment(policy: &Policy) -> String {
    let mut by_status = ByStatus::new();
    for refusal in &policy.refusals {
        by_status.entry(refusal.status).or_default().push(refusal);
    }
    let usage = &policy.usage;
    let responses = by_status
        .iter()
        .fold(Object::new(), |object, (status, refusals)| {
            object.raw(&response_name(*status), response(refusals, usage))
        });
    let components = match &usage.header {
        Some(header) => {
            let parameter = parameter(policy, header);
            let parameters = Object::new().raw("IdempotencyKey", parameter);
            Object::new().raw("parameters", parameters.end())
        }
        None => Object::new(),
    };
    let components = components
        .raw("headers", headers(usage))
        .raw("responses", responses.end())
        .raw("schemas", schemas(&policy.refusals))
        .raw("pathItems", path_items(usage, &by_status));
    let info = Object::new()
        .text("title", "Idempotency")
        .text("version", "1")
        .text(
            "description",
            &format!("{} Made by {MADE_BY}.", policy.expiry()),
        );
    let document = Object::new()
        .text("openapi", "3.1.0")
        .raw("info", info.end())
        .raw("components", components.end());
    match &usage.address {
        Some(address) => {
            let docs = Object::new()
                .text("description", "The idempotency policy")
                .text("url", address);
            document.raw("externalDocs", docs.end())
        }
        None => document,
    }
    .end()
}

fn response_name(status: u16) -> String {
    format!("Idempotency{status}")
}

fn reference(section: &str, name: &str) -> String {
    let to = format!("#/components/{section}/{name}");
    Object::new().text("$ref", &to).end()
}

fn parameter(policy: &Policy, header: &HeaderName) -> String {
    let usage = &policy.usage;
    let (syntax, example) = if usage.is_strict {
        (
            "A quoted string (RFC 9651) of 1 to 255 printable ASCII characters.",
            "\"8e03978e-40d5-43dd-bc93-6894a57f9324\"",
        )
    } else {
        (
            "1 to 255 printable ASCII characters, quoted or bare.",
            "8e03978e-40d5-43dd-bc93-6894a57f9324",
        )
    };
    let description = format!(
        "Names one business intent: a random value, sent again with each retry. {syntax} {}",
        policy.expiry()
    );
    let schema = Object::new().text("type", "string").raw("minLength", 1);
    let schema = if usage.is_strict {
        schema.text("pattern", STRICT_KEY)
    } else {
        schema
    };
    Object::new()
        .text("name", &words::title_case(header))
        .text("in", "header")
        .raw("required", usage.is_required)
        .text("description", &description)
        .raw("schema", schema.end())
        .text("example", example)
        .end()
}

/// A structured field string (RFC 9651, 3.3.3), and perhaps parameters.
const STRICT_KEY: &str = r#"^"([\x20-\x21\x23-\x5B\x5D-\x7E]|\\["\\])+"( *;.*)?$"#;

fn headers(usage: &Usage) -> String {
    let header = |description: &str, schema: Object| {
        Object::new()
            .text("description", description)
            .raw("schema", schema.end())
            .end()
    };
    let text = || Object::new().text("type", "string");
    let replayed = text().raw("enum", r#"["true"]"#);
    let seconds = Object::new()
        .text("type", "integer")
        .raw("minimum", 1)
        .raw("maximum", 60);
    let headers = Object::new()
        .raw(
            &words::title_case(&REPLAYED),
            header(
                "The answer comes from the record of an earlier request: nothing ran.",
                replayed,
            ),
        )
        .raw(
            &words::title_case(&FIRST_SEEN),
            header(
                "On a replay: the HTTP date at which the first request was seen.",
                text(),
            ),
        )
        .raw("Retry-After", header("Whole seconds.", seconds));
    let headers = if usage.may_tell_status {
        let words = Status::ALL.map(Status::as_str).join(", ");
        let how = format!("How the answer came about: {words}, or the code of a refusal.");
        headers.raw(&words::title_case(&STATUS), header(&how, text()))
    } else {
        headers
    };
    match usage.address {
        Some(_) => headers.raw(
            "Link",
            header("The idempotency policy, as `describedby`.", text()),
        ),
        None => headers,
    }
    .end()
}

fn response(refusals: &[&MayRefuse], usage: &Usage) -> String {
    let said = refusals.iter().map(|refusal| {
        let advice = refusal.advice;
        format!("`{}`: {}. {advice}", refusal.code, refusal.title)
    });
    let said: Vec<_> = said.collect();
    let mut headers = Object::new();
    if refusals
        .iter()
        .any(|refusal| refusal.retry_after != RetryAfter::Never)
    {
        headers = headers.raw("Retry-After", reference("headers", "Retry-After"));
    }
    if usage.address.is_some() {
        headers = headers.raw("Link", reference("headers", "Link"));
    }
    if usage.tells_status {
        let name = words::title_case(&STATUS);
        headers = headers.raw(&name, reference("headers", &name));
    }
    Object::new()
        .text("description", &said.join("\n\n"))
        .raw("headers", headers.end())
        .raw("content", content(refusals))
        .end()
}

/// By media type: the user's own words may have more than one.
fn content(refusals: &[&MayRefuse]) -> String {
    let mut by_type = BTreeMap::<&str, Vec<&MayRefuse>>::new();
    for refusal in refusals {
        if let Some(media_type) = refusal.media_type.as_deref() {
            by_type.entry(media_type).or_default().push(refusal);
        }
    }
    let content = by_type
        .into_iter()
        .fold(Object::new(), |content, (media_type, refusals)| {
            let examples = refusals.iter().fold(Object::new(), |examples, refusal| {
                let Some(value) = refusal.example() else {
                    return examples;
                };
                let example = Object::new()
                    .text("summary", refusal.title)
                    .raw("value", value);
                examples.raw(refusal.code, example.end())
            });
            let entry = Object::new();
            let entry = if media_type == "application/problem+json" {
                let codes = json::list(refusals.iter().map(|refusal| json::string(refusal.code)));
                let types = json::list(
                    refusals
                        .iter()
                        .map(|refusal| json::string(&refusal.problem_type())),
                );
                let narrowed = Object::new()
                    .raw("code", Object::new().raw("enum", codes).end())
                    .raw("type", Object::new().raw("enum", types).end());
                let narrowed = Object::new().raw("properties", narrowed.end()).end();
                let both = json::list([reference("schemas", "IdempotencyProblem"), narrowed]);
                entry.raw("schema", Object::new().raw("allOf", both).end())
            } else {
                entry
            };
            content.raw(media_type, entry.raw("examples", examples.end()).end())
        });
    content.end()
}

fn schemas(refusals: &[MayRefuse]) -> String {
    let described = |description: &str| {
        Object::new()
            .text("type", "string")
            .text("description", description)
    };
    let codes = json::list(refusals.iter().map(|refusal| json::string(refusal.code)));
    let status = Object::new().text("type", "integer");
    let members = Object::new()
        .raw(
            "type",
            described("A reference that tells the kinds of refusals apart.").end(),
        )
        .raw("title", described("The kind, for people.").end())
        .raw("status", status.end())
        .raw(
            "code",
            described("The kind, for machines.")
                .raw("enum", codes)
                .end(),
        )
        .raw(
            "detail",
            described("What happened this time, for people.").end(),
        )
        .raw(
            "reason",
            described("What tells apart refusals of one kind.").end(),
        );
    let problem = Object::new()
        .text(
            "description",
            "A refusal (RFC 9457). Nothing but this layer answers so.",
        )
        .text("type", "object")
        .raw("required", r#"["type","title","status","code"]"#)
        .raw("properties", members.end());
    Object::new().raw("IdempotencyProblem", problem.end()).end()
}

/// How an operation refers to all that.
fn path_items(usage: &Usage, by_status: &ByStatus<'_>) -> String {
    let covered = |method: &&Method| {
        let methods = usage.methods.as_ref();
        methods.is_none_or(|methods| methods.contains(method))
    };
    let mut markers = vec![REPLAYED, FIRST_SEEN];
    if usage.may_tell_status {
        markers.push(STATUS);
    }
    let headers = markers.iter().fold(Object::new(), |headers, name| {
        let name = words::title_case(name);
        headers.raw(&name, reference("headers", &name))
    });
    let kept = Object::new()
        .text("description", "The answer of the operation, or its replay.")
        .raw("headers", headers.end());
    let responses = Object::new().raw("2XX", kept.end());
    let responses = by_status.keys().fold(responses, |responses, status| {
        let name = response_name(*status);
        responses.raw(&status.to_string(), reference("responses", &name))
    });
    let responses = responses.end();
    let item = OPERATIONS
        .iter()
        .filter(covered)
        .fold(Object::new(), |item, method| {
            let operation = match usage.header {
                Some(_) => {
                    let parameter = reference("parameters", "IdempotencyKey");
                    Object::new().raw("parameters", json::list([parameter]))
                }
                None => Object::new(),
            };
            let operation = operation.raw("responses", &responses);
            item.raw(&method.as_str().to_ascii_lowercase(), operation.end())
        });
    Object::new().raw("Idempotent", item.end()).end()
}
