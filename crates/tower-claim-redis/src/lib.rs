//! The claim protocol on Redis and Valkey: one hash per key, one script per step.
//!
//! [`RedisStore`] is a [`ClaimStore`](tower_claim::ClaimStore), so every layer of the family runs on it: a claim
//! is granted to one owner at a time by Redis' own clock, across processes and machines, with a fencing
//! token that rises over expiry, restart, flush and failover. Nothing live ends by a Redis TTL; a renewal
//! of many holds is one trip; a call that is repeated or arrives late has the effect of one at most.
//!
//! It does **not** promise that Redis remembers: asynchronous replication and a lazy append-only file lose
//! acknowledged writes when a server fails. `capabilities()` says so, and layers that would need more
//! refuse to build. What is lost is shown in the table at [`RedisStore`].
//!
//! ```no_run
//! use std::time::Duration;
//! use tower_claim::{Attempt, Keeper, Key, Namespace, Terms, Token, Use};
//! use tower_claim_redis::RedisStore;
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let store = RedisStore::connect("redis://127.0.0.1:6379").await?;
//! let keeper = Keeper::new(store);
//! let terms = Terms::builder(Duration::from_secs(10)).build()?;
//! let key = Key::builder(Use::Lease, &Namespace::default()).part("account 42").build();
//!
//! if let Attempt::Granted(claim) = keeper.claim(key, None, &terms, Token::ZERO).await? {
//!     claim.check()?; // still ours, on every machine: beats go out over a connection of the keeper's own
//!     claim.release().await?;
//! }
//! # Ok(()) }
//! ```
//!
//! # What lies in Redis
//!
//! One hash per key under `claim:` and 64 hex digits, to be read with `HGETALL`: `v` (format version 1),
//! `state`, `token`, `nonce`, `label`, the owner's own terms (`lease`, `cooling`, `on_lapse`, …), times
//! (`since`, `ends`, `last_beat`) in microseconds of Redis' clock, `value` as raw bytes, and `spent:NONCE` for
//! each nonce that must not be granted again. A version this program does not know, a truncated hash or
//! another type is an error with the key's prefix, never a guess. A record gets a TTL that lies past the
//! moment from which it says nothing any more; every move sets it anew.

mod admin;
mod answer;
mod bell;
mod builder;
mod check;
mod connect;
mod connect_error;
mod error;
mod fence;
mod link;
mod many;
mod reply;
mod script;
mod store;
mod target;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redis::Cmd;
use tower_claim::engine::{Bells, EngineClock};
use tower_claim::store::{Capabilities, Event, MultiKey, Promise};
use tower_claim::{Key, StoreError};

use bell::Listener;
pub use builder::RedisStoreBuilder;
pub use connect_error::ConnectError;
use link::Link;
use reply::Reply;
use script::Script;
pub use target::Connection;
use target::Target;

/// Keeps claims, and the marks of guards, in Redis. Clones are one store.
///
/// | Promise | |
/// |---|---|
/// | forgets what it answered | after a flush, a failover, a restart |
/// | outlives the process | yes |
/// | several keys at once | atomic, any keys |
/// | heartbeats | independent of the user's runtime |
/// | smallest span of time | 1 µs |
/// | clock | the server's |
/// | weakened by a flush | rising tokens, one owner, one result |
/// | weakened by a failover | rising tokens, one owner, one result |
/// | weakened by a moved clock | rising tokens, one owner, one result, claimable again |
/// | weakened by a restart | rising tokens, one owner, one result |
///
/// `capabilities()` says the same of the server that was found: "outlives the process" is no where neither
/// the append-only file nor snapshots are on (or it cannot be seen); a restart weakens nothing with
/// `appendfsync always`, and neither does a failover under
/// [`durable_single_node`](RedisStoreBuilder::durable_single_node). On a cluster several keys need a
/// [hash tag](RedisStoreBuilder::hash_tag).
///
/// Tokens have a clock part, so they rise although a record is forgotten. Not in two cases: a promoted
/// server's clock is behind, or the last token lay above the clock part, since an owner had claimed above a
/// guard's floor. Then the guard refuses, and the owner heals: it claims above that floor.
///
/// # Errors
///
/// A call is [`Unavailable`](StoreError::Unavailable) where it was surely not applied: no connection, or the
/// server refused it (`LOADING`, `READONLY`, `MOVED`, `CLUSTERDOWN`, …). A lost answer, and on a cluster
/// every error behind which the client may have sent a copy before, is
/// [`Ambiguous`](StoreError::Ambiguous). `OOM` is [`Full`](StoreError::Full).
///
/// # Cancellation
///
/// A dropped call may still be applied; its answer is read and thrown away, no other call gets it.
///
/// # What it costs
///
/// One trip for each step: claim (free, busy, done with the value, a takeover, a lost race), mark, finish, release, watch's look, a
/// renewal of 32 holds. More holds are several scripts that travel together, on a cluster one for each slot:
/// between two of them Redis serves its other clients. While a slot moves to another node, one for each hold of it. A script that a server does not know costs one more
/// trip, once.
///
/// A script takes about 50 µs of Redis' time; one that cleans up behind a hot key, or renews 32 holds, about
/// 1 ms. None walks all there is.
///
/// A record takes about 0.5 kB of Redis' memory with its name, and the value. Where the value or the label is
/// longer than 64 bytes Redis keeps the hash in another way, which takes 1 kB more; the server's setting
/// `hash-max-listpack-value 4096` spares that for values up to 4 kB.
///
/// # TLS
///
/// With the feature `tls` and a `rediss://` url, connecting makes rustls' ring provider **the process'
/// default where the process has none**: the client takes no other, and panics where two are linked and none
/// is the default. To choose one yourself, call `CryptoProvider::install_default` before; or hand in a
/// [`connection`](RedisStoreBuilder::connection) of your own alone.
#[derive(Clone)]
pub struct RedisStore {
    inner: Arc<Inner>,
}

