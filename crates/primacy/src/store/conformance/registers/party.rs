//! Processes that take rounds, and the one of them that leads.

use std::time::Duration;

use super::super::super::{Record, Registry, Sighting};
use super::super::Verdict;
use super::super::actor::{Actor, Outcome, Trial, holder};
use primacy_core::registers::{Candidacy, Descriptor, Eviction, ProcessId, Reply, Request, Vars};
use primacy_core::select::Rank;

pub(super) const ROUND: Duration = Duration::from_millis(2_345);
pub(super) const SILENT: Duration = Duration::from_millis(6_789);

/// A process with a connection of its own.
pub(in super::super) struct Party {
    pub(super) process: ProcessId,
    pub(super) candidates: Vec<Candidacy>,
    registry: Box<dyn Registry>,
}

/// What a beat tells.
pub(in super::super) struct BeatResult {
    pub(super) vars: Vars,
    pub(super) head: Vec<Descriptor>,
    pub(super) sighting: Sighting,
}

impl BeatResult {
    pub(super) fn processes(&self) -> Vec<ProcessId> {
        self.head.iter().map(|descriptor| descriptor.process).collect()
    }
}

/// A candidate without preferences.
pub(super) fn candidacy(label: &str) -> Candidacy {
    let who = holder(label);
    Candidacy { id: who.id, label: who.label, data: who.data, rank: Some(Rank::default()) }
}

pub(super) fn rank(first: i32) -> Option<Rank> {
    Rank::new(&[first, -7, i32::MIN, i32::MAX]).ok()
}

impl Party {
    /// One that has not joined.
    pub(in super::super) async fn open(trial: &Trial<'_>, candidates: Vec<Candidacy>) -> Outcome<Self> {
        let registry = trial.harness.open().registry(&trial.election).await;
        let registry = registry.map_err(|error| Verdict::from(format!("a registry does not open: {error}")))?;
        Ok(Self { process: ProcessId::from_bits(rand::random()), candidates, registry })
    }

    /// One of a single candidate that has joined.
    pub(in super::super) async fn of(trial: &Trial<'_>, label: &str) -> Outcome<Self> {
        Self::ranked(trial, label, Some(Rank::default())).await
    }

    pub(super) async fn ranked(trial: &Trial<'_>, label: &str, rank: Option<Rank>) -> Outcome<Self> {
        let mut party = Self::open(trial, vec![Candidacy { rank, ..candidacy(label) }]).await?;
        party.join(None).await?;
        Ok(party)
    }

    pub(super) async fn round(&mut self, request: Request) -> Outcome<Reply> {
        Ok(self.registry.round(request).await?)
    }

    /// Its number, and VARS.
    pub(in super::super) async fn join(&mut self, came_back: Option<Duration>) -> Outcome<(u64, Vars)> {
        let candidates = self.candidates.clone();
        let rank = candidates.iter().filter_map(|candidate| candidate.rank).min();
        let request = Request::Join { process: self.process, candidates, rank, came_back, round: ROUND };
        match self.round(request).await? {
            Reply::Joined { id, vars } => Ok((id, vars)),
            other => Err(format!("joining was answered with {other:?}").into()),
        }
    }

    pub(in super::super) async fn beat(&mut self) -> Outcome<BeatResult> {
        self.beat_without(Vec::new(), 100).await
    }

    pub(super) async fn beat_without(&mut self, without: Vec<(ProcessId, u64)>, head: u32) -> Outcome<BeatResult> {
        let request = Request::Beat { process: self.process, late: Duration::ZERO, without, head };
        match self.round(request).await? {
            Reply::Beaten { vars, head, sighting } => Ok(BeatResult { vars, head, sighting }),
            other => Err(format!("a beat of a member was answered with {other:?}").into()),
        }
    }

    /// Beats, and must be told that it takes no part.
    pub(in super::super) async fn beat_in_vain(&mut self) -> Outcome<(Option<Eviction>, Sighting)> {
        let request = Request::Beat { process: self.process, late: Duration::ZERO, without: Vec::new(), head: 100 };
        match self.round(request).await? {
            Reply::Evicted { eviction, sighting } => Ok((eviction, sighting)),
            other => Err(format!("a beat of one who takes no part was answered with {other:?}").into()),
        }
    }

    pub(in super::super) async fn leave(&mut self) -> Outcome {
        match self.round(Request::Leave { process: self.process }).await? {
            Reply::Left => Ok(()),
            other => Err(format!("leaving was answered with {other:?}").into()),
        }
    }
}

/// The process whose candidate leads.
pub(super) struct Leader {
    pub(super) actor: Actor,
    pub(super) record: Record,
    pub(super) party: Party,
}

/// What a scan is to change.
#[derive(Clone, Debug, Default)]
pub(super) struct Duties {
    pub(super) evict: Vec<(ProcessId, u64, Duration)>,
    pub(super) round: Option<(Duration, u64)>,
}

impl Leader {
    pub(in super::super) async fn of(trial: &Trial<'_>, label: &str) -> Outcome<Self> {
        let mut actor = trial.candidate(label).await?;
        let record = actor.take().await?;
        let own = Candidacy { id: actor.me.id, ..candidacy(label) };
        let mut party = Party::open(trial, vec![own]).await?;
        party.join(None).await?;
        Ok(Self { actor, record, party })
    }

    pub(super) fn survey_of(&self, Duties { evict, round }: Duties) -> Request {
        let (holder, token) = (self.actor.me.id, self.record.version.token);
        Request::MembershipScan { process: self.party.process, holder, token, evict, round }
    }

    pub(super) async fn scan(&mut self, duties: Duties) -> Outcome<(Vars, Vec<Descriptor>)> {
        let request = self.survey_of(duties);
        match self.party.round(request).await? {
            Reply::Scanned { vars, descriptors } => Ok((vars, descriptors)),
            other => Err(format!("a survey by the leader was answered with {other:?}").into()),
        }
    }

    /// Everybody's descriptor.
    pub(super) async fn all(&mut self) -> Outcome<Vec<Descriptor>> {
        Ok(self.scan(Duties::default()).await?.1)
    }

    /// Removes a process that is there, and is not there afterwards.
    pub(super) async fn evict(&mut self, process: ProcessId) -> Outcome<Eviction> {
        let counter = find(&self.all().await?, process)?.counter;
        let evict = vec![(process, counter, SILENT)];
        let (_, left) = self.scan(Duties { evict, round: None }).await?;
        if left.iter().any(|descriptor| descriptor.process == process) {
            return Err(format!("{process:?} was to be evicted at {counter}, and is still there: {left:?}").into());
        }
        Ok(Eviction { by: self.actor.me.label.clone(), token: self.record.version.token, silent: SILENT })
    }
}

pub(super) fn find(descriptors: &[Descriptor], process: ProcessId) -> Outcome<&Descriptor> {
    let mut found = descriptors.iter().filter(|descriptor| descriptor.process == process);
    match (found.next(), found.next()) {
        (Some(descriptor), None) => Ok(descriptor),
        _ => Err(format!("{process:?} is to stand once in {descriptors:?}").into()),
    }
}
