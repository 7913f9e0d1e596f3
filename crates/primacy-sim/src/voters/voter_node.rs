//! The node of one voter: its process, and what its disk has.

use std::collections::VecDeque;
use std::sync::LazyLock;

use primacy_core::quorum::{Durable, DurableState, Orders, Voter, VoterHost, VoterId, VoterSet, VoterState};
use primacy_core::{CandidateId, ElectionName, Instant};

use super::config_state::{ConfigState, number_of};
use super::wire::Frame;
use crate::clock::Clock;

/// The node of one voter.
#[derive(Debug)]
pub(crate) struct VoterNode {
    /// The error of its clock's rate.
    pub(crate) ppm: i32,
    /// Whose folder is there.
    pub(crate) id: VoterId,
    pub(crate) life: Option<Life>,
    /// What is on disk, whatever happens.
    pub(crate) synced: Disk,
    /// What a process that starts now would read.
    pub(crate) kept: Disk,
    /// Nothing of it runs.
    pub(crate) stopped_until: u64,
    /// Its machine was suspended, and its process has not gone on since.
    pub(crate) was_suspended: bool,
    /// Its machine has no power: not even its network answers.
    pub(crate) is_off: bool,
    pub(crate) dead_for_good: bool,
    pub(crate) disk_stands_until: u64,
    pub(crate) next_flush_fails: bool,
}

/// What a voter's file has.
pub(crate) type Disk = DurableState<VoterSet>;

/// What a file has of the one election of a world.
pub(crate) fn promise_on(disk: &Disk) -> &Durable {
    static NONE: LazyLock<Durable> = LazyLock::new(Durable::default);
    disk.elections.values().next().unwrap_or(&NONE)
}

/// One start of a voter.
#[derive(Debug)]
pub(crate) struct Life {
    pub(crate) number: u64,
    pub(crate) clock: Clock,
    pub(crate) election: ElectionName,
    pub(crate) host: VoterHost<VoterSet, (), (u64, Frame)>,
    /// Where voters are exchanged.
    pub(crate) config: Option<ConfigState>,
    pub(crate) inbox: VecDeque<(u64, Frame)>,
    /// What is being written.
    pub(crate) flush: Option<Disk>,
    /// For when it is to be told that a promise has ended.
    pub(crate) armed: Option<Instant>,
}

impl VoterNode {
    pub(crate) fn new(ppm: i32, id: VoterId) -> Self {
        Self {
            ppm,
            id,
            life: None,
            synced: Disk::default(),
            kept: Disk::default(),
            stopped_until: 0,
            was_suspended: false,
            is_off: false,
            dead_for_good: false,
            disk_stands_until: 0,
            next_flush_fails: false,
        }
    }

    /// All orders that it knows of, beside those that are known.
    pub(crate) fn tell_orders(&self, known: &mut Orders) {
        known.merge(&promise_on(&self.kept).orders);
        if let Some(voter) = self.life.as_ref().and_then(Life::voter) {
            known.merge(&voter.durable().orders);
        }
    }

    /// What has reached it and was not read is lost.
    pub(crate) fn forget_unread(&mut self) {
        if let Some(life) = &mut self.life {
            life.inbox.clear();
        }
    }

    /// Whether its process answers.
    pub(crate) fn runs(&self, now: u64) -> bool {
        self.life.is_some() && self.stopped_until <= now
    }

    /// Those who have said lately that they wait.
    pub(crate) fn waiting(&self, now: u64) -> Vec<CandidateId> {
        let Some(life) = &self.life else { return Vec::new() };
        let waiting = life.state().map(|state| state.waiting.list(None, life.clock.read(now)));
        waiting.into_iter().flatten().map(|entry| entry.id).collect()
    }
}

impl Life {
    /// What it knows of the election, if that is anything.
    pub(crate) fn state(&self) -> Option<&VoterState<()>> {
        self.host.elections().next().map(|(_, state)| state)
    }

    /// Its promise.
    pub(crate) fn voter(&self) -> Option<&Voter> {
        self.state().map(|state| &state.voter)
    }

    pub(crate) fn bound_until(&self, own: Instant) -> Option<Instant> {
        self.voter().and_then(|voter| voter.bound_until(own))
    }
}

impl VoterNode {
    /// The number of the voters that its disk has, whatever happens.
    pub(crate) fn number(&self) -> Option<u64> {
        number_of(self.synced.configuration.as_ref())
    }

    pub(crate) fn number_on_disk(&self) -> String {
        self.number().map_or_else(String::new, |number| format!(" by {number}"))
    }

    /// All voters that it may have heard of, or taken for the next.
    pub(crate) fn proposals(&self) -> impl Iterator<Item = &VoterSet> {
        let disks = [self.synced.taken.as_ref(), self.kept.taken.as_ref()].into_iter().flatten();
        let process = self.life.as_ref().and_then(|life| life.host.acceptor().next().1);
        disks.chain(process).map(|(_, taken)| taken)
    }
}

impl VoterNode {
    pub(crate) fn describe(&self, now: u64) -> String {
        let holder = |durable: &Durable| {
            let holder = durable.holder.as_ref().map_or("nobody", |holder| holder.label.as_str());
            format!("{} of {holder}{}", durable.term, if durable.released.is_some() { ", released" } else { "" })
        };
        let on_disk = holder(promise_on(&self.synced)) + &self.number_on_disk();
        match &self.life {
            None => format!("({on_disk} on its disk, is down)"),
            Some(life) => {
                let own = life.clock.read(now);
                let bound = life.bound_until(own).map_or(std::time::Duration::ZERO, |until| until.since(own));
                let held = life.voter().map_or_else(|| "nothing".to_owned(), |voter| holder(voter.durable()));
                format!("({on_disk} on its disk, {held}, bound for {bound:?})")
            }
        }
    }
}
