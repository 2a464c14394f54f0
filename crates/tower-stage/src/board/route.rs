//! The route of a row: a template, never a raw path.

use std::borrow::Cow;
use std::sync::Arc;

use serde::{Serialize, Serializer};

/// Longest route that is kept, in bytes. The rest is cut.
const LONGEST: usize = 256;

/// What a row shows without a template. A raw path in its place would pin what the client sent, and give
/// every scanner a line of its own in what is counted by route.
const UNMATCHED: &str = "unmatched";

#[derive(Debug, Clone, Default)]
pub(crate) enum Route {
    #[default]
    Unmatched,
    Static(&'static str),
    Shared(Arc<str>),
    #[cfg(feature = "axum")]
    Matched(axum::extract::MatchedPath),
}

impl Route {
    pub(crate) fn named(name: Cow<'static, str>) -> Self {
        let mut end = name.len().min(LONGEST);
        while !name.is_char_boundary(end) {
            end -= 1;
        }
        match name {
            Cow::Borrowed(name) => Route::Static(&name[..end]),
            Cow::Owned(name) => Route::Shared(Arc::from(&name[..end])),
        }
    }

    pub(crate) fn as_str(&self) -> &str {
        match self {
            Route::Unmatched => UNMATCHED,
            Route::Static(name) => name,
            Route::Shared(name) => name,
            #[cfg(feature = "axum")]
            Route::Matched(path) => path.as_str(),
        }
    }
}

impl Serialize for Route {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}
