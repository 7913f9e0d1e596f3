//! The obligations of a [`Store`], each tried by a small check: for the authors of stores.
//!
//! ```
//! use std::sync::Arc;
//! use primacy::store::{Store, conformance, memory::MemoryStore};
//!
//! struct Memory(MemoryStore);
//!
//! impl conformance::Harness for Memory {
//!     fn open(&self) -> Arc<dyn Store> {
//!         Arc::new(self.0.clone())
//!     }
//! }
//!
//! # #[tokio::main] async fn main() {
//! let report = conformance::run(&Memory(MemoryStore::default())).await.expect("the store keeps its promises");
//! assert!(report.passed.contains(&"one-winner"));
//! # }
//! ```

mod actor;
mod announcements;
mod contention;
mod forget;
mod grants;
mod lifecycle;
mod names;
mod orders;
mod registers;
mod replay;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::{BoxFuture, Store};
use crate::ElectionName;
use actor::{Outcome, Trial};

/// How the suite gets at the store under test.
pub trait Harness: Send + Sync {
    /// Opens the store as another process would: another handle on the same elections. Checks keep apart by the names
    /// of their elections, so that one database serves all of them.
    fn open(&self) -> Arc<dyn Store>;

    /// Deletes an election's record behind the store's back, as an operator might by hand, and leaves what the store
    /// remembers beside it. `false` if the harness cannot do that; then nothing is checked of it.
    fn delete_record<'a>(&'a self, election: &'a ElectionName) -> BoxFuture<'a, bool> {
        let _ = election;
        Box::pin(std::future::ready(false))
    }

    /// Whether what stands between here and the store survives a step that is given up under way. PgBouncer 1.18 does not
    /// always: a cancel request can end it.
    fn survives_dropped_steps(&self) -> bool {
        true
    }

    /// Whether the store gives hints of its own.
    fn has_hints(&self) -> bool {
        true
    }

    /// Whether the store keeps registers: [`Store::registry`], [`Admin::members`](super::Admin::members) and
    /// [`Admin::events`](super::Admin::events).
    fn has_registers(&self) -> bool {
        true
    }

    /// Checks whose names begin so are not made of this store, since its own design replaces what they ask for.
    fn exempt(&self) -> &'static [&'static str] {
        &[]
    }
}

/// Which checks were passed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// Those that found nothing.
    pub passed: Vec<&'static str>,
    /// Those for which the harness lacks the means.
    pub skipped: Vec<&'static str>,
}

/// An obligation that the store does not meet.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the store fails the check '{check}': {message}")]
#[non_exhaustive]
pub struct Failure {
    /// The name of the check.
    pub check: &'static str,
    /// What happened.
    pub message: String,
}

type Check = for<'a> fn(Trial<'a>) -> BoxFuture<'a, Outcome>;

/// How long one check may take before the store counts as hanging.
const PATIENCE: Duration = Duration::from_secs(60);

macro_rules! checks {
    ($($name:literal => $module:ident :: $function:ident,)*) => {
        /// The checks, the simplest first, so that the first failure is the one to read.
        const CHECKS: &[(&str, Check)] = &[$(($name, |trial| Box::pin($module::$function(trial)))),*];
    };
}

