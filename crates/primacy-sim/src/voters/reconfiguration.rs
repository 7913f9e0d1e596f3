//! Which voters there have been, and who goes about an exchange.

use std::collections::BTreeMap;

use primacy_core::Token;
use primacy_core::quorum::{VoterId, VoterSet};

/// How voters are exchanged in a world in which they are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReconfigurationSetting {
    /// How many vote at first.
    pub(crate) first: usize,
    /// Mean time between two attempts, or 0 for none before faults end.
    pub(crate) every: u64,
    /// Two go about it at once.
    pub(crate) both: u32,
    /// The process that goes about it is killed.
    pub(crate) killed: u32,
    /// It is killed before it sends the next of its questions.
    pub(crate) cut_short: u32,
    /// Several voters are exchanged at once.
    pub(crate) many: u32,
}

/// What there is where voters are exchanged.
#[derive(Debug)]
pub(crate) struct ReconfigurationWorld {
    /// All voters that there have ever been, by their numbers.
    pub(crate) known: BTreeMap<u64, VoterSet>,
    /// The last that vote by a majority's disks.
    pub(crate) effective: u64,
    /// When they did, in numbers as processes have them.
    pub(crate) changed_at: BTreeMap<u64, u64>,
    /// Those that operators name to an asker that starts.
    pub(crate) named: VoterSet,
    /// What was said on connections that are being made.
    pub(crate) welcomes: BTreeMap<u64, (VoterId, Option<VoterSet>)>,
    /// By which number each process has counted its last grant or renewal.
    pub(crate) counted: BTreeMap<u64, u64>,
    /// Who has begun each exchange.
    pub(crate) begun: BTreeMap<u64, u64>,
    /// With which token somebody led when the present exchange began.
    pub(crate) led: Option<Token>,
    /// Since when an exchange is under way that must come to an end.
    pub(crate) since: Option<u64>,
}

impl ReconfigurationWorld {
    pub(crate) fn new(first: VoterSet) -> Self {
        Self {
            known: [(0, first.clone())].into(),
            effective: 0,
            changed_at: BTreeMap::new(),
            named: first,
            welcomes: BTreeMap::new(),
            counted: BTreeMap::new(),
            begun: BTreeMap::new(),
            led: None,
            since: None,
        }
    }

    pub(crate) fn named(&self) -> &VoterSet {
        &self.named
    }

    /// These vote, an operator was told.
    pub(crate) fn name(&mut self, voters: &VoterSet) {
        if voters.number() > self.named.number() {
            self.named = voters.clone();
        }
    }

    pub(crate) fn voters(&self, number: u64) -> Option<&VoterSet> {
        self.known.get(&number)
    }

    /// The last that vote by a majority's disks.
    pub(crate) fn latest(&self) -> &VoterSet {
        self.known.get(&self.effective).unwrap_or(&self.named)
    }

    /// Those by which something may be granted, and some before.
    pub(crate) fn present(&self) -> impl Iterator<Item = &VoterSet> {
        self.known.range(self.effective.saturating_sub(2)..).map(|(_, voters)| voters)
    }

    /// The highest number that anybody has heard of.
    pub(crate) fn last(&self) -> u64 {
        self.known.last_key_value().map_or(0, |(number, _)| *number)
    }

    pub(crate) fn changed_at(&self, number: u64) -> Option<u64> {
        self.changed_at.get(&number).copied()
    }

    pub(crate) fn know(&mut self, voters: VoterSet, leader: Option<Token>) {
        if voters.incoming().is_some() {
            self.led = leader;
        }
        self.known.insert(voters.number(), voters);
    }

    /// These vote by a majority's disks. Whether somebody has led through the whole exchange.
    pub(crate) fn take_effect(&mut self, number: u64, now: u64, leader: Option<Token>) -> bool {
        if number <= self.effective {
            return false;
        }
        self.effective = number;
        self.changed_at.insert(number, now);
        self.latest().incoming().is_none() && leader.is_some() && leader == self.led
    }
}
