//! A request that already flies in a layer passes through it the second time.
//!
//! Else a handler that asks its own service for its own key, with the extensions passed on, would wait for
//! itself; so would two handlers that ask for each other's.

use std::sync::Arc;

use http::Extensions;

use super::layer::Shared;

/// The layers that a request, or what it came from, flies in.
#[derive(Clone)]
struct Aloft {
    layer: Arc<Shared>,
    outer: Option<Arc<Aloft>>,
}

pub(super) fn is_aloft(extensions: &Extensions, layer: &Arc<Shared>) -> bool {
    let mut next = extensions.get::<Aloft>();
    while let Some(aloft) = next {
        if Arc::ptr_eq(&aloft.layer, layer) {
            return true;
        }
        next = aloft.outer.as_deref();
    }
    false
}

pub(super) fn take_off(extensions: &mut Extensions, layer: &Arc<Shared>) {
    let outer = extensions.remove::<Aloft>().map(Arc::new);
    extensions.insert(Aloft {
        layer: Arc::clone(layer),
        outer,
    });
}
