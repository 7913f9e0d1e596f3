//! The elections of a node's groups: it stands in each whose replica it holds, and gives back what it cannot use.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use primacy::select::Rank;
use primacy::store::{Holder, Store, Version};
use primacy::{
    Candidate, CandidateConfig, CandidateHandle, ElectionName, Fleet, Instant, Label, Leadership, Phase, StopReason,
    Timing, Token, clock,
};
use primacy_core::log::Ballot;
use tracing::{debug, error, info, warn};

use super::core::Core;
use super::port::{Event, NodeError};
use crate::group::Resignation;

/// The name of a group's election.
pub fn election_name(group: u16) -> String {
    format!("kv/{group}")
}

/// How a node stands.
#[derive(Clone, Debug)]
pub(super) struct Candidacy {
    pub(super) label: Label,
    pub(super) data: String,
    pub(super) timing: Timing,
}

/// A node's part in one group's election.
pub(super) struct Standing {
    handle: CandidateHandle,
    /// It stands no more.
    withdrawn: Rc<Cell<bool>>,
    /// After it could not use a grant it asks for none until then.
    barred: Rc<Cell<Instant>>,
    may_stand: Cell<bool>,
    floor: Cell<Token>,
}

pub(super) type Events = Rc<dyn Fn(&Event)>;

/// Stands in the elections of all groups.
///
/// # Errors
/// If an election or the system refuses that.
pub(super) fn stand(
    core: &Rc<Core>,
    store: Arc<dyn Store>,
    candidacy: &Candidacy,
    events: &Events,
) -> Result<Vec<Standing>, NodeError> {
    let fleet = Fleet::new(store);
    let mut standing = Vec::new();
    for group in 0..core.groups_count() {
        let election = fleet.election(&election_name(group)).map_err(NodeError::Election)?;
        let mut config = CandidateConfig::new(candidacy.label.clone());
        config.data.clone_from(&candidacy.data);
        config.timing = candidacy.timing;
        config.rank = None;
        let candidate = election.campaign_with(config).map_err(NodeError::Election)?;
        let one = Standing {
            handle: candidate.handle(),
            withdrawn: Rc::default(),
            barred: Rc::new(Cell::new(Instant::ZERO)),
            may_stand: Cell::new(false),
            floor: Cell::new(Token::NONE),
        };
        let task = Task {
            core: Rc::clone(core),
            group,
            election: election.name().clone(),
            candidacy: candidacy.clone(),
            events: Rc::clone(events),
            barred: Rc::clone(&one.barred),
            withdrawn: Rc::clone(&one.withdrawn),
        };
        tokio::task::spawn_local(task.run(candidate));
        standing.push(one);
    }
    Ok(standing)
}

impl Standing {
    /// Brings up to date whether it stands, and above which token.
    pub(super) fn review(&self, core: &Core, group: u16, is_healthy: bool) {
        let (holds, floor) = core.standing(group);
        if floor > self.floor.replace(floor) {
            self.handle.raise_floor(floor);
        }
        let may_stand = holds && is_healthy && clock::now() >= self.barred.get();
        if may_stand != self.may_stand.replace(may_stand) {
            self.handle.prefer(may_stand.then(Rank::default));
        }
    }

    pub(super) fn withdraw(&self) {
        self.handle.shutdown();
    }

    pub(super) fn is_withdrawn(&self) -> bool {
        self.withdrawn.get()
    }
}

/// The task that stands in one election.
struct Task {
    core: Rc<Core>,
    group: u16,
    election: ElectionName,
    candidacy: Candidacy,
    events: Events,
    barred: Rc<Cell<Instant>>,
    withdrawn: Rc<Cell<bool>>,
}

impl Task {
    async fn run(self, mut candidate: Candidate) {
        loop {
            match candidate.elected().await {
                Ok(leadership) => self.lead(&candidate, leadership).await,
                Err(StopReason::Withdrawn) => break,
                Err(error) => {
                    error!(group = self.group, %error, "it stands no more");
                    self.core.fail(NodeError::Grants(error));
                    break;
                }
            }
        }
        self.withdrawn.set(true);
    }

    /// From the grant to its end.
    async fn lead(&self, candidate: &Candidate, leadership: Leadership) {
        let (group, token, id) = (self.group, leadership.token(), candidate.id());
        let version = match &*leadership.phases().borrow() {
            Phase::Leading { version, .. } => *version,
            _ => Version { token, beat: 0 },
        };
        let holder = Holder { id, label: self.candidacy.label.clone(), data: String::new() };
        debug!(group, token = token.get(), "granted");
        (self.events)(&Event::Granted { election: self.election.clone(), holder, version });
        let leadership = Rc::new(leadership);
        let resigned = self.core.granted(group, Ballot { token, id }, Rc::clone(&leadership));
        tokio::select! {
            reason = leadership.lost() => {
                info!(group, token = token.get(), %reason, "leads no more");
                self.core.hand_over(group, self.core.meant(&reason));
                // The work is to stop in its grace, and a little is left to give back in.
                let left = self.candidacy.timing.grace().mul_f32(0.8).min(leadership.remaining());
                if tokio::time::timeout(left, resigned.wait()).await.is_err() {
                    warn!(group, token = token.get(), "it could not be handed over in time");
                }
            }
            why = resigned.wait() => {
                match why {
                    Resignation::HandedOver(to) if to == self.core.own() => {
                        info!(group, token = token.get(), "given back");
                    }
                    Resignation::HandedOver(to) => {
                        let to = self.core.name_of(to).unwrap_or_else(|| to.to_string());
                        info!(group, token = token.get(), to, "handed over");
                    }
                    Resignation::NoProgress => {
                        warn!(group, token = token.get(), "given back: the disk or a majority has not answered for half of the lease");
                        self.barred.set(clock::now() + self.candidacy.timing.lease());
                    }
                    Resignation::Outbid => info!(group, token = token.get(), "given back: a larger ballot is known"),
                    Resignation::Removed => info!(group, token = token.get(), "given back: its replica was taken out"),
                }
            }
        }
        self.core.ended(group, token);
        // The group is told, and nothing else holds on to it.
        match Rc::try_unwrap(leadership) {
            Ok(leadership) => leadership.resign().await,
            Err(leadership) => drop(leadership),
        }
        (self.events)(&Event::Ended { election: self.election.clone() });
    }
}

/// How often what decides whether a node stands is looked at.
pub(super) fn review_every(timing: &Timing) -> Duration {
    (timing.lease() / 8).clamp(Duration::from_millis(10), Duration::from_millis(250))
}
