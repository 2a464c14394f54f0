//! The path as the client sent it.

use http::{Extensions, Request, Uri};

/// Put into a request's extensions by the outermost layer of the family that adds extensions anyway.
#[derive(Debug, Clone)]
struct RecordedUri(Uri);

/// The URI as the client sent it. A nested router strips its prefix from the request's URI: keyed by
/// that, `/b/x` would be answered with the response of `/a/x`.
///
/// Looks for axum's `OriginalUri` (feature `axum`), then for what [`record_original_uri`] put down, and
/// falls back to `uri`.
pub fn original_uri<'a>(extensions: &'a Extensions, uri: &'a Uri) -> &'a Uri {
    #[cfg(feature = "axum")]
    if let Some(original) = extensions.get::<axum::extract::OriginalUri>() {
        return &original.0;
    }
    extensions
        .get::<RecordedUri>()
        .map_or(uri, |recorded| &recorded.0)
}

/// Puts the URI down for the layers inside, unless a layer outside did so before.
pub fn record_original_uri<B>(request: &mut Request<B>) {
    if request.extensions().get::<RecordedUri>().is_none() {
        let uri = original_uri(request.extensions(), request.uri()).clone();
        request.extensions_mut().insert(RecordedUri(uri));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_record_wins() {
        let mut request = Request::builder().uri("/a/x?q=1").body(()).unwrap();
        record_original_uri(&mut request);
        *request.uri_mut() = Uri::from_static("/x?q=1");
        record_original_uri(&mut request);
        assert_eq!(
            original_uri(request.extensions(), request.uri()),
            "/a/x?q=1"
        );
    }

    #[test]
    fn without_a_record_it_is_the_uri() {
        let request = Request::builder().uri("/x").body(()).unwrap();
        assert_eq!(original_uri(request.extensions(), request.uri()), "/x");
    }

    #[cfg(feature = "axum")]
    #[test]
    fn axum_knows_better() {
        let mut request = Request::builder().uri("/x").body(()).unwrap();
        request
            .extensions_mut()
            .insert(axum::extract::OriginalUri(Uri::from_static("/a/x")));
        assert_eq!(original_uri(request.extensions(), request.uri()), "/a/x");
    }
}
