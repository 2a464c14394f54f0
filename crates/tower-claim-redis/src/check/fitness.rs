//! Whether a server is fit to keep claims, by what it tells of itself.

use std::collections::HashMap;

use super::Wanted;
use crate::ConnectError;

/// What `INFO` says.
pub(super) type Info = HashMap<String, String>;

pub(super) fn parse(text: &str) -> Info {
    let pairs = text.lines().filter_map(|line| line.split_once(':'));
    pairs
        .map(|(name, value)| (name.to_owned(), value.trim().to_owned()))
        .collect()
}

pub(super) fn get<'a>(info: &'a Info, name: &str) -> &'a str {
    info.get(name).map_or("", String::as_str)
}

/// Valkey has another name for it, since version 8.
fn mode(info: &Info) -> &str {
    match get(info, "redis_mode") {
        "" => get(info, "server_mode"),
        mode => mode,
    }
}

/// The first version with all that is asked of it; Valkey begins above.
const OLDEST: (u32, u32) = (6, 2);

/// Valkey says beside its own version which one of Redis it stands for.
pub(super) fn version(info: &Info) -> Result<(), ConnectError> {
    let told = get(info, "redis_version");
    let mut parts = told.split('.').map(str::parse::<u32>);
    match (parts.next(), parts.next()) {
        (Some(Ok(major)), Some(Ok(minor))) if (major, minor) < OLDEST => Err(ConnectError::config(
            "url",
            format!("Redis {told} answers there: it takes 6.2 or later, or Valkey"),
        )),
        // What others write there says nothing.
        _ => Ok(()),
    }
}

pub(super) fn kind(cluster: bool, info: &Info) -> Result<(), ConnectError> {
    match (mode(info), cluster) {
        ("sentinel", _) => Err(ConnectError::config(
            "url",
            "a sentinel answers there: name it in `sentinel(urls, name)`",
        )),
        ("cluster", false) => Err(ConnectError::config(
            "url",
            "a node of a cluster answers there: name it in `cluster(urls)`",
        )),
        ("standalone", true) => Err(ConnectError::config(
            "cluster",
            "a single server answers there, none of a cluster: name it in `url`",
        )),
        _ if get(info, "role") == "slave" => Err(ConnectError::config(
            "url",
            "a read-only replica answers there: name its primary, or the sentinels",
        )),
        _ => Ok(()),
    }
}

/// A held or finished record that is evicted is granted again: whatever the policy picks by, for all our
/// records bear a TTL that lies past their use.
pub(super) fn eviction(info: &Info, wanted: Wanted) -> Result<(), ConnectError> {
    let (policy, most) = (get(info, "maxmemory_policy"), get(info, "maxmemory"));
    if policy.is_empty() || policy == "noeviction" || wanted.allow_eviction {
        return Ok(());
    }
    if most == "0" {
        tracing::warn!(
            policy,
            "Redis would evict claims under this policy, once it has a `maxmemory`: set `noeviction`"
        );
        return Ok(());
    }
    Err(ConnectError::config(
        "allow_eviction",
        format!(
            "`maxmemory-policy {policy}` with a `maxmemory` drops claims that are held or done, which are then \
             granted again: set `maxmemory-policy noeviction`, use a Redis of their own, or say `allow_eviction()`"
        ),
    ))
}

pub(super) fn require_told(wanted: Wanted) -> Result<(), ConnectError> {
    match wanted.durable_single_node {
        true => Err(refused("`INFO` is forbidden, so that cannot be seen")),
        false => Ok(()),
    }
}

fn refused(why: &str) -> ConnectError {
    ConnectError::config(
        "durable_single_node",
        format!(
            "{why}: it is for one Redis with `appendonly yes`, `appendfsync always`, no eviction and no replica that \
             may be promoted"
        ),
    )
}

