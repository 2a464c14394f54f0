//! What is told to `metrics`, as a recorder has it.

mod age;
mod calls;
mod outcomes;

use std::collections::BTreeMap;

use metrics_util::debugging::{DebugValue, Snapshotter};

/// What a recorder has when it is looked at, by the names and labels of its metrics. It is taken out of it.
#[derive(Default)]
struct Seen {
    counters: BTreeMap<String, u64>,
    spans: BTreeMap<String, Vec<f64>>,
}

impl Seen {
    fn of(snapshotter: &Snapshotter) -> Self {
        let mut seen = Self::default();
        for (key, _, _, value) in snapshotter.snapshot().into_vec() {
            let labels: Vec<_> = key
                .key()
                .labels()
                .map(|label| format!("{}={}", label.key(), label.value()))
                .collect();
            let name = format!("{}{{{}}}", key.key().name(), labels.join(","));
            match value {
                DebugValue::Counter(count) => drop(seen.counters.insert(name, count)),
                // It would be read once only: see `age`.
                DebugValue::Gauge(_) => {}
                DebugValue::Histogram(spans) => {
                    let spans = spans.into_iter().map(|span| span.into_inner()).collect();
                    seen.spans.insert(name, spans);
                }
            }
        }
        seen
    }
}
