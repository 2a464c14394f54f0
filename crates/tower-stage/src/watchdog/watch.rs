//! What a watchdog makes of two looks at the table. Pure.

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use crate::{Live, RowId, Stage};

/// Rows told of in one look. An outage that holds a thousand requests is one thing to tell, not a
/// thousand.
const TOLD_AT_ONCE: usize = 10;

/// What a [`Watchdog`](crate::Watchdog) tells.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Report {
    /// A request is stuck.
    Stuck {
        /// Its row.
        row: Box<Live>,
        /// What its task did since the look before.
        motion: Motion,
        /// 1 when it is told of for the first time in this stage, then 2, 4, 8 for so many thresholds.
        times: u32,
    },
    /// So many more are stuck, which are not told of one by one in this look.
    More(usize),
    /// The process, or the machine, stood still for so long. That time is nobody's fault, and is not
    /// counted against the rows that were under way.
    Paused(Duration),
}

/// What a request's task did between two looks. Work that a handler has spawned is not seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Motion {
    /// It was in one and the same poll all the time: it blocks the thread.
    Blocking,
    /// It was not polled: nothing has woken it.
    NeverWoken,
    /// It was polled.
    Moving,
}

impl fmt::Display for Motion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Motion::Blocking => "blocks its thread",
            Motion::NeverWoken => "not woken",
            Motion::Moving => "moving",
        })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Report::Stuck { row, motion, .. } => {
                write!(
                    f,
                    "{} {} {} stuck in {} for {:.1?} ({motion}",
                    row.id(),
                    row.method(),
                    row.route(),
                    row.stage(),
                    row.age(),
                )?;
                if let Some(wait) = row.wait() {
                    write!(f, ", waits for {} {}", wait.reason, wait.blocker)?;
                }
                f.write_str(")")
            }
            Report::More(count) => write!(f, "{count} more stuck"),
            Report::Paused(gap) => write!(f, "the process stood still for {gap:.1?}"),
        }
    }
}

#[derive(Debug)]
pub(super) struct Watch {
    every: Duration,
    looked: Option<Duration>,
    seen: HashMap<RowId, Seen>,
}

#[derive(Debug, Clone, Copy)]
struct Seen {
    /// When it entered its stage, after its start: tells one visit to a stage from the next.
    entered: Duration,
    polls: u32,
    forgiven: Duration,
    /// At how many thresholds it is told of next.
    next: u32,
}

impl Watch {
    pub(super) fn new(every: Duration) -> Self {
        Self {
            every,
            looked: None,
            seen: HashMap::new(),
        }
    }

    /// `now` by the board's clock, all rows, and the threshold of each stage.
    pub(super) fn look(
        &mut self,
        now: Duration,
        rows: Vec<Live>,
        threshold: impl Fn(Stage) -> Option<Duration>,
    ) -> Vec<Report> {
        let gap = now.saturating_sub(self.looked.replace(now).unwrap_or(now));
        let paused = if gap > self.every * 3 {
            gap - self.every
        } else {
            Duration::ZERO
        };
        let mut reports = Vec::new();
        if !paused.is_zero() {
            reports.push(Report::Paused(paused));
        }

        let mut before = std::mem::take(&mut self.seen);
        let mut stuck = 0;
        for row in rows {
            let entered = row.total_age().saturating_sub(row.age());
            let known = before.remove(&row.id());
            let mut seen = match known {
                Some(seen) if seen.entered == entered => seen,
                _ => Seen {
                    entered,
                    polls: row.polls(),
                    forgiven: Duration::ZERO,
                    next: 1,
                },
            };
            seen.polls = row.polls();
            seen.forgiven += paused;
            let age = row.age().saturating_sub(seen.forgiven);
            let limit = threshold(row.stage());
            if limit.is_some_and(|limit| age > limit.saturating_mul(seen.next)) {
                let times = seen.next;
                seen.next = times.saturating_mul(2);
                stuck += 1;
                if stuck <= TOLD_AT_ONCE {
                    reports.push(Report::Stuck {
                        motion: motion(known.map(|seen| seen.polls), row.polls()),
                        times,
                        row: Box::new(row.clone()),
                    });
                }
            }
            self.seen.insert(row.id(), seen);
        }
        if stuck > TOLD_AT_ONCE {
            reports.push(Report::More(stuck - TOLD_AT_ONCE));
        }
        reports
    }
}

