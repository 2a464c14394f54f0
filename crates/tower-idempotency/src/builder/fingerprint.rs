//! Settings: what must not change under one key.

use super::IdempotencyBuilder;
use crate::fields::RequestFields;

/// # Fingerprints
impl IdempotencyBuilder {
    /// Leaves query, content type and body out of the fingerprint: a repeat with another text is replayed
    /// the first one's answer. For derived keys. Default: another payload under one key is refused (422
    /// `key-reused`).
    pub fn first_payload_wins(mut self) -> Self {
        self.first_payload_wins = true;
        self
    }

    /// Compares JSON documents in their canonical form (RFC 8785), told by their content type
    /// (`application/json`, `…+json`): another order of members, white space, another spelling of a string do not
    /// make another payload. Default: every byte counts. Feature `json`.
    ///
    /// What may mean something else to another reader is not merged: `1` and `1.0`, whole numbers beyond 2^53.
    /// A document that names a member twice, that has a whole number beyond 64 bits, or that is no JSON is
    /// compared byte by byte.
    ///
    /// ```
    /// use tower_claim::MemoryStore;
    /// use tower_idempotency::IdempotencyLayer;
    ///
    /// let layer = IdempotencyLayer::builder(MemoryStore::new()).canonical_json().build()?;
    /// # let _ = layer;
    /// # Ok::<(), tower_claim::ConfigError>(())
    /// ```
    #[cfg(feature = "json")]
    pub fn canonical_json(mut self) -> Self {
        self.body_rules.canonical_json = true;
        self
    }

    /// Compares multipart bodies part by part, each part's head and content as they were sent: browsers and
    /// HTTP clients draw another boundary for each attempt. A body with anything before its first or behind its
    /// last boundary is compared byte by byte. Default: every byte counts, and so does the boundary.
    ///
    /// ```
    /// use tower_claim::MemoryStore;
    /// use tower_idempotency::IdempotencyLayer;
    ///
    /// let layer = IdempotencyLayer::builder(MemoryStore::new()).multipart_parts().build()?;
    /// # let _ = layer;
    /// # Ok::<(), tower_claim::ConfigError>(())
    /// ```
    pub fn multipart_parts(mut self) -> Self {
        self.body_rules.multipart = true;
        self
    }

    /// Holds the body against the SHA-256 in its `Content-Digest` (RFC 9530), where the client sent one: a body
    /// that is another one is refused (400 `body-broken`, reason `content-digest`), so a damaged upload binds no
    /// key. The digest goes into the fingerprint; a repeat that leaves the header out is a repeat all the same.
    /// Default: the header is not looked at.
    ///
    /// ```
    /// use tower_claim::MemoryStore;
    /// use tower_idempotency::IdempotencyLayer;
    ///
    /// let layer = IdempotencyLayer::builder(MemoryStore::new()).verify_content_digest().build()?;
    /// # let _ = layer;
    /// # Ok::<(), tower_claim::ConfigError>(())
    /// ```
    pub fn verify_content_digest(mut self) -> Self {
        self.body_rules.content_digest = true;
        self
    }

    /// Streams uploads to the handler while they are hashed, instead of reading them first, up to so many bytes.
    /// Default: every body is read first, up to [`max_request_body`](Self::max_request_body).
    ///
    /// - With [`verify_content_digest`](Self::verify_content_digest), one that comes with its SHA-256 in `Content-Digest`:
    ///   the digest it claims is its fingerprint, so the key can be claimed, and a repeat be told, by the head alone.
    /// - One without, if it is larger than `max_request_body`: its digest is known, and kept beside the answer, when the
    ///   handler has read all of it. A repeat is held against that digest before it is told the answer; while the first
    ///   run is going only against its head (method, original path, query, content type). Smaller ones are read first. A
    ///   client sends the digest of a large upload with each attempt or with none: with and without it, it is two
    ///   payloads.
    ///
    /// Longer ones, and a body that turns out not to be what its digest says, end in an
    /// [`UploadError`](crate::UploadError) before their last bytes are given out. A handler may have begun its work by
    /// then. What it answers is sent, but is no outcome: the key is given back, unless it had passed the point of no
    /// return. What it has not read by the end of its answer is not looked at: a handler that decides by its upload reads
    /// all of it, and of an upload without a digest that was not read to its end repeats are held against the head only.
    /// So is who [takes over](Self::on_lapse) from a run that crashed. A repeat is told the answer, a
    /// [reconciled](Self::reconcile) one too, once its own body has been read.
    ///
    /// ```
    /// use tower_claim::MemoryStore;
    /// use tower_idempotency::IdempotencyLayer;
    ///
    /// let uploads = IdempotencyLayer::builder(MemoryStore::new())
    ///     .verify_content_digest()
    ///     .stream_uploads(5 << 30)
    ///     .build()?;
    /// # let _ = uploads;
    /// # Ok::<(), tower_claim::ConfigError>(())
    /// ```
    pub fn stream_uploads(mut self, up_to: u64) -> Self {
        self.stream_uploads = Some(up_to);
        self
    }

    /// Binds named fields only, with method and original path: two requests that agree in them are one payload,
    /// whatever else they say. An absent field differs from every value. Where a field is malformed, everything
    /// is bound. Default: query, content type and body are bound.
    ///
    /// ```
    /// use tower_claim::MemoryStore;
    /// use tower_idempotency::{IdempotencyLayer, RequestFields};
    ///
    /// // The note may be mended in a repeat, the money may not.
    /// let payments = IdempotencyLayer::builder(MemoryStore::new())
    ///     .fingerprint_fields(RequestFields::new().form("to").form("amount"))
    ///     .build()?;
    /// # let _ = payments;
    /// # Ok::<(), tower_claim::ConfigError>(())
    /// ```
    pub fn fingerprint_fields(mut self, fields: RequestFields) -> Self {
        self.bound_fields = Some(fields);
        self
    }

    /// Keeps fingerprints as HMAC-SHA-256 under this secret, 32 random bytes: who reads the store cannot try which
    /// body a record was made of, where few are possible (a sum, a card's last digits). All processes that share
    /// the store need the same one, for as long as records are [kept](Self::retention): under another one every
    /// repeat is refused (422 `key-reused`). Default: a plain SHA-256.
    ///
    /// ```
    /// use tower_claim::MemoryStore;
    /// use tower_idempotency::IdempotencyLayer;
    ///
    /// # let from_the_vault = [7; 32];
    /// let layer = IdempotencyLayer::builder(MemoryStore::new())
    ///     .fingerprint_secret(from_the_vault)
    ///     .build()?;
    /// # let _ = layer;
    /// # Ok::<(), tower_claim::ConfigError>(())
    /// ```
    pub fn fingerprint_secret(mut self, secret: [u8; 32]) -> Self {
        self.fingerprint_secret = Some(secret);
        self
    }
}
