//! Serves the school until it is told to stop.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use tokio::net::TcpListener;

use crate::app::{App, Storage};
use crate::client::BoxError;
use crate::store::Store;

/// How long requests and what runs apart from them have to end.
const GRACE: Duration = Duration::from_secs(5);
/// Slow enough to meet by hand.
const UPSTREAM: Duration = Duration::from_millis(500);

pub(crate) fn run(address: SocketAddr, store: &Store) -> ExitCode {
    // One worker, as in the pool where the announcement went out many times: so the villain's fault shows
    // whenever it is asked for, and not only when one thread serves two requests by chance.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build();
    let served = runtime
        .map_err(BoxError::from)
        .and_then(|runtime| runtime.block_on(serve(address, store)));
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("demo: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn serve(address: SocketAddr, store: &Store) -> Result<(), BoxError> {
    let storage = Storage::new(store.open().await?, "demo");
    let listener = TcpListener::bind(address).await.map_err(|error| {
        format!("cannot listen on {address}: {error}; try another with --listen 127.0.0.1:0")
    })?;
    let mut address = listener.local_addr()?;
    if address.ip().is_unspecified() {
        address.set_ip([127, 0, 0, 1].into());
    }
    let app = App::new(&storage, UPSTREAM, address)?;
    welcome(address, store);

    let (told, mut stop) = tokio::sync::watch::channel(());
    let ending = app.clone();
    let mut signals = Signals::listen()?;
    tokio::spawn(async move {
        signals.first().await;
        println!("demo: no new requests; those under way may end");
        ending.shut_down();
        drop(told);
    });
    let router = app.router.clone();
    let mut stopped = stop.clone();
    let graceful = async move {
        let _ = stopped.changed().await;
    };
    let server = axum::serve(listener, router).with_graceful_shutdown(graceful);
    let too_late = async move {
        let _ = stop.changed().await;
        tokio::time::sleep(GRACE).await;
    };
    tokio::select! {
        ended = server.into_future() => ended?,
        () = too_late => println!("demo: some requests did not end in {GRACE:?}; left"),
    }
    if !app.drain(GRACE).await {
        println!("demo: some work did not end in {GRACE:?}; left");
    }
    Ok(())
}

fn welcome(address: SocketAddr, store: &Store) {
    println!(
        "\
demo: the school is open; its claims are in {store}

  a page to play with   http://{address}/
  where requests are    http://{address}/board
  the tour in here      cargo run -p demo -- tour

  One announcement, however often it is asked for; the second answer is a replay:
    curl -i http://{address}/classrooms/7/announcement -d 'No lessons tomorrow'
    curl -i http://{address}/classrooms/7/announcement -d 'No lessons tomorrow'

  The same behind the re-entrant lock that once went wrong, then what the pupils got:
    curl -i http://{address}/classrooms/8/announcement/behind-reentrant-lock -d 'No lessons'
    curl -i http://{address}/classrooms/8/announcement/behind-reentrant-lock -d 'No lessons'
    curl http://{address}/classrooms/8/inbox

  A paid enrolment, with a key of the client's; send it twice, then change the course:
    curl -i http://{address}/enrolments -H 'Idempotency-Key: click-1' \\
         -H 'Content-Type: application/json' -d '{{\"pupil\":\"Ada\",\"course\":\"chess\"}}'

  Five readers at once, one call upstream:
    for i in 1 2 3 4 5; do curl -s http://{address}/catalogue/atlas & done; wait; echo

Ctrl-C ends it."
    );
}

#[cfg(unix)]
struct Signals {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl Signals {
    fn listen() -> std::io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    async fn first(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

#[cfg(not(unix))]
struct Signals;

#[cfg(not(unix))]
impl Signals {
    fn listen() -> std::io::Result<Self> {
        Ok(Self)
    }

    async fn first(&mut self) {
        let _ = tokio::signal::ctrl_c().await;
    }
}
