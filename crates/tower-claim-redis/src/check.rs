//! The self-test when a store connects.

use std::collections::HashMap;
use std::time::Duration;

use redis::cluster_routing::{MultipleNodeRoutingInfo, RoutingInfo};
use redis::{ErrorKind, RedisError, RedisResult, ServerErrorKind, Value, from_redis_value};
use tower_claim::engine::EngineClock;
use tower_claim::store::StoreTime;
use tower_claim::{Clock, SystemClock};

use crate::ConnectError;
use crate::target::Connection;
use fitness::{Info, eviction, get, kind, parse, require_told, single_node, version};

mod fitness;

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

/// Asks the server who it is. What may be forbidden at hosted servers (`INFO`, `CONFIG`) is a warning.
pub(crate) async fn inspect(
    connection: &mut Connection,
    server: &str,
    prefix: &str,
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
        version(info)?;
        kind(connection.is_cluster(), info)?;
    }
    time(connection, server, prefix, clock).await?;
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
        single_node(connection.is_cluster(), &infos, when.as_deref())?;
    }
    Ok(Found {
        durable: logs || snapshots(connection).await,
        writes_through: when.as_deref() == Some("always"),
    })
}

/// Tells the time.
const CLOCK: &str = "return redis.call('TIME')";

/// A script that tells the time: are scripts allowed, and how far apart are the clocks?
async fn time(
    connection: &mut Connection,
    server: &str,
    prefix: &str,
    clock: &EngineClock,
) -> Result<(), ConnectError> {
    // A key of ours: the user may have no right to others.
    let key = format!("{prefix}clock");
    let mut command = redis::cmd("EVAL");
    command.arg(CLOCK).arg(1).arg(&key);
    let sent = clock.sending();
    let answer = connection.ask(&command).await;
    let answer = answer.map_err(|error| no_scripts(server, prefix, error))?;
    let told: Result<[u64; 2], _> = from_redis_value(answer);
    let Ok([seconds, micros]) = told else {
        return Err(ConnectError::silent(
            server,
            "what answers there is no Redis server",
        ));
    };
    let theirs = Duration::from_secs(seconds) + Duration::from_micros(micros);
    clock.observe(sent, StoreTime::from_micros(seconds * 1_000_000 + micros));
    // A right of its own, without which no step would be answered.
    let mut command = redis::cmd("EVALSHA");
    let digest = redis::Script::new(CLOCK);
    command.arg(digest.get_hash()).arg(1).arg(&key);
    match connection.ask(&command).await {
        // The server was flushed in between, or restarted.
        Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {}
        answer => drop(answer.map_err(|error| no_scripts(server, prefix, error))?),
    }
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

/// A server that does not know EVAL, or a user without the right to it.
fn no_scripts(server: &str, prefix: &str, error: RedisError) -> ConnectError {
    match error.kind() {
        ErrorKind::Server(_) | ErrorKind::Extension => ConnectError::silent(
            server,
            format!(
                "it runs no scripts on `{prefix}*` ({error}): grant this user `+eval +evalsha +time ~{prefix}*` \
                 (the README lists all the rights it needs)"
            ),
        ),
        _ => ConnectError::unreachable(server, error),
    }
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
