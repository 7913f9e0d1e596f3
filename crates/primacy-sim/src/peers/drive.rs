//! An operator that exchanges voters: the production [`ReconfigurationDriver`], over simulated connections.

use std::collections::BTreeSet;
use std::time::Duration;

use primacy_core::quorum::{
    Added, ConfigReply, Planned, ReconfigurationEffect, Role, Round, VoterId, VoterPlan, VoterSet,
};

#[cfg(feature = "canaries")]
use crate::planted::Planted;
use crate::tally::Sometimes;
use crate::voters::client::{ClientKind, Plan};
use crate::voters::config_state::places;
use crate::voters::drive::{Drive, Driver, DriverEffect, Swap};
use crate::voters::wire::Frame;
use crate::voters::{PeersEvent, index_of};
use crate::world::World;

impl World {
    fn drive_of(&mut self, number: u64) -> Option<&mut Drive> {
        match &mut self.peers.clients.get_mut(number)?.who {
            ClientKind::Reconfiguration(drive) => Some(drive),
            _ => None,
        }
    }

    /// The last that are known to vote, to who exchanges them.
    fn known_to(&self, number: u64) -> Option<&VoterSet> {
        self.peers.clients.get(number)?.pool.as_ref()?.cluster.as_ref()
    }

    /// A majority of the voters can be asked.
    pub(super) fn begin_drive(&mut self, number: u64) {
        let Some(current) = self.known_to(number).cloned() else { return };
        let mut out = Vec::new();
        let by = u128::from(self.engine.rng.bits()) << 64 | u128::from(self.engine.rng.bits());
        let driver = self.new_reconfiguration(current, by, &mut out);
        if let Some(drive) = self.drive_of(number) {
            (drive.driver, drive.asked.0) = (Some(driver), 0);
            self.carry_drive(number, out);
        }
    }

    #[cfg(feature = "canaries")]
    fn new_reconfiguration(&self, current: VoterSet, by: u128, out: &mut Vec<DriverEffect>) -> Driver {
        Driver::flawed(current, by, self.quorum_flaw(), out)
    }

    #[cfg(feature = "canaries")]
    fn quorum_flaw(&self) -> Option<primacy_core::quorum::Flaw> {
        match self.scenario.planted {
            Some(Planted::Quorum(flaw)) => Some(flaw),
            _ => None,
        }
    }

    #[cfg(not(feature = "canaries"))]
    #[expect(clippy::unused_self, reason = "there is no planted bug to ask for")]
    fn new_reconfiguration(&self, current: VoterSet, by: u128, out: &mut Vec<DriverEffect>) -> Driver {
        Driver::begin(current, by, out)
    }

    fn step_drive(&mut self, number: u64, does: impl FnOnce(&mut Driver, &mut Vec<DriverEffect>)) {
        let known = self.known_to(number).cloned();
        let Some(driver) = self.drive_of(number).and_then(|drive| drive.driver.as_mut()) else { return };
        let mut out = Vec::new();
        known.iter().for_each(|known| driver.learn(known));
        does(driver, &mut out);
        self.carry_drive(number, out);
    }

    fn carry_drive(&mut self, number: u64, out: Vec<DriverEffect>) {
        let driver = self.drive_of(number).and_then(|drive| drive.driver.as_ref());
        if let Some(current) = driver.map(|driver| driver.current().clone()) {
            self.learn(number, &current);
        }
        let cut_short =
            self.scenario.peers.as_ref().and_then(|setting| setting.reconfiguration).map_or(0, |own| own.cut_short);
        for effect in out {
            if self.engine.rng.chance(cut_short) {
                self.drop_drive(number);
            }
            let Some(drive) = self.drive_of(number) else { return };
            match effect {
                ReconfigurationEffect::Send { to, round, ask } => {
                    if round != drive.asked.0 {
                        drive.asked = (round, drive.asked.1 + 1);
                    }
                    let tag = Round(drive.asked.1);
                    self.tell_first(number, to);
                    self.ask(
                        number,
                        to,
                        tag,
                        Frame::ConfigRequest { number: 0, to, by: Role::Operator, ask: Box::new(ask) },
                    );
                }
                ReconfigurationEffect::Begun { voters, .. } => {
                    drive.begun = Some(voters.number());
                    if let Some(reconfiguration) = &mut self.peers.reconfiguration {
                        reconfiguration.begun.entry(voters.number()).or_insert(number);
                    }
                }
                ReconfigurationEffect::Wait(span) => {
                    drive.asked.1 += 1;
                    let tag = drive.asked.1;
                    let more =
                        self.engine.rng.between(crate::nanos(Driver::PAUSE_MIN), crate::nanos(Driver::PAUSE_MAX));
                    self.log(None, || format!("the exchange waits for {span:?}"));
                    self.after_peers(crate::nanos(span).saturating_add(more), PeersEvent::GoOn { client: number, tag });
                }
                ReconfigurationEffect::Plan { is_later } => {
                    self.they_vote(number);
                    let Some(planned) = self.plan_voters(number, is_later) else {
                        return self.drive_over(number, true);
                    };
                    self.step_drive(number, |driver, out| driver.planned(planned, out));
                }
                ReconfigurationEffect::Done(_) => {
                    self.they_vote(number);
                    return self.drive_over(number, true);
                }
                ReconfigurationEffect::Stuck { silent, .. } => {
                    self.log(None, || format!("the exchange is stuck: {} do not answer", silent.len()));
                    return self.drive_over(number, false);
                }
                ReconfigurationEffect::Outrun => {
                    self.log(None, || "others exchange voters all the time".to_owned());
                    return self.drive_over(number, false);
                }
            }
        }
    }