/// What [`durable_single_node`](crate::RedisStoreBuilder::durable_single_node) says must be so.
pub(super) fn single_node(
    cluster: bool,
    infos: &[Info],
    fsync: Option<&str>,
) -> Result<(), ConnectError> {
    if cluster {
        return Err(refused("this is a cluster"));
    }
    for info in infos {
        if get(info, "aof_enabled") != "1" {
            return Err(refused("`appendonly` is off"));
        }
        if get(info, "maxmemory_policy") != "noeviction" && get(info, "maxmemory") != "0" {
            return Err(refused("it evicts records"));
        }
        if !matches!(get(info, "connected_slaves"), "" | "0") {
            return Err(refused("it has replicas"));
        }
    }
    match fsync {
        Some("always") => Ok(()),
        Some(when) => Err(refused(&format!("`appendfsync` is `{when}`"))),
        None => Err(refused(
            "`CONFIG` is forbidden, so `appendfsync` cannot be seen",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(allow_eviction: bool) -> Wanted {
        Wanted {
            allow_eviction,
            durable_single_node: false,
        }
    }

    #[test]
    fn a_policy_that_drops_claims_is_refused_unless_it_is_allowed() {
        for policy in [
            "allkeys-lru",
            "allkeys-random",
            "volatile-ttl",
            "volatile-lru",
        ] {
            let info = parse(&format!(
                "# Memory\r\nmaxmemory:1000\r\nmaxmemory_policy:{policy}\r\n"
            ));
            let refused = eviction(&info, wanted(false)).unwrap_err().to_string();
            assert!(
                refused.contains(policy) && refused.contains("noeviction"),
                "{refused}"
            );
            assert!(eviction(&info, wanted(true)).is_ok());
        }
        for harmless in [
            "maxmemory:1000\r\nmaxmemory_policy:noeviction",
            "maxmemory:0\r\nmaxmemory_policy:allkeys-lru",
            "",
        ] {
            assert!(
                eviction(&parse(harmless), wanted(false)).is_ok(),
                "{harmless}"
            );
        }
    }

    /// As Valkey 8.0.1 wrote it, with another path and kernel.
    const VALKEY: &str = include_str!("valkey-8.0.txt");

    #[test]
    fn valkey_is_understood_by_its_own_words() {
        let info = parse(VALKEY);
        assert_eq!(get(&info, "server_name"), "valkey");
        assert_eq!(get(&info, "valkey_version"), "8.0.1");
        assert_eq!(get(&info, "redis_mode"), "", "its mode has another name");
        assert!(version(&info).is_ok());
        assert!(kind(false, &info).is_ok());
        assert!(eviction(&info, wanted(false)).is_ok());
        let lossy = single_node(false, std::slice::from_ref(&info), Some("always"));
        assert!(lossy.is_err_and(|line| line.to_string().contains("appendonly")));

        let but = |from: &str, to: &str| {
            assert!(VALKEY.contains(from), "{from}");
            parse(&VALKEY.replace(from, to))
        };
        let node = but("server_mode:standalone", "server_mode:cluster");
        assert!(kind(false, &node).is_err() && kind(true, &node).is_ok());
        let watch = but("server_mode:standalone", "server_mode:sentinel");
        assert!(kind(false, &watch).is_err());
        assert!(kind(true, &info).is_err(), "none of a cluster");
        assert!(kind(false, &but("role:master", "role:slave")).is_err());
        let evicts = VALKEY.replace("maxmemory:0", "maxmemory:1000000");
        let evicts = parse(&evicts.replace("noeviction", "allkeys-lru"));
        assert!(eviction(&evicts, wanted(false)).is_err());
        let sure = but("aof_enabled:0", "aof_enabled:1");
        assert!(single_node(false, &[sure], Some("always")).is_ok());
    }

    #[test]
    fn a_server_that_is_too_old_is_refused_by_its_version() {
        let judge = |told: &str| version(&parse(&format!("redis_version:{told}\r\n")));
        for old in ["6.0.20", "5.0.14", "2.8.0"] {
            let line = judge(old).unwrap_err().to_string();
            assert!(line.contains(old) && line.contains("6.2"), "{line}");
        }
        for fit in [
            "6.2.0",
            "7.0.15",
            "7.2.4",
            "8.4",
            "10.0.0",
            "255.255.255",
            "unstable",
            "",
        ] {
            assert!(judge(fit).is_ok(), "{fit}");
        }
    }

    fn told(kind_of: &str, cluster: bool) -> Option<String> {
        let refused = kind(cluster, &parse(kind_of)).err();
        refused.map(|error| error.to_string())
    }

    #[test]
    fn what_it_is_is_seen_under_either_name() {
        for name in ["redis_mode", "server_mode"] {
            let of = |mode: &str, cluster| told(&format!("{name}:{mode}\r\nrole:master"), cluster);
            assert_eq!(of("standalone", false), None);
            assert_eq!(of("cluster", true), None);
            assert!(
                of("sentinel", false).is_some_and(|line| line.contains("sentinel(urls, name)"))
            );
            assert!(of("cluster", false).is_some_and(|line| line.contains("cluster(urls)")));
            assert!(of("standalone", true).is_some_and(|line| line.contains("`url`")));
        }
        let replica = told("redis_mode:standalone\r\nrole:slave", false);
        assert!(replica.is_some_and(|line| line.contains("primary")));
    }

    #[test]
    fn what_may_forget_is_no_durable_single_node() {
        let sure =
            "aof_enabled:1\r\nmaxmemory:0\r\nmaxmemory_policy:noeviction\r\nconnected_slaves:0";
        let judge = |info: &str, fsync| single_node(false, &[parse(info)], fsync);
        assert!(judge(sure, Some("always")).is_ok());
        for (from, to) in [
            ("aof_enabled:1", "aof_enabled:0"),
            ("connected_slaves:0", "connected_slaves:1"),
            (
                "maxmemory:0\r\nmaxmemory_policy:noeviction",
                "maxmemory:9\r\nmaxmemory_policy:allkeys-lru",
            ),
        ] {
            assert!(
                judge(&sure.replace(from, to), Some("always")).is_err(),
                "{to}"
            );
        }
        for fsync in [Some("everysec"), None] {
            assert!(judge(sure, fsync).is_err(), "{fsync:?}");
        }
        assert!(
            single_node(true, &[parse(sure)], Some("always")).is_err(),
            "a cluster"
        );
    }
}
