//! Paths with named segments.

use tower_claim::ConfigError;
use tower_claim::http::InvalidKey;

use super::form::decode;

/// A path like `/classrooms/{room}/announcement`.
#[derive(Debug)]
pub(super) struct Template {
    segments: Vec<Segment>,
    text: String,
}

#[derive(Debug)]
enum Segment {
    Fixed(String),
    Named(String),
}

impl Template {
    pub(super) fn of(text: &str) -> Self {
        let segment = |segment: &str| {
            let name = segment.strip_prefix('{').and_then(|s| s.strip_suffix('}'));
            match name {
                Some(name) => Segment::Named(name.to_owned()),
                None => Segment::Fixed(segment.to_owned()),
            }
        };
        Self {
            segments: text.split('/').map(segment).collect(),
            text: text.to_owned(),
        }
    }

    pub(super) fn check(&self, setting: &'static str) -> Result<(), ConfigError> {
        let odd = |segment: &Segment| match segment {
            Segment::Named(name) => name.is_empty() || name.contains(['{', '}', '*']),
            Segment::Fixed(text) => text.contains(['{', '}']) || text.starts_with([':', '*']),
        };
        let named = self.names().next().is_some();
        if named && self.text.starts_with('/') && !self.segments.iter().any(odd) {
            return Ok(());
        }
        let text = format!(
            "`{}`: write a path like `/classrooms/{{room}}/announcement`, with the named segments in braces",
            self.text
        );
        Err(ConfigError::new(setting, text))
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.segments.iter().filter_map(|segment| match segment {
            Segment::Named(name) => Some(name.as_str()),
            Segment::Fixed(_) => None,
        })
    }

    /// The value of the named segment with this index; `None` when the path is another one.
    pub(super) fn read(&self, path: &str, index: usize) -> Result<Option<String>, InvalidKey> {
        let mut segments = path.split('/');
        let mut values = Vec::new();
        for expected in &self.segments {
            match (expected, segments.next()) {
                (Segment::Fixed(fixed), Some(segment)) if fixed == segment => {}
                (Segment::Named(_), Some(segment)) => values.push(segment),
                _ => return Ok(None),
            }
        }
        if segments.next().is_some() {
            return Ok(None);
        }
        values
            .get(index)
            .map(|value| decode(value.as_bytes(), false))
            .transpose()
    }
}
