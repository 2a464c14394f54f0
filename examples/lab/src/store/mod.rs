//! `--store`: which engine keeps the claims, and where it is.

mod open;

use std::fmt;
use std::path::PathBuf;

pub(crate) use open::{OpenError, Opened};

/// Where claims are kept.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Store {
    Memory,
    Redb(PathBuf),
    Redis(String),
    Postgres(String),
    #[cfg(feature = "etcd")]
    Etcd(Vec<String>),
}

const FORMS: &str = "`memory:`, `redb:PATH`, `redis://HOST:PORT/DB`, `redis+unix:PATH`, `postgres://…` \
                     or `etcd://HOST:PORT`";

impl Store {
    /// Reads an address. Its text is not in the error: there may be a password in it.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        match text.split_once(':').unwrap_or_default() {
            ("memory", "") => Ok(Store::Memory),
            ("redb", rest) => path(rest).map(Store::Redb),
            ("redis+unix", rest) => {
                let path = std::path::absolute(path(rest)?)
                    .map_err(|error| format!("--store redis+unix: {error}"))?;
                redis(&format!("redis+unix://{}", path.display()))
            }
            ("redis", _) => redis(text),
            ("postgres" | "postgresql", _) => postgres(text),
            ("etcd", rest) => etcd(rest),
            _ => Err(format!("--store: unknown store; write {FORMS}")),
        }
    }
}

fn path(text: &str) -> Result<PathBuf, String> {
    if text.is_empty() {
        return Err(
            "--store: the path is missing; write `redb:PATH` or `redis+unix:PATH`".to_owned(),
        );
    }
    Ok(PathBuf::from(text))
}

fn redis(url: &str) -> Result<Store, String> {
    match redis::IntoConnectionInfo::into_connection_info(url) {
        Ok(_) => Ok(Store::Redis(url.to_owned())),
        Err(error) => Err(format!("--store: no Redis address: {error}")),
    }
}

fn postgres(url: &str) -> Result<Store, String> {
    match url.parse::<tokio_postgres::Config>() {
        Ok(_) => Ok(Store::Postgres(url.to_owned())),
        Err(error) => Err(format!("--store: no PostgreSQL address: {error}")),
    }
}

#[cfg(feature = "etcd")]
fn etcd(rest: &str) -> Result<Store, String> {
    let nodes: Vec<_> = rest
        .strip_prefix("//")
        .unwrap_or_default()
        .trim_end_matches('/')
        .split(',')
        .map(str::to_owned)
        .collect();
    let bad = |node: &String| node.parse::<http::uri::Authority>().is_err();
    if nodes.iter().any(bad) {
        return Err("--store: write `etcd://HOST:PORT`, several divided by commas".to_owned());
    }
    Ok(Store::Etcd(nodes))
}

#[cfg(not(feature = "etcd"))]
fn etcd(_: &str) -> Result<Store, String> {
    Err(
        "--store etcd: this program was built without it; build it with `--features etcd`"
            .to_owned(),
    )
}

/// The address without user and password.
impl fmt::Display for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Store::Memory => f.write_str("memory:"),
            Store::Redb(path) => write!(f, "redb:{}", path.display()),
            Store::Redis(url) | Store::Postgres(url) => f.write_str(&without_credentials(url)),
            #[cfg(feature = "etcd")]
            Store::Etcd(nodes) => write!(f, "etcd://{}", nodes.join(",")),
        }
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A password may stand before the host, or among the parameters behind it.
fn without_credentials(url: &str) -> String {
    let url = url.split_once('?').map_or(url, |(address, _)| address);
    match (url.split_once("://"), url.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, place))) => format!("{scheme}://{place}"),
        _ => url.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_engine_has_its_address() {
        for (text, shown) in [
            ("memory:", "memory:"),
            ("redb:/tmp/claims", "redb:/tmp/claims"),
            ("redis://127.0.0.1:6379/0", "redis://127.0.0.1:6379/0"),
            ("redis+unix:/tmp/socket", "redis+unix:///tmp/socket"),
            ("redis://:secret@h:1/2", "redis://h:1/2"),
            ("redis+unix:/tmp/s?pass=secret", "redis+unix:///tmp/s"),
            ("postgres://u:secret@h:5/db", "postgres://h:5/db"),
            ("postgresql://h/db?password=secret", "postgresql://h/db"),
            ("postgres://u:se@cret@h/db", "postgres://h/db"),
        ] {
            let store = Store::parse(text).unwrap();
            assert_eq!(store.to_string(), shown);
            assert!(!format!("{store:?}").contains("cret"));
        }
    }

    #[test]
    fn what_is_no_address_is_refused_without_its_secrets() {
        for text in [
            "",
            "memory",
            "memory:x",
            "redb:",
            "redis+unix:",
            "redis://",
            "redis://:secret@h:port/0",
            "postgres://u:secret@h:port/x",
            "mysql://u:secret@h",
        ] {
            match Store::parse(text) {
                Err(reason) => assert!(!reason.contains("secret"), "{text}: {reason}"),
                Ok(store) => panic!("{text:?} is {store}"),
            }
        }
    }

    #[cfg(not(feature = "etcd"))]
    #[test]
    fn without_etcd_it_says_what_to_build() {
        let reason = Store::parse("etcd://h:1").unwrap_err();
        assert!(reason.contains("--features etcd"), "{reason}");
    }

    #[cfg(feature = "etcd")]
    #[test]
    fn etcd_has_one_node_or_more() {
        let store = Store::parse("etcd://a:1,b:2/").unwrap();
        assert_eq!(store.to_string(), "etcd://a:1,b:2");
        for text in ["etcd:", "etcd://", "etcd:a:1", "etcd://a b"] {
            assert!(Store::parse(text).is_err(), "{text}");
        }
    }
}
