use std::sync::Barrier;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use futures_util::future::BoxFuture;
use proptest::prelude::*;
use tower_claim::{Clock, Moment};

use super::*;

/// A clock that a test sets.
#[derive(Debug, Default)]
struct Hands(AtomicU64);

impl Clock for Hands {
    fn now(&self) -> Moment {
        Moment::since_start(Duration::from_nanos(self.0.load(Relaxed)))
    }

    fn unix_time(&self) -> Duration {
        Duration::ZERO
    }

    fn sleep_until(&self, _: Moment) -> BoxFuture<'static, ()> {
        Box::pin(std::future::pending())
    }
}

fn slot(clock: Arc<dyn Clock>) -> Slot {
    Slot::new(0, Arc::new(Shared::new(clock, 0, None)))
}

fn stages() -> Vec<Stage> {
    let custom = Stage::register("slot_test").unwrap();
    (0..6).map(Stage::of_index).chain([custom]).collect()
}

proptest! {
    #[test]
    fn stage_times_sum_up_to_the_total(
        marks in prop::collection::vec((0..7_usize, 0..1_000_000_007_u64), 0..40),
        last in 0..9_u64,
    ) {
        let clock = Arc::new(Hands::default());
        let slot = slot(clock.clone());
        let generation = slot.open("GET", Route::Unmatched);
        let stages = stages();
        let mut naive = std::collections::HashMap::new();
        let mut stage = Stage::Received;
        let mut pass = |stage, nanos| {
            clock.0.fetch_add(nanos, Relaxed);
            *naive.entry(stage).or_insert(Duration::ZERO) += Duration::from_nanos(nanos);
        };
        for (next, nanos) in &marks {
            pass(stage, *nanos);
            stage = stages[*next];
            slot.mark(generation, stage);
        }
        pass(stage, last);

        let closed = slot.close(generation).unwrap();
        prop_assert_eq!(closed.stage, stage);
        prop_assert_eq!(slot.times().total(), Duration::from_nanos(closed.total));
        prop_assert_eq!(closed.total, marks.iter().map(|m| m.1).sum::<u64>() + last);
        prop_assert_eq!(slot.times().iter().collect::<std::collections::HashMap<_, _>>(), naive);
    }
}

#[test]
fn a_time_that_goes_back_is_no_time() {
    let clock = Arc::new(Hands::default());
    let slot = slot(clock.clone());
    clock.0.store(100, Relaxed);
    let generation = slot.open("GET", Route::Unmatched);
    clock.0.store(40, Relaxed);
    slot.mark(generation, Stage::Validated);
    clock.0.store(130, Relaxed);
    let closed = slot.close(generation).unwrap();
    assert_eq!(closed.total, 30);
    assert_eq!(slot.times().get(Stage::Received), Some(Duration::ZERO));
}

#[test]
fn a_row_begins_without_the_times_of_the_one_before() {
    let clock = Arc::new(Hands::default());
    let slot = slot(clock.clone());
    for _ in 0..2 {
        let generation = slot.open("GET", Route::Unmatched);
        slot.mark(generation, Stage::Persisted);
        clock.0.fetch_add(7, Relaxed);
        let closed = slot.close(generation).unwrap();
        assert_eq!(closed.total, 7);
        assert_eq!(slot.times().total(), Duration::from_nanos(7));
    }
}

#[test]
fn a_handle_of_an_earlier_request_changes_nothing() {
    let slot = slot(Arc::new(Hands::default()));
    let first = slot.open("GET", Route::Unmatched);
    let wait = slot.begin_wait(first, WaitReason::Flight, Blocker::from(7));
    assert!(slot.close(first).is_some());
    let second = slot.open("PUT", Route::Static("/x"));
    let kept = slot.begin_wait(second, WaitReason::Lease, Blocker::from("a"));
    assert_eq!((wait, kept), (Some(0), Some(1)));

    slot.mark(first, Stage::Persisted);
    slot.ends_as(first, Cause::Panicked);
    assert_eq!(slot.begin_wait(first, WaitReason::Permit, 1.into()), None);
    slot.end_wait(first, 1);
    assert!(slot.close(first).is_none());

    let row = slot.snapshot().unwrap();
    assert_eq!((row.method, row.stage), ("PUT", Stage::Received));
    assert_eq!(row.wait.map(|w| w.0), Some(WaitReason::Lease));
    assert_eq!(slot.close(second).unwrap().verdict, None);
    assert_eq!(slot.shared.late_marks.load(Relaxed), 3);
}

