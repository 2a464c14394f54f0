//! What is told to `metrics`.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder,
    SharedString, Unit,
};
use tower_claim::testing::Fault;

use crate::support::*;

/// What was told: a counter's sum, a gauge's last value, how many spans a histogram has and their sum.
#[derive(Clone, Default)]
struct Told(Arc<Mutex<BTreeMap<String, (f64, u64)>>>);

struct One(String, Told);

impl Told {
    fn of(&self, key: &Key) -> Arc<One> {
        let labels: Vec<_> = key
            .labels()
            .map(|l| format!("{}={}", l.key(), l.value()))
            .collect();
        Arc::new(One(
            format!("{}{{{}}}", key.name(), labels.join(",")),
            self.clone(),
        ))
    }

    fn get(&self, name: &str) -> Option<(f64, u64)> {
        self.0.lock().unwrap().get(name).copied()
    }
}

impl One {
    fn change(&self, by: impl FnOnce(&mut f64)) {
        let mut told = self.1.0.lock().unwrap();
        let (value, times) = told.entry(self.0.clone()).or_default();
        by(value);
        *times += 1;
    }
}

impl CounterFn for One {
    fn increment(&self, by: u64) {
        self.change(|value| *value += by as f64);
    }
    fn absolute(&self, _: u64) {
        unreachable!("counters only rise");
    }
}

impl GaugeFn for One {
    fn increment(&self, _: f64) {
        unreachable!("gauges are set");
    }
    fn decrement(&self, _: f64) {
        unreachable!("gauges are set");
    }
    fn set(&self, to: f64) {
        self.change(|value| *value = to);
    }
}

impl HistogramFn for One {
    fn record(&self, span: f64) {
        self.change(|value| *value += span);
    }
}

impl Recorder for Told {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.of(key))
    }
    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.of(key))
    }
    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(self.of(key))
    }
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn outcomes_store_calls_and_the_oldest_run_are_told() {
    let told = Told::default();
    let _guard = metrics::set_default_local_recorder(&told);
    let app = App::new();
    let layer = app.builder().named("orders").build().unwrap();
    let service = app.under(&layer);
    assert_eq!(layer.oldest_running(), None);
    let ask = post("/orders").key("k");
    app.store.faults().set(Fault::Delay(ms(100)));
    let first = tokio::spawn({
        let (ask, service) = (ask.clone().flags("delay=2000"), service.clone());
        async move { ask.send(&service).await }
    });
    tokio::time::sleep(ms(1100)).await;
    let in_flight = || {
        told.get("idempotency_runs_in_flight{layer=orders}")
            .unwrap()
            .0
    };
    let began = || {
        told.get("idempotency_oldest_run_start_seconds{layer=orders}")
            .unwrap()
            .0
    };
    assert_eq!(in_flight(), 1.0);
    assert_eq!(layer.oldest_running(), Some(ms(1000)));
    let age = app.clock.unix_time().as_secs_f64() - began();
    assert!((age - 1.0).abs() < 0.01, "{age}");
    first.await.unwrap();
    assert_eq!(
        (in_flight(), began(), layer.oldest_running()),
        (0.0, 0.0, None)
    );

    app.store.faults().set(Fault::Ok);
    ask.send(&service).await;
    ask.clone().body("other").send(&service).await;
    app.store.faults().set(Fault::Down);
    ask.send(&service)
        .await
        .assert_refused(503, "store-unavailable");
    let outcome = |name: &str| {
        let name = format!("idempotency_outcomes_total{{layer=orders,outcome={name}}}");
        told.get(&name).map_or(0.0, |(sum, _)| sum) as u64
    };
    let counts = layer.counts();
    for (name, count) in [
        ("runs", counts.runs),
        ("kept", counts.kept),
        ("replays", counts.replays),
        ("key_reused", counts.key_reused),
        ("store_failures", counts.store_failures),
    ] {
        assert_eq!((outcome(name), count), (1, 1), "{name}");
    }
    let call = |call, ok| {
        told.get(&format!(
            "idempotency_store_seconds{{layer=orders,call={call},ok={ok}}}"
        ))
    };
    let (sum, times) = call("claim", true).unwrap();
    assert_eq!(times, 3);
    assert!((sum - 0.1).abs() < 0.001, "{sum}");
    assert!(call("claim", false).is_some());
    let (sum, times) = call("finish", true).unwrap();
    assert!(times == 1 && (sum - 0.1).abs() < 0.001, "{sum}");
}
