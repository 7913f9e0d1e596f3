//! The port to a store: what it must do, and by which URL it is found.
//!
//! A store of one's own implements [`Store`], [`Session`] and [`Admin`], decides by the rules in [`row`], [`WaitQueue`] and
//! [`TermHistory`], and passes [`conformance`]. The page "Writing a store" of the manual does it step by step.

#[cfg(any(feature = "sqlite", feature = "postgres", feature = "mysql"))]
mod announcement_failure;
pub mod conformance;
#[cfg(any(feature = "sqlite", feature = "postgres", feature = "mysql"))]
mod decode;
#[cfg(any(feature = "sqlite", feature = "postgres", feature = "mysql"))]
mod findings;
#[cfg(any(feature = "postgres", feature = "mysql"))]
mod fleet_lines;
mod forget;
#[cfg(any(feature = "mysql", feature = "peers"))]
pub(crate) mod hint_task;
pub(crate) mod history;
mod latency_probe;
#[cfg(any(feature = "postgres", feature = "mysql"))]
mod lines;
pub mod memory;
#[cfg(feature = "mysql")]
pub mod mysql;
#[cfg(any(feature = "postgres", feature = "mysql"))]
mod percent;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(any(feature = "postgres", feature = "mysql"))]
mod race;
#[cfg(any(feature = "sqlite", feature = "postgres", feature = "mysql"))]
mod repair;
mod roster;
#[cfg(any(feature = "sqlite", feature = "postgres", feature = "mysql"))]
mod shared_admin;
#[cfg(feature = "sqlite")]
pub mod sqlite;
mod support;
pub(crate) mod waiting;

use std::fmt;
use std::future::Future;
use std::ops::ControlFlow;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use crate::select::Rank;
pub use crate::stores::from_url;
use crate::{CandidateId, ElectionName, Label, Token};
pub use forget::{Basis, ForgetOutcome, Hindrance};
pub use history::TermHistory;
#[cfg(feature = "peers")]
pub(crate) use history::is_of_forgetting;
#[cfg(any(feature = "postgres", feature = "peers"))]
pub(crate) use history::nobody;
#[cfg(any(feature = "sqlite", feature = "postgres", feature = "mysql"))]
pub(crate) use history::remains;
pub use latency_probe::{LatencyProbe, LatencyReport, VoterLatency};
use primacy_core::lease::row::{TokensUsedUp, Verdict};
pub use primacy_core::lease::{
    Announcement, CallError, EndReason, Expectation, Floor, HandoverRequest, Holder, Order, OrderKind, Record, Reply,
    Request, Sighting, Standing, Version, Why,
};
use primacy_core::registers;
pub use support::{LeaderSupport, VoterSupport};
pub use waiting::{WaitQueue, WaiterInfo};

/// What each step and order makes of an election's row: the rules that all stores share.
pub mod row {
    #[doc(inline)]
    pub use primacy_core::lease::row::{
        Renewal, TokensUsedUp, Verdict, acquire, change, order, release, renew, token_of_forgetting,
    };
}

/// The parts of a [`WaitQueue`], for a store that keeps it.
pub mod wait_queue {
    #[doc(inline)]
    pub use primacy_core::lease::wait_queue::{FORGOTTEN_AFTER, QueuedWaiter, fresh_for};
}

