//! The self-test when a store connects.

use std::collections::HashMap;
use std::time::Duration;

use redis::cluster_routing::{MultipleNodeRoutingInfo, RoutingInfo};
use redis::{ErrorKind, RedisResult, Value, from_redis_value};
use tower_claim::engine::EngineClock;
use tower_claim::store::StoreTime;
use tower_claim::{Clock, SystemClock};

use crate::ConnectError;
use crate::target::Connection;

/// What the server was asked to be.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted {
    pub(crate) allow_eviction: bool,
    pub(crate) durable_single_node: bool,
}

/// What it is, as far as it tells.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Found {
    /// It writes what it keeps to a disk.
    pub(crate) durable: bool,
    /// It answers a write when it is on the disk.
    pub(crate) writes_through: bool,
}

/// Beyond this two clocks are worth a warning.
const OFFSET: Duration = Duration::from_secs(1);

type Info = HashMap<String, String>;

/// Asks the server who it is. What may be forbidden at hosted servers (`INFO`, `CONFIG`) is a warning.
pub(crate) async fn inspect(
    connection: &mut Connection,
    server: &str,
    wanted: Wanted,
    clock: &EngineClock,
) -> Result<Found, ConnectError> {
    let unreachable = |error| ConnectError::unreachable(server, error);
    let pong = connection
        .ask(&redis::cmd("PING"))
        .await
        .map_err(unreachable)?;
    if !matches!(&pong, Value::SimpleString(text) if text == "PONG") {
        return Err(ConnectError::silent(
            server,
            "what answers there is no Redis server",
        ));
    }
    let infos = match infos(connection).await {
        Ok(infos) => Some(infos),
        Err(error) if error.is_io_error() => return Err(unreachable(error)),
        Err(_) => None,
    };
    // First what it is: a sentinel runs no scripts, and a cluster's node not every one.
    for info in infos.iter().flatten() {
        kind(connection, info)?;
    }
    time(connection, server, clock).await?;
    let Some(infos) = infos else {
        tracing::warn!(
            server,
            "INFO is forbidden: cannot see whether records may be evicted (`maxmemory-policy` must be \
             `noeviction`) or are kept on disk"
        );
        require_told(wanted)?;
        return Ok(Found {
            durable: false,
            writes_through: false,
        });
    };
    for info in &infos {
        eviction(info, wanted)?;
    }
    let logs = infos.iter().all(|info| get(info, "aof_enabled") == "1");
    let when = match logs && !connection.is_cluster() {
        true => config(connection, "appendfsync").await.ok(),
        false => None,
    };
    if wanted.durable_single_node {
        single_node(connection, &infos, when.as_deref())?;
    }
    Ok(Found {
        durable: logs || snapshots(connection).await,
        writes_through: when.as_deref() == Some("always"),
    })
}

/// A script that tells the time: are scripts allowed, and how far apart are the clocks?
async fn time(
    connection: &mut Connection,
    server: &str,
    clock: &EngineClock,
) -> Result<(), ConnectError> {
    let mut command = redis::cmd("EVAL");
    command
        .arg("return redis.call('TIME')")
        .arg(1)
        .arg("claim:clock");
    let sent = clock.sending();
    let answer = connection.ask(&command).await.map_err(|error| {
        match error.kind() {
            // A server that does not know EVAL, or a user without the right to it.
            ErrorKind::Server(_) | ErrorKind::Extension => ConnectError::silent(
                server,
                format!("it runs no scripts ({error}): allow EVAL and EVALSHA to this user"),
            ),
            _ => ConnectError::unreachable(server, error),
        }
    })?;
    let told: Result<[u64; 2], _> = from_redis_value(answer);
    let Ok([seconds, micros]) = told else {
        return Err(ConnectError::silent(
            server,
            "what answers there is no Redis server",
        ));
    };
    let theirs = Duration::from_secs(seconds) + Duration::from_micros(micros);
    clock.observe(sent, StoreTime::from_micros(seconds * 1_000_000 + micros));
    let offset = SystemClock.unix_time().abs_diff(theirs);
    if offset > OFFSET {
        tracing::warn!(
            server,
            ?offset,
            "the clocks of Redis and of this machine differ: leases are judged by Redis' alone, but check its \
             time service"
        );
    }
    Ok(())
}

/// `INFO` of the server, or of each primary.
async fn infos(connection: &mut Connection) -> RedisResult<Vec<Info>> {
    let command = redis::cmd("INFO");
    let texts: Vec<String> = match connection {
        Connection::Cluster(connection) => {
            let all = RoutingInfo::MultiNode((MultipleNodeRoutingInfo::AllMasters, None));
            let texts: HashMap<String, String> =
                from_redis_value(connection.route_command(command, all).await?)?;
            texts.into_values().collect()
        }
        one => vec![from_redis_value(one.ask(&command).await?)?],
    };
    Ok(texts.iter().map(|text| parse(text)).collect())
}

fn parse(text: &str) -> Info {
    let pairs = text.lines().filter_map(|line| line.split_once(':'));
    pairs
        .map(|(name, value)| (name.to_owned(), value.trim().to_owned()))
        .collect()
}

fn get<'a>(info: &'a Info, name: &str) -> &'a str {
    info.get(name).map_or("", String::as_str)
}

fn kind(connection: &Connection, info: &Info) -> Result<(), ConnectError> {
    match (get(info, "redis_mode"), connection.is_cluster()) {
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
fn eviction(info: &Info, wanted: Wanted) -> Result<(), ConnectError> {
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

/// Whether it keeps snapshots. Where `CONFIG` is forbidden, or many servers would have to be asked, no.
async fn snapshots(connection: &mut Connection) -> bool {
    !connection.is_cluster()
        && matches!(config(connection, "save").await, Ok(save) if !save.is_empty())
}

async fn config(connection: &mut Connection, name: &str) -> RedisResult<String> {
    let answer = connection
        .ask(redis::cmd("CONFIG").arg("GET").arg(name))
        .await?;
    let settings: HashMap<String, String> = from_redis_value(answer)?;
    Ok(settings.get(name).cloned().unwrap_or_default())
}

fn require_told(wanted: Wanted) -> Result<(), ConnectError> {
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
fn single_node(
    connection: &Connection,
    infos: &[Info],
    fsync: Option<&str>,
) -> Result<(), ConnectError> {
    if connection.is_cluster() {
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
}
