//! The lease of an election, granted by a majority of voters instead of by a row in a database.
//!
//! A [`Voter`] keeps one promise for each election and answers one ask at a time. A [`Clerk`] carries out the four calls of
//! the `lease` protocol against all voters, so that whatever works with a database works with them: the state machine of
//! [`lease`](crate::lease), wardens, orders and observers do not know the difference. Why a majority's promise is as good as
//! a row, and what must never be dropped from the rules: `docs/design/quorum.md`.

mod change;
mod clerk;
mod flaws;
mod host;
mod membership;
mod order;
mod pace;
mod port;
mod role;
mod roll;
mod state;
mod views;
mod voter;

pub use change::{Change, ChangeOutput};
pub use clerk::{Clerk, Output, Round};
#[cfg(feature = "flaws")]
pub use flaws::Flaw;
pub use host::{DurableState, ELECTIONS_MAX, Query, Refusal, UNCLAIMED_MAX, VoterHost, WAITING_MAX};
pub use membership::{Membership, MembershipError, VoterId};
pub use order::{OrderVerdict, Telling};
pub use pace::Pace;
pub use port::{Answer, Ask, Counts, Granted, Ordered, Orders, View};
pub use role::Role;
pub use roll::{Ballot, Configuration, Elections, LEAP_MOST, Report, Roll, RollAnswer, RollAsk, Testimony};
pub use state::{Outcome, VoterState};
pub use voter::{Durable, Verdict, Voter};
