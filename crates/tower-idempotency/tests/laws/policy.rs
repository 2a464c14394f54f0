//! The published policy: made from the built layer, and never behind it.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::header::{ETAG, LOCATION, SERVER, SET_COOKIE};
use http::{HeaderMap, Method, Request, Response};
use http_body_util::{BodyExt, Full};
use serde_json::Value;
use tower::ServiceExt;
use tower_claim::http::{Gate, KeySyntax, Mode, Switch};
use tower_claim::store::{ClaimRequest, Claimed, Event, Promise};
use tower_claim::testing::FaultStore;
use tower_claim::transaction::{BeginWithClaim, TransactionSlot};
use tower_claim::{ClaimStore, LapsePolicy, MemoryStore, Renewal, StoreError};
use tower_idempotency::{
    IdempotencyBuilder, IdempotencyLayer, KeyLookup, OnBusy, OnStoreDown, OnWeakKey, Outcome,
    Policy, PolicyService, Reconciled, RequestFields, default_grpc_outcome, default_outcome,
};

use crate::support::*;

/// Never begins anything: these layers are only looked at.
struct NoDatabase;

impl BeginWithClaim for NoDatabase {
    fn begin_with_claim<'a>(
        &'a self,
        _: ClaimRequest<'a>,
        _: &'a TransactionSlot,
    ) -> BoxFuture<'a, Result<Claimed, StoreError>> {
        Box::pin(async { Err(StoreError::unavailable("no database")) })
    }
}

type Set = fn(IdempotencyBuilder) -> IdempotencyBuilder;

