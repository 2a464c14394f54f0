//! A paid enrolment that is sent more than once.

use std::sync::Arc;
use std::time::Instant;

use axum::http::{HeaderValue, Request};
use bytes::Bytes;
use futures_util::future::try_join_all;
use tower_claim::testing::{Fault, FaultStore};

use super::server::Server;
use super::table::Table;
use super::{Act, Checks, Scene, until};
use crate::app::Storage;
use crate::client::{Answer, BoxError, post, send};
use crate::enrolments::Book;

pub(super) const SCENE: Scene = Scene {
    name: "double-click",
    intro: || {
        "\
A paid enrolment with an Idempotency-Key is sent again, is sent twice at once, and is sent with another
body under its old key. Then a server dies with an enrolment half done, and can neither finish nor
release it; ten repeats reach another server over the same store and wait for the lease to lapse.".to_owned()
    },
    play: |_, storage| Box::pin(play(storage)),
};

const REPEATS: usize = 10;

async fn play(storage: Storage) -> Result<Act, BoxError> {
    let book = storage.book.clone();
    // What a dead process does not do any more shall not reach the store: this is the first server's line.
    let line = FaultStore::new(storage.claims.clone());
    let cut = line.faults();
    let its_storage = Storage {
        claims: Arc::new(line),
        ..storage.clone()
    };
    let first = Server::start(2, &its_storage).await?;
    let second = Server::start(2, &storage).await?;

    let mut scene = Seen::new(book.clone());

    let ada = || enrol("click-1", "Ada", "chess");
    let once = send(first.address, ada()?).await?;
    scene.row(
        "first click",
        "Ada",
        std::slice::from_ref(&once),
        &[(201, 1)],
        0,
    );
    let again = send(first.address, ada()?).await?;
    scene.row(
        "the same again",
        "Ada",
        std::slice::from_ref(&again),
        &[(201, 1)],
        1,
    );
    scene
        .checks
        .equal("the replay's body", &again.body, &once.body);

    let ben = || enrol("click-2", "Ben", "chess");
    let both = [send(first.address, ben()?), send(first.address, ben()?)];
    let both = try_join_all(both).await?;
    scene.row("two clicks at once", "Ben", &both, &[(201, 2)], 1);
    scene
        .checks
        .equal("both bodies", &both[0].body, &both[1].body);

    let changed = send(first.address, enrol("click-1", "Ada", "piano")?).await?;
    scene
        .checks
        .equal("its code", changed.code(), "key-reused".to_owned());
    scene.row("changed mind, old key", "Ada", &[changed], &[(422, 1)], 0);

    first.app.bank.fall_silent();
    let cleo = || enrol("click-3", "Cleo", "chess");
    let lost = tokio::spawn(send(first.address, cleo()?));
    until("the handler is in the middle", async || {
        Ok((book.begun("Cleo") == 1).then_some(()))
    })
    .await?;
    cut.set(Fault::Down);
    drop(first);
    let died = Instant::now();
    scene.checks.holds(
        "the caller of a server that died gets no answer",
        lost.await?.is_err(),
    );
    scene.row("the server dies half way", "Cleo", &[], &[], 0);
    let mut repeats = Vec::new();
    for _ in 0..REPEATS {
        repeats.push(send(second.address, cleo()?));
    }
    let repeats = try_join_all(repeats).await?;
    let waited = died.elapsed();
    scene.row(
        "ten repeats, another server",
        "Cleo",
        &repeats,
        &[(201, REPEATS)],
        REPEATS - 1,
    );
    scene.checks.equal(
        "attempt on the receipt",
        repeats[0].json()["attempt"].as_u64(),
        Some(2),
    );
    scene.checks.holds(
        "all have one receipt",
        repeats.iter().all(|a| a.body == repeats[0].body),
    );
    scene
        .checks
        .equal("handlers that began for Cleo", book.begun("Cleo"), 2);
    for pupil in ["Ada", "Ben", "Cleo"] {
        scene
            .checks
            .equal(&format!("charges of {pupil}"), book.charged(pupil), 1);
    }
    Ok(Act {
        table: scene.table,
        checks: scene.checks,
        verdict: format!(
            "each pupil was charged once; the dead server's enrolment was taken over once, {} ms after",
            waited.as_millis()
        ),
    })
}

/// The table and the checks, which go row by row.
struct Seen {
    table: Table,
    checks: Checks,
    book: Arc<Book>,
}

impl Seen {
    fn new(book: Arc<Book>) -> Self {
        let heads = [
            "what happens",
            "pupil",
            "answers",
            "replays",
            "handlers begun",
            "charged",
        ];
        Self {
            table: Table::new(heads),
            checks: Checks::default(),
            book,
        }
    }

    fn row(
        &mut self,
        what: &str,
        pupil: &str,
        answers: &[Answer],
        want: &[(u16, usize)],
        want_replays: usize,
    ) {
        let replays = answers.iter().filter(|a| a.is_replay()).count();
        self.checks
            .equal(&format!("{what}: replays"), replays, want_replays);
        for &(status, count) in want {
            let got = answers.iter().filter(|a| a.status == status).count();
            self.checks
                .equal(&format!("{what}: answers {status}"), got, count);
        }
        let text = match answers {
            [] => "none".to_owned(),
            [one] => format!("{} {}", one.status.as_u16(), one.code()),
            [one, ..] => format!("{} × {}", answers.len(), one.status.as_u16()),
        };
        self.table.row([
            what.to_owned(),
            pupil.to_owned(),
            text.trim_end().to_owned(),
            replays.to_string(),
            self.book.begun(pupil).to_string(),
            self.book.charged(pupil).to_string(),
        ]);
    }
}

fn enrol(key: &'static str, pupil: &str, course: &str) -> Result<Request<Bytes>, BoxError> {
    let body = serde_json::json!({ "pupil": pupil, "course": course });
    let mut request = post("/enrolments", &body.to_string())?;
    let headers = request.headers_mut();
    headers.insert("idempotency-key", HeaderValue::from_static(key));
    headers.insert("content-type", HeaderValue::from_static("application/json"));
    Ok(request)
}
