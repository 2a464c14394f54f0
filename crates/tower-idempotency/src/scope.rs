//! Whose request it is.

use tower_claim::KeyBuilder;

use crate::quota::Tenant;

/// A record key, begun with its scope.
#[derive(Clone)]
pub(crate) struct Scoped {
    pub(crate) key: KeyBuilder,
    /// Where tenants have quotas.
    pub(crate) tenant: Option<Tenant>,
}

/// What a scope function may answer: the tenant as text or number, or `None` where it cannot be told.
/// Empty text counts as `None`: an empty header names nobody.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not name a scope",
    note = "answer a `String`, `&'static str`, `u64`, or an `Option` of these; what is borrowed from the request must be made owned"
)]
pub trait IntoScope {
    /// The scope, `None` where it cannot be told.
    fn into_scope(self) -> Option<String>;
}

impl IntoScope for String {
    fn into_scope(self) -> Option<String> {
        (!self.is_empty()).then_some(self)
    }
}

impl IntoScope for &'static str {
    fn into_scope(self) -> Option<String> {
        self.to_owned().into_scope()
    }
}

impl IntoScope for u64 {
    fn into_scope(self) -> Option<String> {
        Some(self.to_string())
    }
}

impl<T: IntoScope> IntoScope for Option<T> {
    fn into_scope(self) -> Option<String> {
        self?.into_scope()
    }
}

#[cfg(test)]
mod tests {
    use super::IntoScope;

    #[test]
    fn empty_text_names_nobody() {
        assert_eq!(String::new().into_scope(), None);
        assert_eq!(Some("").into_scope(), None);
        assert_eq!(None::<String>.into_scope(), None);
        assert_eq!(Some("t1").into_scope().as_deref(), Some("t1"));
        assert_eq!(0.into_scope().as_deref(), Some("0"));
    }
}
