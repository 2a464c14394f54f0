//! From settings to a store.

use std::sync::Arc;
use std::time::Duration;

use redis::{RedisError, from_redis_value};
use tokio::time::timeout;
use tower_claim::engine::EngineClock;
use tower_claim::store::{Capabilities, Event, KeeperConnection, MultiKey};
use tower_claim::{Nonce, OsEntropy};

use crate::check::{Found, inspect};
use crate::connect_error::IS_IT;
use crate::link::Link;
use crate::target::{Connection, Target};
use crate::{ConnectError, Inner, RedisStore, RedisStoreBuilder};

const SHORTEST: Duration = Duration::from_millis(1);
/// Nobody waits longer for an answer; and instants that far ahead can be told.
const LONGEST: Duration = Duration::from_secs(3600);

impl RedisStoreBuilder {
    /// Connects, and asks the server whether it is fit: scripts, clock, eviction, kind.
    ///
    /// # Errors
    ///
    /// [`ConnectError`], one line that says the mend.
    pub async fn connect(self) -> Result<RedisStore, ConnectError> {
        let prefix = self.full_prefix()?;
        for (setting, span) in [
            ("call_timeout", self.call_timeout),
            ("poll_step", self.poll_step),
        ] {
            if !(SHORTEST..=LONGEST).contains(&span) {
                return Err(ConnectError::config(setting, "1 ms to 1 h"));
            }
        }
        let target = self.target()?.map(Arc::new);
        if let (Some(connection), Some(target)) = (&self.connection, &target) {
            same_kind(connection, target)?;
        }
        let clock = Arc::new(EngineClock::default());
        let server = target.as_ref().map_or_else(
            || "the connection handed in".to_owned(),
            |target| target.name(),
        );
        let limit = self.call_timeout;
        let mut connection = match (&self.connection, &target) {
            (Some(connection), _) => connection.clone(),
            (None, Some(target)) => match timeout(limit, target.open(limit)).await {
                Ok(Ok(connection)) => connection,
                Ok(Err(error)) => return Err(ConnectError::unreachable(&server, error)),
                Err(_) => return Err(silent(&server, limit)),
            },
            (None, None) => {
                return Err(ConnectError::config(
                    "url",
                    "say where Redis is: url(\"redis://host:6379\"), cluster, sentinel or connection",
                ));
            }
        };
        let inspected = inspect(&mut connection, &server, &prefix, self.wanted, &clock);
        let found = match timeout(limit, inspected).await {
            Ok(found) => found?,
            Err(_) => return Err(silent(&server, limit)),
        };
        if let (Some(_), Some(target)) = (&self.connection, &target) {
            let meeting = meet(&mut connection, target, &prefix, limit);
            match timeout(limit, meeting).await {
                Ok(met) => met?,
                Err(_) => return Err(silent(&server, limit)),
            }
        }
        let capabilities = self.capabilities(&connection, target.is_some(), found);
        let tagged = self.hash_tag.is_some();
        let (clock_too, prefix_too) = (Arc::clone(&clock), Arc::clone(&prefix));
        let link = match (self.connection, &target) {
            (None, Some(target)) => {
                let target = Arc::clone(target);
                Link::own(
                    target,
                    Some(connection),
                    limit,
                    clock_too,
                    prefix_too,
                    tagged,
                )
            }
            _ => Link::given(connection, limit, clock_too, prefix_too, tagged),
        };
        Ok(RedisStore {
            inner: Arc::new(Inner {
                link,
                target,
                tagged,
                prefix,
                clock,
                bells: Arc::default(),
                listener: Arc::default(),
                poll: self.poll_step,
                call_timeout: limit,
                capabilities,
            }),
        })
    }

    fn capabilities(&self, connection: &Connection, own: bool, found: Found) -> Capabilities {
        let mut capabilities = RedisStore::AT_BEST.with_durable(found.durable);
        if connection.is_cluster() && self.hash_tag.is_none() {
            capabilities = capabilities.with_multi_key(MultiKey::None);
        }
        if !own {
            capabilities = capabilities.with_keeper(KeeperConnection::Shared);
        }
        if !found.writes_through {
            capabilities = capabilities.with_weakened(Event::Restart, RedisStore::FORGETS);
        }
        if !self.wanted.durable_single_node {
            capabilities = capabilities.with_weakened(Event::Failover, RedisStore::FORGETS);
        }
        capabilities
    }