/// A future on the heap, so that stores can be chosen at run time.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A place that keeps elections: a linearizable row per election, changed by compare-and-swap.
///
/// Requests, records and snapshots can be matched and built completely, on purpose: a store that ignored a request, or left
/// out a field, would be wrong. Another field is another version, and each store hears of it from its compiler. Only the
/// reasons, which a store passes on, may grow ([`EndReason`], [`Why`]).
///
/// All of primacy's safety rests on what is promised here. An implementation passes
/// [`conformance`], which tries each of these obligations:
///
/// * **Linearizable.** Each step of a [`Session`] takes effect at one moment between its call and its answer. An answer
///   never tells of a state older than one that was answered before to anyone. (A majority of peers keeps this for grants
///   and orders; a look by another may show a renewal less: see the design page on the quorum.) A candidate's [`Standing`] may be as old
///   as its last announcement: it decides who asks first, never who leads.
/// * **Exact.** [`Request::Acquire`], [`Request::Renew`] and [`Request::Release`] change the row only if it is byte for
///   byte as required, and say which.
/// * **Durable.** A change is answered only after it would survive the crash of the store (rule R11). An announcement
///   need not be durable.
/// * **Tokens only grow**, also after the row was deleted: the highest token is remembered beside the row.
/// * **Errors tell the outcome**: [`StoreError::outcome`] is [`CallError::NotDone`] only if the step was not taken and
///   never will be.
/// * **Cancellable.** A dropped future leaves its session unfit for use; the caller drops that too, and a step that it
///   had under way takes effect wholly or not at all, sooner or later.
pub trait Store: fmt::Debug + Send + Sync + 'static {
    /// Where it is, for people: the URL without secrets.
    fn location(&self) -> String;

    /// The same store for many candidates of one process, which share its connections: what they ask at the same time leaves
    /// together, and none waits for another's answer. All of them run in one runtime. `None` if each candidate needs a connection of
    /// its own here.
    fn sharing(&self) -> Option<Arc<dyn Store>> {
        None
    }

    /// Opens a connection of its own for one candidate, creating the schema where it is missing.
    fn session<'a>(
        &'a self,
        election: &'a ElectionName,
        candidate: &'a Holder,
    ) -> BoxFuture<'a, Result<Box<dyn Session>, StoreError>>;

    /// Opens a connection that only releases, or leaves, in the place of a candidate that is dead. A store may leave out what it
    /// looks at for one that begins.
    fn closing_session<'a>(
        &'a self,
        election: &'a ElectionName,
        candidate: &'a Holder,
    ) -> BoxFuture<'a, Result<Box<dyn Session>, StoreError>> {
        self.session(election, candidate)
    }

    /// Opens a connection of its own for what one process does in the `registers` protocol, creating the tables of that
    /// where they are missing. A store that keeps no registers refuses this, and serves the `lease` protocol.
    fn registry<'a>(&'a self, election: &'a ElectionName) -> BoxFuture<'a, Result<Box<dyn Registry>, StoreError>> {
        let _ = election;
        Box::pin(std::future::ready(Err(no_registers())))
    }

    /// Whether it may keep registers: one that says no refuses what concerns them, and need not be asked.
    fn keeps_registers(&self) -> bool {
        true
    }

    /// Opens a connection for observers and operators. Does not create anything.
    fn admin(&self) -> BoxFuture<'_, Result<Box<dyn Admin>, StoreError>>;

    /// Starts to listen for changes of an election other than renewals: grants, releases, orders. A store that has no
    /// way to tell gives [`NoHints`]. A lost or made-up hint costs time, never safety.
    fn hints<'a>(&'a self, election: &'a ElectionName) -> BoxFuture<'a, Result<Box<dyn Hints>, StoreError>> {
        let _ = election;
        Box::pin(std::future::ready(Ok(Box::new(NoHints) as Box<dyn Hints>)))
    }

    /// Begins to measure the ways from here to those that keep elections, for the candidate with this label; `None` if there is
    /// nothing to choose among. Opens nothing yet.
    fn latency_probe(&self, _candidate: &Label) -> Option<Box<dyn LatencyProbe>> {
        None
    }
}

/// One candidate's connection. Steps are taken one at a time.
pub trait Session: Send {
    /// Takes one step on the election's row.
    fn step(&mut self, request: Request) -> BoxFuture<'_, Result<Reply, StoreError>>;
}

/// One process's connection for the `registers` protocol. Rounds are taken one at a time.
///
/// Nothing here grants anything, so no promise of [`Store`] is needed of it but these: a counter grows with every beat that
/// is answered; a number is given once; a process whose counter has changed is not removed; and a record that is shown was
/// read between the call and its answer, as by [`Request::Look`].
pub trait Registry: Send {
    /// Takes one round.
    fn round(&mut self, request: registers::Request) -> BoxFuture<'_, Result<registers::Reply, StoreError>>;
}

/// A source of hints that something may have changed.
pub trait Hints: Send {
    /// Returns at the next hint. Hints that come while nobody waits are kept as one.
    fn next(&mut self) -> BoxFuture<'_, ()>;
}

/// The hints of a store that has none.
#[derive(Debug)]
pub struct NoHints;

impl Hints for NoHints {
    fn next(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::pending())
    }
}

/// The connection of observers and operators.
pub trait Admin: Send {
    /// The election as it is now, or `None` if nobody has ever campaigned in it. What has no record is shown by what is left
    /// of it ([`Snapshot::basis`]).
    fn snapshot<'a>(&'a mut self, election: &'a ElectionName) -> BoxFuture<'a, Result<Option<Snapshot>, StoreError>>;

