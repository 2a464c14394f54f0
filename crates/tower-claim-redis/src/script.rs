//! The scripts: one for each step, behind the text that all share.

use std::sync::LazyLock;

/// A script and its SHA-1.
#[derive(Debug)]
pub(crate) struct Script {
    pub(crate) source: String,
    pub(crate) sha: String,
}

impl Script {
    fn new(parts: [&str; 2]) -> Self {
        let source = parts.concat();
        let sha = redis::Script::new(&source).get_hash().to_owned();
        Self { source, sha }
    }
}

macro_rules! scripts {
    ($($name:ident = $shared:literal + $step:literal;)+) => {
        $(pub(crate) static $name: LazyLock<Script> = LazyLock::new(|| {
            Script::new([
                include_str!(concat!("lua/", $shared, ".lua")),
                include_str!(concat!("lua/", $step, ".lua")),
            ])
        });)+
    };
}

scripts! {
    CLAIM = "record" + "claim";
    RENEW = "record" + "renew";
    MARK = "record" + "mark";
    FINISH = "record" + "finish";
    RELEASE = "record" + "release";
    LOOK = "record" + "look";
    PEEK = "record" + "peek";
    RESOLVE = "record" + "resolve";
    REVOKE = "record" + "revoke";
    BREAK = "record" + "break";
    ADMIT = "fence" + "admit";
    FLOOR = "fence" + "floor";
}
