//! One call over a connection that is made anew when it breaks.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use redis::cluster_routing::Slot;
use redis::{Cmd, ErrorKind, RedisError, RedisResult, ServerErrorKind, Value};
use tokio::time::{Instant, timeout_at};
use tower_claim::engine::EngineClock;
use tower_claim::{Key, StoreError};

use crate::error::{Errors, Sent, is_spent, meaning};
use crate::reply::{self, Reply};
use crate::script::Script;
use crate::target::{Connection, Target};

/// Keys in one script, at most: a longer one would keep Redis from its other clients for more than about a
/// millisecond. More go as several scripts, which travel together.
pub(crate) const BATCH: usize = 32;

pub(crate) struct Link {
    over: Over,
    limit: Duration,
    clock: Arc<EngineClock>,
    prefix: Arc<str>,
    /// On a cluster without a hash tag: keys of different slots cannot meet in one script.
    apart: bool,
}

enum Over {
    /// Connections of our own, made when they are needed.
    Own {
        target: Arc<Target>,
        live: Slots,
    },
    Given(Connection),
}

/// The connection in use. A call that finds it broken takes it out; the next one makes another.
#[derive(Default)]
struct Slots {
    live: Mutex<(u64, Option<Connection>)>,
    /// One connects, the others wait for it.
    connecting: tokio::sync::Mutex<()>,
}

/// Parts of a batch that went together, and what came back.
pub(crate) type Part = (Vec<usize>, Result<Vec<Value>, StoreError>);

impl Link {
    pub(crate) fn own(
        target: Arc<Target>,
        first: Option<Connection>,
        limit: Duration,
        clock: Arc<EngineClock>,
        prefix: Arc<str>,
        tagged: bool,
    ) -> Self {
        let live = Slots::default();
        *live.lock() = (0, first);
        Self {
            apart: target.is_cluster() && !tagged,
            over: Over::Own { target, live },
            limit,
            clock,
            prefix,
        }
    }

    pub(crate) fn given(
        connection: Connection,
        limit: Duration,
        clock: Arc<EngineClock>,
        prefix: Arc<str>,
        tagged: bool,
    ) -> Self {
        Self {
            apart: connection.is_cluster() && !tagged,
            over: Over::Given(connection),
            limit,
            clock,
            prefix,
        }
    }

    /// The name of a record in Redis.
    pub(crate) fn name(&self, key: &Key) -> String {
        format!("{}{key}", self.prefix)
    }

    /// Runs a script on one key or several of one slot.
    pub(crate) async fn run(
        &self,
        script: &Script,
        names: &[String],
        fill: impl Fn(&mut Cmd),
    ) -> Result<Reply, StoreError> {
        let command = |name: &str, body: &str| {
            let mut command = redis::cmd(name);
            command.arg(body).arg(names.len()).arg(names);
            fill(&mut command);
            command
        };
        let until = Instant::now() + self.limit;
        let short = command("EVALSHA", &script.sha);
        let (sent, value) = match self.ask_until(&short, until).await {
            Err(Failed::NoScript) => {
                // A server that was restarted, flushed or promoted learns the script by it.
                let whole = command("EVAL", &script.source);
                self.ask_until(&whole, until).await
            }
            answer => answer,
        }
        .map_err(Failed::into_store)?;
        let (time, reply) = reply::read(value)?;
        self.clock.observe(sent, time);
        Ok(reply)
    }

    /// Runs a script over many keys, in as few calls as there may be, all under way at once.
    pub(crate) async fn run_many(
        &self,
        script: &Script,
        keys: &[Key],
        fill: impl Fn(&mut Cmd, usize),
    ) -> Vec<Part> {
        let part = async |places: Vec<usize>| {
            let names: Vec<String> = places.iter().map(|n| self.name(&keys[*n])).collect();
            let all = |command: &mut Cmd| places.iter().for_each(|n| fill(command, *n));
            let answer = self.run(script, &names, all).await;
            let answers = answer.and_then(|reply| reply.parts(places.len()));
            (places, answers)
        };
        futures_util::future::join_all(self.together(keys).into_iter().map(part)).await
    }

    /// As [`run_many`](Self::run_many): the answer of each key as `read` understands it, `None` where there is
    /// none, and with those the error of the whole batch.
    pub(crate) async fn answers_of<T>(
        &self,
        script: &Script,
        keys: &[Key],
        fill: impl Fn(&mut Cmd, usize),
        read: impl Fn(Value, &str) -> Result<T, StoreError>,
    ) -> (Vec<Option<T>>, Option<StoreError>) {
        let mut all: Vec<Option<T>> = keys.iter().map(|_| None).collect();
        let mut errors = Errors::default();
        for (places, answers) in self.run_many(script, keys, fill).await {
            let answers = match answers {
                Ok(answers) => answers,
                Err(error) => {
                    errors.add(error);
                    continue;
                }
            };
            for (place, answer) in places.into_iter().zip(answers) {
                match read(answer, &keys[place].prefix()) {
                    Ok(answer) => all[place] = Some(answer),
                    Err(error) => errors.add(error),
                }
            }
        }
        let told = all.iter().any(Option::is_some);
        (all, errors.sum(told))
    }