/// Each setting that a client can notice, once: what goes before it, and the setting.
fn settings() -> Vec<(&'static str, Set, Set)> {
    let plain: Set = |builder| builder;
    let derived: Set = |builder| {
        let fields = RequestFields::new().query("invoice");
        builder.derived_from(fields).one_tenant()
    };
    let mut settings: Vec<(&str, Set, Set)> = vec![
        ("gate", plain, |b| {
            b.gate(Gate::new().methods([Method::POST]))
        }),
        ("gate", plain, |b| b.gate(Gate::new().routes(["/orders/*"]))),
        ("gate", plain, |b| b.gate(Gate::new().when(|_| true))),
        ("gate", plain, |b| {
            b.gate(Gate::new().switch(Switch::new(Mode::Observe)))
        }),
        ("lease", plain, |b| b.lease(ms(5_000))),
        ("renewal", plain, |b| b.renewal(Renewal::Off)),
        ("renewal", plain, |b| {
            let stall_after = ms(60_000);
            b.renewal(Renewal::Progress { stall_after })
        }),
        ("max_hold", plain, |b| b.max_hold(ms(120_000))),
        ("retention", plain, |b| b.retention(ms(3_600_000))),
        ("on_busy", plain, |b| b.on_busy(OnBusy::Wait(ms(5_000)))),
        ("on_store_down", plain, |b| {
            b.on_store_down(OnStoreDown::RunUnprotected)
        }),
        ("fingerprint_secret", plain, |b| {
            b.fingerprint_secret([7; 32])
        }),
        ("max_waiters", plain, |b| b.max_waiters(7)),
        ("max_waiters_per_key", plain, |b| b.max_waiters_per_key(7)),
        ("max_waiting_bytes", plain, |b| b.max_waiting_bytes(7)),
        ("max_in_flight", plain, |b| b.max_in_flight(7)),
        ("max_request_body", plain, |b| b.max_request_body(7)),
        ("max_response_body", plain, |b| b.max_response_body(7)),
        ("header", plain, |b| {
            b.header(http::HeaderName::from_static("x-key"))
        }),
        ("key_syntax", plain, |b| b.key_syntax(KeySyntax::Strict)),
        ("require_key", plain, IdempotencyBuilder::require_key),
        ("derived_key", plain, |b| b.derived_key(|_| "one")),
        ("derived_from", plain, derived),
        ("key_window", derived, |b| b.key_window(ms(60_000), ms(0))),
        (
            "key_window",
            |b| {
                let fields = RequestFields::new().query("invoice");
                let builder = b.derived_from(fields).one_tenant();
                builder.key_window(ms(60_000), ms(0))
            },
            |b| b.key_window(ms(60_000), ms(1_000)),
        ),
        ("on_weak_key", plain, |b| b.on_weak_key(OnWeakKey::Allow)),
        ("on_weak_key", plain, |b| b.on_weak_key(OnWeakKey::Refuse)),
        ("scope", plain, |b| b.scope(|_| "all")),
        (
            "require_scope",
            |b| b.scope(|_| "all"),
            IdempotencyBuilder::require_scope,
        ),
        (
            "first_payload_wins",
            plain,
            IdempotencyBuilder::first_payload_wins,
        ),
        (
            "multipart_parts",
            plain,
            IdempotencyBuilder::multipart_parts,
        ),
        (
            "verify_content_digest",
            plain,
            IdempotencyBuilder::verify_content_digest,
        ),
        (
            "stream_uploads",
            IdempotencyBuilder::verify_content_digest,
            |b| b.stream_uploads(1 << 30),
        ),
        ("fingerprint_fields", plain, |b| {
            b.fingerprint_fields(RequestFields::new().form("amount"))
        }),
        ("on_lapse", plain, |b| b.on_lapse(LapsePolicy::Hold)),
        ("reconcile", plain, |b| {
            b.reconcile(MemoryStore::new(), |_| async { Reconciled::Unknown })
        }),
        ("claim_inside", plain, |b| b.claim_inside(NoDatabase)),
        ("on_unique_violation", plain, |b| {
            b.on_unique_violation("orders_reference_key", |_| async { None })
        }),
        ("unfinished_keep", plain, |b| b.unfinished_keep(ms(60_000))),
        ("max_records_per_tenant", plain, |b| {
            b.one_tenant().max_records_per_tenant(7)
        }),
        ("max_bytes_per_tenant", plain, |b| {
            b.one_tenant().max_bytes_per_tenant(7_000)
        }),
        ("keep_header", plain, |b| b.keep_header(SET_COOKIE)),
        ("keep_headers_only", plain, |b| {
            b.keep_headers_only([ETAG, LOCATION])
        }),
        ("drop_header", plain, |b| b.drop_header(SERVER)),
        ("outcome", plain, |b| {
            b.outcome(|status| match status.as_u16() {
                404 => Outcome::Release,
                _ => default_outcome(status),
            })
        }),
        ("outcome", plain, |b| {
            b.outcome(|status| match status.as_u16() {
                201 => Outcome::Tombstone,
                _ => default_outcome(status),
            })
        }),
        ("outcome_if", plain, |b| b.outcome_if(|_| None)),
        ("grpc_outcome", plain, |b| {
            b.grpc_outcome(|status| match status {
                5 => Outcome::Tombstone,
                _ => default_grpc_outcome(status),
            })
        }),
        ("tell_status", plain, IdempotencyBuilder::tell_status),
        ("on_not_kept", plain, |b| b.on_not_kept(|_| async { None })),
        ("redact", plain, |b| b.redact(|response| response)),
        ("redact_trailers", plain, |b| {
            b.redact_trailers(|trailers| trailers)
        }),
        ("policy_at", plain, |b| b.policy_at("/policy")),
    ];
    #[cfg(feature = "json")]
    settings.push(("canonical_json", plain, IdempotencyBuilder::canonical_json));
    #[cfg(feature = "aead")]
    settings.push(("seal_with", plain, |b| {
        b.seal_with(tower_idempotency::KeyRing::new("a", [7; 32]))
    }));
    settings
}

