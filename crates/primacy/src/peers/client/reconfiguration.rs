//! Exchanging the voters of a cluster while it elects.

use std::collections::BTreeMap;
use std::mem;
use std::time::Duration;

use primacy_core::quorum::{
    AddError, Added, ConfigReply, ConfigRequest, PlanError, Planned, ReconfigurationDriver, ReconfigurationEffect,
    Role, VoterId, VoterPlan, VoterReport,
};

use super::dial::{EstablishedConnection, dial};
use super::pool::{Pool, VoterEvent};
use super::store::PeersStore;
use super::voters::{Voters, voters_of};
use crate::peers::config::{AddressError, Cluster, PeerAddress};
use crate::peers::wire::{Body, ConfigRequestFrame, MalformedFrame};
use crate::store::StoreError;

/// Which voters come and go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reconfiguration {
    /// Those that come. Each must run already, and wait.
    pub add: Vec<PeerAddress>,
    /// The names of those that go.
    pub remove: Vec<String>,
}

/// How an exchange has gone.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReconfigurationOutcome {
    /// Who votes now.
    pub voters: Voters,
    /// Whether anybody came or went by it.
    pub is_changed: bool,
    /// Whether an exchange was under way, and has been finished first.
    pub has_finished: bool,
    /// The names of those who vote now and knew only of earlier voters before.
    pub told: Vec<String>,
}

/// What an exchange tells on its way.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReconfigurationProgress {
    /// An exchange is under way that somebody else has begun, and is finished first.
    Finishing,
    /// It has begun: majorities of the old and of the new voters must agree from now on. It can be finished and not undone.
    Begun,
    /// Leases still hold that only old voters have granted: the new ones do not vote alone until this has passed.
    Waiting(Duration),
}

/// Why voters have not been exchanged.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReconfigurationError {
    /// The voters cannot be reached. Nothing was changed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A voter that is to come cannot be asked. Nothing was changed.
    #[error("{peer} cannot be reached: {why}. Start it first; it waits to be taken in")]
    NotReached {
        /// Which one.
        peer: PeerAddress,
        /// Why not.
        why: String,
    },
    /// A voter that is to come does not take the one that exchanges voters for an operator. Nothing was changed.
    #[error(
        "to {peer} this is no more than a certificate of a {role}: use one with the name of an operator, or the socket of a \
         voter that stands among the --peers of the new one"
    )]
    Denied {
        /// Which one.
        peer: PeerAddress,
        /// What it takes the asker for.
        role: Role,
    },
    /// A voter that is to come votes elsewhere. Nothing was changed.
    #[error(
        "{peer} votes in another cluster: a new voter starts with an empty folder, and is told of more peers than itself"
    )]
    Foreign {
        /// Which one.
        peer: PeerAddress,
    },
    /// A voter that is to come was taken out before, and ends when it hears of that. Nothing was changed.
    #[error("{peer} was taken out by an exchange before: to take it in again, start it with an empty folder")]
    Removed {
        /// Which one.
        peer: PeerAddress,
    },
    /// Another voter has its name. Nothing was changed.
    #[error(
        "another voter called '{name}' votes already: have the new one take its place with 'primacy peer replace {name}', or name it otherwise"
    )]
    Taken {
        /// The name.
        name: String,
    },
    /// None of the voters has this name. Nothing was changed.
    #[error("no voter is called '{name}': {voters} vote. Nothing was changed")]
    Absent {
        /// The name.
        name: String,
        /// Who votes.
        voters: String,
    },
    /// Too many would vote, or nobody. Nothing was changed.
    #[error("{0} peers cannot vote: one to nine can, three or five as a rule")]
    Count(usize),
    /// The new voters could not grant anything. Nothing was changed.
    #[error("no majority of the new voters can be reached: {missing}. Nothing was changed")]
    Minority {
        /// Who cannot, and why.
        missing: String,
    },
    /// It cannot go on. It may have begun, and is then finished by the next exchange.
    #[error(
        "the exchange could not be finished: no majority of the {whose} voters answers; not heard: {silent}. Bring them back, and do the same again"
    )]
    Stuck {
        /// Of which voters a majority is needed.
        whose: &'static str,
        /// Who has not answered.
        silent: String,
    },
    /// Others exchange voters all the time.
    #[error(
        "others exchange voters at the same time, and were sooner again and again: look who votes, and try once more"
    )]
    Rivals,
}

