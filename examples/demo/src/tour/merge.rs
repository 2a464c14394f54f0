//! Many readers, one call.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::{Either, select, try_join_all};
use tower_stage::Filter;

use super::server::{Server, UPSTREAM};
use super::table::Table;
use super::{Act, Checks, Plan, Scene, millis, until};
use crate::app::Storage;
use crate::catalogue::Upstream;
use crate::client::{BoxError, Connection, get};

pub(super) const SCENE: Scene = Scene {
    name: "merge",
    intro: || {
        format!(
            "\
{READERS} readers on open connections ask for the same item at the same moment; the upstream takes {} ms.
Unlayered, each reader is a call; that round is also the floor for the times. Merged, it is one call,
also when the upstream fails or panics, and when the first reader hangs up while the others wait.",
            UPSTREAM.as_millis()
        )
    },
    play: |plan, storage| Box::pin(play(plan, storage)),
};

const READERS: usize = 100;
/// Rounds whose median counts.
const ROUNDS: usize = 5;
/// Medians of which the best counts: one that was disturbed says nothing of the layer.
const MEDIANS: usize = 3;
/// How far above the floor a merged round may be.
const ALLOWED: Duration = Duration::from_millis(5);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Unlayered,
    Answers,
    Fails,
    FirstLeaves,
    Panics,
}

impl Kind {
    const ALL: [Kind; 5] = [
        Kind::Unlayered,
        Kind::Answers,
        Kind::Fails,
        Kind::FirstLeaves,
        Kind::Panics,
    ];

    fn path(self, item: usize) -> String {
        match self {
            Kind::Unlayered => format!("/catalogue/{item}/unlayered"),
            Kind::Answers | Kind::FirstLeaves => format!("/catalogue/{item}"),
            Kind::Fails => format!("/catalogue/{item}?upstream=fail"),
            Kind::Panics => format!("/catalogue/{item}?upstream=panic"),
        }
    }

    fn calls(self) -> u64 {
        match self {
            Kind::Unlayered => READERS as u64,
            _ => 1,
        }
    }

    /// The status of every answer, and how many there are.
    fn answers(self) -> BTreeMap<u16, usize> {
        let one = match self {
            Kind::Unlayered | Kind::Answers => (200, READERS),
            Kind::Fails => (502, READERS),
            Kind::FirstLeaves => (200, READERS - 1),
            Kind::Panics => (500, READERS),
        };
        BTreeMap::from([one])
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Unlayered => "without merging",
            Kind::Answers => "merged",
            Kind::Fails => "merged, upstream fails",
            Kind::FirstLeaves => "merged, first reader leaves",
            Kind::Panics => "merged, upstream panics",
        })
    }
}

/// The best median of a kind.
struct Seen {
    kind: Kind,
    rounds: Vec<Round>,
    best: Duration,
}

#[derive(Debug)]
struct Round {
    calls: u64,
    answers: BTreeMap<u16, usize>,
    took: Duration,
}

async fn play(plan: &Plan, storage: Storage) -> Result<Act, BoxError> {
    let server = Server::start(2, &storage).await?;
    let mut seen: Vec<Seen> = Kind::ALL
        .map(|kind| Seen {
            kind,
            rounds: Vec::new(),
            best: Duration::MAX,
        })
        .into();
    let (medians, rounds) = if plan.time_gate {
        (MEDIANS, ROUNDS)
    } else {
        (1, 1)
    };
    for _ in 0..medians {
        for kind in &mut seen {
            let mut times = Vec::new();
            for _ in 0..rounds {
                let round = play_round(&server, kind.kind, kind.rounds.len()).await?;
                times.push(round.took);
                kind.rounds.push(round);
            }
            times.sort_unstable();
            kind.best = kind.best.min(times[times.len() / 2]);
        }
        if in_time(&seen) {
            break;
        }
    }
    let mut act = judge(&seen);
    let times = if plan.time_gate {
        act.checks.holds(
            format!("every merged round is within {ALLOWED:?} of the floor"),
            in_time(&seen),
        );
        format!("within {} ms of the floor", millis(ALLOWED))
    } else {
        "times not judged".to_owned()
    };
    act.verdict = format!(
        "upstream calls without merging: {}; merged, whatever happens: {}; {times}",
        most_calls(&seen[..1]),
        most_calls(&seen[1..]),
    );
    Ok(act)
}

fn most_calls(seen: &[Seen]) -> u64 {
    let rounds = seen.iter().flat_map(|kind| &kind.rounds);
    rounds.map(|round| round.calls).max().unwrap_or_default()
}

