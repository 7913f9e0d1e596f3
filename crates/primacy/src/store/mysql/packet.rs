//! What is sent to the server in one round trip, and how values are written into it.
//!
//! A step that changes several tables is one packet of several statements, so that no lock is ever held between round
//! trips: a client that is paused or cut off holds nobody up. Such a packet has no parameters. So text and ids go in
//! as hexadecimal literals and numbers as digits; nothing that anybody typed is ever a part of a statement.

use std::fmt::Write as _;

use primacy_core::registers::ProcessId;

use crate::{CandidateId, Label};

/// Statements that are sent together, and answered one by one.
#[derive(Clone, Debug)]
pub(super) struct Packet {
    pub(super) text: String,
    pub(super) statements: usize,
    pub(super) change: Change,
    /// Amid a transaction whose end is sent later. After any other packet no transaction may be open.
    pub(super) is_part: bool,
}

/// Commits whatever `completion_type` says, which would open the next transaction or hang up.
const COMMIT: &str = "COMMIT AND NO CHAIN NO RELEASE";
const ROLLBACK: &str = "ROLLBACK AND NO CHAIN NO RELEASE";

/// What a server's administrator, or a pooler, may have chosen otherwise. It is looked at after each round trip.
pub(super) const COMMIT_EACH: &str = "SET SESSION autocommit = 1, completion_type = 'NO_CHAIN'";

/// What a packet changes, and so what an error says of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// Nothing that matters.
    Nothing,
    /// Its only statement commits by itself.
    Single,
    /// Its first statement commits by itself, and the others read.
    First,
    /// Each of its statements commits by itself.
    Each,
    /// A transaction, or the end of one: its last statement commits, and without that nothing is done.
    Transaction,
}

impl Packet {
    /// Statements of which none matters if it is lost.
    pub(super) fn of(statements: &[String]) -> Self {
        Self { text: statements.join("; "), statements: statements.len(), change: Change::Nothing, is_part: false }
    }

    pub(super) fn read(statement: String) -> Self {
        Self { text: statement, statements: 1, change: Change::Nothing, is_part: false }
    }

    pub(super) fn single(statement: String) -> Self {
        Self { change: Change::Single, ..Self::read(statement) }
    }

    /// A change that commits by itself, and what is read after it.
    pub(super) fn first(statements: &[String]) -> Self {
        Self { change: Change::First, ..Self::of(statements) }
    }

    /// Changes of which each commits by itself.
    pub(super) fn each(statements: &[String]) -> Self {
        Self { change: Change::Each, ..Self::of(statements) }
    }

    /// The beginning of a transaction that is sent statement by statement.
    pub(super) fn start() -> Self {
        Self::part("START TRANSACTION".to_owned())
    }

    pub(super) fn part(statement: String) -> Self {
        Self { is_part: true, ..Self::read(statement) }
    }

    /// The end of a transaction whose statements were sent before.
    pub(super) fn commit() -> Self {
        Self { change: Change::Transaction, ..Self::read(COMMIT.to_owned()) }
    }

    pub(super) fn rollback() -> Self {
        Self::read(ROLLBACK.to_owned())
    }

    /// Undoes what is open, and only then has each statement commit by itself: the other way round it would be committed.
    pub(super) fn tidy() -> Self {
        Self::of(&[ROLLBACK.to_owned(), COMMIT_EACH.to_owned()])
    }

    /// The statements between `START TRANSACTION` and `COMMIT`. Answers are counted from the `START TRANSACTION`.
    pub(super) fn transaction(statements: &[String]) -> Self {
        let text = format!("START TRANSACTION; {}; {COMMIT}", statements.join("; "));
        Self { text, statements: statements.len() + 2, change: Change::Transaction, is_part: false }
    }
}

/// Bytes as a literal: `X'…'`, whatever the character set and the SQL mode.
pub(super) fn bytes(bytes: &[u8]) -> String {
    let mut literal = String::with_capacity(bytes.len() * 2 + 3);
    literal.push_str("X'");
    for byte in bytes {
        // A `String` takes every write.
        let _ = write!(literal, "{byte:02X}");
    }
    literal.push('\'');
    literal
}

pub(super) fn text(text: &str) -> String {
    bytes(text.as_bytes())
}

pub(super) fn label(label: &Label) -> String {
    text(label.as_str())
}

pub(super) fn id(id: CandidateId) -> String {
    bytes(&id.to_bits().to_be_bytes())
}

pub(super) fn process(process: ProcessId) -> String {
    bytes(&process.to_bits().to_be_bytes())
}

#[cfg(test)]
mod tests {
    use super::super::super::decode::number;
    use super::*;

    #[test]
    fn nothing_of_a_text_is_a_part_of_the_statement() {
        assert_eq!(text("a'; --"), "X'61273B202D2D'");
        assert_eq!(text(""), "X''");
        assert_eq!(bytes(&[0, 255]), "X'00FF'");
        assert_eq!(id(CandidateId::from_bits(1)), "X'00000000000000000000000000000001'");
        assert_eq!(number(u64::MAX), i64::MAX);
    }

    #[test]
    fn a_transaction_counts_its_ends() {
        let packet = Packet::transaction(&["DO 1".into(), "DO 2".into()]);
        assert_eq!(packet.text, "START TRANSACTION; DO 1; DO 2; COMMIT AND NO CHAIN NO RELEASE");
        assert_eq!(packet.statements, 4);
    }
}
