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
//! | [`StopReason::StoreUnusable`] from [`Candidate::elected`], [`Candidate::while_leader`] | after somebody has mended what it names: password, rights, tables | no |
//! | any other [`StopReason`] from them | with a new candidate | no |
//! | [`Leadership::lost`] returns | the candidate goes on by itself | ask [`Leadership::is_current`]; finish what is under way |
//! | [`Status::Waiting`] with [`Trouble`] | it is retried for you, for ever | no |
//! | [`Status::Leading`] with [`Trouble`] | it is retried for you | yes, until the lease runs out |
//! | [`store::StoreError::Unknown`] from a store | read back first | what the record says after reading back |

#![cfg_attr(docsrs, feature(doc_cfg))]

mod better;
pub mod clock;
mod driver;
mod election;
pub mod fenced;
mod group;
mod leadership;
#[cfg(any(feature = "postgres", feature = "mysql", feature = "peers"))]
mod loopback;
mod namesakes;
mod observer;
mod opener;
mod oracles;
#[cfg(feature = "peers")]
pub mod peers;
mod qualified;
mod status;
pub mod store;
mod store_client;
mod testament;

pub use election::{Candidate, CandidateConfig, Election, Protocol, SetupError};
pub use group::Membership;
pub use leadership::{Leadership, Phase};
pub use observer::{Observation, Observer};
pub use oracles::{Oracles, OraclesError};
#[cfg(feature = "flaws")]
#[doc(hidden)]
pub use primacy_core::lease::Flaw;
pub use primacy_core::registers::{self, Rounds, RoundsError, RoundsSettings};
pub use primacy_core::select;
pub use primacy_core::{
    CandidateId, ElectionName, Fence, Instant, Label, NameError, StaleToken, Timing, TimingError, TimingSettings,
    Token, ids,
};
pub use status::{Status, StopReason, TRANSITION, Trouble};
pub use testament::Testament;

/// The tutorial, whose program is compiled with the other examples.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/tutorials/rust.md")]
struct Tutorial;
