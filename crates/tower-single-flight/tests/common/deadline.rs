//! A test that would hang fails instead, under its own name.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::mpsc;
use std::task::Poll;
use std::thread;
use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

/// Far more than any test takes.
const REAL: Duration = Duration::from_secs(60);

/// No test plays this long in paused time.
const PAUSED: Duration = Duration::from_secs(24 * 3600);

/// On one thread, in paused time.
pub(crate) fn paused(law: impl Future<Output = ()>) {
    run(
        Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build(),
        PAUSED,
        law,
    );
}

/// On one thread.
pub(crate) fn real(law: impl Future<Output = ()>) {
    run(
        Builder::new_current_thread().enable_all().build(),
        REAL,
        law,
    );
}

/// On four threads.
pub(crate) fn threaded(law: impl Future<Output = ()>) {
    run(
        Builder::new_multi_thread()
            .worker_threads(4)
            .enable_all()
            .build(),
        REAL,
        law,
    );
}

fn run(runtime: std::io::Result<Runtime>, limit: Duration, law: impl Future<Output = ()>) {
    let runtime = runtime.unwrap();
    let began = Instant::now();
    runtime.block_on(async {
        let mut law = pin!(law);
        // A test that is busy for ever moves no paused clock.
        let watched = poll_fn(|cx| match law.as_mut().poll(cx) {
            Poll::Pending => {
                assert!(began.elapsed() < REAL, "busy for ever");
                Poll::Pending
            }
            ready => ready,
        });
        timeout(limit, watched).await.expect("waits for ever");
    });
    runtime.shutdown_background();
}

/// For what would hold a whole thread up: runs it on another one.
pub(crate) fn on_a_thread(law: impl FnOnce() + Send + 'static) {
    let (tell, told) = mpsc::channel();
    let thread = thread::spawn(move || {
        law();
        let _ = tell.send(());
    });
    match told.recv_timeout(REAL / 6) {
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("its thread stands still"),
        // Else it ended, or panicked.
        _ => thread.join().unwrap(),
    }
}
