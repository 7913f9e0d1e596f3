//! Leader election that you can trust: of several processes one leads, and it is safe to act on the answer.
//!
//! ```text
//!  candidate ─┐                                    ┌─ Leadership: is_current(), lost(), token() ─► fenced resource
//!  candidate ─┼─► a row in the database you run ───┤
//!  candidate ─┘   compare-and-swap, lease, token   └─ the others wait, and learn of a release at once
//! ```
//!
//! ```
//! # async fn write_report(_token: u64) {}
//! # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # if !cfg!(feature = "sqlite") { return Ok(()) }
//! # let folder = tempfile::tempdir()?;
//! # let url = format!("sqlite:{}", folder.path().join("primacy.db").display());
//! use primacy::Election;
//!
//! let election = Election::open(&url, "nightly-report")?;
//! let mut candidate = election.campaign("web-1")?;
//!
//! let leadership = candidate.elected().await?;
//! if leadership.is_current() {
//!     write_report(leadership.token().get()).await; // the token travels with every write
//! }
//! leadership.resign().await;
//! # candidate.withdraw().await;
//! # Ok(()) }
//! ```
//!
//! [`Candidate::run`] does this for programs that work as long as they lead, and [`Candidate::handle`] shuts them down in
//! order. Programs to begin with, each below forty lines, are in the folder `examples` of the repository: a worker that
//! drains on SIGTERM (`drain_on_sigterm.rs`), a web service that shows who leads (`who_leads.rs`), a worker that its
//! database refuses once it is deposed (`fenced_worker.rs`).
//!
//! # What is guaranteed
//! * At no moment do two processes hold a [`Leadership`] of one election for which [`Leadership::is_current`] is true, as
//!   long as each clock's *rate* is right within 2 % and the store is linearizable. Wall clocks play no part.
//! * Every new leadership has a larger [`Token`] than all before it.
//! * A leader learns that it must stop ([`Leadership::lost`]) in time to do so before its lease ends.
//!
//! # What is not
//! A process can be paused between its check and its write, and then writes after it was replaced. No lease can prevent
//! that. **If you do only one thing, check the token at the resource**: [`fenced`] does it inside a
//! transaction of your database, [`Fence`] in a resource of your own.
//!
//! # Features, and the crates in signatures
//! No store is built unless its feature is turned on. [`Election::open`] refuses the URL of a store that is not built with
//! the name of the feature. The drivers below are public dependencies: their types stand in signatures, so that a program
//! that fences its own transactions uses the same major version, and a new one of theirs is a new one of this crate.
//!
//! | feature | what it brings | public dependency |
//! |---|---|---|
//! | `sqlite` | the store `sqlite:`; fences for rusqlite | `rusqlite` 0.39 to 0.41 |
//! | `postgres` | the store `postgres:`; fences for tokio-postgres | `tokio-postgres` 0.7 |
//! | `postgres-tls` | the same with TLS, as hosts other than this one need | |
//! | `mysql` | the store `mysql:`, for MariaDB and Galera too; fences for mysql_async | `mysql_async` 0.37 |
//! | `mysql-tls` | the same with TLS | |
//! | `peers` | the store `peers:`, and the voters behind it, over TLS | |
//! | `sqlx-postgres`, `sqlx-mysql`, `sqlx-sqlite` | fences for sqlx | `sqlx` 0.9 |
//!
//! `tokio` 1 is one always: [`Candidate::status`] and its like are its `watch` channels.
//!
//! # Errors, and what they mean for you
//! | what you get | may I retry? | may I still be the leader? |
//! |---|---|---|
//! | [`SetupError`] | after correcting the URL or name | no |
//! | [`StopReason::StoreUnusable`] from [`Candidate::elected`], [`Candidate::run`] | after somebody has mended what it names: password, rights, tables | no |
//! | any other [`StopReason`] from them | with a new candidate | no |
//! | [`Leadership::lost`] returns | the candidate goes on by itself | ask [`Leadership::is_current`]; finish what is under way |
//! | [`Status::Waiting`] with [`Trouble`] | it is retried for you, for ever | no |
//! | [`Status::Leading`] with [`Trouble`] | it is retried for you | yes, until the lease runs out |
//! | [`store::StoreError::Unknown`] from a store | read back first | what the record says after reading back |

#![cfg_attr(docsrs, feature(doc_cfg))]

mod better;
mod candidate;
pub mod clock;
mod command;
mod dead_leader_release;
mod driver;
mod driver_thread;
mod election;
pub mod fenced;
mod fleet;
mod fleet_resources;
mod group;
mod leadership;
#[cfg(any(feature = "postgres", feature = "mysql", feature = "peers"))]
mod loopback;
mod measured_preference;
pub mod metrics;
mod namesakes;
mod observer;
mod opener;
#[cfg(feature = "peers")]
pub mod peers;
mod qualified;
mod shared;
mod status;
pub mod store;
mod store_client;
mod stores;

pub use dead_leader_release::DeadLeaderRelease;

pub use candidate::{Candidate, CandidateHandle};
pub use election::{CandidateConfig, Election, Protocol, SetupError};
pub use fleet::Fleet;
pub use group::GroupStatus;
pub use leadership::{Leadership, Phase};
pub use measured_preference::{MeasuredPreference, MeasuredPreferenceError};
pub use observer::Observation;
pub use primacy_core::registers::{Rounds, RoundsError, RoundsSettings};
pub use primacy_core::{
    CandidateId, ElectionName, Fence, Instant, Label, NameError, StaleToken, Timing, TimingError, TimingSettings, Token,
};
pub use status::{Status, StopReason, TRANSITION, Trouble};

/// Who should lead first: names and scores, the rank that they make, and when a live leader makes way. A preference is
/// never safety: who leads is decided by the grant alone.
pub mod select {
    #[doc(inline)]
    pub use primacy_core::select::{
        Classes, ClassesError, FailBack, Metric, Names, NamesError, PATTERNS_MAX, Pattern, Patterns, Rank, RankError,
        SCORES_MAX, Score, ScoreError, Scores, Selector, TooManyClasses, Turn, UnknownMetric, UnknownTurn,
    };
}

/// What is known of those that take part by the `registers` protocol, and what a store is asked for it.
pub mod registers {
    #[doc(inline)]
    pub use primacy_core::registers::{
        Candidacy, Descriptor, Eviction, GroupView, MemberEventKind, ProcessId, Reply as RegistryReply,
        Request as RegistryRequest, Vars,
    };
}

/// What the command `primacy` and the tests of this workspace use beside the exported API. It changes with any version,
/// and no other program should use it. This is the one place for such names.
#[doc(hidden)]
pub mod internal {
    #[cfg(feature = "mysql")]
    pub use crate::store::mysql::url::Oddities;
    pub use primacy_core::ids::escape;
    #[cfg(feature = "flaws")]
    pub use primacy_core::lease::Flaw;
}

/// The tutorial, whose program is compiled with the other examples.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/tutorials/rust.md")]
struct Tutorial;
