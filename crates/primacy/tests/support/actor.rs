//! One candidate at a store, step by step: what the tests of every store are written with.

use std::time::Duration;

use primacy::select::Rank;
use primacy::store::{
    Announcement, EndReason, Expectation, Holder, Record, Reply, Request, Session, Sighting, Store, StoreError, Why,
};
use primacy::{CandidateId, ElectionName, Label, Token};

pub(crate) const LEASE: Duration = Duration::from_secs(10);

pub(crate) fn election(name: &str) -> ElectionName {
    ElectionName::new(name).expect("a valid name")
}

pub(crate) fn candidate(number: u128) -> Holder {
    let label = Label::new(format!("c{number}")).expect("a valid label");
    Holder { id: CandidateId::from_bits(number), label, data: format!("http://c{number}/") }
}

/// A candidate with a connection.
pub(crate) struct Actor {
    pub(crate) me: Holder,
    pub(crate) session: Box<dyn Session>,
}

impl std::fmt::Debug for Actor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Actor").field("me", &self.me).finish_non_exhaustive()
    }
}

impl Actor {
    pub(crate) async fn try_join(store: &dyn Store, name: &str, number: u128) -> Result<Self, StoreError> {
        let me = candidate(number);
        Ok(Self { session: store.session(&election(name), &me).await?, me })
    }

    pub(crate) async fn join(store: &dyn Store, name: &str, number: u128) -> Self {
        Self::try_join(store, name, number).await.expect("a session")
    }

    /// One that has taken the lease, and the record of that.
    pub(crate) async fn leading(store: &dyn Store, name: &str, number: u128) -> (Self, Record) {
        let mut actor = Self::join(store, name, number).await;
        let record = actor.take().await;
        (actor, record)
    }

    pub(crate) async fn step(&mut self, request: Request) -> Result<Reply, StoreError> {
        self.session.step(request).await
    }

    pub(crate) async fn try_look(&mut self) -> Result<Sighting, StoreError> {
        match self.step(Request::Look { announce: None }).await? {
            Reply::Seen(sighting) => Ok(sighting),
            other => panic!("a look was answered with {other:?}"),
        }
    }

    pub(crate) async fn look(&mut self) -> Sighting {
        self.try_look().await.expect("looks")
    }

    pub(crate) async fn announce(&mut self) -> Sighting {
        self.announce_as(Rank::default()).await
    }

    /// Announces that it waits, standing like this by preference.
    pub(crate) async fn announce_as(&mut self, rank: Rank) -> Sighting {
        let announce = Some(Announcement { why: Why::Asking, rank });
        match self.step(Request::Look { announce }).await {
            Ok(Reply::Seen(sighting)) => sighting,
            other => panic!("a look was answered with {other:?}"),
        }
    }

    pub(crate) fn asking(&self, expect: Option<Expectation>, floor: Token) -> Request {
        Request::Acquire { expect, floor: floor.into(), holder: self.me.clone(), lease: LEASE }
    }

    /// Takes the lease from any holder.
    pub(crate) async fn take(&mut self) -> Record {
        let seen = self.look().await;
        let request = self.asking(seen.record.map(|record| record.expectation()), seen.remembered);
        applied(self.step(request).await)
    }

    pub(crate) fn renewal(&self, record: &Record) -> Request {
        Request::Renew { id: self.me.id, version: record.version, lease: record.lease, completed_order: None }
    }

    pub(crate) fn release(&self, record: &Record) -> Request {
        Request::Release { id: self.me.id, version: record.version, reason: EndReason::Withdrawn }
    }
}

pub(crate) fn applied(reply: Result<Reply, StoreError>) -> Record {
    match reply {
        Ok(Reply::Applied(record)) => record,
        other => panic!("not applied: {other:?}"),
    }
}

/// The message of a store that cannot be used: one line.
pub(crate) fn unusable<T: std::fmt::Debug>(result: Result<T, StoreError>) -> String {
    match result {
        Err(StoreError::Unusable(message)) => {
            assert!(!message.contains('\n'), "more than one line: {message}");
            message
        }
        other => panic!("not unusable: {other:?}"),
    }
}
