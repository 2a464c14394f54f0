//! The layers over handlers that misbehave on command: see what a layer really does before trusting it.

mod app;
mod around;
mod effects;
mod filler;
mod flags;
mod handler;
mod ledger;
mod metrics;
mod operators;
mod options;
mod origin;
mod problem;
mod purge;
mod resolve;
mod routes;
mod store;
mod workers;

use std::io::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;

use app::App;
use options::Options;
use store::OpenError;

/// How long a stop waits for what runs.
const GRACE: Duration = Duration::from_secs(10);

// Sockets, signals and operators live on this thread, handlers on workers that they may block.
#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_env_filter(
            EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info")),
        )
        .init();
    let options = Options::try_parse().unwrap_or_else(|error| refuse(&error));
    let store = options.check().and_then(|()| options.store());
    let store = store.unwrap_or_else(|reason| refuse_value(reason));
    let opened = match store.open(&options).await {
        Ok(opened) => opened,
        Err(OpenError::Config(error)) => refuse_value(error.to_string()),
        Err(error) => {
            tracing::error!("the lab cannot open its store {store}: {error}");
            return ExitCode::FAILURE;
        }
    };
    let engine = opened.claims.dyn_capabilities();
    if engine.may_forget() {
        tracing::warn!(
            "{} may forget what it answered: after that a mark or an outcome is lost, and work may run twice; \
             the lab keeps Hold and the mark on it all the same",
            engine.engine
        );
    }
    let workers = match workers::start() {
        Ok(workers) => workers,
        Err(error) => {
            tracing::error!("the lab cannot start its workers: {error}");
            return ExitCode::FAILURE;
        }
    };
    let app = App::build(&options, &opened, workers.handle())
        .unwrap_or_else(|error| refuse_value(error.to_string()));
    let served = serve(&options, app).await;
    // Not by dropping: threads that handlers block would hold up its end.
    workers.shutdown_background();
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("the lab cannot serve: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Refuses the value of an option.
fn refuse_value(reason: String) -> ! {
    refuse(&Options::command().error(ErrorKind::ValueValidation, reason))
}

/// Says what is wrong, always with the usage, and ends with 2; or shows the help and ends with 0.
fn refuse(error: &clap::Error) -> ! {
    let said = error.to_string();
    let _ = error.print();
    if error.use_stderr() && !said.contains("Usage") {
        let _ = writeln!(std::io::stderr(), "{}", Options::command().render_usage());
    }
    std::process::exit(error.exit_code())
}

async fn serve(options: &Options, app: App) -> std::io::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let listener = TcpListener::bind(options.listen).await?;
    let address = listener.local_addr()?;
    let mut stdout = std::io::stdout();
    writeln!(stdout, "http http://{address}")?;
    stdout.flush()?;

    let (stop, mut stopped) = tokio::sync::watch::channel(false);
    let board = app.board.clone();
    let server = tokio::spawn(async move {
        let graceful = async move {
            let _ = stopped.wait_for(|stop| *stop).await;
        };
        let served = axum::serve(listener, app.router.clone())
            .with_graceful_shutdown(graceful)
            .await;
        app.drain(GRACE).await;
        served
    });
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    board.shutting_down();
    let _ = stop.send(true);
    if tokio::time::timeout(GRACE, server).await.is_err() {
        tracing::warn!("stopped with requests still running");
    }
    Ok(())
}
