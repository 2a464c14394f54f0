//! How often the service worked, as far as it tells.

use http::Method;
use serde_json::Value;

use crate::kit::Kit;
use crate::verdict::{Stop, fail};

/// How often a path had worked when the count began; nothing where the service does not tell.
#[derive(Debug)]
pub(crate) struct Tally {
    path: String,
    before: Option<u64>,
}

impl Kit {
    /// Begins to count how often the POST works.
    pub(crate) async fn tally(&self) -> Result<Tally, Stop> {
        self.tally_of(&self.settings.post).await
    }

    pub(crate) async fn tally_of(&self, path: &str) -> Result<Tally, Stop> {
        Ok(Tally {
            path: path.to_owned(),
            before: self.effects(path).await?,
        })
    }

    /// How often it has worked since; nothing where the service does not tell.
    pub(crate) async fn ran(&self, tally: &Tally) -> Result<Option<u64>, Stop> {
        let now = self.effects(&tally.path).await?;
        Ok(now
            .zip(tally.before)
            .map(|(now, before)| now.saturating_sub(before)))
    }

    /// Goes on only if it has worked so often since, as far as the service tells.
    pub(crate) async fn must_have_run(
        &self,
        tally: &Tally,
        times: u64,
        after: &str,
    ) -> Result<(), Stop> {
        match self.ran(tally).await? {
            Some(ran) if ran != times => Err(fail(
                after,
                format!("{times} effect(s) of POST {}", tally.path),
                format!("{ran}"),
            )),
            _ => Ok(()),
        }
    }

    async fn effects(&self, path: &str) -> Result<Option<u64>, Stop> {
        let Some(effects) = &self.settings.effects else {
            return Ok(None);
        };
        let answer = self.call(Method::GET, effects).send().await?;
        let json: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
        let count = match json.get("by") {
            Some(by) => {
                let names = [
                    format!("POST {}{path}", self.base.prefix),
                    format!("POST {path}"),
                ];
                let counted = names.iter().find_map(|name| by.get(name));
                counted.map_or(Some(0), Value::as_u64)
            }
            None => json.get("total").and_then(Value::as_u64),
        };
        let wanted = r#"{"total": N, "by": {"POST /path": N}}"#;
        answer.must(answer.ok() && count.is_some(), wanted)?;
        Ok(count)
    }
}
