//! The parameters of statements. They travel beside the text, never in it.

use std::time::Duration;

use tokio_postgres::types::{ToSql, Type};

use super::super::decode::{nanos, number};
use crate::CandidateId;
use primacy_core::registers::ProcessId;
use primacy_core::select::Rank;

/// A value with its type, which the server is told and need not be asked.
#[derive(Clone, Debug)]
pub(super) enum Parameter<'a> {
    Text(Option<&'a str>),
    Bytes(&'a [u8]),
    Id(Vec<u8>),
    Number(Option<i64>),
    Flag(bool),
    Rank(Option<Vec<u8>>),
    ManyBytes(Vec<Option<Vec<u8>>>),
    ManyTexts(Option<Vec<&'a str>>),
    ManyNumbers(Vec<Option<i64>>),
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
            Self::Rank(value) => (value, Type::BYTEA),
            Self::ManyBytes(values) => (values, Type::BYTEA_ARRAY),
            Self::ManyTexts(values) => (values, Type::TEXT_ARRAY),
            Self::ManyNumbers(values) => (values, Type::INT8_ARRAY),
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

impl From<ProcessId> for Parameter<'_> {
    fn from(id: ProcessId) -> Self {
        Self::Id(id.to_bits().to_be_bytes().to_vec())
    }
}

impl From<Option<Rank>> for Parameter<'_> {
    fn from(rank: Option<Rank>) -> Self {
        Self::Rank(rank.map(|rank| rank.to_bytes().to_vec()))
    }
}

impl FromIterator<ProcessId> for Parameter<'_> {
    fn from_iter<I: IntoIterator<Item = ProcessId>>(ids: I) -> Self {
        Self::ManyBytes(ids.into_iter().map(|id| Some(id.to_bits().to_be_bytes().to_vec())).collect())
    }
}

impl FromIterator<CandidateId> for Parameter<'_> {
    fn from_iter<I: IntoIterator<Item = CandidateId>>(ids: I) -> Self {
        Self::ManyBytes(ids.into_iter().map(|id| Some(id.to_bits().to_be_bytes().to_vec())).collect())
    }
}

impl FromIterator<Option<Rank>> for Parameter<'_> {
    fn from_iter<I: IntoIterator<Item = Option<Rank>>>(ranks: I) -> Self {
        Self::ManyBytes(ranks.into_iter().map(|rank| rank.map(|rank| rank.to_bytes().to_vec())).collect())
    }
}

impl<'a> FromIterator<&'a [u8]> for Parameter<'a> {
    fn from_iter<I: IntoIterator<Item = &'a [u8]>>(values: I) -> Self {
        Self::ManyBytes(values.into_iter().map(|value| Some(value.to_vec())).collect())
    }
}

impl<'a> FromIterator<&'a str> for Parameter<'a> {
    fn from_iter<I: IntoIterator<Item = &'a str>>(texts: I) -> Self {
        Self::ManyTexts(Some(texts.into_iter().collect()))
    }
}

impl FromIterator<u64> for Parameter<'_> {
    fn from_iter<I: IntoIterator<Item = u64>>(counts: I) -> Self {
        Self::ManyNumbers(counts.into_iter().map(|count| Some(number(count))).collect())
    }
}

impl FromIterator<Option<u64>> for Parameter<'_> {
    fn from_iter<I: IntoIterator<Item = Option<u64>>>(counts: I) -> Self {
        Self::ManyNumbers(counts.into_iter().map(|count| count.map(number)).collect())
    }
}

impl FromIterator<Duration> for Parameter<'_> {
    fn from_iter<I: IntoIterator<Item = Duration>>(durations: I) -> Self {
        Self::ManyNumbers(durations.into_iter().map(|duration| Some(nanos(duration))).collect())
    }
}

impl From<u64> for Parameter<'_> {
    fn from(count: u64) -> Self {
        Self::Number(Some(number(count)))
    }
}

impl From<Option<u64>> for Parameter<'_> {
    fn from(count: Option<u64>) -> Self {
        Self::Number(count.map(number))
    }
}

impl From<Duration> for Parameter<'_> {
    /// In nanoseconds.
    fn from(duration: Duration) -> Self {
        Self::Number(Some(nanos(duration)))
    }
}

impl From<Option<Duration>> for Parameter<'_> {
    fn from(duration: Option<Duration>) -> Self {
        Self::Number(duration.map(nanos))
    }
}

impl From<bool> for Parameter<'_> {
    fn from(value: bool) -> Self {
        Self::Flag(value)
    }
}