impl From<AddressError> for ReconfigurationError {
    fn from(error: AddressError) -> Self {
        match error {
            AddressError::Count(count) => Self::Count(count),
            error => Self::Store(StoreError::Unusable(error.to_string())),
        }
    }
}

impl PeersStore {
    /// Who votes now, as far as a majority of them knows.
    ///
    /// # Errors
    /// If no majority can be reached.
    pub async fn voters(&self) -> Result<Voters, StoreError> {
        let mut pool = Pool::open(&self.endpoints, "an operator", None).await?;
        // A voter that knows of later ones says so.
        pool.poll(&Body::List(true)).await?;
        let behind = pool.behind().await;
        Ok(voters_of(&pool, &behind))
    }

    /// Exchanges voters, and returns when a majority of the new ones votes without the old ones. An exchange that is under way
    /// is finished first, also one that another process has begun. It may be given up at any moment, and the same be
    /// asked again.
    ///
    /// # Errors
    /// If it cannot begin, which changes nothing; or cannot be finished: then majorities of both the old and the new voters
    /// go on granting leases, and the next exchange finishes it.
    pub async fn reconfigure(
        &self,
        reconfiguration: &Reconfiguration,
        told: &mut dyn FnMut(ReconfigurationProgress),
    ) -> Result<ReconfigurationOutcome, ReconfigurationError> {
        let mut pool = Pool::open(&self.endpoints, "an operator", None).await?;
        // One that answers a moment later than the majority may be behind, too.
        pool.settle().await;
        let before = pool.behind().await;
        let mut out = Vec::new();
        let mut driver = ReconfigurationDriver::begin(pool.cluster.clone(), rand::random(), &mut out);
        let mut asked = ConfigRequests::default();
        loop {
            pool.learn(driver.current());
            for effect in mem::take(&mut out) {
                match effect {
                    ReconfigurationEffect::Send { to, round, ask } => asked.ask(&mut pool, to, round, &ask),
                    ReconfigurationEffect::Begun { is_wanted: true, .. } => told(ReconfigurationProgress::Begun),
                    ReconfigurationEffect::Begun { is_wanted: false, .. } => told(ReconfigurationProgress::Finishing),
                    ReconfigurationEffect::Wait(span) => {
                        if !span.is_zero() {
                            told(ReconfigurationProgress::Waiting(span));
                        }
                        let more = rand::random_range(
                            ReconfigurationDriver::<Cluster>::PAUSE_MIN..ReconfigurationDriver::<Cluster>::PAUSE_MAX,
                        );
                        tokio::time::sleep(span.saturating_add(more)).await;
                        driver.resume(&mut out);
                    }
                    ReconfigurationEffect::Plan { is_later } => {
                        let planned = self.plan(&mut pool, reconfiguration, is_later).await?;
                        driver.learn(&pool.cluster);
                        driver.planned(planned, &mut out);
                    }
                    ReconfigurationEffect::Done(cluster) => {
                        pool.learn(&cluster);
                        return Ok(outcome_of(&mut pool, &before, driver.is_changed(), driver.has_finished()).await);
                    }
                    ReconfigurationEffect::Stuck { silent, is_joint } => return Err(stuck(&pool, silent, is_joint)),
                    ReconfigurationEffect::Outrun => return Err(ReconfigurationError::Rivals),
                }
            }
            if !out.is_empty() {
                continue;
            }
            match pool.heard().await {
                VoterEvent::Answer(voter, tag, body) if tag == asked.tag => match asked.answer(*body, &mut pool, voter)
                {
                    Ok(Some(answer)) => driver.answered(voter, asked.round, answer, &mut out),
                    Ok(None) => {}
                    Err(error) => {
                        tracing::warn!(%voter, %error, "an answer cannot be used");
                        driver.unheard(voter, asked.round, &mut out);
                    }
                },
                VoterEvent::Lost(voter, tag) if tag == asked.tag => driver.unheard(voter, asked.round, &mut out),
                _ => {}
            }
            driver.learn(&pool.cluster);
        }
    }

