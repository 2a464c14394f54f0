//! Settings: keys and scopes.

use std::sync::Arc;
use std::time::Duration;

use http::HeaderName;
use http::request::Parts;
use tower_claim::http::{IntoBusinessKey, KeySource, KeySyntax};

use super::IdempotencyBuilder;
use crate::derived::{Derived, Window};
use crate::entry::Source;
use crate::fields::RequestFields;
use crate::scope::IntoScope;
use crate::weak::OnWeakKey;

/// # Keys and scopes
impl IdempotencyBuilder {
    /// The request header that carries the key. Default: `Idempotency-Key`.
    pub fn header(mut self, name: HeaderName) -> Self {
        self.header = name;
        self
    }

    /// How the key header is read. Default: [`KeySyntax::Lenient`].
    pub fn key_syntax(mut self, syntax: KeySyntax) -> Self {
        self.syntax = syntax;
        self
    }

    /// Refuses a request without a key (400 `key-missing`). Default: it passes, unguarded.
    pub fn require_key(mut self) -> Self {
        self.entry.require_key = true;
        self
    }

    /// Derives the key on the server instead of reading a header: named fields, text or a number. `None`
    /// is a request without a key. Default: the header.
    ///
    /// Derived keys are for intents that exist once by themselves ("the announcement of this classroom",
    /// "the invoice of this month"), not for "two orders that look alike". They belong together with a
    /// unique index in the database. The tenant is part of the key by the [scope](Self::scope), which must be set, or
    /// there is [one](Self::one_tenant).
    ///
    /// Read names from the path by [`path_segment`](tower_claim::http::path_segment) (or take
    /// [`derived_from`](Self::derived_from), which decodes, too). In the raw `uri.path()` the classrooms `77` and
    /// `%37%37` are two keys, while a handler's `Path` is the same: the announcement would be sent twice. Decoded, they are
    /// one key, and the second spelling is another payload under it (422 `key-reused`).
    ///
    /// ```
    /// use tower_claim::MemoryStore;
    /// use tower_claim::http::{KeyFields, path_segment};
    /// use tower_idempotency::IdempotencyLayer;
    ///
    /// let classroom = path_segment("/classrooms/{room}/announcement")?;
    /// let once_per_classroom = IdempotencyLayer::builder(MemoryStore::new())
    ///     .derived_key(move |req| Some(KeyFields::new().field("classroom", classroom(req)?)))
    ///     .one_tenant()
    ///     .first_payload_wins()
    ///     .build()?;
    /// # let _ = once_per_classroom;
    /// # Ok::<(), tower_claim::ConfigError>(())
    /// ```
    pub fn derived_key<F, K>(mut self, key: F) -> Self
    where
        F: Fn(&Parts) -> K + Send + Sync + 'static,
        K: IntoBusinessKey,
    {
        self.source = Some(Source::Head(KeySource::function(key)));
        self
    }

    /// Derives the key from named fields: of the path, the query, headers, a JSON document, a form, a protobuf
    /// message. A request in which one of them is absent has no key; one in which one is malformed is refused
    /// (400 `key-invalid`). Default: the header.
    ///
    /// Where a field is in the body, the body of every request that passes the [gate](Self::gate) is read, up to
    /// [`max_request_body`](Self::max_request_body), also of those that turn out to have no key.
    ///
    /// As with [`derived_key`](Self::derived_key), this is for intents that exist once by themselves, and
    /// belongs together with a unique index in the database. The tenant is part of the key by the
    /// [scope](Self::scope), which must be set.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_claim::MemoryStore;
    /// use tower_idempotency::{IdempotencyLayer, RequestFields};
    ///
    /// // One reminder for each customer and invoice in a day, whoever asks and however often.
    /// let once_a_day = IdempotencyLayer::builder(MemoryStore::new())
    ///     .derived_from(RequestFields::new().path("/customers/{customer}/reminders").form("invoice"))
    ///     .key_window(Duration::from_secs(24 * 3600), Duration::from_secs(60))
    ///     .scope(|req| req.headers.get("x-tenant")?.to_str().ok().map(str::to_owned))
    ///     .require_scope()
    ///     .build()?;
    /// # let _ = once_a_day;
    /// # Ok::<(), tower_claim::ConfigError>(())
    /// ```
    pub fn derived_from(mut self, fields: RequestFields) -> Self {
        self.source = Some(Source::Fields(Derived {
            fields,
            window: None,
        }));
        self
    }

    /// Makes the window of time part of a key that is [derived](Self::derived_from): time is cut into windows
    /// of this length, counted from 1970 in UTC, and the same fields are another intent in the next one. For
    /// `overlap` after a window has begun, a record of the last one goes on to count, so that a repeat at the
    /// border is a repeat: of one that ended less than `overlap` before the window did, or runs, and with the same
    /// payload. Default: no windows.
    ///
    /// Answers are [kept](Self::retention) for `length` and `overlap` together at least.
    ///
    /// Goes by the wall clock of this machine. Two first requests that meet the border at the same moment may
    /// both run: what must not happen twice needs its unique index.
    pub fn key_window(mut self, length: Duration, overlap: Duration) -> Self {
        self.window = Some(Window { length, overlap });
        self
    }

    /// Says that there is one tenant, so that a key that is [derived](Self::derived_key) needs no scope.
    /// Default: such a key without a [scope](Self::scope) is refused when the layer is built, since two tenants
    /// may have fields alike.
    pub fn one_tenant(mut self) -> Self {
        self.one_tenant = true;
        self
    }

    /// What is done with a client's key that looks like a time, a counter or a plain word. Default:
    /// [`OnWeakKey::Warn`].
    ///
    /// ```
    /// use tower_claim::MemoryStore;
    /// use tower_idempotency::{IdempotencyLayer, OnWeakKey};
    ///
    /// let layer = IdempotencyLayer::builder(MemoryStore::new())
    ///     .on_weak_key(OnWeakKey::Refuse)
    ///     .build()?;
    /// # let _ = layer;
    /// # Ok::<(), tower_claim::ConfigError>(())
    /// ```
    pub fn on_weak_key(mut self, on_weak_key: OnWeakKey) -> Self {
        self.entry.on_weak_key = on_weak_key;
        self
    }

    /// Whose request it is: text or a number, or `None` where it cannot be told; owned (`.map(str::to_owned)`), since
    /// nothing borrowed from the request outlives it. Keys of two scopes never
    /// meet. Take it from what an authentication layer outside has verified. Default: one scope for all.
    ///
    /// ```
    /// use tower_claim::MemoryStore;
    /// use tower_idempotency::IdempotencyLayer;
    ///
    /// #[derive(Clone)]
    /// struct Tenant(u64);
    ///
    /// let layer = IdempotencyLayer::builder(MemoryStore::new())
    ///     .scope(|req| req.extensions.get::<Tenant>().map(|tenant| tenant.0))
    ///     .require_scope()
    ///     .build()?;
    /// # let _ = layer;
    /// # Ok::<(), tower_claim::ConfigError>(())
    /// ```
    pub fn scope<F, S>(mut self, scope: F) -> Self
    where
        F: Fn(&Parts) -> S + Send + Sync + 'static,
        S: IntoScope,
    {
        self.entry.scope = Some(Arc::new(move |parts| scope(parts).into_scope()));
        self
    }

    /// Refuses a request whose scope cannot be told (400 `scope-missing`). Default: such requests share
    /// one scope of their own.
    pub fn require_scope(mut self) -> Self {
        self.entry.require_scope = true;
        self
    }
}
