//! What the probes of databases have in common.

use std::time::Duration;

use super::{Finding, Severity};

/// How many durable renewals a probe measures.
pub(super) const RENEWALS: usize = 30;

pub(super) fn finding(severity: Severity, code: &'static str, message: impl Into<String>) -> Finding {
    Finding { severity, code, message: message.into() }
}

/// What the durations of renewals, the shortest first, say of the store.
pub(super) fn latency(renewals: &[Duration]) -> Finding {
    let slowest = renewals.last().copied().unwrap_or_default();
    let median = renewals.get(renewals.len() / 2).copied().unwrap_or_default();
    let severity = if slowest > Duration::from_millis(250) { Severity::Warning } else { Severity::Fine };
    finding(severity, "latency", format!("a durable change takes {median:.1?} at the median and {slowest:.1?} at most"))
}
