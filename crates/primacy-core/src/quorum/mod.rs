//! The lease of an election, granted by a majority of voters instead of by a row in a database.
//!
//! A [`Voter`] keeps one promise for each election and answers one ask at a time. A [`QuorumClient`] carries out the
//! four calls of the `lease` protocol against all voters, so that whatever works with a database works with them: the
//! state machine of [`lease`](crate::lease), wardens, orders and observers do not know the difference. The
//! design page on the quorum says why a majority's promise is as good as a row, and which rules must never be dropped.

mod calls;
mod client;
mod config_acceptor;
mod connection;
#[cfg(feature = "flaws")]
mod flaws;
mod host;
mod inquiry;
mod notices;
mod order;
mod pace;
mod plan;
mod port;
mod reconfiguration;
mod role;
mod state;
mod views;
mod voter;
mod voter_set;

pub use calls::QuorumCalls;
pub use client::{Output, QuorumClient, Round};
pub use config_acceptor::{
    Ballot, ConfigAcceptor, ConfigEvidence, ConfigReply, ConfigRequest, Configuration, LEAP_MOST, VoterPromises,
    VoterReport,
};
pub use connection::{ConnectionEffect, VoterConnection};
#[cfg(feature = "flaws")]
pub use flaws::Flaw;
pub use host::{DurableState, ELECTIONS_MAX, Query, Refusal, UNCLAIMED_MAX, VoterHost, WAITING_MAX};
pub use inquiry::Inquiry;
pub use notices::BehindNotices;
pub use order::{OrderMessage, OrderVerdict};
pub use pace::Pace;
pub use plan::{AddError, Added, PlanError, VOTERS_MAX, VoterPlan};
pub use port::{Answer, Ask, GrantProgress, OrderNumbers, OrderRegister, Orders, VoterView};
pub use reconfiguration::{
    Planned, ReconfigurationAttempt, ReconfigurationDriver, ReconfigurationEffect, ReconfigurationOutput,
};
pub use role::Role;
pub use state::{Outcome, VoterState};
pub use voter::{Durable, TERM_LEAP_MOST, Voter, VoterReply};
pub use voter_set::{VoterId, VoterSet, VoterSetError, beyond_majority};