/// And each that no client can notice, with the reason.
const UNSEEN: &[(&str, &str)] = &[
    ("namespace", "where the records lie"),
    ("named", "what metrics are called"),
    ("one_tenant", "allows other settings"),
    ("unique_violation_by", "between the handler and a hook"),
    ("carry", "between the host and its handlers"),
    ("circuit_breaker", "how soon the same refusal comes"),
    ("clock", "for tests"),
    ("entropy", "for tests"),
    ("run_on", "for tests"),
    ("on_refusal", "shows in the examples of OpenAPI, see below"),
    (
        "trust_forgetful_store",
        "shows over such a store, see below",
    ),
];

fn builder() -> IdempotencyBuilder {
    IdempotencyLayer::builder(MemoryStore::new())
}

fn policy(builder: IdempotencyBuilder) -> Policy {
    builder.build().unwrap().policy()
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// The sources of this crate: their paths below `src`, and texts.
fn sources() -> Vec<(String, String)> {
    fn collect(dir: &Path, into: &mut Vec<(String, String)>) {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                collect(&path, into);
            } else if path.extension().is_some_and(|ending| ending == "rs") {
                let name = path.display().to_string();
                into.push((name, fs::read_to_string(&path).unwrap()));
            }
        }
    }
    let mut sources = Vec::new();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    collect(&root, &mut sources);
    sources
}

#[tokio::test]
async fn each_setting_shows_in_json_and_on_the_page() {
    for (name, before, set) in settings() {
        let (before, after) = (policy(before(builder())), policy(set(before(builder()))));
        json(&after.to_json());
        json(&after.to_openapi());
        assert_ne!(before.to_json(), after.to_json(), "{name}, in JSON");
        assert_ne!(before.to_html(), after.to_html(), "{name}, on the page");
    }
}

#[tokio::test]
async fn trust_in_a_store_that_may_forget_shows() {
    let store = || {
        let forgetful = MemoryStore::new()
            .capabilities()
            .with_weakened(Event::Failover, &[Promise::OneResult]);
        FaultStore::new(MemoryStore::new()).promising(forgetful)
    };
    let wary = policy(IdempotencyLayer::builder(store()));
    let trusting = policy(IdempotencyLayer::builder(store()).trust_forgetful_store());
    let plain = policy(builder());
    for (one, other) in [(&plain, &wary), (&wary, &trusting)] {
        assert_ne!(one.to_json(), other.to_json());
        assert_ne!(one.to_html(), other.to_html());
    }
}

#[test]
#[cfg(all(feature = "json", feature = "aead"))]
fn no_setting_is_left_out() {
    let mut there = BTreeSet::new();
    for (name, text) in sources() {
        if !name.contains("/src/builder/") {
            continue;
        }
        for after in text.split("    pub fn ").skip(1) {
            let (setter, rest) = after.split_once(['(', '<']).unwrap();
            let signature = rest.split_once('{').unwrap().0;
            if signature.contains("mut self") && signature.contains("-> Self") {
                there.insert(setter.to_owned());
            }
        }
    }
    let shown = settings().into_iter().map(|(name, ..)| name.to_owned());
    let unseen = UNSEEN.iter().map(|(name, _)| (*name).to_owned());
    let known: BTreeSet<_> = shown.chain(unseen).collect();
    assert!(there.len() > 40, "{there:?}");
    assert_eq!(
        there, known,
        "say in `settings` or `UNSEEN` whether it shows in the policy"
    );
}

