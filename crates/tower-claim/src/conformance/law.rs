//! What a law is.

use futures_util::future::BoxFuture;

use crate::StoreError;

/// A law, run on a bench of type `C`.
pub(super) struct Law<C: 'static> {
    pub(super) name: &'static str,
    pub(super) needs: Needs,
    pub(super) run: for<'a> fn(&'a C) -> BoxFuture<'a, Judged>,
}

/// What a law cannot do without.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Needs {
    Nothing,
    /// It is about what the *first* answer tells. Behind lost replies there is none.
    FirstAnswer,
    /// It sets the clocks.
    ManualTime,
}

/// `Ok`: the law held.
pub(super) type Judged<T = ()> = Result<T, Stop>;

/// Why a law did not come to its end.
#[derive(Debug)]
pub(super) enum Stop {
    /// The law is broken; what was seen.
    Broken(String),
    /// A step took too long: nothing can be said.
    Stalled,
}

impl From<StoreError> for Stop {
    fn from(error: StoreError) -> Self {
        let mut text = format!("the store failed: {error}");
        let mut source = std::error::Error::source(&error);
        while let Some(cause) = source {
            text.push_str(&format!(": {cause}"));
            source = cause.source();
        }
        Stop::Broken(text)
    }
}

/// The laws of a file, each under its own name.
macro_rules! laws {
    ($bench:ty; $($law:ident $(: $needs:ident)?),+ $(,)?) => {
        pub(in crate::conformance) const LAWS: &[$crate::conformance::law::Law<$bench>] = &[
            $($crate::conformance::law::Law {
                name: stringify!($law),
                needs: laws!(@needs $($needs)?),
                run: |bench| Box::pin($law(bench)),
            }),+
        ];
    };
    (@needs) => { $crate::conformance::law::Needs::Nothing };
    (@needs $needs:ident) => { $crate::conformance::law::Needs::$needs };
}

/// Breaks the law unless the condition holds.
macro_rules! ensure {
    ($condition:expr, $($words:tt)+) => {
        if !$condition {
            return Err($crate::conformance::law::Stop::Broken(format!($($words)+)));
        }
    };
}

/// Breaks the law unless the answer has this form; answers what it carries.
macro_rules! expect {
    ($what:literal, $seen:expr, $form:pat $(if $guard:expr)? => $carried:expr) => {
        match $seen {
            $form $(if $guard)? => $carried,
            other => return Err($crate::conformance::law::Stop::Broken(format!(
                "{}: expected {}, saw {:?}", $what, stringify!($form $(if $guard)?), other,
            ))),
        }
    };
    ($what:literal, $seen:expr, $form:pat $(if $guard:expr)?) => {
        expect!($what, $seen, $form $(if $guard)? => ())
    };
}
