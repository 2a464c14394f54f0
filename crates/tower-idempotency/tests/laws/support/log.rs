//! What is told to `tracing`: the events one by one, and all that a log shows of them.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex};

use tracing::field::{Field, Visit};
use tracing::subscriber::DefaultGuard;
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;

/// One event.
#[derive(Debug, Clone, Default)]
pub(crate) struct Told {
    pub(crate) level: String,
    pub(crate) target: String,
    pub(crate) message: String,
    /// Without the message.
    pub(crate) fields: BTreeMap<&'static str, String>,
    /// The spans around it, outermost first.
    pub(crate) spans: Vec<&'static str>,
}

impl Told {
    pub(crate) fn field(&self, name: &str) -> &str {
        self.fields.get(name).map_or("", String::as_str)
    }
}

impl Visit for Told {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let value = format!("{value:?}");
        if field.name() == "message" {
            self.message = value;
        } else {
            self.fields.insert(field.name(), value);
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }
}

/// All that is told on this thread while its guard lives.
#[derive(Clone, Default)]
pub(crate) struct Log {
    text: Arc<Mutex<Vec<u8>>>,
    told: Arc<Mutex<Vec<Told>>>,
}

impl Log {
    pub(crate) fn listen(&self) -> DefaultGuard {
        let text = tracing_subscriber::fmt::layer()
            .with_writer(self.clone())
            .with_ansi(false);
        let subscriber = tracing_subscriber::registry()
            .with(tracing::level_filters::LevelFilter::TRACE)
            .with(text)
            .with(self.clone());
        tracing::subscriber::set_default(subscriber)
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.text.lock().unwrap().clone()).unwrap()
    }

    /// The events of this crate and the keeper's.
    pub(crate) fn told(&self) -> Vec<Told> {
        let told = self.told.lock().unwrap().clone();
        let ours = |told: &Told| told.target.starts_with("tower_");
        told.into_iter().filter(ours).collect()
    }

    /// Those that begin like this.
    pub(crate) fn of(&self, message: &str) -> Vec<Told> {
        let told = self.told().into_iter();
        told.filter(|told| told.message.starts_with(message))
            .collect()
    }

    /// The one that begins like this.
    #[track_caller]
    pub(crate) fn one(&self, message: &str) -> Told {
        let mut told = self.of(message);
        assert_eq!(told.len(), 1, "{message}: {}", self.text());
        told.remove(0)
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> tracing_subscriber::Layer<S> for Log {
    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let meta = event.metadata();
        let mut told = Told {
            level: meta.level().to_string(),
            target: meta.target().to_owned(),
            ..Told::default()
        };
        event.record(&mut told);
        if let Some(scope) = context.event_scope(event) {
            told.spans = scope.from_root().map(|span| span.name()).collect();
        }
        self.told.lock().unwrap().push(told);
    }
}

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.text.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}