    /// Who is to vote. `is_later`: an exchange has been finished meanwhile, by which those that go may have gone.
    async fn plan(
        &self,
        pool: &mut Pool,
        reconfiguration: &Reconfiguration,
        is_later: bool,
    ) -> Result<Planned<Cluster>, ReconfigurationError> {
        let current = &pool.cluster.clone();
        let missing: BTreeMap<VoterId, String> =
            current.addresses().filter_map(|(voter, _)| Some((voter, pool.trouble(voter)?))).collect();
        let unreachable = missing.keys().copied().collect();
        let mut plan =
            VoterPlan::new(current.number(), current.voters().clone(), unreachable, reconfiguration.remove.clone());
        for peer in &reconfiguration.add {
            let greeted = dial(peer, &self.endpoints.transport, Vec::new(), "an operator").await;
            let EstablishedConnection { voter, cluster, role, .. } = greeted
                .map_err(|error| ReconfigurationError::NotReached { peer: peer.clone(), why: error.to_string() })?;
            if let Some(role) = role.filter(|role| *role < Role::Operator) {
                return Err(ReconfigurationError::Denied { peer: peer.clone(), role });
            }
            if cluster.as_ref().is_some_and(|cluster| !cluster.is_same(current)) {
                return Err(ReconfigurationError::Foreign { peer: peer.clone() });
            }
            let known = cluster.as_ref().map(Cluster::number);
            match plan.add(peer.name().to_owned(), voter, peer.clone(), known) {
                Ok(Added::Yes) => {}
                Ok(Added::KnowsLater) => {
                    cluster.iter().for_each(|later| pool.learn(later));
                    return Ok(Planned::Later);
                }
                Err(AddError::Removed) => return Err(ReconfigurationError::Removed { peer: peer.clone() }),
                Err(AddError::Taken) => return Err(ReconfigurationError::Taken { name: peer.name().to_owned() }),
            }
        }
        let target = plan.finish(is_later).map_err(|error| refused(error, current, &missing))?;
        let Some(target) = target else { return Ok(Planned::Already) };
        PeerAddress::check(&target.values().map(|(_, peer)| peer).collect::<Vec<_>>())?;
        Ok(Planned::Joint(current.joint(target)))
    }
}

/// Why these are not to vote, for people. `missing`: why those who vote cannot be reached.
fn refused(error: PlanError<String>, current: &Cluster, missing: &BTreeMap<VoterId, String>) -> ReconfigurationError {
    match error {
        PlanError::Absent(name) => {
            let voters = current.names().collect::<Vec<_>>().join(", ");
            ReconfigurationError::Absent { name: primacy_core::ids::escape(&name), voters }
        }
        PlanError::Count(count) => ReconfigurationError::Count(count),
        PlanError::Minority(voters) => {
            let missing: Vec<&str> = voters.iter().filter_map(|voter| Some(missing.get(voter)?.as_str())).collect();
            ReconfigurationError::Minority { missing: missing.join(", ") }
        }
    }
}