fn floor(seen: &[Seen]) -> Duration {
    seen.first().map_or(Duration::ZERO, |seen| seen.best)
}

fn in_time(seen: &[Seen]) -> bool {
    seen.iter().all(|kind| kind.best <= floor(seen) + ALLOWED)
}

fn judge(seen: &[Seen]) -> Act {
    let mut table = Table::new([
        "round",
        "readers",
        "upstream calls",
        "answers",
        "total ms",
        "above the floor",
    ]);
    let mut checks = Checks::default();
    for Seen { kind, rounds, best } in seen {
        for round in rounds {
            checks.equal(&format!("{kind}: calls"), round.calls, kind.calls());
            checks.equal(&format!("{kind}: answers"), &round.answers, &kind.answers());
        }
        let worst = rounds.iter().max_by_key(|round| round.calls);
        table.row([
            kind.to_string(),
            READERS.to_string(),
            worst.map_or(0, |round| round.calls).to_string(),
            worst.map_or(String::new(), |round| list(&round.answers)),
            millis(*best),
            millis(best.saturating_sub(floor(seen))),
        ]);
    }
    Act {
        table,
        checks,
        verdict: String::new(),
    }
}

fn list(answers: &BTreeMap<u16, usize>) -> String {
    let each = answers
        .iter()
        .map(|(status, count)| format!("{count} × {status}"));
    each.collect::<Vec<_>>().join(", ")
}

/// One round: all connections open, then everybody asks at the same moment.
async fn play_round(server: &Server, kind: Kind, number: usize) -> Result<Round, BoxError> {
    let mut connections = Vec::new();
    for _ in 0..READERS {
        let mut connection = Connection::open(server.address).await?;
        connection.send(get("/health")?).await?;
        connections.push(connection);
    }
    let upstream = &server.app.upstream;
    hold_until_all_are_there(server, kind);
    let before = upstream.calls();
    let path = kind.path(number);
    let began = Instant::now();
    let statuses = match kind {
        Kind::FirstLeaves => first_leaves(server, connections, &path, before).await?,
        _ => all_at_once(connections, &path).await?,
    };
    let took = began.elapsed();
    upstream.answer_in_time();
    let mut answers = BTreeMap::new();
    for status in statuses {
        *answers.entry(status).or_insert(0) += 1;
    }
    Ok(Round {
        calls: upstream.calls() - before,
        answers,
        took,
    })
}

/// On a busy machine a reader may come after the upstream's answer, and is then right to start a call of its own. The
/// scene is about readers that are there together: so the upstream does not answer before they are, and
/// before the one that leaves is gone.
fn hold_until_all_are_there(server: &Server, kind: Kind) {
    let (merge, board) = (server.app.merge.clone(), server.app.board.clone());
    let waits = READERS - 1;
    match kind {
        Kind::Unlayered => server.app.upstream.answer_in_time(),
        Kind::Answers | Kind::Fails | Kind::Panics => {
            let all = move || merge.followers() == waits;
            server.app.upstream.answer_not_before(all);
        }
        Kind::FirstLeaves => {
            let rows = Filter::new().limit(2 * READERS);
            let all = move || merge.followers() == waits && board.live(&rows).len() == waits;
            server.app.upstream.answer_not_before(all);
        }
    }
}

async fn all_at_once(connections: Vec<Connection>, path: &str) -> Result<Vec<u16>, BoxError> {
    let asked = connections.into_iter().map(async |mut connection| {
        let answer = connection.send(get(path)?).await?;
        Ok::<_, BoxError>(answer.status.as_u16())
    });
    try_join_all(asked).await
}

/// The first one asks, the others join it, and then it hangs up.
async fn first_leaves(
    server: &Server,
    mut others: Vec<Connection>,
    path: &str,
    before: u64,
) -> Result<Vec<u16>, BoxError> {
    let mut first = others.pop().ok_or("nobody reads")?;
    let asked = get(path)?;
    let first = tokio::spawn(async move { first.send(asked).await });
    let upstream: &Arc<Upstream> = &server.app.upstream;
    until("the first reader's call is upstream", async || {
        Ok((upstream.calls() > before).then_some(()))
    })
    .await?;
    let joined = async {
        until("the others wait", async || {
            Ok((server.app.merge.followers() == READERS - 1).then_some(()))
        })
        .await
    };
    let answers = std::pin::pin!(all_at_once(others, path));
    match select(answers, std::pin::pin!(joined)).await {
        // They did not wait for the first one's call: the count will say so.
        Either::Left((answers, _)) => answers,
        Either::Right((joined, answers)) => {
            joined?;
            // The connection goes with its task.
            first.abort();
            answers.await
        }
    }
}
