//! The lease in one row of MySQL as `mysql-lease.txt` prints it: one statement that elects, reaffirms and times out.
//!
//! What became of it is the `lease` protocol of the product ([`primacy_core::lease`]): the row's rules stand in
//! [`primacy_core::lease::row`]. `docs/papers.md` shows how the published form ends with two leaders or with none.
//!
//! Source: S. Noach, *Leader election using MySQL*, 2015, and the answers below it.

mod published;
#[cfg(feature = "search")]
pub mod searches;

pub use published::{Affected, Row, ServiceId, attempt, force, is_leader};
