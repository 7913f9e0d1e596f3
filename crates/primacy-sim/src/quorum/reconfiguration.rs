//! Voters that are exchanged under way: what each knows of who votes, and the processes that exchange them.

use std::hash::{Hash, Hasher};

use primacy_core::quorum::{
    Answer, Ask, Ballot, ConfigAcceptor, ConfigRequest, Durable, Flaw, ReconfigurationAttempt, ReconfigurationOutput,
    Voter, VoterId, VoterSet,
};
use primacy_core::{ElectionName, Instant};

use super::ids::{index_of, voter_id};
use super::setup::Setup;
use crate::search::Shared;

/// A voter's process.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Post {
    pub(super) voter: Voter,
    pub(super) acceptor: ConfigAcceptor<VoterSet>,
}

fn name() -> ElectionName {
    ElectionName::new("e").expect("a letter is a valid name")
}

impl Post {
    pub(super) fn new(configuration: Option<VoterSet>, setup: &Setup) -> Self {
        let mut voter = Voter::flawed(Durable::default(), 0, Instant::ZERO, setup.flaw);
        let acceptor =
            ConfigAcceptor::restarted(configuration, Ballot::default(), None, &(&name(), &mut voter), Instant::ZERO);
        Self { voter, acceptor }
    }

    pub(super) fn restarted(&self, now: Instant, flaw: Option<Flaw>) -> Self {
        let mut voter = Voter::flawed(self.voter.durable().clone(), 0, now, flaw);
        let ((promised, taken), configuration) = (self.acceptor.next(), self.acceptor.configuration().cloned());
        let mut acceptor =
            ConfigAcceptor::restarted(configuration, promised, taken.cloned(), &(&name(), &mut voter), now);
        if flaw == Some(Flaw::ForgetsSettling) {
            acceptor.forget_settling();
        }
        Self { voter, acceptor }
    }

    /// A candidate's ask, from a quorum client that counts with these voters. `Err`: there are later ones.
    pub(super) fn answer(&mut self, ask: &Ask, of: &VoterSet, now: Instant, setup: &Setup) -> Result<Answer, VoterSet> {
        // One that is behind learns of them at once, whether or not anybody could prove them by then: what a proof allows is among that.
        if self.acceptor.configuration().is_none_or(|own| own.number() < of.number()) {
            self.drive(ConfigRequest::Adopt(of.clone()), now);
        }
        let has = |own: &VoterSet| own.number() > of.number();
        match self.acceptor.configuration().filter(|own| has(own)) {
            Some(later) if setup.flaw != Some(Flaw::AdmitsOld) => Err(later.clone()),
            _ => Ok(self.voter.handle(ask, now).answer),
        }
    }

    fn drive(&mut self, ask: ConfigRequest<VoterSet>, now: Instant) -> primacy_core::quorum::ConfigReply<VoterSet> {
        self.acceptor.handle(ask, &mut (&name(), &mut self.voter), now)
    }
}

/// A process that exchanges voters.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Driver {
    /// `None` when it is over.
    change: Option<ReconfigurationAttempt<VoterSet>>,
    /// In a world without candidates nothing is left to see when it has begun.
    ends_begun: bool,
    /// How often it may still go on after it has waited.
    resumes: u8,
    is_waiting: bool,
    pub(super) is_done: bool,
    /// Asks that have not arrived.
    asks: Vec<(VoterId, u64, ConfigRequest<VoterSet>)>,
}

impl Driver {
    /// One that has been told of the voters by this one.
    pub(super) fn begin(index: u8, post: &Post, setup: &Setup) -> Option<Self> {
        let current = post.acceptor.configuration()?.clone();
        let target = setup.reconfigurations.get(usize::from(index))?.iter().map(|voter| voter_id(*voter));
        let wanted = current.clone().joint(target.collect()).ok();
        let change = match wanted {
            Some(joint) if setup.agreed => ReconfigurationAttempt::flawed(joint, None, u128::from(index), setup.flaw),
            wanted => ReconfigurationAttempt::flawed(current, wanted, u128::from(index), setup.flaw),
        };
        let (resumes, ends_begun) = (setup.budget.resumes, setup.candidates == 0);
        let change = Some(change);
        let mut driver = Self { change, ends_begun, resumes, is_waiting: true, is_done: false, asks: Vec::new() };
        driver.go_on();
        Some(driver)
    }

    pub(super) fn go_on(&mut self) {
        self.is_waiting = false;
        self.step(|change, out| change.resume(out));
    }

    /// What can happen next: this many asks can arrive, or be lost; and whether it can go on.
    pub(super) fn open(&self) -> (usize, bool) {
        (self.asks.len(), self.is_waiting && self.resumes > 0)
    }

    pub(super) fn resume(&mut self) {
        self.resumes -= 1;
        self.go_on();
    }

    /// What it knows of one voter, and has asked of it.
    pub(super) fn hash_of(&self, voter: VoterId, state: &mut impl Hasher) {
        if let Some(change) = &self.change {
            change.hash_of(voter, state);
        }
        self.asks.iter().filter(|(to, ..)| *to == voter).for_each(|(_, round, ask)| (round, ask).hash(state));
        u8::MAX.hash(state);
    }

    /// All that speaks of no single voter.
    pub(super) fn hash_beside(&self, state: &mut impl Hasher) {
        let Self { change, ends_begun: _, resumes, is_waiting, is_done, asks: _ } = self;
        (change.is_some(), resumes, is_waiting, is_done).hash(state);
        if let Some(change) = change {
            change.hash_beside(state);
        }
    }

    /// An ask arrives and is answered.
    pub(super) fn deliver(&mut self, at: usize, posts: &mut [Shared<Post>], now: Instant) {
        let (to, round, ask) = self.asks.remove(at);
        let answer = posts[index_of(to)].drive(ask, now);
        self.step(|change, out| change.answered(to, round, answer, out));
    }

    pub(super) fn lose(&mut self, at: usize) {
        let (to, round, _) = self.asks.remove(at);
        self.step(|change, out| change.unheard(to, round, out));
    }

    fn step(
        &mut self,
        does: impl FnOnce(&mut ReconfigurationAttempt<VoterSet>, &mut Vec<ReconfigurationOutput<VoterSet>>),
    ) {
        let mut out = Vec::new();
        if let Some(change) = &mut self.change {
            does(change, &mut out);
        }
        for output in out {
            match output {
                ReconfigurationOutput::Send { to, round, ask } => self.asks.push((to, round, ask)),
                ReconfigurationOutput::Wait(_) => self.is_waiting = true,
                ReconfigurationOutput::Begun(_) if !self.ends_begun => {}
                ReconfigurationOutput::Done(_) | ReconfigurationOutput::Begun(_) => {
                    (self.is_done, self.change) = (true, None)
                }
                ReconfigurationOutput::Stuck(_) => self.change = None,
            }
        }
        if self.change.is_none() {
            // What it has asked may still arrive, but nothing of it can do anything.
            self.asks
                .retain(|(_, _, ask)| !matches!(ask, ConfigRequest::Report { .. } | ConfigRequest::Prepare { .. }));
        }
    }
}
