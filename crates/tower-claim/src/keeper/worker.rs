//! The keeper's worker: beats, and cleans up. On a thread and runtime of its own, or as a task.

use std::panic::AssertUnwindSafe;
use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::join_all;
use tokio::sync::OnceCell;
use tokio::task::JoinSet;

use super::desk::Desk;
use super::hold::Hold;
use super::state::{Beaten, Next};
use super::told;
use crate::store::Renewed;
use crate::wait::answer;
use crate::{DynClaimStore, Moment, StoreError};

/// Beats that go out in one call at most.
const BATCH: usize = 256;
/// Between a panic of the worker and its next try.
const BREATH: Duration = Duration::from_millis(10);

/// The keeper's own way to the store, made on the keeper's runtime at the first need.
#[derive(Debug)]
pub(super) struct Line {
    source: Arc<dyn DynClaimStore>,
    made: OnceCell<Arc<dyn DynClaimStore>>,
}

impl Line {
    pub(super) async fn store(&self) -> Result<&Arc<dyn DynClaimStore>, StoreError> {
        self.made
            .get_or_try_init(|| self.source.dyn_keeper_store())
            .await
    }
}

/// Says that no worker runs any more, however it ended.
struct Staffed(Arc<Desk>);

impl Drop for Staffed {
    fn drop(&mut self) {
        self.0.staffed.store(false, Ordering::Release);
    }
}

/// Starts a worker as a task.
pub(super) fn start_task(
    desk: Arc<Desk>,
    source: Arc<dyn DynClaimStore>,
    on: &tokio::runtime::Handle,
) {
    desk.staffed.store(true, Ordering::Release);
    let staffed = Staffed(Arc::clone(&desk));
    on.spawn(async move {
        let _staffed = staffed;
        keep_running(desk, source).await;
    });
}

/// Starts a worker on a thread of its own.
pub(super) fn start_thread(
    desk: Arc<Desk>,
    source: Arc<dyn DynClaimStore>,
) -> Result<(), StoreError> {
    let (tell, told) = mpsc::sync_channel(1);
    desk.staffed.store(true, Ordering::Release);
    let staffed = Staffed(Arc::clone(&desk));
    std::thread::Builder::new()
        .name("tower-claim-keeper".to_owned())
        .spawn(move || {
            let _staffed = staffed;
            // Built here: a runtime must not be dropped on the caller's, should anything fail.
            match tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
            {
                Ok(runtime) => {
                    let _ = tell.send(Ok(()));
                    runtime.block_on(keep_running(desk, source));
                }
                Err(error) => {
                    let _ = tell.send(Err(error));
                }
            }
        })
        .map_err(StoreError::unavailable)?;
    match told.recv() {
        Ok(started) => started.map_err(StoreError::unavailable),
        Err(gone) => Err(StoreError::unavailable(gone)),
    }
}

/// A worker that panics (a clock of the user's may) begins anew: all holds depend on it, and only the next
/// claim would start another one. What it has sent goes on meanwhile.
async fn keep_running(desk: Arc<Desk>, source: Arc<dyn DynClaimStore>) {
    let line = Arc::new(Line {
        source,
        made: OnceCell::new(),
    });
    // Each call is a task of its own: a slow one delays no other, and a store that panics costs one beat.
    let mut calls = JoinSet::new();
    loop {
        let run = run(&desk, &line, &mut calls);
        if AssertUnwindSafe(run).catch_unwind().await.is_ok() {
            return;
        }
        told::worker_panicked();
        // Not by the clock, which may be what panics: only so as not to spin.
        tokio::time::sleep(BREATH).await;
    }
}

async fn run(desk: &Arc<Desk>, line: &Arc<Line>, calls: &mut JoinSet<()>) {
    loop {
        let now = desk.clock.now();
        let round = desk.take(now);
        for holds in round.holds.chunks(BATCH) {
            let begun = |hold: &Arc<Hold>| Flight::begin(desk, hold, now);
            let flights: Vec<_> = holds.iter().filter_map(begun).collect();
            if !flights.is_empty() {
                calls.spawn(beat(Arc::clone(desk), Arc::clone(line), flights));
            }
        }
        for (job, pending) in round.jobs {
            let (desk, line) = (Arc::clone(desk), Arc::clone(line));
            calls.spawn(async move {
                let _pending = pending;
                job.run(&*desk.clock, &line).await;
            });
        }
        if round.closed && calls.is_empty() {
            return;
        }
        tokio::select! {
            () = desk.something_to_do(round.next) => {}
            Some(_) = calls.join_next() => {}
        }
    }
}

