//! Owners whose work must not be begun a second time, lapse or no lapse, are killed.

use std::time::{Duration, Instant};

use rustix::process::{Signal, kill_process};
use tower_claim::{Attempt, Key, Terms};

use super::Engine;
use super::processes::{COOLING, Manner, Other, known};
use super::scene::{ANSWER, Party, TOLERANCE, terms, within};

/// Until a lapse is seen: the cooling is waited for by nobody here, and is what a slow machine may take.
fn lapsed<E: Engine>() -> Duration {
    E::lease() + COOLING + E::lapses_late() + TOLERANCE
}

/// Asks until the outcome is told to be unknown, and no more than `limit`.
///
/// # Panics
///
/// Where the key is granted.
async fn told_unknown(rival: &Party, key: Key, terms: &Terms, other: &Other, limit: Duration) {
    let until = Instant::now() + limit;
    loop {
        let seen = rival.try_take(key, terms).await;
        match &seen {
            Ok(Attempt::Unknown(unknown)) => {
                assert_eq!(unknown.token, other.token);
                return;
            }
            // An engine may be late to notice.
            Ok(Attempt::Busy(_) | Attempt::Cooling(_)) => {}
            _ => panic!("neither held nor unknown: {seen:?}"),
        }
        assert!(
            Instant::now() < until,
            "not told within {limit:?}: {seen:?}"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A process is killed (SIGKILL) that holds under `Hold`, or is past its point of no return: everybody is told
/// that the outcome is unknown, in time, and nobody is granted the key.
pub async fn killed<E: Engine>(other_process: &str, manner: Manner) {
    let engine = E::start().await;
    let rival = Party::at::<E>(engine.address()).await;
    let mut other = Other::holding(engine.address(), other_process, manner).await;
    let (key, terms) = (known(&other.part), terms::<E>());
    let taken = rival.try_take(key, &terms).await;
    assert!(matches!(taken, Ok(Attempt::Busy(_))), "{taken:?}");

    kill_process(other.pid, Signal::KILL).expect("it runs");
    within(ANSWER, "its end", other.child.wait())
        .await
        .expect("it has a status");
    told_unknown(&rival, key, &terms, &other, lapsed::<E>()).await;
    // No more than a lease later.
    tokio::time::sleep(COOLING).await;
    told_unknown(&rival, key, &terms, &other, Duration::ZERO).await;
}
