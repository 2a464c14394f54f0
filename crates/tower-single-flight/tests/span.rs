//! The tracing span of a call that became a task.
#![cfg(feature = "tracing")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

mod common;

use std::sync::Arc;

use common::*;
use tokio::time::sleep;
use tower_claim::TokioClock;
use tower_single_flight::SingleFlight;
use tracing::{Instrument, info_span};

#[test]
fn a_promoted_call_keeps_its_leaders_span() {
    let _subscriber = tracing::subscriber::set_default(tracing_subscriber::registry());
    paused(async {
        let flights: SingleFlight<u32, _> = SingleFlight::builder()
            .clock(Arc::new(TokioClock::new()))
            .build()
            .unwrap();
        let call = || {
            flights.run(7, || async {
                sleep(20 * MS).await;
                Ok(tracing::Span::current().id())
            })
        };
        let (one, other) = (info_span!("leader"), info_span!("follower"));
        let leader = tokio::spawn(call().instrument(one.clone()));
        tokio::task::yield_now().await;
        let follower = tokio::spawn(call().instrument(other));
        sleep(MS).await;
        assert_eq!(flights.tasks(), 1);
        assert!(one.id().is_some());
        assert_eq!(leader.await.unwrap().unwrap(), one.id());
        assert_eq!(follower.await.unwrap().unwrap(), one.id());
    });
}
