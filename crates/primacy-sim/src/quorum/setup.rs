//! What is searched: how many vote and ask, for how long, and what may happen.

use std::time::Duration;

use primacy_core::quorum::{Flaw, VoterSet};

use super::ids::voter_id;

/// How often what may happen, over a whole history.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Budget {
    /// Times that each candidate looks, and asks for the lease if it can be had.
    pub asks: u8,
    /// Renewals, together.
    pub renewals: u8,
    /// Releases, together.
    pub releases: u8,
    /// Messages that are lost.
    pub losses: u8,
    /// Times that somebody asks those again who have not answered, which withdraws a renewal.
    pub repeats: u8,
    /// Voters that are restarted.
    pub restarts: u8,
    /// Times that each of those who exchange voters goes on after it had to wait.
    pub resumes: u8,
}

/// What has happened before the first step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beginning {
    /// Nothing.
    Blank,
    /// The first candidate leads and has renewed, by all voters, or by all but the last; an operator has paused the election at
    /// all of them, for leaderships up to this one.
    Led,
    /// The same, and the lease has ended.
    Lapsed,
    /// The same, and that leader is gone, but a renewal that it sent before is still on its way to the last voter.
    Late,
    /// The same, but it was sent to the new voters, by the joint phase: what is on its way are that leader's words to those of
    /// them that do not support it yet.
    LateJoint,
}

/// What an operator has voters do, after a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    /// Free the voters of the holder, whatever it believes.
    Dismiss,
    /// Forget the election.
    Forget,
}

/// One search.
#[derive(Clone, Debug)]
pub struct Setup {
    /// For the table.
    pub name: &'static str,
    /// How many voters.
    pub voters: u8,
    /// How many candidates.
    pub candidates: u8,
    /// Who shall vote instead, for each of those who exchange voters. The first voters are 0, 1 and so on.
    pub reconfigurations: &'static [&'static [u8]],
    /// Whether those that go are alike, and those that come, and none stays: states that differ in their names only are taken for one.
    pub alike: bool,
    /// Whether the old voters have agreed on the new ones before, and nobody has heard of that yet.
    pub agreed: bool,
    /// Whether what is read is sent and answered like all else. Otherwise it is read at once.
    pub reads: bool,
    /// How it begins.
    pub begins: Beginning,
    /// What operators do, each of them once.
    pub words: &'static [Word],
    /// Whether they have done so, and were told, before the first step, and only the last voter has not heard of it.
    pub told: bool,
    /// How many ticks.
    pub horizon: u8,
    /// The lease that each candidate asks for, in ticks.
    pub leases: [u8; 2],
    /// What may happen.
    pub budget: Budget,
    /// A planted bug.
    pub flaw: Option<Flaw>,
    /// Whether states that are the same for all that follows are taken for one. Not where leases differ.
    pub merged: bool,
}

impl Setup {
    pub(super) fn new(name: &'static str, horizon: u8, budget: Budget) -> Self {
        Self {
            name,
            voters: 3,
            candidates: 2,
            reconfigurations: &[],
            alike: false,
            agreed: false,
            reads: false,
            begins: Beginning::Blank,
            words: &[],
            told: false,
            horizon,
            leases: [2; 2],
            budget,
            flaw: None,
            merged: false,
        }
    }

    pub(super) fn lease(&self, candidate: u8) -> Duration {
        Duration::from_secs(self.leases[usize::from(candidate)].into())
    }

    pub(super) fn merged(self) -> Self {
        Self { merged: true, ..self }
    }

    /// Whether there are orders, or an election may be forgotten.
    pub(super) fn has_orders(&self) -> bool {
        self.begins != Beginning::Blank || !self.words.is_empty()
    }

    /// Those who vote first.
    pub(super) fn first_voters(&self) -> VoterSet {
        VoterSet::new((0..self.voters).map(voter_id).collect()).expect("there are some")
    }

    /// The same, and those who this one of those who exchange voters wants.
    pub(super) fn joint(&self, reconfiguration: usize) -> Option<VoterSet> {
        let new = self.reconfigurations.get(reconfiguration)?;
        self.first_voters().joint(new.iter().copied().map(voter_id).collect()).ok()
    }

    /// For each process of a voter its kind. Those of one kind are alike.
    pub(super) fn kinds(&self) -> Vec<u8> {
        match self.reconfigurations {
            [] => vec![0; usize::from(self.posts())],
            [new] if self.alike => {
                assert!(new.iter().all(|voter| *voter >= self.voters), "none stays");
                (0..self.posts()).map(|voter| u8::from(voter >= self.voters)).collect()
            }
            _ => (0..self.posts()).collect(),
        }
    }

    /// How many processes of voters there are, with those that do not vote yet.
    pub(super) fn posts(&self) -> u8 {
        let last = self.reconfigurations.iter().copied().flatten().map(|voter| voter + 1).max();
        last.unwrap_or_default().max(self.voters)
    }
}
