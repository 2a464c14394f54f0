//! The way from a refusal to the policy.

use http::header::LINK;
use http::{HeaderMap, HeaderValue};
use tower_claim::ConfigError;

/// Where the policy is, as a header of refusals (RFC 8288).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PolicyLink(HeaderValue);

const BEFORE: &str = "<";
const AFTER: &str = ">; rel=\"describedby\"";

impl PolicyLink {
    pub(crate) fn to(uri: String) -> Result<Self, ConfigError> {
        let is_odd = |c: char| {
            !c.is_ascii_graphic()
                || matches!(c, '<' | '>' | '"' | '\\' | '^' | '`' | '{' | '|' | '}')
        };
        if uri.is_empty() || uri.contains(is_odd) {
            return Err(ConfigError::new(
                "policy_at",
                format!("`{uri}` is no address (RFC 3986): percent-encode what it may not hold"),
            ));
        }
        let value = HeaderValue::try_from(format!("{BEFORE}{uri}{AFTER}"));
        let value = value.map_err(|error| ConfigError::new("policy_at", error.to_string()))?;
        Ok(Self(value))
    }

    /// The address.
    pub(crate) fn uri(&self) -> &str {
        let text = self.0.to_str().unwrap_or_default();
        let text = text.strip_prefix(BEFORE).unwrap_or(text);
        text.strip_suffix(AFTER).unwrap_or(text)
    }

    pub(crate) fn add_to(&self, headers: &mut HeaderMap) {
        headers.append(LINK, self.0.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_break_out_of_the_header_is_refused() {
        for uri in ["", "a b", "a>b", "a\"b", "a\r\nb", "caf\u{e9}", "{id}"] {
            let refused = PolicyLink::to(uri.to_owned()).unwrap_err();
            assert_eq!(refused.setting(), "policy_at", "{uri:?}");
        }
        let link = PolicyLink::to("https://a.example/p?x=1#y".to_owned()).unwrap();
        assert_eq!(link.uri(), "https://a.example/p?x=1#y");
        let mut headers = HeaderMap::new();
        link.add_to(&mut headers);
        assert_eq!(
            headers[LINK],
            "<https://a.example/p?x=1#y>; rel=\"describedby\""
        );
    }
}
