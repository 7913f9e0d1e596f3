//! When a voter asks the others who votes by now: after its start, and when it is told that it has missed something.

#[cfg(test)]
mod tests;

use alloc::collections::{BTreeMap, BTreeSet};
use core::time::Duration;

use super::config_acceptor::ConfigEvidence;
use super::voter_set::{VoterId, VoterSet};
use crate::Instant;

/// When a voter asks the other voters that it knows what each of them has adopted after that ([`ConfigEvidence`]).
///
/// It asks until more than half of the voters, itself among them, know of no later ones. After that it asks only when it is
/// [told](Self::told) that there are later voters. An inquiry that proves nothing is followed by a pause. A false word costs the others a
/// round of questions, so each word that was in vain doubles the pause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inquiry {
    voter: VoterId,
    /// Those that know of no later voters.
    heard: BTreeSet<VoterId>,
    is_told: bool,
    /// Inquiries since the start.
    count: u32,
    pause: Duration,
    not_before: Instant,
}

impl Inquiry {
    /// The pause after an inquiry at first.
    pub const PAUSE_MIN: Duration = Duration::from_millis(200);

    /// The pause after an inquiry where [many](Self::SOON_MAX) have not reached a majority.
    pub const PAUSE_LATE: Duration = Duration::from_secs(1);

    /// The longest pause after an inquiry that somebody's word has caused.
    pub const PAUSE_MAX: Duration = Duration::from_secs(8);

    /// How many inquiries follow each other after the shortest pause.
    pub const SOON_MAX: u32 = 25;

    /// That of a voter which starts.
    pub fn new(voter: VoterId) -> Self {
        Self {
            voter,
            heard: [voter].into(),
            is_told: false,
            count: 0,
            pause: Self::PAUSE_MIN,
            not_before: Instant::ZERO,
        }
    }

    /// When it is to [begin](Self::begin). `None`: when it is [told](Self::told) something. `voters`: those that it knows.
    pub fn next(&self, voters: &VoterSet) -> Option<Instant> {
        (self.is_told || !self.has_heard(voters)).then_some(self.not_before)
    }

    /// Somebody says that there are later voters than it knows.
    pub const fn told(&mut self) {
        self.is_told = true;
    }

    /// Whether more than half of these know of no later voters.
    pub fn has_heard(&self, voters: &VoterSet) -> bool {
        voters.is_quorum(|voter| self.heard.contains(&voter))
    }

    /// All other voters are asked now.
    pub fn begin(&mut self, voters: &VoterSet) {
        self.is_told = false;
        self.count = self.count.saturating_add(1);
        if self.has_heard(voters) {
            self.pause = (self.pause * 2).min(Self::PAUSE_MAX);
        }
    }

    /// This was said by those who have answered. Whether it may prove later voters.
    pub fn heard<C>(&mut self, said: &BTreeMap<VoterId, ConfigEvidence<C>>) -> bool {
        let know_no_more = said.iter().filter(|(_, said)| said.adopted.is_empty());
        self.heard.extend(know_no_more.map(|(voter, _)| *voter));
        said.values().any(|said| !said.adopted.is_empty())
    }

    /// The inquiry is over. `has_gone_on`: later voters were proven by it, and adopted.
    pub fn over(&mut self, voters: &VoterSet, has_gone_on: bool, now: Instant) {
        if has_gone_on {
            // Those that were heard know of none after the ones before.
            self.heard = [self.voter].into();
            (self.pause, self.not_before) = (Self::PAUSE_MIN, now);
            return;
        }
        if !self.has_heard(voters) && self.count > Self::SOON_MAX {
            self.pause = Self::PAUSE_LATE;
        }
        self.not_before = now + self.pause;
    }
}
