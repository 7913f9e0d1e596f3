//! What the checks are written with: an election of their own, and candidates that take steps in it.

use std::sync::Arc;
use std::time::Duration;

use super::super::{
    Admin, Announcement, EndReason, Expectation, Floor, Holder, Order, OrderKind, OrderOutcome, Record, Reply, Request,
    Session, Sighting, Snapshot, Store, StoreError, Version, Why,
};
use super::{Harness, Verdict};
use crate::select::Rank;
use crate::{CandidateId, ElectionName, Label};

pub(super) type Outcome<T = ()> = Result<T, Verdict>;

pub(super) const LEASE: Duration = Duration::from_millis(12_345);

/// One check's election in the store under test.
#[derive(Clone)]
pub(super) struct Trial<'a> {
    pub(super) harness: &'a dyn Harness,
    pub(super) store: Arc<dyn Store>,
    pub(super) election: ElectionName,
}

impl<'a> Trial<'a> {
    pub(super) fn new(harness: &'a dyn Harness) -> Self {
        Self { harness, store: harness.open(), election: name(format!("conformance-{:032x}", rand::random::<u128>())) }
    }

    /// The same store, another election.
    pub(super) fn elsewhere(&self, election: ElectionName) -> Self {
        Self { election, ..self.clone() }
    }

    /// A candidate with a random identity.
    pub(super) async fn candidate(&self, label: &str) -> Outcome<Actor> {
        Actor::join(&self.store, &self.election, holder(label)).await
    }

    pub(super) async fn admin(&self) -> Outcome<Box<dyn Admin>> {
        self.store.admin().await.map_err(|error| Verdict::from(format!("the admin connection does not open: {error}")))
    }

    pub(super) async fn snapshot(&self) -> Outcome<Option<Snapshot>> {
        Ok(self.admin().await?.snapshot(&self.election).await?)
    }

    pub(super) async fn order(&self, kind: OrderKind) -> Outcome<OrderOutcome> {
        Ok(self.admin().await?.order(&self.election, Order { kind, token: None }).await?)
    }

    /// An order that must change something.
    pub(super) async fn ordered(&self, kind: OrderKind) -> Outcome<Snapshot> {
        match self.order(kind.clone()).await? {
            OrderOutcome::Written(before) => Ok(before),
            other => Err(format!("the order {kind:?} was not written but answered with {other:?}").into()),
        }
    }
}

pub(super) fn name(text: impl Into<String>) -> ElectionName {
    ElectionName::new(text).expect("the suite uses valid names")
}

pub(super) fn label(text: &str) -> Label {
    Label::new(text).expect("the suite uses valid labels")
}

/// A candidate with a random identity.
pub(super) fn holder(text: &str) -> Holder {
    Holder { id: CandidateId::from_bits(rand::random()), label: label(text), data: format!("data of {text}") }
}

/// One candidate with a connection of its own.
pub(super) struct Actor {
    pub(super) me: Holder,
    pub(super) session: Box<dyn Session>,
}

impl Actor {
    pub(super) async fn join(store: &Arc<dyn Store>, election: &ElectionName, me: Holder) -> Outcome<Self> {
        let session = store.session(election, &me).await;
        let session = session.map_err(|error| Verdict::from(format!("a session does not open: {error}")))?;
        Ok(Self { me, session })
    }

    pub(super) async fn step(&mut self, request: Request) -> Result<Reply, StoreError> {
        self.session.step(request).await
    }

    pub(super) async fn look(&mut self) -> Outcome<Sighting> {
        self.look_and_say(None).await
    }

    /// Announces that it waits, and looks.
    pub(super) async fn announce(&mut self) -> Outcome<Sighting> {
        self.announce_as(Rank::default()).await
    }

    /// The same, standing like this by preference.
    pub(super) async fn announce_as(&mut self, rank: Rank) -> Outcome<Sighting> {
        self.look_and_say(Some(Announcement { why: Why::Asking, rank })).await
    }

    async fn look_and_say(&mut self, announce: Option<Announcement>) -> Outcome<Sighting> {
        match self.step(Request::Look { announce }).await? {
            Reply::Seen(sighting) => Ok(sighting),
            other => Err(format!("a look was answered with {other:?}").into()),
        }
    }

    pub(super) async fn record(&mut self) -> Outcome<Record> {
        self.look().await?.record.ok_or_else(|| "the row is missing".into())
    }

    pub(super) async fn ask(&mut self, expect: Option<Expectation>, floor: impl Into<Floor>) -> Outcome<Reply> {
        Ok(self.step(Request::Acquire { expect, floor: floor.into(), holder: self.me.clone(), lease: LEASE }).await?)
    }

    /// Looks, and takes the lease whatever it saw.
    pub(super) async fn take(&mut self) -> Outcome<Record> {
        let seen = self.look().await?;
        let expect = seen.record.map(|record| record.expectation());
        applied("a grant", self.ask(expect, seen.remembered).await?)
    }

    pub(super) fn renewal(&self, version: Version) -> Request {
        Request::Renew { id: self.me.id, version, lease: LEASE, completed_order: None }
    }

    pub(super) async fn renew(&mut self, version: Version) -> Outcome<Record> {
        let request = self.renewal(version);
        applied("a renewal", self.step(request).await?)
    }

    pub(super) async fn release(&mut self, version: Version) -> Outcome<Record> {
        let request = Request::Release { id: self.me.id, version, reason: EndReason::Resigned };
        applied("a release", self.step(request).await?)
    }

    /// Takes a step that must be refused, and finds the row as it was before.
    pub(super) async fn refused(&mut self, what: &str, request: Request) -> Outcome<Sighting> {
        let before = self.look().await?.record;
        let sighting = match self.step(request.clone()).await? {
            Reply::Conflict(sighting) => sighting,
            other => return Err(format!("{what} was not refused: {request:?} was answered with {other:?}").into()),
        };
        if sighting.record != before {
            return Err(format!("{what} was refused with another row than stands: {sighting:?}, not {before:?}").into());
        }
        let after = self.look().await?.record;
        if after != before {
            return Err(format!("{what} was refused, but changed the row from {before:?} to {after:?}").into());
        }
        Ok(sighting)
    }
}

pub(super) fn applied(what: &str, reply: Reply) -> Outcome<Record> {
    match reply {
        Reply::Applied(record) => Ok(record),
        other => Err(format!("{what} was not applied but answered with {other:?}").into()),
    }
}
