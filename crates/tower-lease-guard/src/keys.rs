//! What a key function may answer.

use std::fmt;
use std::sync::Arc;

use http::request::Parts;

use crate::token::is_resource;

/// One resource, or none: what the key function of a layer may answer. `None` passes the request through.
///
/// For `String`, `&'static str`, integers, `Arc<str>`, and `Option` of these.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not name a resource",
    note = "answer a `String`, `&'static str`, `u64`, `Arc<str>`, or an `Option` of these; what is borrowed from the request must be made owned"
)]
pub trait IntoLeaseKey {
    /// The resource, or none.
    fn into_lease_key(self) -> Option<Arc<str>>;
}

impl IntoLeaseKey for String {
    fn into_lease_key(self) -> Option<Arc<str>> {
        Some(self.into())
    }
}

impl IntoLeaseKey for &'static str {
    fn into_lease_key(self) -> Option<Arc<str>> {
        Some(self.into())
    }
}

impl IntoLeaseKey for Arc<str> {
    fn into_lease_key(self) -> Option<Arc<str>> {
        Some(self)
    }
}

impl IntoLeaseKey for u64 {
    fn into_lease_key(self) -> Option<Arc<str>> {
        Some(self.to_string().into())
    }
}

impl IntoLeaseKey for i64 {
    fn into_lease_key(self) -> Option<Arc<str>> {
        Some(self.to_string().into())
    }
}

impl<T: IntoLeaseKey> IntoLeaseKey for Option<T> {
    fn into_lease_key(self) -> Option<Arc<str>> {
        self.and_then(T::into_lease_key)
    }
}

/// Any number of resources: what the key function of a layer over several keys may answer. No resource
/// passes the request through.
///
/// For `Vec` and arrays of what is [`IntoLeaseKey`], and `Option` of these.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not name resources",
    note = "answer a `Vec` or an array of `String`, `&'static str`, `u64`, `Arc<str>`, or an `Option` of these"
)]
pub trait IntoLeaseKeys {
    /// The resources, in any order, repeats allowed.
    fn into_lease_keys(self) -> Vec<Arc<str>>;
}

impl<T: IntoLeaseKey> IntoLeaseKeys for Vec<T> {
    fn into_lease_keys(self) -> Vec<Arc<str>> {
        self.into_iter().filter_map(T::into_lease_key).collect()
    }
}

impl<T: IntoLeaseKey, const N: usize> IntoLeaseKeys for [T; N] {
    fn into_lease_keys(self) -> Vec<Arc<str>> {
        self.into_iter().filter_map(T::into_lease_key).collect()
    }
}

impl<T: IntoLeaseKeys> IntoLeaseKeys for Option<T> {
    fn into_lease_keys(self) -> Vec<Arc<str>> {
        self.map(T::into_lease_keys).unwrap_or_default()
    }
}

/// The resources a request is about, from its head.
#[derive(Clone)]
pub(crate) enum KeyFn {
    One(Callback<Option<Arc<str>>>),
    Many(Callback<Vec<Arc<str>>>),
}

type Callback<T> = Arc<dyn Fn(&Parts) -> T + Send + Sync>;

impl KeyFn {
    pub(crate) fn one<F, K>(key: F) -> Self
    where
        F: Fn(&Parts) -> K + Send + Sync + 'static,
        K: IntoLeaseKey,
    {
        Self::One(Arc::new(move |parts| key(parts).into_lease_key()))
    }

    pub(crate) fn many<F, K>(keys: F) -> Self
    where
        F: Fn(&Parts) -> K + Send + Sync + 'static,
        K: IntoLeaseKeys,
    {
        Self::Many(Arc::new(move |parts| keys(parts).into_lease_keys()))
    }

    /// The resources, in the order they were named, repeats left out.
    pub(crate) fn resources(&self, parts: &Parts) -> Resources {
        match self {
            Self::One(key) => match key(parts) {
                None => Resources::None,
                Some(one) if is_resource(&one) => Resources::Some(Arc::from([one])),
                Some(_) => Resources::Invalid,
            },
            Self::Many(keys) => {
                let mut named = keys(parts);
                if named.iter().any(|name| !is_resource(name)) {
                    return Resources::Invalid;
                }
                let mut seen = std::collections::HashSet::with_capacity(named.len());
                named.retain(|name| seen.insert(name.clone()));
                if named.is_empty() {
                    Resources::None
                } else {
                    Resources::Some(named.into())
                }
            }
        }
    }
}

impl fmt::Debug for KeyFn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::One(_) => "KeyFn::One",
            Self::Many(_) => "KeyFn::Many",
        })
    }
}

/// What a key function answered.
pub(crate) enum Resources {
    /// The request needs none.
    None,
    /// At least one, all fit to be named.
    Some(Arc<[Arc<str>]>),
    /// Empty, over 255 bytes, or with a control character.
    Invalid,
}