    fn target(&self) -> Result<Option<Target>, ConnectError> {
        if !cfg!(feature = "tls") && self.ca.is_some() {
            return Err(ConnectError::config(
                "ca_certificate",
                "TLS is the crate's feature `tls`, which is off",
            ));
        }
        let ca = self.ca.as_deref();
        let begins = b"-----BEGIN CERTIFICATE-----";
        if ca.is_some_and(|pem| !pem.windows(begins.len()).any(|part| part == begins)) {
            return Err(ConnectError::config(
                "ca_certificate",
                "no certificate in it: give the PEM text, which begins with `-----BEGIN CERTIFICATE-----`",
            ));
        }
        match (&self.url, self.cluster.as_slice(), &self.sentinel) {
            (Some(_), [_, ..], _) | (_, [_, ..], Some(_)) => Err(ConnectError::config(
                "cluster",
                "a cluster has no `url` and no `sentinel` beside it",
            )),
            (None, urls @ [_, ..], None) => Target::cluster(urls, ca).map(Some),
            (url, [], Some((urls, name))) => {
                Target::sentinel(urls, name.clone(), url.as_deref(), ca).map(Some)
            }
            (Some(url), [], None) => Target::node(url, ca).map(Some),
            (None, [], None) => Ok(None),
        }
    }

    fn full_prefix(&self) -> Result<Arc<str>, ConnectError> {
        let plain = |text: &str| {
            text.bytes()
                .all(|b| b.is_ascii_graphic() && !b"{}".contains(&b))
        };
        if !(1..=64).contains(&self.prefix.len()) || !plain(&self.prefix) {
            return Err(ConnectError::config(
                "prefix",
                "1 to 64 visible ASCII characters without braces; a hash tag has a setting of its own",
            ));
        }
        Ok(match &self.hash_tag {
            None => Arc::from(self.prefix.as_str()),
            Some(tag) if (1..=64).contains(&tag.len()) && plain(tag) => {
                Arc::from(format!("{}{{{tag}}}:", self.prefix))
            }
            Some(_) => {
                return Err(ConnectError::config(
                    "hash_tag",
                    "1 to 64 visible ASCII characters without braces: they are put around it",
                ));
            }
        })
    }
}

/// A connection and an address beside it: both a cluster's, or both a single server's.
fn same_kind(connection: &Connection, target: &Target) -> Result<(), ConnectError> {
    match (connection.is_cluster(), target.is_cluster()) {
        (true, false) => Err(ConnectError::config(
            "connection",
            "it is a cluster's: name its nodes in `cluster(urls)` beside it, not in `url` or `sentinel`",
        )),
        (false, true) => Err(ConnectError::config(
            "connection",
            "it is a single server's: name that in `url` or `sentinel` beside it, not in `cluster`",
        )),
        _ => Ok(()),
    }
}

/// A note left over the user's connection must be found over one of ours. Heartbeats that go to another
/// server, or to another database of it, would find no hold to renew.
async fn meet(
    theirs: &mut Connection,
    target: &Target,
    prefix: &str,
    limit: Duration,
) -> Result<(), ConnectError> {
    let unreachable = |error: RedisError| ConnectError::unreachable(&target.name(), error);
    let name = format!("{prefix}meet:{}", Nonce::draw(&OsEntropy));
    let mut note = redis::cmd("EVAL");
    note.arg(include_str!("lua/note.lua")).arg(1).arg(&name);
    theirs.ask(&note).await.map_err(unreachable)?;
    let mut ours = target.open(limit).await.map_err(unreachable)?;
    let there = ours.ask(redis::cmd("EXISTS").arg(&name)).await;
    let there: bool = from_redis_value(there.map_err(unreachable)?).unwrap_or_default();
    let _ = theirs.ask(redis::cmd("UNLINK").arg(&name)).await;
    match there {
        true => Ok(()),
        false => Err(ConnectError::config(
            "connection",
            format!(
                "it leads to another server, or to another database, than {}: name the one it leads to",
                target.name()
            ),
        )),
    }
}

fn silent(server: &str, limit: Duration) -> ConnectError {
    ConnectError::silent(server, format!("no answer within {limit:?}; {IS_IT}"))
}
