//! How messages show in debug output: what they are, and nothing that they say.

use std::fmt;

use bytes::Bytes;
use http::{HeaderMap, Response, request};

/// The head of a request, without its path, which may name the business key.
pub(crate) struct Asked<'a>(pub(crate) &'a request::Parts);

impl fmt::Debug for Asked<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request")
            .field("method", &self.0.method)
            .field("headers", &Names(&self.0.headers))
            .finish_non_exhaustive()
    }
}

/// A response, and how long its body is.
pub(crate) struct Answer<'a>(pub(crate) &'a Response<Bytes>);

impl fmt::Debug for Answer<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Response")
            .field("status", &self.0.status())
            .field("headers", &Names(self.0.headers()))
            .field("bytes", &self.0.body().len())
            .finish_non_exhaustive()
    }
}

/// Headers by their names.
pub(crate) struct Names<'a>(pub(crate) &'a HeaderMap);

impl fmt::Debug for Names<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.keys()).finish()
    }
}