    /// Which voters support the present leader; `None` if nobody leads, or if the store has no voters. Asks all of them, and waits
    /// until each has answered or will not.
    fn support<'a>(
        &'a mut self,
        _election: &'a ElectionName,
    ) -> BoxFuture<'a, Result<Option<LeaderSupport>, StoreError>> {
        Box::pin(std::future::ready(Ok(None)))
    }

    /// All elections that are not forgotten, by name.
    fn elections(&mut self) -> BoxFuture<'_, Result<Vec<Snapshot>, StoreError>>;

    /// The last leaderships of an election, the newest first.
    fn history<'a>(
        &'a mut self,
        election: &'a ElectionName,
        limit: u32,
    ) -> BoxFuture<'a, Result<Vec<Term>, StoreError>>;

    /// Who takes part by the `registers` protocol, or `None` if nobody ever has. Refused by a store that keeps no registers.
    fn members<'a>(&'a mut self, election: &'a ElectionName) -> BoxFuture<'a, Result<Option<Members>, StoreError>> {
        let _ = election;
        Box::pin(std::future::ready(Err(no_registers())))
    }

    /// What has happened among the members, the newest first. Refused by a store that keeps no registers.
    fn events<'a>(
        &'a mut self,
        election: &'a ElectionName,
        limit: u32,
    ) -> BoxFuture<'a, Result<Vec<MemberEvent>, StoreError>> {
        let _ = (election, limit);
        Box::pin(std::future::ready(Err(no_registers())))
    }

    /// Writes an operator's order into the election's row, durably, and hints at it.
    fn order<'a>(
        &'a mut self,
        election: &'a ElectionName,
        order: Order,
    ) -> BoxFuture<'a, Result<OrderOutcome, StoreError>>;

    /// Removes everything about an election but its token, which is raised by one as by a grant to nobody: the last leader is
    /// refused by the fence, and the next token is larger. Refused while somebody leads, waits, or may do so
    /// ([`Hindrance`]). Of a grant and this, the first wins: the later one finds another state than it expects.
    fn forget<'a>(&'a mut self, election: &'a ElectionName) -> BoxFuture<'a, Result<ForgetOutcome, StoreError>>;

    /// What the store is and guarantees, measured and read from its settings. Leaves nothing behind.
    fn probe(&mut self) -> BoxFuture<'_, Result<Probe, StoreError>>;
}

fn no_registers() -> StoreError {
    StoreError::Unusable("this store keeps no registers: use the lease protocol, or another store".to_owned())
}

/// An election as an observer sees it at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// Which election.
    pub election: ElectionName,
    /// Its row.
    pub record: Record,
    /// How long ago the row was last granted or renewed, by the store's clock; unknown if that clock has been reset since.
    pub age: Option<Duration>,
    /// For how long the present holder has held the lease, by the store's clock.
    pub held_for: Option<Duration>,
    /// The candidates that announced themselves lately, in waiting order. The holder is not among them.
    pub candidates: Vec<Waiting>,
    /// What is behind all this.
    pub basis: Basis,
}

impl Snapshot {
    /// Who leads as far as this snapshot can tell: nobody once the lease has run out without a renewal, never the last
    /// one seen (HAZARDS 58).
    pub fn leader(&self) -> Option<&Holder> {
        self.remaining().and(self.record.holder.as_ref())
    }

    /// How long the holder's lease still runs unless it is renewed, or `None` if it is released, over or unknown.
    pub fn remaining(&self) -> Option<Duration> {
        self.record.holder.as_ref()?;
        self.record.lease.checked_sub(self.age?).filter(|left| !left.is_zero())
    }
}

/// A waiting candidate as it last announced itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// Who it is, and what it publishes about itself.
    pub who: Holder,
    /// What it last said that it does, for people.
    pub note: String,
    /// Where it stands by preference: who has a smaller rank asks first. `None`: it never leads.
    pub rank: Option<Rank>,
    /// How long ago it said so, by the store's clock.
    pub age: Option<Duration>,
}

/// Who takes part by the `registers` protocol, at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Members {
    /// What all share.
    pub vars: registers::Vars,
    /// Every candidate of every process, by number of the process, then by identity.
    pub members: Vec<Member>,
}

/// One candidate as an observer sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// What it publishes about itself.
    pub candidacy: registers::Candidacy,
    /// Its process's register.
    pub descriptor: registers::Descriptor,
    /// How long ago its process last beat, by the store's clock; unknown if that clock has been reset since.
    pub age: Option<Duration>,
    /// When its process joined: milliseconds since 1970 by the store's clock. Informs people only.
    pub joined_unix_ms: i64,
}

/// Something that happened among the members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberEvent {
    /// Counts the events of an election, from 1.
    pub number: u64,
    /// When: milliseconds since 1970 by the store's clock. Informs people only.
    pub unix_ms: i64,
    /// What.
    pub kind: registers::MemberEventKind,
}