/// An odd number of turns is a poll under way.
fn motion(before: Option<u32>, now: u32) -> Motion {
    match before {
        Some(before) if before != now => Motion::Moving,
        _ if now % 2 == 1 => Motion::Blocking,
        _ => Motion::NeverWoken,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Board;
    use std::sync::Arc;
    use tower_claim::testing::ManualClock;

    struct Scene {
        clock: ManualClock,
        board: Board,
        watch: Watch,
    }

    impl Scene {
        fn new() -> Self {
            let clock = ManualClock::new();
            let board = Board::builder()
                .clock(Arc::new(clock.clone()))
                .build()
                .unwrap();
            Self {
                clock,
                board,
                watch: Watch::new(Duration::from_secs(1)),
            }
        }

        /// Looks every second for so long.
        fn pass(&mut self, seconds: u64) -> Vec<Report> {
            let mut reports = Vec::new();
            for _ in 0..seconds {
                self.clock.advance(Duration::from_secs(1));
                reports.extend(self.board.look(&mut self.watch));
            }
            reports
        }
    }

    fn times(reports: &[Report]) -> Vec<u32> {
        let times = reports.iter().map(|report| match report {
            Report::Stuck { times, .. } => *times,
            other => panic!("{other}"),
        });
        times.collect()
    }

    #[test]
    fn a_stuck_row_is_told_of_at_1_2_4_and_8_thresholds() {
        let mut scene = Scene::new();
        let row = scene
            .board
            .open("GET", crate::board::Route::Unmatched)
            .unwrap();
        assert_eq!(times(&scene.pass(2)), [0_u32; 0], "2 s is not over 2 s");
        assert_eq!(times(&scene.pass(18)), [1, 2, 4, 8]);
        row.mark(Stage::Validated);
        assert_eq!(times(&scene.pass(3)), [1], "a new stage begins anew");
        row.close(crate::Cause::Done, Default::default());
        assert_eq!(times(&scene.pass(10)), [0_u32; 0]);
        assert!(scene.watch.seen.is_empty(), "nothing is left of it");
    }

    #[test]
    fn a_pause_of_the_process_is_no_hang() {
        let mut scene = Scene::new();
        let _row = scene.board.open("GET", crate::board::Route::Unmatched);
        assert!(scene.pass(1).is_empty());
        scene.clock.advance(Duration::from_secs(3600));
        let reports = scene.board.look(&mut scene.watch);
        assert!(matches!(reports[..], [Report::Paused(_)]), "{reports:?}");
        assert_eq!(times(&scene.pass(2)), [1], "its own time still counts");
    }

    #[test]
    fn blocking_is_told_from_never_woken() {
        let mut scene = Scene::new();
        let row = scene
            .board
            .open("GET", crate::board::Route::Unmatched)
            .unwrap();
        let motion_after = |scene: &mut Scene, seconds| match scene.pass(seconds).pop() {
            Some(Report::Stuck { motion, .. }) => motion,
            other => panic!("{other:?}"),
        };
        assert_eq!(motion_after(&mut scene, 3), Motion::NeverWoken);
        row.slot().turn();
        scene.pass(1);
        assert_eq!(motion_after(&mut scene, 1), Motion::Blocking);
        scene.pass(3);
        row.slot().turn();
        assert_eq!(motion_after(&mut scene, 1), Motion::Moving);
    }

    #[test]
    fn an_outage_is_told_in_a_few_lines() {
        let mut scene = Scene::new();
        let _rows: Vec<_> = (0..47)
            .map(|_| scene.board.open("GET", crate::board::Route::Unmatched))
            .collect();
        let reports = scene.pass(3);
        assert_eq!(reports.len(), 11);
        assert_eq!(reports[10].to_string(), "37 more stuck");
    }
}
