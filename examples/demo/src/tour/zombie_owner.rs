//! An owner that wakes after it was taken for dead.

use std::time::Instant;

use serde_json::Value;
use tokio::sync::Mutex;

use super::server::Server;
use super::table::Table;
use super::{Act, Checks, Scene, until};
use crate::app::{LEASE, Storage};
use crate::client::{Answer, BoxError, get, post, send};

pub(super) const SCENE: Scene = Scene {
    name: "zombie-owner",
    intro: || {
        "\
A job takes the lease on a classroom's seats, and is paused before it writes; without renewal the lease
lapses. Another job takes over, with a larger token, and writes to the ledger. Then the first one wakes
and writes, too, with the token it kept. The ledger is behind a fence, over HTTP.".to_owned()
    },
    play: |_, storage| Box::pin(play(storage)),
};

async fn play(storage: Storage) -> Result<Act, BoxError> {
    let server = Server::start(2, &storage).await?;
    let ask = async |path: &str, pupil: &str| send(server.address, post(path, pupil)?).await;
    let mut table = Table::new(["who", "does what", "token", "answer"]);
    let mut checks = Checks::default();

    let began = Instant::now();
    let zombie = ask("/seats/7/jobs?paused=true", "Ada").await?;
    let old = token(&zombie);
    checks.equal("the first job is let in", zombie.status.as_u16(), 202);
    table.row(row("first job", "takes the lease, is paused", old, &zombie));

    let too_early = Mutex::new(None);
    let second = until("the lease has lapsed", async || {
        let answer = ask("/seats/7/jobs", "Ben").await?;
        if answer.status != 423 {
            return Ok(Some(answer));
        }
        too_early.lock().await.get_or_insert(answer);
        Ok(None)
    })
    .await?;
    match too_early.into_inner() {
        Some(answer) => {
            checks.equal("before the lapse", answer.code(), "leased".to_owned());
            table.row(row("second job", "comes before the lapse", None, &answer));
        }
        // On a machine that stood still for so long it came too late to be too early.
        None => checks.holds(
            "who comes before the lapse is refused",
            began.elapsed() > LEASE,
        ),
    }

    let new = token(&second);
    checks.equal("the second job writes", second.status.as_u16(), 201);
    checks.holds(
        format!("the second token {new:?} is larger than the first {old:?}"),
        old.is_some() && new > old,
    );
    table.row(row("second job", "takes over, writes", new, &second));

    let job = zombie.json()["job"].as_u64().unwrap_or_default();
    let refused = ask(&format!("/seats/7/jobs/{job}/wake"), "").await?;
    checks.equal("the zombie's write", refused.status.as_u16(), 412);
    checks.equal("its code", refused.code(), "token-stale".to_owned());
    table.row(row("first job", "wakes, writes", old, &refused));

    let seats = send(server.address, get("/ledger/7")?).await?.json();
    let pupils: Vec<_> = seats.as_array().into_iter().flatten().map(pupil).collect();
    checks.equal("who sits in the ledger", pupils, vec!["Ben".to_owned()]);

    Ok(Act {
        table,
        checks,
        verdict:
            "the zombie's write was refused by its token; the ledger has the second job's alone"
                .to_owned(),
    })
}

fn pupil(seat: &Value) -> String {
    seat["pupil"].as_str().unwrap_or_default().to_owned()
}

fn token(answer: &Answer) -> Option<u64> {
    answer.json()["token"].as_u64()
}

fn row(who: &str, what: &str, token: Option<u64>, answer: &Answer) -> [String; 4] {
    [
        who.to_owned(),
        what.to_owned(),
        token.map_or(String::new(), |token| token.to_string()),
        format!("{} {}", answer.status.as_u16(), answer.code()),
    ]
}
