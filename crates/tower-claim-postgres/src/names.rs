//! Where the tables and functions lie.

use tower_claim::ConfigError;

/// The embedded migration, as people run it by hand.
pub(crate) const SQL: &str = include_str!("../sql/v1.sql");

/// The functions of the migration, without schema and prefix.
pub(crate) fn functions() -> impl Iterator<Item = &'static str> {
    SQL.lines().filter_map(|line| {
        let made = line.strip_prefix("create or replace function tower_claim.")?;
        made.split('(').next()
    })
}

/// The schema of the tables and functions, and what their names begin with.
///
/// ```
/// use tower_claim_postgres::Names;
///
/// let names = Names::new("public", "claims_")?;
/// assert_eq!(names.of("fence"), r#""public".claims_fence"#);
/// assert!(Names::new("public; drop table users", "").is_err());
/// # Ok::<(), tower_claim::ConfigError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Names {
    schema: String,
    prefix: String,
}

impl Names {
    /// A schema of 1 to 63 of `a-z 0-9 _`, and a prefix of 0 to 32 of them; neither begins with a digit.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] for others: what they are put into is SQL.
    pub fn new(schema: &str, prefix: &str) -> Result<Self, ConfigError> {
        let plain = |name: &str| {
            let legal = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
            name.bytes().all(legal) && !name.starts_with(|c: char| c.is_ascii_digit())
        };
        if !(1..=63).contains(&schema.len()) || !plain(schema) {
            return Err(ConfigError::new(
                "schema",
                format!("`{schema}`: take 1 to 63 of a-z, 0-9 and _, not a digit first"),
            ));
        }
        if schema.starts_with("pg_") {
            return Err(ConfigError::new(
                "schema",
                format!("`{schema}`: PostgreSQL keeps names that begin with pg_ to itself"),
            ));
        }
        if prefix.len() > 32 || !plain(prefix) {
            return Err(ConfigError::new(
                "table_prefix",
                format!("`{prefix}`: take up to 32 of a-z, 0-9 and _, not a digit first"),
            ));
        }
        Ok(Self {
            schema: schema.to_owned(),
            prefix: prefix.to_owned(),
        })
    }

    /// The schema.
    pub fn schema(&self) -> &str {
        &self.schema
    }

    /// What the names of tables, types and functions begin with.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// A table, type or function, as SQL names it.
    pub fn of(&self, name: &str) -> String {
        format!("\"{}\".{}{name}", self.schema, self.prefix)
    }

    /// The migration for these names: one transaction, to be run as it stands, once or again, by several
    /// at a time.
    pub fn migration(&self) -> String {
        SQL.replace("tower_claim.", &self.of(""))
            .replace(
                "schema if not exists tower_claim;",
                &format!("schema if not exists \"{}\";", self.schema),
            )
            .replace("claim_purge_at", &format!("{}claim_purge_at", self.prefix))
    }

    /// What a role needs beside `CONNECT`, to work with migrated tables.
    ///
    /// Whoever runs the migration needs `CREATE` on the database (or a schema that it owns) as well.
    pub fn grants(&self, role: &str) -> String {
        let role = role.replace('"', "\"\"");
        format!(
            "GRANT USAGE ON SCHEMA \"{}\" TO \"{role}\";\n\
             GRANT SELECT ON {} TO \"{role}\";\n\
             GRANT SELECT, INSERT, UPDATE, DELETE ON {}, {}, {} TO \"{role}\";\n",
            self.schema,
            self.of("meta"),
            self.of("claim"),
            self.of("spent"),
            self.of("fence"),
        )
    }

    /// What a role needs besides, where `EXECUTE` was taken from `PUBLIC`.
    pub(crate) fn grant_execute(&self, role: &str) -> String {
        let role = role.replace('"', "\"\"");
        let functions: Vec<String> = functions().map(|name| self.of(name)).collect();
        format!(
            "GRANT EXECUTE ON FUNCTION {} TO \"{role}\";\n",
            functions.join(", ")
        )
    }
}

impl Default for Names {
    /// The schema `tower_claim`, no prefix.
    fn default() -> Self {
        Self {
            schema: "tower_claim".to_owned(),
            prefix: String::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_replaced() {
        let text = Names::new("app", "c_").unwrap().migration();
        assert!(!text.contains("tower_claim.") && !text.contains("exists tower_claim"));
        assert!(text.contains("create table if not exists \"app\".c_claim ("));
        assert!(text.contains("index if not exists c_claim_purge_at on \"app\".c_claim"));
    }

    #[test]
    fn every_function_is_named_once() {
        let mut names: Vec<_> = functions().collect();
        assert_eq!(
            names.len(),
            SQL.matches("create or replace function").count()
        );
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), functions().count());
        assert!(names.contains(&"claim_v1"), "{names:?}");
    }

    #[test]
    fn what_is_no_plain_name_is_refused() {
        for bad in [
            "",
            "pg_mine",
            "A",
            "a-b",
            "1a",
            "ä",
            "a\"b",
            &"x".repeat(64),
        ] {
            assert!(Names::new(bad, "").is_err(), "{bad}");
        }
        for bad in ["A", "a.b", "1", &"x".repeat(33)] {
            assert!(Names::new("a", bad).is_err(), "{bad}");
        }
    }
}
