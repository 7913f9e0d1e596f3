//! The parameters of statements. They travel beside the text, never in it.

use std::time::Duration;

use tokio_postgres::types::{ToSql, Type};

use crate::CandidateId;

/// A value with its type, which the server is told and need not be asked.
#[derive(Clone, Debug)]
pub(super) enum Parameter<'a> {
    Text(Option<&'a str>),
    Bytes(&'a [u8]),
    Id(Vec<u8>),
    Number(Option<i64>),
    Flag(bool),
}

impl Parameter<'_> {
    /// As the driver takes it.
    pub(super) fn typed(&self) -> (&(dyn ToSql + Sync), Type) {
        match self {
            Self::Text(value) => (value, Type::TEXT),
            Self::Bytes(value) => (value, Type::BYTEA),
            Self::Id(value) => (value, Type::BYTEA),
            Self::Number(value) => (value, Type::INT8),
            Self::Flag(value) => (value, Type::BOOL),
        }
    }
}

impl<'a> From<&'a str> for Parameter<'a> {
    fn from(value: &'a str) -> Self {
        Self::Text(Some(value))
    }
}

impl<'a> From<Option<&'a str>> for Parameter<'a> {
    fn from(value: Option<&'a str>) -> Self {
        Self::Text(value)
    }
}

impl<'a> From<&'a [u8]> for Parameter<'a> {
    fn from(value: &'a [u8]) -> Self {
        Self::Bytes(value)
    }
}

impl From<CandidateId> for Parameter<'_> {
    fn from(id: CandidateId) -> Self {
        Self::Id(id.to_bits().to_be_bytes().to_vec())
    }
}

/// The nearest number that a column can keep.
fn bigint(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

impl From<u64> for Parameter<'_> {
    fn from(count: u64) -> Self {
        Self::Number(Some(bigint(count)))
    }
}

impl From<Option<u64>> for Parameter<'_> {
    fn from(count: Option<u64>) -> Self {
        Self::Number(count.map(bigint))
    }
}

impl From<Duration> for Parameter<'_> {
    /// In nanoseconds.
    fn from(duration: Duration) -> Self {
        Self::Number(Some(i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)))
    }
}

impl From<bool> for Parameter<'_> {
    fn from(value: bool) -> Self {
        Self::Flag(value)
    }
}
