//! What a voter's process knows of who votes, beside its host.

use std::collections::BTreeSet;

use primacy_core::quorum::{Inquiry, VoterId, VoterSet};

use super::index_of;

/// What a voter's process knows where voters are exchanged, beside its [`VoterHost`](primacy_core::quorum::VoterHost).
#[derive(Debug)]
pub(crate) struct ConfigState {
    /// What is told to a client that connects.
    pub(crate) published: Option<VoterSet>,
    /// It was taken out, and says nothing more.
    pub(crate) is_out: bool,
    pub(crate) inquiry: Inquiry,
    /// It is known when it asks the next time.
    pub(crate) is_planned: bool,
}

pub(crate) fn number_of(configuration: Option<&VoterSet>) -> Option<u64> {
    configuration.map(VoterSet::number)
}

impl ConfigState {
    pub(crate) const fn new(published: Option<VoterSet>, inquiry: Inquiry) -> Self {
        Self { published, is_out: false, inquiry, is_planned: false }
    }

    /// What it tells of the voters to a client that connects.
    pub(crate) const fn published(&self) -> Option<&VoterSet> {
        self.published.as_ref()
    }
}

/// Who votes, for people.
pub(crate) fn places(voters: &VoterSet) -> String {
    let all = |voters: &BTreeSet<VoterId>| {
        let place = |voter: &VoterId| match voter.to_bits() >> 32 {
            0 => format!("v{}", index_of(*voter)),
            life => format!("v{}'{life}", index_of(*voter)),
        };
        voters.iter().map(place).collect::<Vec<_>>().join(" ")
    };
    let incoming = voters.incoming().map_or_else(String::new, |new| format!(" and {}", all(new)));
    format!("{} ({}{incoming})", voters.number(), all(voters.old()))
}