checks! {
    "first-grant" => grants::first_grant,
    "renewal" => grants::renewal,
    "stale-beat" => grants::stale_beat,
    "same-label-other-id" => grants::same_label_other_id,
    "other-token" => grants::other_token,
    "release" => grants::release,
    "release-by-another" => grants::release_by_another,
    "expected-version" => grants::expected_version,
    "takeover" => grants::takeover,
    "expected-absence" => grants::expected_absence,
    "tokens-grow" => grants::tokens_grow,
    "floor" => grants::floor,
    "floor-outside" => grants::floor_outside,
    "tokens-end" => grants::tokens_end,
    "lease-is-the-holders" => grants::lease_is_the_holders,
    "renewed-lease" => grants::renewed_lease,
    "deleted-record" => lifecycle::deleted_record,
    "expected-order-number" => orders::expected_order_number,
    "pause" => orders::pause,
    "promotion" => orders::promotion,
    "promotion-by-id" => orders::promotion_by_id,
    "completed-order" => orders::completed_order,
    "release-keeps-successor" => orders::release_keeps_successor,
    "deposition" => orders::deposition,
    "orders-now" => orders::now,
    "orders-for-a-token" => orders::for_a_token,
    "orders-without-election" => orders::without_election,
    "distinct-names" => names::distinct,
    "names-are-data" => names::are_data,
    "byte-exact" => names::byte_exact,
    "large-data" => names::large_data,
    "waiting-order" => announcements::waiting_order,
    "ranks" => announcements::ranks,
    "winner-waits-no-more" => announcements::winner_waits_no_more,
    "leave" => announcements::leave,
    "former-leaders" => announcements::former_leaders,
    "note" => announcements::note,
    "history" => lifecycle::history,
    "ages" => lifecycle::ages,
    "hints" => lifecycle::hints,
    "reopened" => lifecycle::reopened,
    "probe" => lifecycle::probe,
    "registers-nobody" => registers::nobody,
    "registers-numbers" => registers::numbers,
    "registers-beats" => registers::beats,
    "registers-head" => registers::head,
    "registers-without" => registers::without,
    "registers-record" => registers::record,
    "registers-leave" => registers::leave,
    "registers-eviction" => registers::eviction,
    "registers-comebacks" => registers::comebacks,
    "registers-round-time" => registers::round_time,
    "registers-leader-only" => registers::by_the_leader_only,
    "registers-members" => registers::members,
    "registers-join-again" => registers::join_again,
    "registers-events" => registers::events,
    "registers-names" => registers::names,
    "registers-apart" => registers::apart,
    "registers-forgotten" => forget::registers,
    "registers-crowd" => registers::crowd,
    "registers-eviction-races" => registers::eviction_races,
    "dropped-step" => lifecycle::dropped_step,
    "one-winner" => contention::one_winner,
    "no-stale-look" => contention::no_stale_look,
    "linearizable" => contention::linearizable,
    "forget" => forget::forget,
    "forget-refused" => forget::refused,
    "forget-deleted-record" => forget::deleted_record,
    "forget-races" => forget::races,
}

/// Runs all checks, in order, until one fails. Needs a tokio runtime with I/O and time; one with several threads tries
/// a store harder.
///
/// # Errors
/// The first obligation that is not met.
pub async fn run(harness: &dyn Harness) -> Result<Report, Failure> {
    let mut report = Report::default();
    for &(check, run) in CHECKS {
        let is_exempt = harness.exempt().iter().any(|exempt| check.starts_with(exempt));
        if is_exempt || (check.starts_with("registers-") && !harness.has_registers()) {
            report.skipped.push(check);
            continue;
        }
        match tokio::time::timeout(PATIENCE, run(Trial::new(harness))).await {
            Ok(Ok(())) => report.passed.push(check),
            Ok(Err(Verdict::Skipped)) => report.skipped.push(check),
            Ok(Err(Verdict::Failed(message))) => return Err(Failure { check, message }),
            Err(_) => return Err(Failure { check, message: format!("it was not done within {PATIENCE:?}") }),
        }
    }
    Ok(report)
}

/// Why a check did not pass.
#[derive(Debug)]
enum Verdict {
    Skipped,
    Failed(String),
}

impl<T: fmt::Display> From<T> for Verdict {
    fn from(message: T) -> Self {
        Self::Failed(message.to_string())
    }
}

/// Fails the check unless something holds.
macro_rules! ensure {
    ($holds:expr, $($message:tt)+) => {
        if !$holds {
            return Err(crate::store::conformance::Verdict::from(format!($($message)+)));
        }
    };
}
use ensure;
