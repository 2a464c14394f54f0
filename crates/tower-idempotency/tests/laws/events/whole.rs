//! The table is whole and true, and nothing secret is told.

use std::collections::BTreeSet;

use super::{order, scenes, told};
use crate::support::*;

/// The table of events, as it is published.
const TABLE: &str = include_str!("../../../src/telemetry.md");

/// Level, target, event, fields.
type Row = (String, String, String, BTreeSet<String>);

fn published() -> Vec<Row> {
    let rows = TABLE.lines().filter(|line| {
        let level = line.trim_start_matches("| ").split(' ').next();
        level.is_some_and(|level| ["TRACE", "DEBUG", "INFO", "WARN", "ERROR"].contains(&level))
    });
    rows.map(|row| {
        let cells: Vec<_> = row.split('|').map(str::trim).collect();
        let [_, level, target, event, fields, ..] = cells[..] else {
            panic!("{row}");
        };
        let fields = fields
            .split(',')
            .map(|field| field.trim().trim_matches('`'));
        let fields = fields.filter(|field| !field.is_empty()).map(str::to_owned);
        (
            level.to_owned(),
            target.trim_matches('`').to_owned(),
            event.to_owned(),
            fields.collect(),
        )
    })
    .collect()
}

fn is_of(told: &Told, (level, target, event, fields): &Row) -> bool {
    let begins = match event.strip_suffix('…') {
        Some(begin) => told.message.starts_with(begin),
        None => told.message == *event,
    };
    let is_published = |field: &&'static str| fields.contains(*field);
    begins && told.level == *level && told.target == *target && told.fields.keys().all(is_published)
}

async fn all_scenes() {
    scenes::everyday().await;
    scenes::zombie().await;
    scenes::panics().await;
    scenes::late().await;
    scenes::never_home().await;
    scenes::too_late().await;
    scenes::not_committed().await;
    scenes::transaction_left_behind().await;
    scenes::not_kept().await;
    scenes::cut_off().await;
    scenes::unprotected().await;
    scenes::reconciled().await;
    scenes::existing().await;
    scenes::rendered().await;
    scenes::store_down().await;
    scenes::unreadable().await;
    scenes::weak_key().await;
    scenes::misorder().await;
    scenes::keeper_panics().await;
}

#[tokio::test(start_paused = true)]
async fn every_event_is_a_row_of_the_table_and_every_row_is_told_with_all_its_fields() {
    let (log, ()) = told(all_scenes()).await;
    let rows = published();
    assert!(rows.len() > 20, "{rows:?}");
    for event in log.told() {
        assert!(rows.iter().any(|row| is_of(&event, row)), "{event:?}");
    }
    for row in &rows {
        let events = log.told().into_iter().filter(|event| is_of(event, row));
        let fields: BTreeSet<_> = events.flat_map(|event| event.fields.into_keys()).collect();
        let fields: BTreeSet<_> = fields.into_iter().map(str::to_owned).collect();
        let seen = log.told().iter().any(|event| is_of(event, row));
        assert!(seen && fields == row.3, "{row:?}: {fields:?}");
    }
}

/// Keys, scopes, headers, queries, bodies of requests and of answers, rows that a database quotes.
#[tokio::test(start_paused = true)]
async fn nothing_secret_is_told() {
    #[cfg(feature = "metrics")]
    let recorder = metrics_util::debugging::DebuggingRecorder::new();
    #[cfg(feature = "metrics")]
    let _recording = metrics::set_default_local_recorder(&recorder);
    let (log, ()) = told(all_scenes()).await;
    let text = log.text();
    assert!(text.len() > 10_000 && text.contains("TRACE"), "{text}");
    let secret = text.lines().find(|line| line.contains("s3cret"));
    assert_eq!(secret, None);
    #[cfg(feature = "metrics")]
    {
        let told = recorder.snapshotter().snapshot().into_vec();
        assert!(!told.is_empty());
        assert!(!format!("{told:?}").contains("s3cret"), "{told:?}");
    }
}

/// What a program prints of the things that it has in its hands.
#[tokio::test(start_paused = true)]
async fn debug_output_holds_nothing_secret() {
    use std::sync::{Arc, Mutex};

    use tower::{Layer, ServiceExt};
    use tower_claim::transaction::{Conflict, UniqueViolation};
    use tower_idempotency::{
        Explanation, IdempotencyKeyLayer, IdempotentRun, KeyLookup, LogicalCall, PolicyService,
    };

    let app = App::new();
    let shown = Arc::new(Mutex::new(String::new()));
    let layer = scenes::orders(&app)
        .fingerprint_secret(*b"s3cret s3cret s3cret s3cret s3cr")
        .seal_with(tower_idempotency::KeyRing::new(
            "a",
            *b"s3cret s3cret s3cret s3cret s3cr",
        ));
    shown.lock().unwrap().push_str(&format!("{layer:?}"));
    let layer = layer.build().unwrap();
    let handler = tower::service_fn({
        let shown = Arc::clone(&shown);
        move |request: http::Request<tower_idempotency::RequestBody<Body>>| {
            let run = request.extensions().get::<IdempotentRun>();
            let text = format!("{:?} {:?}", run.unwrap(), request.body());
            shown.lock().unwrap().push_str(&text);
            let response = http::Response::new(body_of("s3cret-answer"));
            std::future::ready(Ok::<_, std::io::Error>(response))
        }
    });
    let service = layer.layer(tower::util::BoxCloneSyncService::new(handler));
    let future = service.clone().oneshot(order().request());
    let response = future.await.unwrap();
    let body = format!("{:?}", response.body());
    read(response).await;
    let operator = layer.operator(app.store.inner().clone());
    let key = operator.key_of(&order().request().into_parts().0).unwrap();
    let explained: Explanation = operator.explain(key).await.unwrap();
    assert!(matches!(explained, Explanation::Done { .. }));
    let violation = UniqueViolation::new("orders_pk").with_detail("s3cret-row");
    let call = LogicalCall::resumed("s3cret-key-8e03978e", ms(0)).unwrap();
    let all = [
        shown.lock().unwrap().clone(),
        body,
        format!("{layer:?} {service:?} {operator:?} {key:?} {explained:?}"),
        format!("{:?}", Conflict::UniqueViolation(violation)),
        format!("{call:?} {:?}", IdempotencyKeyLayer::new()),
        format!(
            "{:?} {:?}",
            KeyLookup::new(&layer),
            PolicyService::new(&layer)
        ),
        format!("{:?}", tower_claim::store::Value::Kept("s3cret".into())),
    ];
    for shown in all {
        // What is shown as bytes is secret, too.
        let is_secret = ["s3cret", "115, 51, 99"].iter().any(|s| shown.contains(s));
        assert!(!is_secret, "{shown}");
    }
}
