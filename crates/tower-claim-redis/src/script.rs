//! The scripts: one for each step, behind the text that all share.

use std::sync::LazyLock;

/// A script and its SHA-1.
#[derive(Debug)]
pub(crate) struct Script {
    pub(crate) source: String,
    pub(crate) sha: String,
}

impl Script {
    fn new(parts: &[&str]) -> Self {
        let source = parts.concat();
        let sha = redis::Script::new(&source).get_hash().to_owned();
        Self { source, sha }
    }
}

macro_rules! scripts {
    ($($name:ident = $($part:literal)+;)+) => {
        $(pub(crate) static $name: LazyLock<Script> = LazyLock::new(|| {
            Script::new(&[$(include_str!(concat!("lua/", $part, ".lua"))),+])
        });)+
    };
}

scripts! {
    CLAIM = "record" "spent" "moves" "claim";
    RENEW = "record" "spent" "moves" "renew";
    MARK = "record" "spent" "moves" "mark";
    FINISH = "record" "spent" "moves" "finish";
    RELEASE = "record" "spent" "moves" "release";
    LOOK = "record" "spent" "moves" "look";
    PEEK = "record" "spent" "moves" "peek";
    RESOLVE = "record" "spent" "moves" "resolve";
    REVOKE = "record" "spent" "moves" "revoke";
    BREAK = "record" "spent" "moves" "break";
    PURGE = "record" "spent" "moves" "purge";
    ADMIT = "fence" "admit";
    FLOOR = "fence" "floor";
}
