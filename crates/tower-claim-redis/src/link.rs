//! One call over a connection that is made anew when it breaks.

use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, ErrorKind, RedisError, ServerErrorKind, Value};
use tokio::time::{Instant, timeout_at};
use tower_claim::engine::EngineClock;
use tower_claim::{Key, StoreError};

use crate::error::{Sent, is_spent, meaning};
use crate::reply::{self, Reply};
use crate::script::Script;
use crate::target::{Connection, Target};
use live::Live;

mod batch;
mod live;

pub(crate) struct Link {
    over: Over,
    limit: Duration,
    clock: Arc<EngineClock>,
    prefix: Arc<str>,
    cluster: bool,
    /// On a cluster without a hash tag: keys of different slots cannot meet in one script.
    apart: bool,
}

enum Over {
    /// Connections of our own, made when they are needed.
    Own {
        target: Arc<Target>,
        live: Live,
    },
    Given(Connection),
}

impl Link {
    pub(crate) fn own(
        target: Arc<Target>,
        first: Option<Connection>,
        limit: Duration,
        clock: Arc<EngineClock>,
        prefix: Arc<str>,
        tagged: bool,
    ) -> Self {
        let live = Live::with(first);
        Self {
            cluster: target.is_cluster(),
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
            cluster: connection.is_cluster(),
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
        let until = Instant::now() + self.limit;
        self.run_until(until, script, names, fill).await
    }

    async fn run_until(
        &self,
        until: Instant,
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
        let begun = Instant::now();
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
                // cluster's connection looks after its nodes itself. A call that had spent its time before it was sent
                // cannot tell: of ten thousand at once each would condemn what was made for the last one.
                let had_its_time = begun.elapsed() >= self.limit / 2;
                spent(had_its_time && !connection.is_cluster());
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