    /// It goes on after it has waited.
    pub(super) fn go_on(&mut self, number: u64, tag: u64) {
        if self.drive_of(number).is_some_and(|drive| drive.asked.1 == tag) {
            self.step_drive(number, Driver::resume);
            self.run_client(number);
        }
    }

    pub(super) fn drive_hears(&mut self, number: u64, voter: VoterId, tag: Round, answer: ConfigReply<VoterSet>) {
        if let Some(round) = self.round_of(number, tag) {
            self.step_drive(number, |driver, out| driver.answered(voter, round, answer, out));
        }
    }

    pub(super) fn drive_misses(&mut self, number: u64, voter: VoterId, tag: Round) {
        if let Some(round) = self.round_of(number, tag) {
            self.step_drive(number, |driver, out| driver.unheard(voter, round, out));
        }
    }

    /// The question with this tag, if its answers count.
    fn round_of(&mut self, number: u64, tag: Round) -> Option<u64> {
        self.drive_of(number).filter(|drive| drive.asked.1 == tag.0).map(|drive| drive.asked.0)
    }

    /// These vote alone: those that are wanted, or those that others wanted.
    fn they_vote(&mut self, number: u64) {
        let known = self
            .drive_of(number)
            .and_then(|drive| Some((drive.driver.as_ref()?.current().clone(), drive.begun.take())));
        let Some((voters, begun)) = known else { return };
        self.log(None, || format!("the voters are {}", places(&voters)));
        let Some(reconfiguration) = &mut self.peers.reconfiguration else { return };
        reconfiguration.name(&voters);
        let first = begun.and_then(|begun| reconfiguration.begun.get(&begun));
        if first.is_some_and(|first| *first != number) && begun.map(|begun| begun + 1) == Some(voters.number()) {
            self.saw(Sometimes::FinishedByOther);
        }
    }

    /// Who is to vote. `None` if that cannot be.
    fn plan_voters(&mut self, number: u64, is_later: bool) -> Option<Planned<VoterSet>> {
        let client = self.peers.clients.get(number)?;
        let ClientKind::Reconfiguration(drive) = &client.who else { return None };
        let (swap, current) = (drive.swap.as_ref()?, client.pool.as_ref()?.cluster.clone()?);
        let unreachable: BTreeSet<VoterId> = current.voters().filter(|voter| !client.reaches(*voter)).collect();
        let voters = current.old().iter().map(|voter| (index_of(*voter), (*voter, ()))).collect();
        let plan = VoterPlan::new(current.number(), voters, unreachable, swap.remove.clone());
        #[cfg(feature = "canaries")]
        let plan = plan.flawed(self.quorum_flaw());
        let mut plan = plan;
        for place in &swap.add {
            let voter_node = self.peers.voter_nodes.get(*place)?;
            let cuts = &self.peers.cuts;
            let is_cut = cuts.open_at(client.host, *place, self.engine.now).or(cuts.open_at(
                *place,
                client.host,
                self.engine.now,
            ));
            if is_cut.is_some() || !voter_node.runs(self.engine.now) {
                return None;
            }
            let known = voter_node.life.as_ref().and_then(|life| life.config.as_ref()?.published());
            match plan.add(*place, voter_node.id, (), known.map(VoterSet::number)).ok()? {
                Added::Yes => {}
                Added::KnowsLater => {
                    let later = known.cloned()?;
                    self.learn(number, &later);
                    return Some(Planned::Later);
                }
            }
        }
        let target = plan.finish(is_later).ok()?;
        let joint = |target: Vec<VoterId>| current.joint(target.into_iter().collect()).ok();
        let target = target.map(|target| target.into_values().map(|(voter, ())| voter).collect());
        Some(target.map_or(Planned::Already, |target| joint(target).map_or(Planned::Later, Planned::Joint)))
    }

    /// It is at its end. If it has not come through, it may try again.
    pub(super) fn drive_over(&mut self, number: u64, is_done: bool) {
        let Some(drive) = self.drive_of(number) else { return };
        (drive.driver, drive.begun) = (None, None);
        let insists = drive.insists;
        if insists && !is_done {
            self.hang_up(number);
            return self.after_peers(200_000_000, PeersEvent::Retry { client: number });
        }
        self.end_client(number);
        if insists {
            self.reconfiguration_ends();
        }
    }

    /// The operator's process that exchanges voters is killed.
    pub(super) fn drop_drive(&mut self, number: u64) {
        if self.drive_of(number).is_some_and(|drive| !drive.insists) {
            self.log(None, || "the process that exchanges voters is killed".to_owned());
            self.end_client(number);
        }
    }

    /// Somebody goes about to exchange voters.
    pub(super) fn start_drive(&mut self, swap: Option<Swap>, insists: bool) -> u64 {
        self.engine.trace.hash(&(self.engine.now, &swap));
        self.log(None, || format!("an operator is about to exchange voters: {swap:?}"));
        let host = self.peers.cuts.hosts().saturating_sub(1);
        let clock = crate::clock::Clock::new(self.engine.now, 0, 0);
        let who = ClientKind::Reconfiguration(Box::new(Drive::new(swap, insists)));
        let number = self.new_client(who, primacy_core::CandidateId::from_bits(0), host, clock);
        self.plan(number, Plan::Reconfigure);
        number
    }

    /// How long an exchange may take that begins when nothing fails any more, where a lease lasts at most `lease`.
    pub(super) const fn drive_bound(stretched: Duration) -> Duration {
        Duration::from_secs(10).saturating_add(stretched.saturating_mul(3))
    }
}