    /// The places of keys that may go in one script.
    fn together(&self, keys: &[Key]) -> Vec<Vec<usize>> {
        let places: Vec<usize> = (0..keys.len()).collect();
        if !self.apart {
            return places.chunks(BATCH).map(<[usize]>::to_vec).collect();
        }
        let mut slots: HashMap<Slot, Vec<usize>> = HashMap::new();
        for place in places {
            let slot = Slot::for_key(self.name(&keys[place]));
            slots.entry(slot).or_default().push(place);
        }
        let of_one_slot = slots.into_values();
        of_one_slot
            .flat_map(|places| {
                places
                    .chunks(BATCH)
                    .map(<[usize]>::to_vec)
                    .collect::<Vec<_>>()
            })
            .collect()
    }

    /// One command, outside of any script.
    pub(crate) async fn ask(&self, command: &Cmd) -> Result<Value, StoreError> {
        let until = Instant::now() + self.limit;
        let asked = self.ask_until(command, until).await;
        asked.map(|(_, value)| value).map_err(Failed::into_store)
    }

    /// A connection, and what it may have done with a call that failed.
    pub(crate) async fn connection(&self) -> Result<Connection, StoreError> {
        self.connect_until(Instant::now() + self.limit)
            .await
            .map(|(_, connection)| connection)
            .map_err(Failed::into_store)
    }

    async fn connect_until(&self, until: Instant) -> Result<(u64, Connection), Failed> {
        match &self.over {
            Over::Given(connection) => Ok((0, connection.clone())),
            // Nothing was sent yet: whatever goes wrong here, the call was not applied.
            Over::Own { target, live } => {
                match timeout_at(until, live.get(target, self.limit)).await {
                    Ok(Ok(connection)) => Ok(connection),
                    Ok(Err(error)) => Err(Failed::NotSent(StoreError::unavailable(error))),
                    Err(_) => Err(Failed::NotSent(StoreError::unavailable(format!(
                        "no connection to {} within the call timeout of {:?}",
                        target.name(),
                        self.limit
                    )))),
                }
            }
        }
    }

    async fn ask_until(
        &self,
        command: &Cmd,
        until: Instant,
    ) -> Result<(tower_claim::Moment, Value), Failed> {
        let (number, mut connection) = self.connect_until(until).await?;
        let sent = self.clock.sending();
        let answer = timeout_at(until, connection.ask(command)).await;
        let spent = |spent: bool| {
            if let (true, Over::Own { live, .. }) = (spent, &self.over) {
                live.take(number);
            }
        };
        match answer {
            Ok(Ok(value)) => Ok((sent, value)),
            Ok(Err(error)) => {
                spent(is_spent(&error) && !connection.is_cluster());
                Err(Failed::of(error, self.sent(&connection)))
            }
            Err(_) => {
                // It may hang for good (a peer that vanished): the next call does not wait for it. A
                // cluster's connection looks after its nodes itself.
                spent(!connection.is_cluster());
                Err(Failed::Sent(StoreError::ambiguous(format!(
                    "no answer within the call timeout of {:?}",
                    self.limit
                ))))
            }
        }
    }

    fn sent(&self, connection: &Connection) -> Sent {
        match (&self.over, connection) {
            (_, Connection::Cluster(_)) => Sent::Repeated,
            (Over::Given(_), Connection::Manager(_)) => Sent::OnceConnected,
            _ => Sent::Once,
        }
    }
}

impl Slots {
    fn lock(&self) -> std::sync::MutexGuard<'_, (u64, Option<Connection>)> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Option<(u64, Connection)> {
        let live = self.lock();
        live.1.clone().map(|connection| (live.0, connection))
    }

    async fn get(&self, target: &Target, within: Duration) -> RedisResult<(u64, Connection)> {
        if let Some(live) = self.now() {
            return Ok(live);
        }
        let _one = self.connecting.lock().await;
        if let Some(live) = self.now() {
            return Ok(live);
        }
        let connection = target.open(within).await?;
        let mut live = self.lock();
        *live = (live.0 + 1, Some(connection.clone()));
        Ok((live.0, connection))
    }

    /// Takes a broken connection out, unless another has its place already.
    fn take(&self, number: u64) {
        let mut live = self.lock();
        if live.0 == number {
            live.1 = None;
        }
    }
}

enum Failed {
    NoScript,
    NotSent(StoreError),
    Sent(StoreError),
}

impl Failed {
    fn of(error: RedisError, sent: Sent) -> Self {
        match error.kind() {
            ErrorKind::Server(ServerErrorKind::NoScript) => Self::NoScript,
            _ => Self::Sent(meaning(error, sent)),
        }
    }

    fn into_store(self) -> StoreError {
        match self {
            Self::NoScript => {
                StoreError::unavailable("the server does not know the script it was sent")
            }
            Self::NotSent(error) | Self::Sent(error) => error,
        }
    }
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.over {
            Over::Own { target, .. } => write!(f, "Link({target:?})"),
            Over::Given(connection) => write!(f, "Link({connection:?})"),
        }
    }
}
