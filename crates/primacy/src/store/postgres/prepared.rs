//! Statements that a server parses and plans once for each of its sessions, behind a transaction pooler too.
//!
//! A statement that the driver prepares has a number for a name, which belongs to a client: behind a pooler that shares
//! server sessions, another client's statement may be carried out under it. Here the name is made of the text itself
//! (`PREPARE` in SQL), so that a user that finds the name in a session finds the same statement. A session that does
//! not know it says so before it does anything.

use std::fmt::Write as _;

use tokio_postgres::Row;

use super::connection::Connection;
use super::errors::{Fault, Stake};
use super::parameter::Parameter;

/// `invalid_sql_statement_name`: this session was not told, or has forgotten.
const UNKNOWN: &str = "26000";

/// After this many surprises a connection is taken to be one of many behind a pooler, and what is prepared for nobody's.
const SURPRISES_MOST: u8 = 3;

impl Connection {
    /// Like [`run`](Self::run), for a statement that is run often.
    pub(super) async fn run_often(
        &mut self,
        statement: &'static str,
        parameters: &[Parameter<'_>],
        stake: Stake,
    ) -> Result<Vec<Row>, Fault> {
        if self.preparations.surprises >= SURPRISES_MOST {
            return self.run(statement, parameters, stake).await;
        }
        let known = self.preparations.known.iter().find(|(known, _)| *known == statement);
        let known = known.map(|(_, name)| name.clone());
        let is_new = known.is_none();
        let name = known.unwrap_or_else(|| name(&self.text(statement)));
        let arguments: Vec<_> = parameters.iter().map(Parameter::literal).collect();
        let execute = format!("EXECUTE {name} ({})", arguments.join(", "));
        let ran = if is_new {
            let qualified = |parameter: &Parameter<'_>| format!("pg_catalog.{}", parameter.typed().1.name());
            let types: Vec<_> = parameters.iter().map(qualified).collect();
            let prepare = format!("PREPARE {name} ({}) AS {statement}", types.join(", "));
            self.preparations.known.push((statement, name));
            // One that another client of the same pooler has prepared in this session is as good.
            self.run_prepared(&prepare, &execute, stake).await
        } else {
            self.run_text(&execute, &[], stake).await
        };
        match ran {
            Err(fault) if fault.code() == Some(UNKNOWN) => {
                self.preparations.surprises += 1;
                self.preparations.known.retain(|(known, _)| *known != statement);
                self.run(statement, parameters, stake).await
            }
            ran => ran,
        }
    }
}

/// The name of a statement: of its text alone, so that two texts never share one (FNV-1a, 128 bits).
fn name(statement: &str) -> String {
    let offset = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d_u128;
    let prime = 0x0000_0000_0100_0000_0000_0000_0000_013b_u128;
    let hash = statement.bytes().fold(offset, |hash, byte| (hash ^ u128::from(byte)).wrapping_mul(prime));
    format!("primacy_{hash:032x}")
}

impl Parameter<'_> {
    /// As an SQL expression, of digits and hexadecimal digits alone: `EXECUTE` takes no parameters beside its text.
    fn literal(&self) -> String {
        let many = |items: Vec<String>, array: &str| format!("ARRAY[{}]::{array}", items.join(","));
        match self {
            Self::Text(value) => value.map_or("NULL".to_owned(), text),
            Self::Bytes(value) => bytes(value),
            Self::Id(value) => bytes(value),
            Self::Number(value) => value.map_or("NULL".to_owned(), number),
            Self::Flag(value) => value.to_string(),
            Self::Rank(value) => value.as_deref().map_or("NULL".to_owned(), bytes),
            Self::ManyBytes(values) => {
                let item = |value: &Option<Vec<u8>>| value.as_deref().map_or("NULL".to_owned(), bytes);
                many(values.iter().map(item).collect(), "pg_catalog.bytea[]")
            }
            Self::ManyTexts(values) => values.as_deref().map_or("NULL".to_owned(), |values| {
                many(values.iter().map(|value| text(value)).collect(), "pg_catalog.text[]")
            }),
            Self::ManyNumbers(values) => {
                let item = |value: &Option<i64>| value.map_or("NULL".to_owned(), number);
                many(values.iter().map(item).collect(), "bigint[]")
            }
        }
    }
}

fn number(value: i64) -> String {
    format!("'{value}'::bigint")
}

/// As an escape, which no setting changes, and no function that would have to be found each time.
fn bytes(value: &[u8]) -> String {
    let mut literal = String::with_capacity(value.len() * 2 + 14);
    literal.push_str(r"E'\\x");
    for byte in value {
        // A `String` takes every write.
        let _ = write!(literal, "{byte:02x}");
    }
    literal.push_str("'::pg_catalog.bytea");
    literal
}

/// Names of plain letters as they are, which most are: nothing in them can end a literal.
fn text(value: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    match value.chars().all(is_plain) {
        true => format!("'{value}'::pg_catalog.text"),
        false => format!("pg_catalog.convert_from({}, 'UTF8')", bytes(value.as_bytes())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_are_hexadecimal_whatever_they_say() {
        let evil: Parameter<'_> = "'); DROP TABLE primacy_election; --".into();
        let literal = evil.literal();
        assert!(literal.starts_with(r"pg_catalog.convert_from(E'\\x27293b"), "{literal}");
        assert!(literal.chars().all(|c| c.is_ascii_alphanumeric() || r"\_.(':, )-".contains(c)), "{literal}");
        assert_eq!(Parameter::from("jobs-2_x").literal(), "'jobs-2_x'::pg_catalog.text");
        assert!(Parameter::from("it's").literal().starts_with("pg_catalog.convert_from("));
        assert_eq!(Parameter::from(None::<u64>).literal(), "NULL");
        assert_eq!(Parameter::from(7u64).literal(), "'7'::bigint");
        assert_eq!(
            [1u64, 2].into_iter().collect::<Parameter<'_>>().literal(),
            "ARRAY['1'::bigint,'2'::bigint]::bigint[]"
        );
        let none: [u64; 0] = [];
        assert_eq!(none.into_iter().collect::<Parameter<'_>>().literal(), "ARRAY[]::bigint[]");
    }

    #[test]
    fn names_tell_texts_apart() {
        assert_ne!(name("SELECT 1"), name("SELECT 2"));
        assert_eq!(name("SELECT 1").len(), 40);
    }
}
