//! How numbers, names and ids stand in the tables of every database, and what is damage.

use std::time::Duration;

#[cfg(any(feature = "postgres", feature = "mysql"))]
use primacy_core::registers::ProcessId;
use primacy_core::select::Rank;

#[cfg(any(feature = "postgres", feature = "mysql"))]
use crate::CandidateId;
use crate::{ElectionName, Label, Token};

/// A column holds what primacy never writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Damaged(pub(super) &'static str);

pub(super) fn token(number: i64) -> Result<Token, Damaged> {
    u64::try_from(number).ok().and_then(Token::new).ok_or(Damaged("a token"))
}

pub(super) fn count(number: i64) -> Result<u64, Damaged> {
    u64::try_from(number).map_err(|_| Damaged("a number"))
}

/// A span in nanoseconds.
pub(super) fn span(nanos: i64) -> Result<Duration, Damaged> {
    count(nanos).map(Duration::from_nanos)
}

#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(super) fn candidate(id: &[u8]) -> Result<CandidateId, Damaged> {
    bits(id).map(CandidateId::from_bits).ok_or(Damaged("the id of a candidate"))
}

#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(super) fn process(id: &[u8]) -> Result<ProcessId, Damaged> {
    bits(id).map(ProcessId::from_bits).ok_or(Damaged("the id of a process"))
}

#[cfg(any(feature = "postgres", feature = "mysql"))]
fn bits(id: &[u8]) -> Option<u128> {
    id.try_into().ok().map(u128::from_be_bytes)
}

pub(super) fn label(text: impl Into<String>) -> Result<Label, Damaged> {
    Label::new(text).map_err(|_| Damaged("a label"))
}

pub(super) fn election(text: impl Into<String>) -> Result<ElectionName, Damaged> {
    ElectionName::new(text).map_err(|_| Damaged("the name of an election"))
}

pub(super) fn rank(bytes: &[u8]) -> Result<Rank, Damaged> {
    Rank::from_bytes(bytes).map_err(|_| Damaged("a rank"))
}

/// The nearest number that a column can keep.
pub(super) fn number(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// A span in nanoseconds, or the longest that a column can keep.
pub(super) fn nanos(span: Duration) -> i64 {
    i64::try_from(span.as_nanos()).unwrap_or(i64::MAX)
}
