//! Who is stuck, and whom does it hold up?

use futures_util::future::try_join_all;
use serde_json::Value;

use super::server::Server;
use super::table::Table;
use super::{Act, Checks, Scene, millis, until};
use crate::app::Storage;
use crate::client::{BoxError, get, post, send};

pub(super) const SCENE: Scene = Scene {
    name: "stuck",
    intro: || {
        "\
One reader's call upstream hangs, others wait for that call. Which request is stuck, for how long,
and who waits for it? The table is the board's own JSON, read over HTTP while it happens."
            .to_owned()
    },
    play: |_, storage| Box::pin(play(storage)),
};

const FOLLOWERS: usize = 5;
const PATH: &str = "/catalogue/atlas?upstream=hang";

async fn play(storage: Storage) -> Result<Act, BoxError> {
    let server = Server::start(2, &storage).await?;
    let address = server.address;
    let board = async |query: &str| {
        let answer = send(address, get(&format!("/board?{query}"))?).await?;
        Ok::<_, BoxError>(rows(&answer.json()))
    };
    let mut readers = vec![tokio::spawn(send(address, get(PATH)?))];
    until("the first reader is upstream", async || {
        let rows = board("stage=upstream_called").await?;
        Ok((rows.len() == 1).then_some(()))
    })
    .await?;
    for _ in 0..FOLLOWERS {
        readers.push(tokio::spawn(send(address, get(PATH)?)));
    }
    let rows = until(
        "five wait, and the board calls the one they wait for stuck",
        async || {
            let rows = board("").await?;
            let waiting = rows.iter().filter(|row| row.reason == "flight").count();
            let stuck = rows
                .iter()
                .any(|row| row.stuck && row.stage == "upstream_called");
            Ok((waiting == FOLLOWERS && stuck).then_some(rows))
        },
    )
    .await?;

    let mut table = Table::new([
        "request",
        "route",
        "stage",
        "age ms",
        "stuck",
        "waits for",
        "blocked by",
    ]);
    for row in &rows {
        table.row([
            row.id.clone(),
            row.route.clone(),
            row.stage.clone(),
            millis(std::time::Duration::from_secs_f64(row.age_ms / 1e3)),
            if row.stuck { "yes" } else { "no" }.to_owned(),
            row.reason.clone(),
            row.blocker.clone(),
        ]);
    }

    let mut checks = Checks::default();
    checks.equal("requests on the board", rows.len(), FOLLOWERS + 1);
    let stuck: Vec<_> = rows
        .iter()
        .filter(|r| r.stage == "upstream_called")
        .collect();
    checks.equal("requests stuck upstream", stuck.len(), 1);
    let culprit = stuck.first().map(|row| row.id.clone()).unwrap_or_default();
    for row in rows.iter().filter(|row| row.id != culprit) {
        checks.equal(&format!("who blocks {}", row.id), &row.blocker, &culprit);
        checks.equal(
            &format!("why {} waits", row.id),
            row.reason.as_str(),
            "flight",
        );
    }
    let calls = server.app.upstream.calls();
    checks.equal("calls upstream", calls, 1);

    send(address, post("/upstream/go-on", "")?).await?;
    for reader in try_join_all(readers).await? {
        checks.equal("a reader's answer", reader?.status.as_u16(), 200);
    }
    until("nobody is on the board", async || {
        Ok(board("").await?.is_empty().then_some(()))
    })
    .await?;
    Ok(Act {
        table,
        checks,
        verdict: format!(
            "request {culprit} is stuck in upstream_called and holds up {FOLLOWERS}; told to go on, all were served"
        ),
    })
}

/// A live row of the board.
#[derive(Debug)]
struct Row {
    id: String,
    route: String,
    stage: String,
    age_ms: f64,
    stuck: bool,
    reason: String,
    blocker: String,
}

fn rows(board: &Value) -> Vec<Row> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let live = board["live"].as_array().into_iter().flatten();
    live.map(|row| Row {
        id: text(&row["id"]),
        route: text(&row["route"]),
        stage: text(&row["stage"]),
        age_ms: row["age_ms"].as_f64().unwrap_or_default(),
        stuck: row["stuck"].as_bool().unwrap_or_default(),
        reason: text(&row["wait"]["reason"]),
        blocker: text(&row["wait"]["blocker"]),
    })
    .collect()
}