#[tokio::test]
async fn no_refusal_is_left_out() {
    // Of a handler's own, or only looked at.
    const NOT_OURS: &[&str] = &["ALL", "LeaseLost"];
    let mut used = BTreeSet::new();
    for (name, text) in sources() {
        if name.contains("/src/policy/") || name.contains("/src/client/") {
            continue;
        }
        for (before, after) in text.split("Code::").zip(text.split("Code::").skip(1)) {
            if before.ends_with(|c: char| c.is_ascii_alphanumeric()) {
                continue; // another code, such as `StatusCode`
            }
            let end = after.find(|c: char| !c.is_ascii_alphanumeric());
            used.insert(after[..end.unwrap()].to_owned());
        }
    }
    let everything = builder().require_key().scope(|_| "all").require_scope();
    let everything = policy(everything.max_records_per_tenant(1));
    let told = json(&everything.to_json());
    let told: BTreeSet<_> = told["refusals"].as_array().unwrap().iter().collect_codes();
    for code in used {
        let name = kebab(&code);
        assert!(
            NOT_OURS.contains(&&*code) || told.contains(&name),
            "{name} is not in {told:?}"
        );
    }
    let fewer = json(&policy(builder()).to_json());
    let fewer: BTreeSet<_> = fewer["refusals"].as_array().unwrap().iter().collect_codes();
    let only_when_set = ["key-missing", "scope-missing", "quota-exceeded"];
    let difference: Vec<_> = told.difference(&fewer).map(String::as_str).collect();
    assert_eq!(difference.len(), 3);
    assert!(only_when_set.iter().all(|code| difference.contains(code)));
}

trait CollectCodes {
    fn collect_codes(self) -> BTreeSet<String>;
}

impl<'a, I: Iterator<Item = &'a Value>> CollectCodes for I {
    fn collect_codes(self) -> BTreeSet<String> {
        self.map(|r| r["code"].as_str().unwrap().to_owned())
            .collect()
    }
}

/// `KeyMissing` as `key-missing`.
fn kebab(name: &str) -> String {
    let mut out = String::new();
    for (i, c) in name.char_indices() {
        if c.is_ascii_uppercase() && i > 0 {
            out.push('-');
        }
        out.push(c.to_ascii_lowercase());
    }
    out
}

#[tokio::test]
async fn the_expiry_is_told_in_plain_words_everywhere() {
    let policy = policy(builder().retention(ms(90 * 60_000)));
    let words = "An answer is kept for 90 minutes after its request was finished, or until the service restarts. After that its key is \
                 forgotten: a request with it runs as if it were new. So stop repeating a request before its key is \
                 90 minutes old.";
    assert_eq!(policy.expiry(), words);
    assert!(policy.to_html().contains(words));
    assert_eq!(json(&policy.to_json())["expiry"], words);
    let openapi = json(&policy.to_openapi());
    let parameter = &openapi["components"]["parameters"]["IdempotencyKey"];
    assert!(parameter["description"].as_str().unwrap().contains(words));
}

/// Every reference leads somewhere.
fn references(value: &Value, root: &Value, seen: &mut usize) {
    match value {
        Value::Object(members) => {
            if let Some(Value::String(to)) = members.get("$ref") {
                let pointer = to.strip_prefix('#').unwrap();
                assert!(root.pointer(pointer).is_some(), "{to} leads nowhere");
                *seen += 1;
            }
            members.values().for_each(|v| references(v, root, seen));
        }
        Value::Array(items) => items.iter().for_each(|v| references(v, root, seen)),
        _ => {}
    }
}