/// One leadership of the past or the present.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Term {
    /// Its token.
    pub token: Token,
    /// Whose it was.
    pub id: CandidateId,
    /// What people call it.
    pub label: Label,
    /// When it was granted: milliseconds since 1970 by the clock of the process that wrote it. Informs people only.
    pub granted_unix_ms: i64,
    /// When it ended, by the same kind of clock, and why: the [`EndReason::word`], or `taken-over`, `removed`. Open
    /// while it lasts.
    pub ended: Option<(i64, String)>,
}

/// What became of an order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OrderOutcome {
    /// It stands in the row now, which was like this just before.
    Written(Snapshot),
    /// The row was as wanted already; nothing was changed.
    Already(Snapshot),
    /// Another token has been granted since; nothing was changed.
    TokenChanged(Snapshot),
    /// The election has no record, though leaders were granted: it was deleted or forgotten. Nothing was changed.
    NoRecord(Snapshot),
    /// Nobody has ever campaigned in this election; nothing was changed.
    NoSuchElection,
}

impl OrderOutcome {
    /// What an order makes of an election that is like this: the record that is to be written, and why the present leadership ends
    /// by it, if it does. `Break`: it changes nothing, and this is the answer.
    pub fn judge(before: &Snapshot, order: &Order) -> ControlFlow<Self, (Record, Option<EndReason>)> {
        if before.basis != Basis::Record {
            return ControlFlow::Break(Self::NoRecord(before.clone()));
        }
        match row::order(&before.record, before.leader().is_some(), order) {
            Verdict::Already => ControlFlow::Break(Self::Already(before.clone())),
            Verdict::TokenChanged => ControlFlow::Break(Self::TokenChanged(before.clone())),
            Verdict::Write(record, ended) => ControlFlow::Continue((record, ended)),
        }
    }
}

/// What a store is and guarantees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// The product and its version.
    pub product: String,
    /// How long durable renewals took, shortest first.
    pub renewals: Vec<Duration>,
    /// What was found.
    pub findings: Vec<Finding>,
    /// How far away those are from here that keep elections, where there are several.
    pub latencies: Option<LatencyReport>,
}

/// One thing that `primacy doctor` tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// A word for it, for scripts, such as `durability`.
    pub code: &'static str,
    /// What was found, and what to do about it.
    pub message: String,
}

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// As it should be.
    Fine,
    /// It works, but not as well as it could.
    Warning,
    /// A promise of primacy does not hold.
    Danger,
}

/// A step or a question that brought no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The store could not be reached, or was too busy. Nothing was changed; trying again may help.
    #[error("the store cannot be reached: {0}")]
    Unreachable(String),
    /// The step was sent and no answer came. It may have been taken, or may be later; read back before concluding.
    #[error("no answer from the store: {0}")]
    Unknown(String),
    /// The store answered that it cannot serve: damaged, full, read-only, no permission, another version's schema.
    /// Nothing was changed; someone has to act first. Where it is the first answer of all, a candidate ends with it
    /// ([`StopReason::StoreUnusable`](crate::StopReason::StoreUnusable)).
    #[error("the store cannot be used: {0}")]
    Unusable(String),
}

impl From<TokensUsedUp> for StoreError {
    fn from(error: TokensUsedUp) -> Self {
        Self::Unusable(error.to_string())
    }
}

impl StoreError {
    /// What is known of the step's outcome.
    pub const fn outcome(&self) -> CallError {
        match self {
            Self::Unreachable(_) | Self::Unusable(_) => CallError::NotDone,
            Self::Unknown(_) => CallError::Unknown,
        }
    }
}

/// Why a store URL was refused. Nothing was opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UrlError {
    /// There is no `scheme:`.
    #[error("'{0}' is not a store URL; write for example sqlite:/var/lib/primacy/primacy.db")]
    NoScheme(String),
    /// This build knows no such store.
    #[error("unknown store scheme '{scheme}:'; this build of primacy knows {known}")]
    UnknownScheme {
        /// What was asked for.
        scheme: String,
        /// What there is.
        known: &'static str,
    },
    /// The store exists, and this build lacks it.
    #[error(
        "this build of primacy has no store '{scheme}:'; build it with the Cargo feature `{feature}` of the crate `primacy`"
    )]
    NotBuilt {
        /// What was asked for.
        scheme: String,
        /// The feature that brings it.
        feature: &'static str,
    },
    /// The rest of the URL does not fit its scheme.
    #[error("{0}")]
    Invalid(String),
}
