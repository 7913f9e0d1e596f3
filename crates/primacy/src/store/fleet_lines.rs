//! The two lines of a fleet at an SQL server: one of renewals, and one of everything else.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::oneshot;

use super::lines::{Carrier, Inbox, Job, Line, Queued, QueuedStep};
use super::{Reply, Request, Snapshot, StoreError};
use crate::ElectionName;

pub(super) type SnapshotAnswer = oneshot::Sender<Result<Option<Snapshot>, StoreError>>;

/// What is asked of the lines. `M`: what a session remembers from one step to the next.
#[cfg_attr(not(feature = "postgres"), expect(dead_code, reason = "PostgreSQL alone asks all of it over its lines"))]
pub(super) enum FleetJob<M> {
    Step(QueuedStep<M>),
    /// A look that tells why a renewal was refused.
    Refused(QueuedStep<M>),
    /// An election as an observer sees it.
    Snapshot(ElectionName, SnapshotAnswer),
    /// Answered when there is a connection.
    Open(oneshot::Sender<Result<(), StoreError>>),
    /// Answered when everything is listened to that is to be heard.
    Listen(oneshot::Sender<()>),
}

/// What a session remembers.
pub(super) trait Memory: Send + 'static {
    /// Of which election.
    fn election(&self) -> &ElectionName;
}

impl<M: Memory> Job for FleetJob<M> {
    fn election(&self) -> Option<&ElectionName> {
        match self {
            Self::Step(step) | Self::Refused(step) => Some(step.memory.election()),
            Self::Snapshot(..) | Self::Open(_) | Self::Listen(_) => None,
        }
    }

    fn is_given_up(&self) -> bool {
        match self {
            Self::Step(step) | Self::Refused(step) => step.is_given_up(),
            Self::Snapshot(_, answer) => answer.is_closed(),
            Self::Open(answer) => answer.is_closed(),
            Self::Listen(answer) => answer.is_closed(),
        }
    }

    fn fail(self, error: StoreError) {
        // The asker may be gone.
        match self {
            Self::Step(step) | Self::Refused(step) => step.end(Err(error)),
            Self::Snapshot(_, answer) => drop(answer.send(Err(error))),
            Self::Open(answer) => drop(answer.send(Err(error))),
            // Until then the store is polled.
            Self::Listen(answer) => drop(answer),
        }
    }
}

/// The step in a job, if it is one.
pub(super) fn step<M>(queued: &mut Queued<FleetJob<M>>) -> Option<&mut QueuedStep<M>> {
    match &mut queued.job {
        FleetJob::Step(step) | FleetJob::Refused(step) => Some(step),
        FleetJob::Snapshot(..) | FleetJob::Open(_) | FleetJob::Listen(_) => None,
    }
}

/// Answers a step.
pub(super) fn end<M>(queued: Queued<FleetJob<M>>, result: Result<Reply, StoreError>) {
    match queued.into_job() {
        FleetJob::Step(step) | FleetJob::Refused(step) => step.end(result),
        FleetJob::Snapshot(..) | FleetJob::Open(_) | FleetJob::Listen(_) => {}
    }
}

/// Elections whose renewal has failed the statements of others, until one succeeds: alone, over the other connection.
#[derive(Debug, Default)]
pub(super) struct Spoilers(Mutex<BTreeSet<ElectionName>>);

impl Spoilers {
    fn with<T>(&self, what: impl FnOnce(&mut BTreeSet<ElectionName>) -> T) -> T {
        what(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn has(&self, election: &ElectionName) -> bool {
        self.with(|spoilers| spoilers.contains(election))
    }

    /// The renewal of this election has failed.
    pub(super) fn add(&self, election: &ElectionName) {
        self.with(|spoilers| spoilers.insert(election.clone()));
    }

    /// It has been answered.
    pub(super) fn remove(&self, election: &ElectionName) {
        self.with(|spoilers| spoilers.remove(election));
    }
}

/// What the lines know of each other.
#[derive(Clone, Default)]
pub(super) struct Population {
    sessions: Arc<AtomicUsize>,
    pub(super) spoilers: Arc<Spoilers>,
}

impl Population {
    /// Whether there is more than one session, so that a connection for renewals alone is worth while.
    pub(super) fn is_many(&self) -> bool {
        self.sessions.load(Ordering::Relaxed) > 1
    }
}

/// Both lines. They end with this.
pub(super) struct FleetLines<M> {
    renewals: Line<FleetJob<M>>,
    pub(super) others: Line<FleetJob<M>>,
    pub(super) population: Population,
}

impl<M: Memory> FleetLines<M> {
    /// Both lines, of which only that of renewals is served.
    pub(super) fn start<C: Carrier<Job = FleetJob<M>>>(
        renewals: impl FnOnce(&Line<FleetJob<M>>, &Population) -> C,
    ) -> (Self, Inbox<FleetJob<M>>) {
        let population = Population::default();
        let (others, inbox) = Line::new();
        let renewals = Line::start(renewals(&others, &population));
        (Self { renewals, others, population }, inbox)
    }

    pub(super) fn is_running(&self) -> bool {
        self.others.is_running()
    }

    /// Once there is a connection.
    ///
    /// # Errors
    /// When there will be none for now.
    pub(super) async fn open(&self) -> Result<(), StoreError> {
        self.others.ask(&[&self.others], FleetJob::Open).await?
    }

    /// There is one session more.
    pub(super) fn enter(&self) {
        if self.population.sessions.fetch_add(1, Ordering::Relaxed) == 1 {
            // It opens a connection before there is anything to renew.
            self.renewals.look_around();
        }
    }

    /// There is one less.
    pub(super) fn leave(&self) {
        self.population.sessions.fetch_sub(1, Ordering::Relaxed);
    }

    /// Takes a step of a session; `memory` is `None` from the moment at which one was given up.
    ///
    /// # Errors
    /// As every step.
    pub(super) async fn step(
        &self,
        election: &ElectionName,
        memory: &mut Option<M>,
        request: Request,
    ) -> Result<Reply, StoreError> {
        let Population { spoilers, .. } = &self.population;
        let is_renewal = matches!(request, Request::Renew { .. });
        let goes_along = is_renewal && self.population.is_many() && !spoilers.has(election);
        let line = if goes_along { &self.renewals } else { &self.others };
        line.step(&[&self.renewals, &self.others], memory, request, FleetJob::Step).await
    }
}
