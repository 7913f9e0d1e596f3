//! The `registers` protocol: who takes part, who of them is alive, who should lead, and how long a round lasts; after
//! Niazi, Ismail, Berthou and Dowling, "Leader Election using NewSQL Database Systems" (DAIS 2015).
//!
//! A [`Group`] is all that one process does in one election: it beats for all of its candidates at once, watches the
//! counters of the others, and tells its candidates where they stand. It selects; it never grants. The grant is the
//! lease of the election's record, asked for by a [`Candidate`](crate::lease::Candidate) exactly as in the `lease`
//! protocol, and all that the safety of the election rests on.

mod candidacy;
mod candidate;
mod group;
mod history;
mod messages;
mod pace;
mod port;
mod process;
mod rounds;
mod table;

pub use crate::lease::{CallError, CallId};
pub use candidacy::Candidacy;
pub use candidate::{CandidateContext, CandidateEffect, GroupCandidate};
#[cfg(feature = "flaws")]
pub use group::Flaw;
pub use group::{Config, Context, Group, GroupView, HEIRS};
pub use messages::{FromGroup, LinePosition, ToGroup};
pub use port::{Descriptor, Effect, Event, Eviction, ProcessId, Reply, Request, Vars};
pub use process::{Process, ProcessContext, ProcessEffect, ProcessEvent};
pub use rounds::{Rounds, RoundsError, RoundsSettings};
pub use table::{MemberEventKind, Table, TableMember, process_label};
