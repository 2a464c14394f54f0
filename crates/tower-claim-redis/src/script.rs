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
    CLAIM = "record" "moves" "claim";
    RENEW = "record" "moves" "renew";
    MARK = "record" "moves" "mark";
    FINISH = "record" "moves" "finish";
    RELEASE = "record" "moves" "release";
    LOOK = "record" "moves" "look";
    PEEK = "record" "moves" "peek";
    RESOLVE = "record" "moves" "resolve";
    REVOKE = "record" "moves" "revoke";
    BREAK = "record" "moves" "break";
    ADMIT = "fence" "admit";
    FLOOR = "fence" "floor";
}
