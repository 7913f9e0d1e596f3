//! Whoever exchanges voters: the production change, driven as `crates/primacy/src/peers/exchange.rs` does.

use std::collections::BTreeSet;
use std::time::Duration;

use primacy_core::quorum::{Change, ChangeOutput, Membership, Role, RollAnswer, Round, VoterId};

use super::client::{Plan, Who};
use super::wire::Frame;
use super::{What, index_of};
#[cfg(feature = "canaries")]
use crate::planted::Planted;
use crate::tally::Sometimes;
use crate::world::World;

/// So often others may be sooner.
const RIVALS_MOST: u32 = 10;

/// Which places come and go.
#[derive(Clone, Debug, Default, Hash)]
pub(super) struct Swap {
    pub(super) add: Vec<usize>,
    pub(super) remove: Vec<usize>,
}

/// Somebody's way through an exchange.
#[derive(Debug)]
pub(super) struct Drive {
    /// `None`: only to finish what is under way.
    swap: Option<Swap>,
    /// It goes on until it has come through.
    pub(super) insists: bool,
    change: Option<Change<Membership>>,
    /// Whether that change is what it wants, and not one that has to be finished first.
    is_wanted: bool,
    round: u64,
    tag: u64,
    /// The joint voters that it has told everybody of.
    begun: Option<u64>,
    rivals: u32,
}

impl Drive {
    pub(super) fn new(swap: Option<Swap>, insists: bool) -> Self {
        Self { swap, insists, change: None, is_wanted: false, round: 0, tag: 0, begun: None, rivals: 0 }
    }
}

impl World {
    fn drive_of(&mut self, number: u64) -> Option<&mut Drive> {
        match &mut self.peers.clients.get_mut(number)?.who {
            Who::Exchanger(drive) => Some(drive),
            _ => None,
        }
    }

    /// A majority of the voters can be asked.
    pub(super) fn begin_drive(&mut self, number: u64) {
        if let Some(drive) = self.drive_of(number) {
            drive.rivals = 0;
            self.begin_change(number, None);
        }
    }

    fn begin_change(&mut self, number: u64, wanted: Option<Membership>) {
        let by = u128::from(self.rng.bits()) << 64 | u128::from(self.rng.bits());
        let client = self.peers.clients.get(number);
        let Some(current) = client.and_then(|client| client.pool.as_ref()?.cluster.clone()) else { return };
        let is_wanted = wanted.is_some();
        let change = self.new_change(current, wanted, by);
        let Some(drive) = self.drive_of(number) else { return };
        (drive.change, drive.is_wanted, drive.round) = (Some(change), is_wanted, 0);
        self.step_drive(number, |change, out| change.resume(out));
    }

    #[cfg(feature = "canaries")]
    fn new_change(&self, current: Membership, wanted: Option<Membership>, by: u128) -> Change<Membership> {
        match self.scenario.planted {
            Some(Planted::Quorum(flaw)) => Change::flawed(current, wanted, by, Some(flaw)),
            _ => Change::new(current, wanted, by),
        }
    }

    #[cfg(not(feature = "canaries"))]
    fn new_change(&self, current: Membership, wanted: Option<Membership>, by: u128) -> Change<Membership> {
        Change::new(current, wanted, by)
    }

    fn step_drive(
        &mut self,
        number: u64,
        does: impl FnOnce(&mut Change<Membership>, &mut Vec<ChangeOutput<Membership>>),
    ) {
        let Some(change) = self.drive_of(number).and_then(|drive| drive.change.as_mut()) else { return };
        let mut out = Vec::new();
        does(change, &mut out);
        let current = change.current().clone();
        self.learn(number, &current);
        let cut_short =
            self.scenario.peers.as_ref().and_then(|setting| setting.exchange).map_or(0, |own| own.cut_short);
        for output in out {
            if self.rng.chance(cut_short) {
                self.drop_drive(number);
            }
            let Some(drive) = self.drive_of(number) else { return };
            match output {
                ChangeOutput::Send { to, round, ask } => {
                    if round != drive.round {
                        drive.round = round;
                        drive.tag += 1;
                    }
                    let tag = Round(drive.tag);
                    self.tell_first(number, to);
                    self.ask(number, to, tag, Frame::Roll { number: 0, to, by: Role::Operator, ask: Box::new(ask) });
                }
                ChangeOutput::Begun(voters) => {
                    drive.begun = Some(voters.number());
                    if let Some(exchange) = &mut self.peers.exchange {
                        exchange.begun.entry(voters.number()).or_insert(number);
                    }
                }
                ChangeOutput::Wait(span) => {
                    drive.tag += 1;
                    let tag = drive.tag;
                    // Two that are in each other's way do not meet again.
                    let more = self.rng.between(20_000_000, 200_000_000);
                    self.log(None, || format!("the exchange waits for {span:?}"));
                    self.after_peers(crate::nanos(span).saturating_add(more), What::GoOn { client: number, tag });
                }
                ChangeOutput::Done(voters) => return self.drive_done(number, &voters),
                ChangeOutput::Stuck(silent) => {
                    self.log(None, || format!("the exchange is stuck: {} do not answer", silent.len()));
                    return self.drive_over(number, false);
                }
            }
        }
    }

