//! Misbehaviour on command: the header `X-Lab`, or the query under the same names.

use std::time::Duration;

use http::request::Parts;
use http::{HeaderName, HeaderValue, StatusCode};
use percent_encoding::percent_decode;
use tower_stage::Stage;

/// What the request asks of its handler. Built from the header and the query; the header wins.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Flags {
    pub(crate) reject: Option<StatusCode>,
    pub(crate) ignore_upload: bool,
    pub(crate) commit: bool,
    pub(crate) marks: Vec<Stage>,
    pub(crate) delay: Duration,
    pub(crate) progress: Option<Duration>,
    pub(crate) block: Duration,
    pub(crate) hang: bool,
    pub(crate) panic: bool,
    pub(crate) no_write: bool,
    pub(crate) status: Option<StatusCode>,
    pub(crate) size: Option<u64>,
    pub(crate) ctype: Option<HeaderValue>,
    pub(crate) chunks: Option<u64>,
    pub(crate) chunk_delay: Duration,
    pub(crate) nolen: bool,
    pub(crate) body_error: Option<u64>,
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
    pub(crate) vary: Option<HeaderName>,
}

/// Why flags were not taken: there is none of this name, or not with this value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BadFlag(pub(crate) String);

impl Flags {
    pub(crate) fn of(parts: &Parts) -> Result<Self, BadFlag> {
        let mut flags = Flags::default();
        let mut named = Vec::new();
        for line in parts.headers.get_all("x-lab") {
            for (name, value) in pairs(line.as_bytes()) {
                if !flags.set(&name, &value)? {
                    return Err(BadFlag(format!("unknown flag `{name}`")));
                }
                named.push(name);
            }
        }
        // Query parameters that are no flags are the application's.
        for (name, value) in pairs(parts.uri.query().unwrap_or_default().as_bytes()) {
            if !named.contains(&name) {
                flags.set(&name, &value)?;
            }
        }
        Ok(flags)
    }

    /// Whether `name` is a flag.
    fn set(&mut self, name: &str, value: &[u8]) -> Result<bool, BadFlag> {
        let bad = || BadFlag(format!("bad value of flag `{name}`"));
        let text = || std::str::from_utf8(value).map_err(|_| bad());
        let count = || text()?.parse::<u64>().map_err(|_| bad());
        let ms = || count().map(Duration::from_millis);
        let status = || {
            let code = text()?
                .parse()
                .ok()
                .filter(|code| (200..600).contains(code))
                .ok_or_else(bad)?;
            StatusCode::from_u16(code).map_err(|_| bad())
        };
        let only = |words: &[&str]| match words.contains(&text()?) {
            true => Ok(true),
            false => Err(bad()),
        };
        match name {
            "reject" => self.reject = Some(status()?),
            "upload" => self.ignore_upload = only(&["ignore"])?,
            "commit" => self.commit = only(&["", "1"])?,
            "mark" => {
                let stages = text()?
                    .split(',')
                    .map(|name| Stage::named(name).ok_or_else(bad));
                self.marks = stages.collect::<Result<_, _>>()?;
            }
            "delay" => self.delay = ms()?,
            "progress" => {
                self.progress = Some(ms()?)
                    .filter(|t| !t.is_zero())
                    .map(Some)
                    .ok_or_else(bad)?
            }
            "block" => self.block = ms()?,
            "hang" => self.hang = only(&["", "1"])?,
            "panic" => self.panic = only(&["", "1"])?,
            "write" => self.no_write = only(&["off"])?,
            "status" => self.status = Some(status()?),
            "size" => self.size = Some(count()?),
            "ctype" => self.ctype = Some(HeaderValue::from_bytes(value).map_err(|_| bad())?),
            "chunks" => {
                self.chunks = Some(count()?)
                    .filter(|n| *n > 0)
                    .map(Some)
                    .ok_or_else(bad)?
            }
            "chunk_delay" => self.chunk_delay = ms()?,
            "nolen" => self.nolen = only(&["", "1"])?,
            "body_error" => self.body_error = Some(count()?),
            "header" => {
                let colon = value.iter().position(|b| *b == b':').ok_or_else(bad)?;
                let name = HeaderName::from_bytes(&value[..colon]).map_err(|_| bad())?;
                let value =
                    HeaderValue::from_bytes(value[colon + 1..].trim_ascii()).map_err(|_| bad())?;
                self.headers.push((name, value));
            }
            "vary" => self.vary = Some(HeaderName::from_bytes(value).map_err(|_| bad())?),
            _ => return Ok(false),
        }
        Ok(true)
    }
}

/// Query-string syntax, percent-decoded; `+` stays `+`.
fn pairs(text: &[u8]) -> impl Iterator<Item = (String, Vec<u8>)> {
    text.split(|b| *b == b'&')
        .map(<[u8]>::trim_ascii)
        .filter(|pair| !pair.is_empty())
        .map(|pair| {
            let mut sides = pair.splitn(2, |b| *b == b'=');
            let mut side = || percent_decode(sides.next().unwrap_or_default()).collect::<Vec<u8>>();
            (String::from_utf8_lossy(&side()).into_owned(), side())
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flags(uri: &str, lines: &[&str]) -> Result<Flags, BadFlag> {
        let mut request = http::Request::builder().uri(uri);
        for line in lines {
            request = request.header("x-lab", *line);
        }
        Flags::of(&request.body(()).unwrap().into_parts().0)
    }

    #[test]
    fn the_header_wins_over_the_query() {
        let got = flags(
            "/orders?delay=9&status=500&header=a:b",
            &["delay=200&header=c:d"],
        )
        .unwrap();
        assert_eq!(got.delay, Duration::from_millis(200));
        assert_eq!(got.status, Some(StatusCode::INTERNAL_SERVER_ERROR));
        assert_eq!(got.headers.len(), 1);
        assert_eq!(got.headers[0].0, "c");
    }

    #[test]
    fn unknown_names_count_in_the_header_only() {
        assert!(flags("/orders?warp=9", &[]).is_ok());
        assert!(matches!(flags("/orders", &["warp=9"]), Err(BadFlag(_))));
        assert!(flags("/orders", &["commit"]).unwrap().commit);
    }

    #[test]
    fn bad_values_are_refused() {
        for bad in [
            "delay=x",
            "delay=-1",
            "status=99",
            "status=700",
            "mark=nowhere",
            "chunks=0",
            "hang=maybe",
            "upload=read",
            "write=on",
            "commit=soon",
            "header=x",
            "header=a b:c",
            "progress=0",
            "vary=",
            "size=1k",
        ] {
            assert!(matches!(flags("/orders", &[bad]), Err(BadFlag(_))), "{bad}");
        }
    }

    #[test]
    fn values_are_percent_decoded_and_plus_stays_plus() {
        let got = flags(
            "/orders",
            &["header=x-a:1+1%26caf%E9&ctype=a%2Fb&mark=validated,persisted"],
        )
        .unwrap();
        assert_eq!(got.headers[0].1.as_bytes(), b"1+1&caf\xE9");
        assert_eq!(got.ctype.unwrap(), "a/b");
        assert_eq!(got.marks, [Stage::Validated, Stage::Persisted]);
    }
}