struct Inner {
    link: Link,
    target: Option<Arc<Target>>,
    tagged: bool,
    /// With the hash tag.
    prefix: Arc<str>,
    clock: Arc<EngineClock>,
    bells: Arc<Bells>,
    listener: Arc<Listener>,
    poll: Duration,
    call_timeout: Duration,
    capabilities: Capabilities,
}

impl RedisStore {
    /// What it promises on a server of which nothing better is known: the table above, in code.
    pub const CAPABILITIES: Capabilities = Self::AT_BEST
        .with_weakened(Event::Failover, Self::FORGETS)
        .with_weakened(Event::Restart, Self::FORGETS);

    /// On the best of servers.
    const AT_BEST: Capabilities = Capabilities::new("redis")
        .with_multi_key(MultiKey::Atomic)
        .with_weakened(Event::Flush, Self::FORGETS)
        .with_weakened(Event::MovedClock, Promise::ALL);

    /// What goes with a record that is gone. A token that a floor had raised above the clock part goes with it.
    const FORGETS: &[Promise] = &[Promise::RisingTokens, Promise::OneOwner, Promise::OneResult];

    /// Connects to one server, with the default settings.
    ///
    /// # Errors
    ///
    /// [`ConnectError`], one line that says the mend.
    pub async fn connect(url: impl Into<String>) -> Result<Self, ConnectError> {
        Self::builder().url(url).connect().await
    }

    /// A store with settings of its own.
    pub fn builder() -> RedisStoreBuilder {
        RedisStoreBuilder::default()
    }

    /// The name of a record in Redis, for an operator who looks with `HGETALL`.
    pub fn name_of(&self, key: &Key) -> String {
        self.inner.link.name(key)
    }

    /// Runs a script on one record.
    async fn one(
        &self,
        script: &Script,
        key: &Key,
        fill: impl Fn(&mut Cmd),
    ) -> Result<Reply, StoreError> {
        let names = [self.inner.link.name(key)];
        self.inner.link.run(script, &names, fill).await
    }

    /// The same store over a connection of its own, to be made on the runtime that first uses it.
    fn on_this_runtime(&self) -> Self {
        let inner = &self.inner;
        let Some(target) = &inner.target else {
            return self.clone();
        };
        let link = Link::own(
            Arc::clone(target),
            None,
            inner.call_timeout,
            Arc::clone(&inner.clock),
            Arc::clone(&inner.prefix),
            inner.tagged,
        );
        Self {
            inner: Arc::new(Inner {
                link,
                target: Some(Arc::clone(target)),
                tagged: inner.tagged,
                prefix: Arc::clone(&inner.prefix),
                clock: Arc::clone(&inner.clock),
                bells: Arc::clone(&inner.bells),
                listener: Arc::clone(&inner.listener),
                poll: inner.poll,
                call_timeout: inner.call_timeout,
                capabilities: inner.capabilities,
            }),
        }
    }
}

impl Inner {
    fn listen(&self) {
        if let Some(target) = &self.target {
            let channel = format!("{}bell", self.prefix);
            self.listener
                .ensure(target, &self.bells, &channel, self.call_timeout);
        }
    }

    /// The key of a record of this store's.
    fn key_of(&self, name: &[u8]) -> Option<Key> {
        let digits = name.strip_prefix(self.prefix.as_bytes())?;
        std::str::from_utf8(digits).ok()?.parse().ok()
    }

    /// What `SCAN` looks for.
    fn pattern(&self) -> String {
        let mut pattern = String::new();
        for c in self.prefix.chars() {
            if matches!(c, '*' | '?' | '[' | ']' | '\\' | '^') {
                pattern.push('\\');
            }
            pattern.push(c);
        }
        pattern.push('*');
        pattern
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore")
            .field("link", &self.inner.link)
            .field("prefix", &self.inner.prefix)
            .finish_non_exhaustive()
    }
}

/// Its examples run as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
