//! The text of each statement, made once for a set of names.

use std::sync::Arc;

use crate::Names;
use crate::lend::WHERE_LENT;

macro_rules! texts {
    ($($name:ident: $function:literal, $params:literal $(, $only:expr)?;)*) => {
        #[derive(Debug)]
        pub(super) struct Texts {
            $(pub(super) $name: Arc<str>,)*
        }

        impl Texts {
            pub(super) fn new(names: &Names) -> Self {
                Self {
                    $($name: select(&names.of($function), $params, [$($only)?]),)*
                }
            }
        }
    };
}

texts! {
    claim: "claim_v1", 12;
    claim_in: "claim_in_v1", 12;
    claim_many: "claim_many_v1", 11;
    renew: "renew_v1", 4;
    mark: "mark_v1", 4;
    finish: "finish_v1", 6;
    finish_lent: "finish_v1", 6, WHERE_LENT;
    release: "release_v1", 5;
    release_many: "release_many_v1", 5;
    look: "look_v1", 3;
    scan: "scan_v1", 3;
    resolve: "resolve_v1", 5;
    ask_revoke: "ask_revoke_v1", 3;
    break_claim: "break_v1", 3;
    purge: "purge_done_v1", 3;
    still_held: "still_held_v1", 4;
    fence_admit: "fence_admit_v1", 6;
    fence_raise: "fence_raise_v1", 4;
    fence_high: "fence_high_v1", 1;
    purge_ended: "purge_v1", 1;
}

fn select<const N: usize>(function: &str, params: usize, only: [&str; N]) -> Arc<str> {
    let params: Vec<String> = (1..=params).map(|n| format!("${n}")).collect();
    let select = format!("select * from {function}({})", params.join(", "));
    let parts = std::iter::once(&*select).chain(only);
    Arc::from(parts.collect::<Vec<_>>().join(" "))
}