/// One beat under way. Settled as doubt when it is dropped: by a panic of the store, or a shutdown.
struct Flight {
    desk: Arc<Desk>,
    hold: Arc<Hold>,
    progress: u64,
    begun: Moment,
    settled: bool,
}

impl Flight {
    /// From here on the hold, which is off the desk, cannot be forgotten, whatever panics.
    fn begin(desk: &Arc<Desk>, hold: &Arc<Hold>, begun: Moment) -> Option<Self> {
        let beat = hold.lock().begin_beat(begun);
        let Some(progress) = beat else {
            told::over(hold);
            hold.changed.notify_waiters();
            return None;
        };
        Some(Self {
            desk: Arc::clone(desk),
            hold: Arc::clone(hold),
            progress,
            begun,
            settled: false,
        })
    }

    fn settle(mut self, sent: Moment, beaten: Beaten) {
        self.settled = true;
        let from = match beaten {
            Beaten::Doubt => self.desk.clock.now(),
            Beaten::Renewed { .. } | Beaten::Lost(_) => sent,
        };
        self.tell(sent, beaten, from);
    }

    fn tell(&self, sent: Moment, beaten: Beaten, from: Moment) {
        let next = self.hold.lock().end_beat(sent, beaten);
        self.hold.changed.notify_waiters();
        match next {
            Next::After(pause) => self.desk.schedule(&self.hold, from + pause),
            Next::Never => told::over(&self.hold),
        }
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        if !self.settled {
            // Without the clock: if that is what panics, a second panic here would end the process.
            self.tell(self.begun, Beaten::Doubt, self.begun);
        }
    }
}

async fn beat(desk: Arc<Desk>, line: Arc<Line>, flights: Vec<Flight>) {
    let sent = desk.clock.now();
    match renew(&desk, &line, sent, &flights).await {
        Ok(answers) => settle(flights, sent, &answers),
        // One record that cannot be read must not take its neighbours along, nor a slow one those behind.
        Err(error) if !error.is_retryable() && flights.len() > 1 => {
            let sent = desk.clock.now();
            let alone = flights.into_iter().map(async |flight| {
                let alone = std::slice::from_ref(&flight);
                match renew(&desk, &line, sent, alone).await {
                    Ok(answers) => settle(vec![flight], sent, &answers),
                    Err(error) => {
                        told::unanswered(1, &error);
                        flight.settle(sent, Beaten::Doubt);
                    }
                }
            });
            join_all(alone).await;
        }
        Err(error) => {
            told::unanswered(flights.len(), &error);
            for flight in flights {
                flight.settle(sent, Beaten::Doubt);
            }
        }
    }
}

async fn renew(
    desk: &Desk,
    line: &Line,
    sent: Moment,
    flights: &[Flight],
) -> Result<Vec<Renewed>, StoreError> {
    let beats: Vec<_> = flights
        .iter()
        .flat_map(|flight| flight.hold.beats(flight.progress))
        .collect();
    let attempt = flights
        .iter()
        .map(|flight| flight.hold.timing.attempt)
        .min()
        .unwrap_or_default();
    let call = async { line.store().await?.dyn_renew(&beats).await };
    answer(&*desk.clock, sent + attempt, call).await
}

fn settle(flights: Vec<Flight>, sent: Moment, mut answers: &[Renewed]) {
    for flight in flights {
        let keys = flight.hold.keys.as_slice().len();
        let beaten = match answers.split_at_checked(keys) {
            Some((own, rest)) => {
                answers = rest;
                Beaten::worst(own)
            }
            // A store that answers too few has not answered.
            None => {
                answers = &[];
                Beaten::Doubt
            }
        };
        flight.settle(sent, beaten);
    }
}
