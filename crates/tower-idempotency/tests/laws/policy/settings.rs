//! Nothing that a client can notice is left out.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use futures_util::future::BoxFuture;
use http::Method;
use http::header::{ETAG, LOCATION, SERVER, SET_COOKIE};
use serde_json::Value;
use tower_claim::http::{Gate, KeySyntax, Mode, Switch};
use tower_claim::store::{ClaimRequest, Claimed, Event, Promise};
use tower_claim::testing::FaultStore;
use tower_claim::transaction::{BeginWithClaim, TransactionSlot};
use tower_claim::{ClaimStore, LapsePolicy, MemoryStore, Renewal, StoreError};
use tower_idempotency::{
    IdempotencyBuilder, IdempotencyLayer, OnBusy, OnStoreDown, OnWeakKey, Outcome, Reconciled,
    RequestFields, default_grpc_outcome, default_outcome,
};

use super::{builder, json, policy};
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

/// Transactions of a database that is not the layer's store.
struct Elsewhere;

impl BeginWithClaim for Elsewhere {
    fn engine(&self) -> Option<&'static str> {
        Some("postgres")
    }

    fn begin_with_claim<'a>(
        &'a self,
        request: ClaimRequest<'a>,
        slot: &'a TransactionSlot,
    ) -> BoxFuture<'a, Result<Claimed, StoreError>> {
        NoDatabase.begin_with_claim(request, slot)
    }
}

#[tokio::test]
async fn claims_inside_of_another_engine_than_the_store_are_refused_when_built() {
    let layer = IdempotencyLayer::builder(MemoryStore::new()).claim_inside(Elsewhere);
    let refused = layer.build().unwrap_err();
    assert_eq!(refused.setting(), "claim_inside");
    let told = refused.to_string();
    for word in ["`memory`", "`postgres`", "same database"] {
        assert!(told.contains(word), "{told}");
    }
    let untold = IdempotencyLayer::builder(MemoryStore::new()).claim_inside(NoDatabase);
    untold.build().unwrap();
}

type Set = fn(IdempotencyBuilder) -> IdempotencyBuilder;

/// Under anything else nobody waits with a body.
fn waiting(builder: IdempotencyBuilder) -> IdempotencyBuilder {
    builder.on_busy(OnBusy::Wait(ms(5_000)))
}

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
        ("max_waiting_bytes", waiting, |b| b.max_waiting_bytes(7)),
        ("max_in_flight", plain, |b| b.max_in_flight(7)),
        ("max_request_body", plain, |b| b.max_request_body(7)),
        ("max_response_body", plain, |b| b.max_response_body(7)),
        ("header", plain, |b| {
            b.header(http::HeaderName::from_static("x-key"))
        }),
        ("key_syntax", plain, |b| b.key_syntax(KeySyntax::Strict)),
        ("require_key", plain, IdempotencyBuilder::require_key),
        ("derived_key", plain, |b| {
            b.derived_key(|_| "one").one_tenant()
        }),
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
    ("stand_down", "who of two keeps the same answer"),
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

/// Nobody sees the payload of a claim that is not committed.
#[tokio::test]
async fn what_a_reused_key_is_told_of_a_running_request_goes_by_where_the_claim_is() {
    for (inside, builder) in [
        (false, builder()),
        (true, builder().claim_inside(NoDatabase)),
    ] {
        let policy = policy(builder);
        let told = &json(&policy.to_json())["payload"]["told_while_running"];
        assert_eq!(*told, !inside);
        let html = policy.to_html();
        let says = |text: &str| html.contains(text);
        assert_eq!(says("also while the first request runs"), !inside);
        assert_eq!(says("another one under its key may be told"), inside);
        let openapi = json(&policy.to_openapi());
        let conflict = &openapi["components"]["responses"]["Idempotency409"];
        let said = conflict["description"].as_str().unwrap();
        assert_eq!(said.contains("is told apart (422)"), inside, "{said}");
    }
}
