//! Where the runner's leaderships come from: a store, or the agent of this host. The runner sees no difference.

use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::sync::Arc;

use primacy::select::Rank;
use primacy::store::{EndReason, Store, StoreError, Why};
use primacy::{
    Candidate, CandidateConfig, CandidateId, Election, ElectionName, GroupStatus, Leadership, Phase, Status,
    StopReason, Token,
};
use tokio::sync::watch;

use super::through_agent::{AgentCandidate, AgentLeadership, AgentTrouble};
use super::waiting::first_trouble;
use super::{Refusal, UNAVAILABLE};
use crate::standing::CandidateState;

/// Where the leaderships of an election come from.
pub(super) enum Source {
    /// A store, with its URL for the warden.
    Store { election: Election, url: String },
    /// The agent that listens here.
    Agent { election: ElectionName, socket: PathBuf },
}

/// A candidate.
pub(super) enum Campaign {
    Store(Candidate),
    Agent(AgentCandidate),
}

/// A leadership that is given back when this is dropped. So it is kept until nothing works by it (R9).
pub(super) enum Guard {
    Store(Leadership),
    Agent(AgentLeadership),
}

/// Trouble with what leaderships come from, which has been of no use yet.
pub(super) struct FirstTrouble {
    /// What is wrong.
    pub(super) why: String,
    /// It does not help to wait: someone has to act first.
    pub(super) is_hopeless: bool,
}

impl Source {
    pub(super) fn election(&self) -> &ElectionName {
        match self {
            Self::Store { election, .. } => election.name(),
            Self::Agent { election, .. } => election,
        }
    }

    pub(super) fn store(&self) -> Option<&Arc<dyn Store>> {
        match self {
            Self::Store { election, .. } => Some(election.store()),
            Self::Agent { .. } => None,
        }
    }

    /// The store's URL.
    pub(super) fn store_url(&self) -> Option<&str> {
        match self {
            Self::Store { url, .. } => Some(url),
            Self::Agent { .. } => None,
        }
    }

    /// Begins to campaign.
    pub(super) fn campaign(&self, config: &CandidateConfig) -> Result<Campaign, Refusal> {
        match self {
            Self::Store { election, .. } => match election.campaign_with(config.clone()) {
                Ok(candidate) => Ok(Campaign::Store(candidate)),
                Err(error) => Err(Refusal::new(UNAVAILABLE, error.to_string())),
            },
            Self::Agent { election, socket } => {
                Ok(Campaign::Agent(AgentCandidate::start(socket.clone(), election, config)))
            }
        }
    }
}

impl Campaign {
    /// Its identity in the store, if this process is what the store knows.
    pub(super) fn id(&self) -> Option<CandidateId> {
        match self {
            Self::Store(candidate) => Some(candidate.id()),
            Self::Agent(_) => None,
        }
    }

    pub(super) fn status(&self) -> watch::Receiver<Status> {
        match self {
            Self::Store(candidate) => candidate.status(),
            Self::Agent(candidate) => candidate.status(),
        }
    }

    pub(super) fn group_status(&self) -> Option<watch::Receiver<GroupStatus>> {
        match self {
            Self::Store(candidate) => candidate.group_status(),
            Self::Agent(_) => None,
        }
    }

    /// What an agent has not been of use for.
    pub(super) fn agent_troubles(&self) -> Option<watch::Receiver<Option<AgentTrouble>>> {
        match self {
            Self::Store(_) => None,
            Self::Agent(candidate) => Some(candidate.troubles()),
        }
    }

    /// What it tells of itself.
    pub(super) fn state(&self) -> CandidateState {
        match self {
            Self::Store(candidate) => CandidateState::of(candidate),
            Self::Agent(candidate) => candidate.state(),
        }
    }

    /// Waits for the next leadership. Cancel-safe.
    ///
    /// # Errors
    /// If there will be none.
    pub(super) async fn elected(&mut self) -> Result<Guard, StopReason> {
        match self {
            Self::Store(candidate) => candidate.elected().await.map(Guard::Store),
            Self::Agent(candidate) => candidate.elected().await.map(Guard::Agent),
        }
    }

    /// From now on it stands like this; `None`: it never leads.
    pub(super) fn prefer(&self, rank: Option<Rank>) {
        match self {
            Self::Store(candidate) => candidate.prefer(rank),
            // It has no preference of its own.
            Self::Agent(_) => {}
        }
    }

    /// Whether it keeps out of the election, whatever it prefers.
    pub(super) fn abstain(&self, abstains: bool) {
        match self {
            Self::Store(candidate) => candidate.abstain(abstains),
            Self::Agent(candidate) => candidate.take_part(!abstains),
        }
    }

    /// The process is to end: the work of a leadership stops, and there will be no other.
    pub(super) fn shutdown(&self) {
        match self {
            Self::Store(candidate) => candidate.handle().shutdown(),
            Self::Agent(candidate) => candidate.give_up(EndReason::Withdrawn),
        }
    }

    /// The work of the leadership is to stop.
    pub(super) fn resign(&self) {
        match self {
            Self::Store(candidate) => {
                let handle = candidate.handle();
                tokio::spawn(async move { handle.resign().await });
            }
            Self::Agent(candidate) => candidate.give_up(EndReason::Resigned),
        }
    }

    /// Leaves the election. No guard may be left.
    pub(super) async fn withdraw(self) {
        match self {
            Self::Store(candidate) => drop(candidate.withdraw().await),
            Self::Agent(candidate) => candidate.withdraw().await,
        }
    }
}

impl Guard {
    pub(super) fn token(&self) -> Token {
        match self {
            Self::Store(leadership) => leadership.token(),
            Self::Agent(leadership) => leadership.token(),
        }
    }

    pub(super) fn phases(&self) -> watch::Receiver<Phase> {
        match self {
            Self::Store(leadership) => leadership.phases(),
            Self::Agent(leadership) => leadership.phases(),
        }
    }

    /// The connection by which the agent has told it.
    pub(super) fn connection(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Store(_) => None,
            Self::Agent(leadership) => Some(leadership.connection()),
        }
    }
}

impl FirstTrouble {
    /// The trouble of this candidate, if it has any. `agent`: that with the agent, if it has one. `patient`: it may yet be silent.
    pub(super) fn of(status: &Status, agent: Option<&Option<AgentTrouble>>, patient: bool) -> Option<Self> {
        match agent {
            Some(Some(AgentTrouble { why, is_lasting })) => {
                return Some(Self { why: why.clone(), is_hopeless: *is_lasting });
            }
            Some(None) if !patient && matches!(status, Status::Waiting { why: Why::NotLooked, .. }) => {
                return Some(Self { why: "the agent is silent".to_owned(), is_hopeless: false });
            }
            _ => {}
        }
        let trouble = first_trouble(status)?;
        let is_hopeless = matches!(trouble.error, StoreError::Unusable(_));
        Some(Self { why: trouble.error.to_string(), is_hopeless })
    }
}
