//! SQL for PostgreSQL that means the same whatever the `search_path` of the session is.
//!
//! A role that may create objects in a schema of the search path can offer a function, operator, type or table of a name
//! that a statement uses without a schema, and it runs with the rights of the user who sends the statement
//! (CVE-2018-1058). So nothing is named without its schema. Written out, that is hard to read; statements are therefore
//! templates, in which braces stand for a qualified name:
//!
//! | template | statement |
//! |---|---|
//! | `{}.primacy_token` | `"public".primacy_token`: the schema of primacy's tables |
//! | `{count}(*)`, `$1::{text}` | `pg_catalog.count(*)`, `$1::pg_catalog.text` |
//! | `a {=} b` | `a OPERATOR(pg_catalog.=) b` |
//!
//! All operators that are written so have one precedence, above that of `AND`, `NOT` and `IS`, and are read from left
//! to right: parentheses are needed where arithmetic meets a comparison. Some syntax looks an operator up by its bare
//! name and is not to be used: `IN`, `BETWEEN`, `LIKE`, `IS DISTINCT FROM`, `NULLIF`, `CASE x WHEN`, `USING`. What the
//! grammar itself binds to `pg_catalog` needs no braces: `bigint`, `integer`, `boolean`, `interval`, `extract`,
//! `coalesce`, `greatest`, `least`, and the order of `ORDER BY`.

use std::fmt;

/// The longest name that PostgreSQL keeps whole, in bytes.
const LONGEST: usize = 63;

/// The name of the schema that holds primacy's tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Schema(String);

impl Schema {
    /// Where the tables are unless something else is said.
    pub(crate) fn public() -> Self {
        Self("public".into())
    }

    /// A name as the server keeps it, without quotes. Characters that would end a quoted name or a literal, and the
    /// server's own schemas, are refused.
    pub(crate) fn new(name: &str) -> Result<Self, &'static str> {
        let ends_something = |c: char| c.is_control() || matches!(c, '"' | '\'' | '\\' | '$');
        if name.is_empty() || name.len() > LONGEST {
            return Err("the name of a schema has 1 to 63 bytes");
        }
        if name.chars().any(ends_something) {
            return Err("the name of a schema for primacy has no quotes, no '\\', no '$' and no control characters");
        }
        if name.starts_with("pg_") || name == "information_schema" {
            return Err("this schema is the server's own");
        }
        Ok(Self(name.to_owned()))
    }

    /// The name as the server keeps it.
    #[cfg(feature = "postgres")]
    pub(crate) fn name(&self) -> &str {
        &self.0
    }

    /// The statement that a template stands for.
    pub(crate) fn statement(&self, template: &str) -> String {
        let mut statement = String::with_capacity(template.len() * 2);
        let mut rest = template;
        while let Some((before, after)) = rest.split_once('{') {
            let (name, after) = after.split_once('}').expect("a brace that was opened is closed");
            statement += before;
            match name.bytes().next() {
                None => {
                    statement.push('"');
                    statement += &self.0;
                    statement.push('"');
                }
                Some(first) if first.is_ascii_alphabetic() => {
                    statement += "pg_catalog.";
                    statement += name;
                }
                Some(_) => {
                    statement += "OPERATOR(pg_catalog.";
                    statement += name;
                    statement.push(')');
                }
            }
            rest = after;
        }
        statement + rest
    }
}

impl fmt::Display for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&primacy_core::ids::escape(&self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn braces_stand_for_qualified_names() {
        let schema = Schema::new("my schema").expect("valid");
        assert_eq!(
            schema.statement("SELECT {max}(t.token {||} 1::{text}) FROM {}.primacy_token AS t"),
            "SELECT pg_catalog.max(t.token OPERATOR(pg_catalog.||) 1::pg_catalog.text) FROM \"my schema\".primacy_token AS t"
        );
        assert_eq!(schema.statement("SELECT 1"), "SELECT 1");
    }

    #[test]
    fn names_that_would_end_what_quotes_them_are_refused() {
        for name in
            ["", "a\"b", "it's", "a\\b", "a$b", "$user", "a\nb", "pg_catalog", "pg_temp_1", "information_schema"]
        {
            assert!(Schema::new(name).is_err(), "{name:?}");
        }
        assert!(Schema::new(&"x".repeat(64)).is_err());
        for name in ["public", "Élections", "a b", &"x".repeat(63)] {
            assert!(Schema::new(name).is_ok(), "{name:?}");
        }
    }
}
