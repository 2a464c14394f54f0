//! The layer and its settings.

use std::borrow::Cow;
use std::fmt;
use std::mem;
use std::sync::Arc;

use http::request::Parts;
use http::{Extensions, Method, Request};
use tower_claim::ConfigError;
use tower_claim::http::{Gate, Mode};
use tower_layer::Layer;

use crate::board::Route;
use crate::tracked::Tracked;
use crate::{Board, QueueAwareLayer, StageHandle, StageService};

type NameRoute = Arc<dyn Fn(&Parts) -> Option<Cow<'static, str>> + Send + Sync>;

/// Gives every request a row on a [`Board`], from its call to the end of its response's body.
///
/// Put it outside of everything that shall be seen, and inside of a layer that catches panics. Met a
/// second time by one request, on a nested router say, it passes through: one request, one row.
#[derive(Clone)]
pub struct StageLayer {
    config: Arc<Config>,
}

impl StageLayer {
    /// Tracks every request on this board.
    pub fn new(board: Board) -> Self {
        Self::builder(board).unchecked()
    }

    /// A layer with settings of its own. Those of the table are the board's: see [`Board::builder`].
    pub fn builder(board: Board) -> StageLayerBuilder {
        StageLayerBuilder {
            config: Config {
                board,
                gate: None,
                route: None,
            },
        }
    }

    /// Sees the wait for readiness as well, as the stage `queued`. See [`QueueAwareLayer`].
    pub fn queue_aware(self) -> QueueAwareLayer {
        QueueAwareLayer::new(self)
    }

    /// The board it writes to.
    pub fn board(&self) -> &Board {
        &self.config.board
    }
}

impl<S> Layer<S> for StageLayer {
    type Service = StageService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        StageService::new(inner, self.config.clone())
    }
}

impl fmt::Debug for StageLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StageLayer")
            .field("config", &self.config)
            .finish()
    }
}

/// The settings of a [`StageLayer`].
#[derive(Debug, Clone)]
#[must_use]
pub struct StageLayerBuilder {
    config: Config,
}

impl StageLayerBuilder {
    /// Tracks only what this lets through; `Observe` is as good as `On`, since nothing is ever refused.
    /// Default: everything.
    ///
    /// ```
    /// use tower_claim::http::Gate;
    /// use tower_stage::{Board, StageLayer};
    ///
    /// let gate = Gate::new().when(|request| request.uri.path() != "/health");
    /// let layer = StageLayer::builder(Board::new()).gate(gate).build()?;
    /// # Ok::<(), tower_claim::ConfigError>(())
    /// ```
    pub fn gate(mut self, gate: Gate) -> Self {
        self.config.gate = Some(gate);
        self
    }

    /// Names the route: a template of which there are few, never a raw path. `None` shows `unmatched`; a
    /// name over 256 bytes is cut. Default: axum's matched path with the feature `axum`, else `unmatched`.
    ///
    /// ```
    /// use tower_stage::{Board, StageLayer};
    ///
    /// let layer = StageLayer::builder(Board::new())
    ///     .route(|request| request.uri.path().starts_with("/items/").then(|| "/items/{id}".into()))
    ///     .build()?;
    /// # Ok::<(), tower_claim::ConfigError>(())
    /// ```
    pub fn route<F>(mut self, name: F) -> Self
    where
        F: Fn(&Parts) -> Option<Cow<'static, str>> + Send + Sync + 'static,
    {
        self.config.route = Some(Arc::new(name));
        self
    }

    /// The layer.
    ///
    /// # Errors
    /// None of today's settings can be bad; the form is that of every builder of the family.
    pub fn build(self) -> Result<StageLayer, ConfigError> {
        Ok(self.unchecked())
    }

    fn unchecked(self) -> StageLayer {
        StageLayer {
            config: Arc::new(self.config),
        }
    }
}

/// What all services of one layer share.
#[derive(Clone)]
pub(crate) struct Config {
    board: Board,
    gate: Option<Gate>,
    route: Option<NameRoute>,
}

impl Config {
    /// Gives the request a row, and the row's handle to its extensions. No row: not for this layer, tracked
    /// by one outside, or no room.
    pub(crate) fn track<B>(&self, request: &mut Request<B>) -> Option<Tracked> {
        if let Some(outside) = request.extensions().get::<StageHandle>()
            && (outside.is_live() || outside.is_inert())
        {
            return None;
        }
        let route = self.admit(request)?;
        let Some(row) = self.board.open(name_of(request.method()), route) else {
            // So that a layer further in does not count the request again.
            request.extensions_mut().insert(StageHandle::inert());
            return None;
        };
        let handle = StageHandle::to(row);
        request.extensions_mut().insert(handle.clone());
        Some(Tracked::new(handle, request.method().clone()))
    }

    /// The route, if the gate lets the request through. Takes it apart only for who asked to see its parts.
    fn admit<B>(&self, request: &mut Request<B>) -> Option<Route> {
        if self.gate.is_none() && self.route.is_none() {
            return Some(matched(request.extensions()));
        }
        with_parts(request, |parts| {
            let off = |gate: &Gate| gate.mode(parts) == Mode::Off;
            if self.gate.as_ref().is_some_and(off) {
                return None;
            }
            Some(match &self.route {
                Some(name) => name(parts).map_or(Route::Unmatched, Route::named),
                None => matched(&parts.extensions),
            })
        })
    }
}

/// Shows `f` the head of a request that stays where it is: it is big, and every move of it is a copy.
fn with_parts<B, T>(request: &mut Request<B>, f: impl FnOnce(&Parts) -> T) -> T {
    let (mut parts, ()) = Request::new(()).into_parts();
    let swap = |request: &mut Request<B>, parts: &mut Parts| {
        mem::swap(request.method_mut(), &mut parts.method);
        mem::swap(request.uri_mut(), &mut parts.uri);
        mem::swap(request.version_mut(), &mut parts.version);
        mem::swap(request.headers_mut(), &mut parts.headers);
        mem::swap(request.extensions_mut(), &mut parts.extensions);
    };
    swap(request, &mut parts);
    let answer = f(&parts);
    swap(request, &mut parts);
    answer
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("board", &self.board)
            .field("gate", &self.gate)
            .field("route", &self.route.as_ref().map(|_| "…"))
            .finish()
    }
}

#[cfg(feature = "axum")]
fn matched(extensions: &Extensions) -> Route {
    extensions
        .get::<axum::extract::MatchedPath>()
        .cloned()
        .map_or(Route::Unmatched, Route::Matched)
}

#[cfg(not(feature = "axum"))]
fn matched(_: &Extensions) -> Route {
    Route::Unmatched
}

/// Of methods that HTTP does not define there are as many as a scanner likes.
fn name_of(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::DELETE => "DELETE",
        Method::HEAD => "HEAD",
        Method::OPTIONS => "OPTIONS",
        Method::CONNECT => "CONNECT",
        Method::PATCH => "PATCH",
        Method::TRACE => "TRACE",
        _ => "_OTHER",
    }
}
