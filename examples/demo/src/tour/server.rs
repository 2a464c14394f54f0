//! The app on a free port, on a runtime and threads of its own.

use std::net::{Ipv4Addr, SocketAddr};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::oneshot;

use crate::app::{App, Storage};
use crate::client::BoxError;

/// How long its upstream takes.
pub(super) const UPSTREAM: Duration = Duration::from_millis(20);

/// A process of the school, as far as one process can be another: nothing of its runtime is shared.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) app: App,
    pub(super) address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Starts one with this many worker threads, and waits until it listens.
    pub(super) async fn start(workers: usize, storage: &Storage) -> Result<Self, BoxError> {
        let (ready, listens) = oneshot::channel();
        let (stop, stopped) = oneshot::channel();
        let storage = storage.clone();
        let thread = thread::Builder::new()
            .name("school".into())
            .spawn(move || run(workers, &storage, ready, stopped))?;
        let (app, address) = listens.await??;
        Ok(Self {
            app,
            address,
            stop: Some(stop),
            thread: Some(thread),
        })
    }
}

impl Drop for Server {
    /// Ends it on the spot: what its tasks were doing is dropped where it stood.
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

type Started = Result<(App, SocketAddr), BoxError>;

fn run(
    workers: usize,
    storage: &Storage,
    ready: oneshot::Sender<Started>,
    stopped: oneshot::Receiver<()>,
) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(workers)
        .enable_all()
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => {
            let _ = ready.send(Err(error.into()));
            return;
        }
    };
    // Spawned: what `block_on` runs is no worker's.
    let listening = runtime.block_on(async {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let app = App::new(storage, UPSTREAM, address)?;
        let router = app.router.clone();
        tokio::spawn(async move { axum::serve(listener, router).await });
        Ok((app, address))
    });
    let _ = ready.send(listening);
    let _ = runtime.block_on(stopped);
    runtime.shutdown_background();
}