    /// It goes on after it has waited.
    pub(super) fn go_on(&mut self, number: u64, tag: u64) {
        if self.drive_of(number).is_some_and(|drive| drive.tag == tag) {
            self.step_drive(number, |change, out| change.resume(out));
            self.run_client(number);
        }
    }

    pub(super) fn drive_hears(&mut self, number: u64, voter: VoterId, tag: Round, answer: RollAnswer<Membership>) {
        let Some(round) = self.drive_of(number).filter(|drive| drive.tag == tag.0).map(|drive| drive.round) else {
            return;
        };
        self.step_drive(number, |change, out| change.answered(voter, round, answer, out));
    }

    pub(super) fn drive_misses(&mut self, number: u64, voter: VoterId, tag: Round) {
        let Some(round) = self.drive_of(number).filter(|drive| drive.tag == tag.0).map(|drive| drive.round) else {
            return;
        };
        self.step_drive(number, |change, out| change.unheard(voter, round, out));
    }

    /// These vote alone: those that are wanted, or those that others wanted.
    fn drive_done(&mut self, number: u64, voters: &Membership) {
        self.learn(number, voters);
        self.log(None, || format!("the voters are {}", super::rolls::places(voters)));
        let Some(drive) = self.drive_of(number) else { return };
        let begun = drive.begun.take();
        let was_wanted = drive.is_wanted;
        if let Some(exchange) = &mut self.peers.exchange {
            exchange.name(voters);
            let first = begun.and_then(|begun| exchange.begun.get(&begun));
            if first.is_some_and(|first| *first != number) && begun.map(|begun| begun + 1) == Some(voters.number()) {
                self.saw(Sometimes::FinishedByOther);
            }
        }
        let Some(drive) = self.drive_of(number) else { return };
        drive.rivals += u32::from(was_wanted);
        let is_enough = drive.rivals >= RIVALS_MOST;
        if was_wanted && !is_enough {
            return self.begin_change(number, None);
        }
        match self.wanted_voters(number).filter(|_| !is_enough) {
            Some(target) => {
                let wanted = voters.clone().joint(target).ok();
                self.begin_change(number, wanted);
            }
            None => self.drive_over(number, true),
        }
    }

    /// Who is to vote, if those are others than vote now, and enough of them are there.
    fn wanted_voters(&self, number: u64) -> Option<BTreeSet<VoterId>> {
        let client = self.peers.clients.get(number)?;
        let Who::Exchanger(drive) = &client.who else { return None };
        let (swap, current) = (drive.swap.as_ref()?, client.pool.as_ref()?.cluster.as_ref()?);
        let mut target = current.old().clone();
        target.retain(|voter| !swap.remove.contains(&index_of(*voter)));
        let mut missing: BTreeSet<VoterId> = current.voters().filter(|voter| !client.reaches(*voter)).collect();
        for place in &swap.add {
            let booth = self.peers.booths.get(*place)?;
            let cuts = &self.peers.cuts;
            let is_cut = cuts.open_at(client.host, *place, self.now).or(cuts.open_at(*place, client.host, self.now));
            // It runs, nobody else has its name, and it was not taken out.
            let post = booth.life.as_ref().and_then(|life| life.post.as_ref());
            let was_out = post.is_some_and(|post| post.published().is_some()) && !current.old().contains(&booth.id);
            let is_taken = target.iter().any(|voter| index_of(*voter) == *place && *voter != booth.id);
            if is_cut.is_some() || was_out || is_taken || !booth.runs(self.now) {
                return None;
            }
            missing.remove(&booth.id);
            target.insert(booth.id);
        }
        missing.retain(|voter| target.contains(voter));
        let there = target.len() - missing.len();
        (target != *current.old() && (1..=9).contains(&target.len()) && there * 2 > target.len()).then_some(target)
    }

    /// It is at its end. If it has not come through, it may try again.
    pub(super) fn drive_over(&mut self, number: u64, is_done: bool) {
        let Some(drive) = self.drive_of(number) else { return };
        (drive.change, drive.begun) = (None, None);
        let insists = drive.insists;
        if insists && !is_done {
            self.hang_up(number);
            return self.after_peers(200_000_000, What::Retry { client: number });
        }
        self.end_client(number);
        if insists {
            self.exchange_ends();
        }
    }

    /// Whoever exchanges voters is killed.
    pub(super) fn drop_drive(&mut self, number: u64) {
        if self.drive_of(number).is_some_and(|drive| !drive.insists) {
            self.log(None, || "whoever exchanges voters is killed".to_owned());
            self.end_client(number);
        }
    }

    /// Somebody goes about to exchange voters.
    pub(super) fn start_drive(&mut self, swap: Option<Swap>, insists: bool) -> u64 {
        self.trace.hash(&(self.now, &swap));
        self.log(None, || format!("an operator is about to exchange voters: {swap:?}"));
        let host = self.peers.cuts.hosts().saturating_sub(1);
        let clock = crate::clock::Clock::new(self.now, 0, 0);
        let who = Who::Exchanger(Box::new(Drive::new(swap, insists)));
        let number = self.new_client(who, primacy_core::CandidateId::from_bits(0), host, clock);
        self.plan(number, Plan::Exchange);
        number
    }

    /// For so long an exchange may take that was begun when nothing failed any more, where a lease lasts at most so long.
    pub(super) const fn drive_bound(stretched: Duration) -> Duration {
        Duration::from_secs(10).saturating_add(stretched.saturating_mul(3))
    }
}
