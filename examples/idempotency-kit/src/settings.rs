//! What the kit is told about the service.

use std::fmt;
use std::time::Duration;

use http::uri::Scheme;
use http::{HeaderName, HeaderValue, Uri};

/// Where another idempotent POST is looked for, if nothing was said.
pub(crate) const SECOND_POST: &str = "/refunds";

/// A header line.
pub(crate) type Line = (HeaderName, HeaderValue);

/// The service to examine, and what it can do.
#[derive(Debug, Clone)]
pub struct Settings {
    pub(crate) base: Base,
    /// Path of the idempotent POST. Default: `/orders`.
    pub post: String,
    /// Path of another idempotent POST of the same service. Default: `/refunds`, if there is one.
    pub second_post: Option<String>,
    /// Two paths where the same routes are nested. Default: none; `/v1` and `/v2` before `post` with [`lab`](Self::lab).
    pub nested: Option<[String; 2]>,
    /// A body that `post` accepts. Default: `{"kit":1}`.
    pub body: String,
    /// Another one, for another intent. Default: `body` with one more member.
    pub other_body: Option<String>,
    /// Header lines that every request carries. Default: none.
    pub headers: Vec<Line>,
    /// Header lines that make it another caller's request. Default: none; `X-Tenant` with `lab`.
    pub other_caller: Vec<Line>,
    /// Header lines that take the right to ask away. Default: none; `X-Deny: 1` with `lab`.
    pub denied: Vec<Line>,
    /// Path that tells how often the service worked. Default: none; `/effects` with `lab`.
    pub effects: Option<String>,
    /// Whether the service misbehaves as its `X-Lab` header says. Default: no.
    pub lab: bool,
    /// How long the service is said to let a concurrent repeat wait. Default: unknown.
    pub waits: Option<Duration>,
    /// After how long a timeout outside of the layer is said to cut a caller off. Default: unknown.
    pub times_out: Option<Duration>,
    /// The largest response body the service is said to keep. Default: unknown.
    pub keeps: Option<usize>,
    /// How long a key may stay busy after its run is over: a lease of the service. Default: 35 seconds.
    pub lease: Duration,
    /// HTTP/2 with prior knowledge. Default: HTTP/1.1.
    pub http2: bool,
    /// The numbers of the cases to run. Default: empty, which is all.
    pub only: Vec<String>,
}

/// Where the service is.
#[derive(Debug, Clone)]
pub(crate) struct Base {
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) authority: String,
    /// Before every path; without a slash at its end.
    pub(crate) prefix: String,
}

/// Why settings are refused.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum SettingsError {
    /// The base URL cannot be read, or is not plain http.
    Base(String),
    /// A path does not begin with a slash, or is not one.
    Path(String),
    /// A header line is not `NAME:VALUE`.
    Header(String),
}

impl fmt::Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Base(why) => write!(f, "{why}"),
            Self::Path(path) => write!(f, "`{path}` is no path: begin it with a slash"),
            Self::Header(line) => write!(f, "`{line}` is no header line: write NAME:VALUE"),
        }
    }
}

impl std::error::Error for SettingsError {}

impl Settings {
    /// The service at this base URL, with every default.
    ///
    /// # Errors
    ///
    /// Where the URL cannot be read, or its scheme is not `http`.
    pub fn new(base: &str) -> Result<Self, SettingsError> {
        Ok(Self {
            base: Base::parse(base)?,
            post: "/orders".to_owned(),
            second_post: None,
            nested: None,
            body: r#"{"kit":1}"#.to_owned(),
            other_body: None,
            headers: Vec::new(),
            other_caller: Vec::new(),
            denied: Vec::new(),
            effects: None,
            lab: false,
            waits: None,
            times_out: None,
            keeps: None,
            lease: Duration::from_secs(35),
            http2: false,
            only: Vec::new(),
        })
    }