#[test]
fn the_first_word_on_the_end_counts() {
    let slot = slot(Arc::new(Hands::default()));
    let generation = slot.open("GET", Route::Unmatched);
    slot.ends_as(generation, Cause::Rejected);
    slot.ends_as(generation, Cause::Panicked);
    let closed = slot.close(generation).unwrap();
    assert_eq!(closed.verdict, Some(Cause::Rejected));
}

#[test]
fn of_several_waits_the_newest_is_shown() {
    let slot = slot(Arc::new(Hands::default()));
    let generation = slot.open("GET", Route::Unmatched);
    let shown = || slot.snapshot().unwrap().wait.map(|w| w.0);
    let outer = slot.begin_wait(generation, WaitReason::Lease, 1.into());
    let inner = slot.begin_wait(generation, WaitReason::Permit, 2.into());
    assert_eq!(shown(), Some(WaitReason::Permit));
    slot.end_wait(generation, inner.unwrap());
    assert_eq!(shown(), Some(WaitReason::Lease));
    slot.end_wait(generation, outer.unwrap());
    assert_eq!(shown(), None);
}

/// A clock whose every reading is a nanosecond after the one before.
#[derive(Debug, Default)]
struct Steps(AtomicU64);

impl Clock for Steps {
    fn now(&self) -> Moment {
        Moment::since_start(Duration::from_nanos(self.0.fetch_add(1, Relaxed)))
    }

    fn unix_time(&self) -> Duration {
        Duration::ZERO
    }

    fn sleep_until(&self, _: Moment) -> BoxFuture<'static, ()> {
        Box::pin(std::future::pending())
    }
}

/// Two threads mark one row, which begins anew again and again; a third reads. In a row seen whole the
/// times of the stages that were left sum up to the time of the last entry.
#[test]
fn a_reader_never_sees_half_a_mark() {
    let clock = Arc::new(Steps::default());
    let slot = slot(clock);
    let live = AtomicU32::new(u32::MAX);
    let stop = AtomicBool::new(false);
    let start = Barrier::new(4);
    let stages = stages();
    std::thread::scope(|scope| {
        for offset in 0..2 {
            let (slot, live, stop, start, stages) = (&slot, &live, &stop, &start, &stages);
            scope.spawn(move || {
                start.wait();
                let mut next = offset;
                while !stop.load(Relaxed) {
                    next += 1;
                    slot.mark(live.load(Relaxed), stages[next % stages.len()]);
                }
            });
        }
        scope.spawn(|| {
            start.wait();
            while !stop.load(Relaxed) {
                let generation = slot.open("GET", Route::Unmatched);
                live.store(generation, Relaxed);
                for _ in 0..50 {
                    slot.mark(generation, Stage::Validated);
                }
                let closed = slot.close(generation).unwrap();
                assert_eq!(slot.times().total(), Duration::from_nanos(closed.total));
            }
        });
        start.wait();
        // A failed assertion must let the others end, else the scope waits for ever.
        let _stops = StopOnDrop(&stop);
        let began = std::time::Instant::now();
        let mut seen = 0;
        while goes_on(seen, 200_000, began) {
            let Some(row) = slot.snapshot() else { continue };
            seen += 1;
            let left = Duration::from_nanos(row.entered - row.started);
            assert_eq!(row.spent.total(), left, "{row:?}");
        }
    });
}

/// One thread begins and ends rows, another reads. A row that is seen began after the one before was left.
#[test]
fn a_reader_never_sees_half_a_beginning() {
    let slot = slot(Arc::new(Steps::default()));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Relaxed) {
                let generation = slot.open("GET", Route::Unmatched);
                slot.mark(generation, Stage::Validated);
                slot.close(generation).unwrap();
            }
        });
        let _stops = StopOnDrop(&stop);
        let began = std::time::Instant::now();
        let mut last = None;
        let mut seen = 0;
        while goes_on(seen, 200_000, began) {
            let Some(row) = slot.snapshot() else { continue };
            if let Some((id, entered)) = last
                && id != row.id
            {
                seen += 1;
                assert!(row.started > entered, "{row:?} after {entered}");
            }
            last = Some((row.id, row.entered));
        }
    });
}

/// Whether to look for more rows. Threads that share one core show the reader one in each of its turns, and a
/// busy machine gives few: those are enough after a while.
fn goes_on(seen: u32, enough: u32, began: std::time::Instant) -> bool {
    let (few, passed) = (20, began.elapsed());
    assert!(
        seen >= few || passed < Duration::from_secs(120),
        "saw only {seen} rows"
    );
    seen < enough && (seen < few || passed < Duration::from_secs(10))
}

struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}