/// Why it cannot go on.
fn stuck(pool: &Pool, silent: Vec<VoterId>, is_joint: bool) -> ReconfigurationError {
    if let Some(why) = pool.denied() {
        return StoreError::Unusable(why).into();
    }
    let name = |voter| match pool.cluster.address_of(voter) {
        Some(peer) => format!("{peer} ({})", pool.trouble(voter).unwrap_or_else(|| "no answer".into())),
        None => voter.to_string(),
    };
    let silent: Vec<String> = silent.into_iter().map(name).collect();
    let whose = if is_joint { "old and of the new" } else { "present" };
    ReconfigurationError::Stuck { whose, silent: silent.join(", ") }
}

async fn outcome_of(
    pool: &mut Pool,
    before: &BTreeMap<VoterId, u64>,
    is_changed: bool,
    has_finished: bool,
) -> ReconfigurationOutcome {
    let behind = pool.behind().await;
    let told = before.keys().filter(|voter| !behind.contains_key(voter) && pool.trouble(**voter).is_none());
    let told = told.filter_map(|voter| Some(pool.cluster.address_of(*voter)?.name().to_owned())).collect();
    ReconfigurationOutcome { voters: voters_of(pool, &behind), is_changed, has_finished, told }
}

/// What a voter has answered to the parts of one question so far.
struct PartialReply {
    /// How many answers are to come.
    open: usize,
    said: ConfigReply<Cluster>,
}

/// The questions of one round, each in as many parts as frames have room for.
#[derive(Default)]
struct ConfigRequests {
    round: u64,
    /// That of the pool for the same.
    tag: u64,
    /// The number of the voters that are asked to report.
    reports: u64,
    parts: BTreeMap<VoterId, PartialReply>,
}

impl ConfigRequests {
    fn ask(&mut self, pool: &mut Pool, to: VoterId, round: u64, ask: &ConfigRequest<Cluster>) {
        if round != self.round {
            (self.round, self.tag) = (round, pool.tag());
            self.parts.clear();
        }
        if let ConfigRequest::Report { number } = ask {
            self.reports = *number;
        }
        let questions = ConfigRequestFrame::of(ask);
        self.parts.insert(to, PartialReply { open: questions.len(), said: ConfigReply::Done });
        questions.into_iter().for_each(|question| pool.ask(to, self.tag, Body::ConfigRequest(question)));
    }

    /// The whole answer of a voter, once all parts of it are there.
    fn answer(
        &mut self,
        body: Body,
        pool: &mut Pool,
        voter: VoterId,
    ) -> Result<Option<ConfigReply<Cluster>>, MalformedFrame> {
        let reply = match body {
            Body::ConfigReply(reply) => reply,
            Body::Refused(_) => return Err(MalformedFrame("a refusal")),
            _ => return Err(MalformedFrame("an answer to another question")),
        };
        let (said, more) = reply.checked()?;
        let Some(own) = self.parts.get_mut(&voter) else { return Ok(None) };
        if more
            && let ConfigReply::Reported(report) = &said
            && let Some((last, _)) = report.elections.last_key_value()
        {
            own.open += 1;
            pool.ask(voter, self.tag, Body::ConfigRequest(ConfigRequestFrame::report(self.reports, last.as_str())));
        }
        own.open = own.open.saturating_sub(1);
        own.said = match (mem::replace(&mut own.said, ConfigReply::Done), said) {
            (ConfigReply::Reported(mut all), ConfigReply::Reported(VoterReport { elections, settles_in })) => {
                all.elections.extend(elections);
                all.settles_in = all.settles_in.max(settles_in);
                ConfigReply::Reported(all)
            }
            (before @ ConfigReply::Elsewhere(_), _) | (before @ ConfigReply::Partly { .. }, ConfigReply::Done) => {
                before
            }
            (ConfigReply::Partly { bound: one }, ConfigReply::Partly { bound: other }) => {
                ConfigReply::Partly { bound: one.max(other) }
            }
            (_, said) => said,
        };
        Ok((own.open == 0).then(|| own.said.clone()))
    }
}