#[tokio::test]
async fn the_fragment_of_openapi_holds_together() {
    let full = builder().require_key().scope(|_| "all").require_scope();
    let full = full.max_records_per_tenant(1).tell_status();
    let full = json(&policy(full.policy_at("/policy")).to_openapi());
    let bare = json(&policy(builder().derived_key(|_| "one")).to_openapi());
    for openapi in [&full, &bare] {
        assert_eq!(openapi["openapi"], "3.1.0");
        let mut seen = 0;
        references(openapi, openapi, &mut seen);
        assert!(seen > 10, "{seen}");
    }
    assert!(bare["components"].get("parameters").is_none());

    let components = &full["components"];
    assert_eq!(components["parameters"]["IdempotencyKey"]["required"], true);
    let operation = &components["pathItems"]["Idempotent"]["post"];
    let statuses: Vec<_> = operation["responses"].as_object().unwrap().keys().collect();
    assert_eq!(
        statuses,
        ["2XX", "400", "409", "413", "422", "429", "500", "503"]
    );
    for status in ["409", "429", "503"] {
        let response = &components["responses"][&format!("Idempotency{status}")];
        for header in ["Retry-After", "Link", "Idempotency-Status"] {
            assert!(response["headers"].get(header).is_some(), "{header}");
        }
    }
    for status in ["400", "413", "422", "500"] {
        let response = &components["responses"][&format!("Idempotency{status}")];
        assert!(response["headers"].get("Retry-After").is_none(), "{status}");
    }
    let headers = &components["headers"];
    for name in ["Idempotent-Replayed", "Idempotency-First-Seen"] {
        assert!(headers.get(name).is_some(), "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_examples_are_what_is_sent() {
    let app = App::new();
    let layer = app.builder().require_key().build().unwrap();
    let service = app.under(&layer);
    let openapi = json(&layer.policy().to_openapi());
    let example = |status: u16, code: &str| {
        let content = format!("/components/responses/Idempotency{status}/content");
        let content = openapi.pointer(&content).unwrap();
        content["application/problem+json"]["examples"][code]["value"].clone()
    };
    let ask = post("/orders").key("k").flags("delay=1000");
    let first = tokio::spawn({
        let (ask, service) = (ask.clone(), service.clone());
        async move { ask.send(&service).await }
    });
    tokio::time::sleep(ms(100)).await;
    let busy = ask.send(&service).await;
    assert!(busy.retry_after().is_some());
    assert_eq!(json(busy.text()), example(409, "in-progress"));
    first.await.unwrap();
    let reused = ask.body("another").send(&service).await;
    assert_eq!(json(reused.text()), example(422, "key-reused"));
    let missing = json(post("/orders").send(&service).await.text());
    let told = example(400, "key-missing");
    for member in ["type", "title", "status", "code"] {
        assert_eq!(missing[member], told[member], "{member}");
    }
}

#[tokio::test]
async fn refusals_in_other_words_are_shown_in_these_words() {
    let renamed = builder().on_refusal(|refusal, response| {
        let text = format!("no: {}", refusal.code().name());
        Response::builder()
            .status(response.status())
            .header("content-type", "text/plain")
            .body(Bytes::from(text))
            .unwrap()
    });
    let openapi = json(&policy(renamed).to_openapi());
    let content = &openapi["components"]["responses"]["Idempotency422"]["content"];
    assert!(content.get("application/problem+json").is_none());
    let examples = &content["text/plain"]["examples"];
    assert_eq!(examples["key-reused"]["value"], "no: key-reused");

    let touchy = builder().on_refusal(|_, _| panic!("told to"));
    let openapi = json(&policy(touchy).to_openapi());
    let content = &openapi["components"]["responses"]["Idempotency422"]["content"];
    assert!(content.get("application/problem+json").is_some());
}

async fn ask(service: &PolicyService, uri: &str, headers: &[(&str, &str)]) -> Response<Bytes> {
    let mut request = Request::get(uri);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    of(service, request.body(()).unwrap()).await
}

async fn of(service: &PolicyService, request: Request<()>) -> Response<Bytes> {
    let response = service.clone().oneshot(request).await.unwrap();
    let (parts, body) = response.into_parts();
    let body: Full<Bytes> = body;
    Response::from_parts(parts, body.collect().await.unwrap().to_bytes())
}

fn kind(response: &Response<Bytes>) -> &str {
    let media_type = response.headers()["content-type"].to_str().unwrap();
    media_type.split(';').next().unwrap()
}

#[tokio::test]
async fn the_service_serves_what_is_liked_best() {
    let service = PolicyService::new(&builder().build().unwrap());
    const HTML: &str = "text/html";
    const JSON: &str = "application/json";
    const OPENAPI: &str = "application/vnd.oai.openapi+json";
    for (accept, media_type) in [
        ("", HTML),
        ("*/*", HTML),
        ("text/html,application/xhtml+xml,*/*;q=0.8", HTML),
        ("application/json", JSON),
        ("application/*", JSON),
        ("application/json;q=0.5, text/html;q=0.4", JSON),
        ("application/json;q=0.4, text/*;q=0.5", HTML),
        ("APPLICATION/JSON", JSON),
        (OPENAPI, OPENAPI),
        ("text/html;q=0, application/vnd.oai.openapi+json", OPENAPI),
        ("image/png", HTML),
        ("application/json;q=x", HTML),
    ] {
        let answer = ask(&service, "/policy", &[("accept", accept)]).await;
        assert_eq!(
            (answer.status().as_u16(), kind(&answer)),
            (200, media_type),
            "{accept}"
        );
        assert_eq!(answer.headers()["vary"], "accept");
    }
    for (format, media_type) in [("html", HTML), ("json", JSON), ("openapi", OPENAPI)] {
        let uri = format!("/policy?x=1&format={format}");
        let answer = ask(&service, &uri, &[("accept", "image/png")]).await;
        assert_eq!(kind(&answer), media_type);
    }
    assert_eq!(ask(&service, "/?format=yaml", &[]).await.status(), 404);
    let post = Request::post("/policy").body(()).unwrap();
    let refused = of(&service, post).await;
    assert_eq!(refused.status(), 405);
    assert_eq!(refused.headers()["allow"], "GET, HEAD");
}

#[tokio::test]
async fn who_has_the_policy_is_told_so() {
    let service = PolicyService::new(&builder().build().unwrap());
    let first = ask(&service, "/", &[]).await;
    let tag = first.headers()["etag"].to_str().unwrap();
    let weak = format!("\"x\", W/{tag}");
    for known in [tag, &weak, "*"] {
        let again = ask(&service, "/", &[("if-none-match", known)]).await;
        assert_eq!(again.status(), 304);
        assert!(again.body().is_empty());
        assert_eq!(again.headers()["etag"], tag);
    }
    let other = ask(&service, "/?format=json", &[("if-none-match", tag)]).await;
    assert_eq!(other.status(), 200);
}

#[tokio::test]
async fn the_policy_follows_the_switch() {
    let switch = Switch::new(Mode::On);
    let gate = Gate::new().switch(switch.clone());
    let service = PolicyService::new(&builder().gate(gate).build().unwrap());
    for (mode, word) in [
        (Mode::Off, "off"),
        (Mode::Observe, "observe"),
        (Mode::On, "on"),
    ] {
        switch.set(mode);
        let answer = ask(&service, "/?format=json", &[]).await;
        assert_eq!(
            json(std::str::from_utf8(answer.body()).unwrap())["requests"]["mode"],
            word
        );
    }
}

#[tokio::test]
async fn the_page_loads_nothing_and_can_be_read_by_ear() {
    let layer = builder().policy_at("https://a.example/?a=1&b=<").build();
    assert_eq!(layer.unwrap_err().setting(), "policy_at");
    let layer = builder()
        .policy_at("https://a.example/?a=1&b=2")
        .gate(Gate::new().routes(["/<script>alert(1)</script>"]))
        .build()
        .unwrap();
    let answer = ask(&PolicyService::new(&layer), "/", &[]).await;
    let page = std::str::from_utf8(answer.body()).unwrap();
    for loads in ["<script", "src=", "<link", "@import", "url(", "<img"] {
        assert!(!page.contains(loads), "{loads}");
    }
    assert!(page.contains("&lt;script&gt;"));
    assert!(page.contains("a=1&amp;b=2"));
    assert!(page.starts_with("<!DOCTYPE html>\n<html lang=\"en\">"));
    assert!(page.contains("<meta name=\"viewport\""));
    assert_eq!(page.matches("<h1>").count(), 1);
    // Every section has its name, every anchor its place, every column and row its head.
    let ids: BTreeSet<_> = quoted(page, " id=\"").collect();
    assert_eq!(ids.len(), page.matches(" id=\"").count());
    for to in quoted(page, " aria-labelledby=\"").chain(quoted(page, " href=\"#")) {
        assert!(ids.contains(to), "{to}");
    }
    assert_eq!(
        page.matches("<section ").count(),
        page.matches("<h2 ").count()
    );
    assert_eq!(page.matches("scope=\"col\"").count(), 4);
    assert_eq!(
        page.matches("<tr role=\"row\" id=").count(),
        page.matches(" scope=\"row\">").count()
    );
    for tag in [
        "section", "ul", "li", "table", "tr", "td", "th", "code", "p", "main", "nav",
    ] {
        let opened =
            page.matches(&format!("<{tag}>")).count() + page.matches(&format!("<{tag} ")).count();
        assert_eq!(opened, page.matches(&format!("</{tag}>")).count(), "{tag}");
    }
    // The style sheet is the one that may be used.
    let style = page
        .split("<style>")
        .nth(1)
        .unwrap()
        .split("</style>")
        .next()
        .unwrap();
    let allowed = answer.headers()["content-security-policy"]
        .to_str()
        .unwrap();
    assert!(
        allowed.contains(&format!("'sha256-{}'", sha256_base64(style))),
        "{allowed}"
    );
    assert_eq!(answer.headers()["x-content-type-options"], "nosniff");
}

fn quoted<'a>(page: &'a str, before: &'a str) -> impl Iterator<Item = &'a str> {
    page.split(before)
        .skip(1)
        .map(|rest| rest.split('"').next().unwrap())
}

fn sha256_base64(text: &str) -> String {
    use sha2::{Digest, Sha256};
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let digest = Sha256::digest(text);
    // 32 bytes: ten threes, and two bytes left.
    let mut bits = digest
        .iter()
        .flat_map(|byte| (0..8).rev().map(move |bit| byte >> bit & 1));
    let mut out = String::new();
    loop {
        let six: Vec<_> = bits.by_ref().take(6).collect();
        if six.is_empty() {
            break;
        }
        let value = (0..6).fold(0, |value, i| value << 1 | six.get(i).copied().unwrap_or(0));
        out.push(char::from(ALPHABET[usize::from(value)]));
    }
    while !out.len().is_multiple_of(4) {
        out.push('=');
    }
    out
}

fn describes(headers: &HeaderMap) -> Vec<&str> {
    let links = headers.get_all("link").iter();
    links.map(|link| link.to_str().unwrap()).collect()
}

#[tokio::test(start_paused = true)]
async fn refusals_link_to_the_policy_and_answers_do_not() {
    let app = App::new();
    const LINK: &str = "</policy>; rel=\"describedby\"";
    let layer = app
        .builder()
        .require_key()
        .policy_at("/policy")
        .build()
        .unwrap();
    let service = app.under(&layer);
    let refused = post("/orders").send(&service).await;
    assert_eq!(describes(&refused.headers), [LINK]);
    let ask = post("/orders").key("k");
    let first = ask.send(&service).await;
    assert_eq!(describes(&first.headers), ["</a>; rel=a", "</b>; rel=b"]);
    let replay = ask.send(&service).await;
    assert_eq!(describes(&replay.headers), ["</a>; rel=a", "</b>; rel=b"]);
    let reused = ask.body("another").send(&service).await;
    assert_eq!(describes(&reused.headers), [LINK]);
    let lookup = KeyLookup::new(&layer);
    let missing = lookup
        .oneshot(Request::get("/").body(()).unwrap())
        .await
        .unwrap();
    assert_eq!(describes(missing.headers()), [LINK]);

    let unlinked = app.under(&app.builder().require_key().build().unwrap());
    let refused = post("/orders").send(&unlinked).await;
    assert_eq!(describes(&refused.headers), [""; 0]);
}
