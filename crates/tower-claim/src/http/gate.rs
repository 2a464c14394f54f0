//! Which requests a layer looks at, and whether it acts on them.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use http::Method;
use http::request::Parts;

use super::original_uri;

/// What a layer does with a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Mode {
    /// Acts. The default.
    #[default]
    On,
    /// Counts what it would do, and never refuses, replays or merges.
    Observe,
    /// Passes the request through.
    Off,
}

/// Sets a layer's [`Mode`] while it runs. Clones share it.
///
/// ```
/// use tower_claim::http::{Mode, Switch};
///
/// let switch = Switch::default();
/// let in_the_layer = switch.clone();
/// switch.set(Mode::Off);
/// assert_eq!(in_the_layer.mode(), Mode::Off);
/// ```
#[derive(Clone, Default)]
pub struct Switch(Arc<AtomicU8>);

impl Switch {
    /// A switch in this position.
    pub fn new(mode: Mode) -> Self {
        let switch = Self::default();
        switch.set(mode);
        switch
    }

    /// Turns it. Requests that are under way keep the mode they began with.
    pub fn set(&self, mode: Mode) {
        self.0.store(mode as u8, Ordering::Relaxed);
    }

    /// Its position.
    pub fn mode(&self) -> Mode {
        match self.0.load(Ordering::Relaxed) {
            0 => Mode::On,
            1 => Mode::Observe,
            _ => Mode::Off,
        }
    }
}

impl fmt::Debug for Switch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Switch").field(&self.mode()).finish()
    }
}

type Predicate = Arc<dyn Fn(&Parts) -> bool + Send + Sync>;

/// Limits a layer to methods, routes and a predicate, and holds its [`Switch`]. Lets everything through by
/// default. All limits that are set must agree.
#[derive(Clone, Default)]
pub struct Gate {
    methods: Option<Arc<[Method]>>,
    routes: Option<Arc<[String]>>,
    predicate: Option<Predicate>,
    switch: Switch,
}

impl Gate {
    /// Lets everything through.
    pub fn new() -> Self {
        Self::default()
    }

    /// Only these methods. All by default.
    #[must_use]
    pub fn methods(mut self, methods: impl IntoIterator<Item = Method>) -> Self {
        self.methods = Some(methods.into_iter().collect());
        self
    }

    /// Only these methods, where the gate names none: the default of a layer.
    #[must_use]
    pub fn or_methods(self, methods: impl IntoIterator<Item = Method>) -> Self {
        if self.methods.is_some() {
            return self;
        }
        self.methods(methods)
    }

    /// Only these paths: whole original paths, or prefixes that end in `/*` (`/orders/*` is every path
    /// below `/orders/`). All by default.
    #[must_use]
    pub fn routes<R: Into<String>>(mut self, routes: impl IntoIterator<Item = R>) -> Self {
        self.routes = Some(routes.into_iter().map(Into::into).collect());
        self
    }

    /// Only requests of which this holds. All by default.
    #[must_use]
    pub fn when(mut self, predicate: impl Fn(&Parts) -> bool + Send + Sync + 'static) -> Self {
        self.predicate = Some(Arc::new(predicate));
        self
    }

    /// The switch that turns the layer on and off while it runs. One of its own, on, by default.
    #[must_use]
    pub fn switch(mut self, switch: Switch) -> Self {
        self.switch = switch;
        self
    }

    /// The methods it names; `None` for all.
    pub fn named_methods(&self) -> Option<&[Method]> {
        self.methods.as_deref()
    }

    /// The routes it names; `None` for all.
    pub fn named_routes(&self) -> Option<&[String]> {
        self.routes.as_deref()
    }

    /// Whether a [predicate](Self::when) has a say, too.
    pub fn has_predicate(&self) -> bool {
        self.predicate.is_some()
    }

    /// Where its switch stands just now.
    pub fn switched(&self) -> Mode {
        self.switch.mode()
    }

    /// What the layer does with this request. Allocates nothing.
    pub fn mode(&self, parts: &Parts) -> Mode {
        let mode = self.switch.mode();
        if mode == Mode::Off || !self.admits(parts) {
            Mode::Off
        } else {
            mode
        }
    }

    /// Whether its methods and routes are this request's, whatever its [predicate](Self::when) says and wherever its
    /// switch stands. Allocates nothing.
    pub fn names(&self, parts: &Parts) -> bool {
        let path = || original_uri(&parts.extensions, &parts.uri).path();
        self.methods
            .as_ref()
            .is_none_or(|m| m.contains(&parts.method))
            && self
                .routes
                .as_ref()
                .is_none_or(|routes| routes.iter().any(|r| covers(r, path())))
    }

    fn admits(&self, parts: &Parts) -> bool {
        self.names(parts) && self.predicate.as_ref().is_none_or(|p| p(parts))
    }
}

fn covers(route: &str, path: &str) -> bool {
    match route.strip_suffix('*') {
        Some(prefix) if prefix.ends_with('/') => {
            path.len() > prefix.len() && path.starts_with(prefix)
        }
        _ => route == path,
    }
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate")
            .field("methods", &self.methods)
            .field("routes", &self.routes)
            .field("predicate", &self.predicate.as_ref().map(|_| "…"))
            .field("switch", &self.switch)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(method: Method, path: &str) -> Parts {
        http::Request::builder()
            .method(method)
            .uri(path)
            .body(())
            .unwrap()
            .into_parts()
            .0
    }

    #[test]
    fn every_limit_must_agree() {
        let gate = Gate::new()
            .methods([Method::POST])
            .routes(["/orders", "/v1/*"])
            .when(|p| !p.headers.contains_key("x-skip"));
        assert_eq!(gate.mode(&parts(Method::POST, "/orders?x=1")), Mode::On);
        assert_eq!(gate.mode(&parts(Method::POST, "/v1/orders")), Mode::On);
        assert_eq!(gate.mode(&parts(Method::GET, "/orders")), Mode::Off);
        assert_eq!(gate.mode(&parts(Method::POST, "/v1/")), Mode::Off);
        assert_eq!(gate.mode(&parts(Method::POST, "/orders/7")), Mode::Off);
        let mut skipped = parts(Method::POST, "/orders");
        skipped
            .headers
            .insert("x-skip", http::HeaderValue::from_static("1"));
        assert_eq!(gate.mode(&skipped), Mode::Off);
    }

    #[test]
    fn the_switch_works_while_the_layer_runs() {
        let switch = Switch::default();
        let gate = Gate::new().methods([Method::POST]).switch(switch.clone());
        for mode in [Mode::Observe, Mode::Off, Mode::On] {
            switch.set(mode);
            assert_eq!(gate.mode(&parts(Method::POST, "/")), mode);
            assert_eq!(gate.mode(&parts(Method::GET, "/")), Mode::Off);
        }
    }

    #[test]
    fn what_it_names_neither_its_predicate_nor_its_switch_decides() {
        let gate = Gate::new()
            .methods([Method::POST])
            .routes(["/orders"])
            .when(|_| false)
            .switch(Switch::new(Mode::Off));
        assert!(gate.names(&parts(Method::POST, "/orders")));
        assert!(!gate.names(&parts(Method::GET, "/orders")));
        assert!(!gate.names(&parts(Method::POST, "/refunds")));
    }
}
