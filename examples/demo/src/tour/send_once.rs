//! One classroom, one announcement.

use futures_util::future::try_join_all;

use super::server::Server;
use super::table::Table;
use super::{Act, Checks, Scene};
use crate::app::Storage;
use crate::client::{BoxError, Connection, get, post, send};

pub(super) const SCENE: Scene = Scene {
    name: "send-once",
    intro: || {
        format!(
            "\
A server with ONE worker thread is asked {TIMES} times to send a classroom its announcement: one after
another, and all at once. The classroom is the business key, so it goes out once. Beside it the same
behind a re-entrant lock keyed by thread: every request runs on the thread that holds the lock."
        )
    },
    play: |_, storage| Box::pin(play(storage)),
};

const TIMES: usize = 50;

async fn play(storage: Storage) -> Result<Act, BoxError> {
    let server = Server::start(1, &storage).await?;
    let mut table = Table::new([
        "guard",
        "asked",
        "requests",
        "answered 201",
        "of these replays",
        "announcements",
    ]);
    let mut checks = Checks::default();
    let mut sent = Vec::new();
    for (guard, path) in [
        ("business key", "announcement"),
        (
            "re-entrant lock by thread",
            "announcement/behind-reentrant-lock",
        ),
    ] {
        for (how, at_once) in [("one after another", false), ("at once", true)] {
            let room = sent.len() + 1;
            let path = format!("/classrooms/{room}/{path}");
            let (asked, ok, replays) = ask(&server, &path, at_once).await?;
            let inbox = send(server.address, get(&format!("/classrooms/{room}/inbox"))?).await?;
            let announcements = inbox.json().as_array().map_or(0, Vec::len);
            sent.push(announcements);
            table.row([
                guard.into(),
                how.into(),
                asked.to_string(),
                ok.to_string(),
                replays.to_string(),
                announcements.to_string(),
            ]);
            if path.ends_with("announcement") {
                checks.equal(&format!("announcements, {how}"), announcements, 1);
                checks.equal(&format!("answers 201, {how}"), ok, TIMES);
                checks.equal(&format!("replays, {how}"), replays, TIMES - 1);
            } else {
                let what = format!("more than one through the re-entrant lock, {how}");
                checks.holds(what, announcements > 1);
            }
        }
    }
    let verdict = format!(
        "{} announcement and {}; through the lock by thread {} and {}",
        sent[0], sent[1], sent[2], sent[3]
    );
    Ok(Act {
        table,
        checks,
        verdict,
    })
}

/// How many answers there were, how many of them 201, and how many of these replays.
async fn ask(
    server: &Server,
    path: &str,
    at_once: bool,
) -> Result<(usize, usize, usize), BoxError> {
    let mut connections = Vec::new();
    for _ in 0..TIMES {
        connections.push(Connection::open(server.address).await?);
    }
    let mut answers = Vec::new();
    if at_once {
        let asked = connections
            .iter_mut()
            .map(async |connection| connection.send(post(path, "No lessons tomorrow")?).await);
        answers = try_join_all(asked).await?;
    } else {
        for connection in &mut connections {
            answers.push(connection.send(post(path, "No lessons tomorrow")?).await?);
        }
    }
    let ok = answers.iter().filter(|a| a.status == 201);
    let replays = ok.clone().filter(|a| a.is_replay()).count();
    Ok((answers.len(), ok.count(), replays))
}