    /// What the contract of the lab says, where nothing else was said.
    pub(crate) fn completed(&self) -> Result<Self, SettingsError> {
        let mut this = self.clone();
        if this.lab {
            this.effects.get_or_insert_with(|| "/effects".to_owned());
            let nested = ["/v1", "/v2"].map(|prefix| format!("{prefix}{}", self.post));
            this.nested.get_or_insert(nested);
            if this.other_caller.is_empty() {
                this.other_caller = vec![line("x-tenant:kit-other")?];
            }
            if this.denied.is_empty() {
                this.denied = vec![line("x-deny:1")?];
            }
        }
        let nested = this.nested.iter().flatten();
        let paths = [&this.post].into_iter().chain(&this.second_post);
        for path in paths.chain(nested).chain(&this.effects) {
            if !path.starts_with('/') || path.parse::<Uri>().is_err() {
                return Err(SettingsError::Path(path.clone()));
            }
        }
        Ok(this)
    }
}

impl fmt::Display for Base {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}{}", self.authority, self.prefix)
    }
}

impl Base {
    fn parse(text: &str) -> Result<Self, SettingsError> {
        let bad = |why: &str| SettingsError::Base(format!("{text}: {why}"));
        let uri: Uri = text
            .parse()
            .map_err(|_| bad("not a URL; write http://HOST:PORT"))?;
        match uri.scheme() {
            Some(scheme) if *scheme == Scheme::HTTP => {}
            Some(scheme) if *scheme == Scheme::HTTPS => {
                return Err(bad(
                    "the kit speaks plain http only; give it the address behind the TLS proxy",
                ));
            }
            _ => return Err(bad("write http://HOST:PORT")),
        }
        if uri.query().is_some() {
            return Err(bad("a base URL has no query"));
        }
        let authority = uri.authority().ok_or_else(|| bad("no host"))?;
        if authority.as_str().contains('@') {
            return Err(bad(
                "no user in the URL; use --header Authorization:… instead",
            ));
        }
        let rest = authority.as_str().strip_prefix(authority.host());
        let port = match rest.map(|rest| rest.strip_prefix(':')) {
            Some(Some(port)) => port.parse::<u16>().ok().filter(|port| *port != 0),
            _ => Some(80),
        };
        Ok(Self {
            host: authority.host().trim_matches(['[', ']']).to_owned(),
            port: port.ok_or_else(|| bad("the port is none; write 1 to 65535"))?,
            authority: authority.as_str().to_owned(),
            prefix: uri.path().trim_end_matches('/').to_owned(),
        })
    }
}

/// Reads `NAME:VALUE`.
pub(crate) fn line(text: &str) -> Result<Line, SettingsError> {
    let bad = || SettingsError::Header(text.to_owned());
    let (name, value) = text.split_once(':').ok_or_else(bad)?;
    let name = name.trim().parse().map_err(|_| bad())?;
    let value = HeaderValue::from_str(value.trim()).map_err(|_| bad())?;
    Ok((name, value))
}

impl Settings {
    /// Reads a header line `NAME:VALUE`. No report shows the value: it may be a secret.
    ///
    /// # Errors
    ///
    /// Where it is none.
    pub fn header_line(text: &str) -> Result<(HeaderName, HeaderValue), SettingsError> {
        let (name, mut value) = line(text)?;
        value.set_sensitive(true);
        Ok((name, value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_base_may_have_a_prefix_and_needs_no_port() {
        let base = Base::parse("http://[::1]/api/").unwrap();
        assert_eq!((base.host.as_str(), base.port), ("::1", 80));
        assert_eq!(
            (base.prefix.as_str(), base.authority.as_str()),
            ("/api", "[::1]")
        );
    }

    #[test]
    fn what_is_no_plain_http_base_is_refused_with_the_mend() {
        for (base, word) in [
            ("https://h", "plain http only"),
            ("h:80", "http://HOST:PORT"),
            ("/x", "http://HOST:PORT"),
            ("http://u:p@h", "--header"),
            ("http://h?x=1", "query"),
            ("http://h:65536", "65535"),
            ("http://[::1]:0", "65535"),
            ("http://h:", "65535"),
        ] {
            let error = Settings::new(base).unwrap_err().to_string();
            assert!(error.contains(word), "{base}: {error}");
        }
    }

    #[test]
    fn paths_and_lines_are_checked() {
        let mut settings = Settings::new("http://h").unwrap();
        settings.post = "orders".to_owned();
        assert!(matches!(settings.completed(), Err(SettingsError::Path(_))));
        assert!(line("no colon").is_err());
        assert_eq!(line("A: b").unwrap().1, "b");
    }
}
