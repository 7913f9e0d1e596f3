//! Which voters grant leases together.

use std::collections::{BTreeMap, BTreeSet};

use primacy_core::quorum::{Configuration, VoterId, VoterSet};

use super::address::PeerAddress;

/// Voters by name.
pub(crate) type Roster = BTreeMap<String, (VoterId, PeerAddress)>;

/// The voters of one cluster: brought together once, exchanged in steps, and known to each of them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Cluster {
    id: u128,
    /// Steps of changes so far.
    number: u64,
    voters: Roster,
    /// Those who vote after the change that is under way.
    incoming: Option<Roster>,
}

impl Cluster {
    /// A new one, of these voters. Their names and identities differ.
    pub(crate) fn of(voters: Roster) -> Self {
        Self { id: rand::random(), number: 0, voters, incoming: None }
    }

    /// One that is known already.
    pub(crate) const fn known(id: u128, number: u64, voters: Roster, incoming: Option<Roster>) -> Self {
        Self { id, number, voters, incoming }
    }

    /// The same while its voters are exchanged for these, of which there is one at least. It must not change already.
    pub(crate) fn joint(&self, incoming: Roster) -> Self {
        Self { number: self.number.saturating_add(1), incoming: Some(incoming), ..self.clone() }
    }

    /// Those who vote, or did before the change that is under way.
    pub(crate) const fn voters(&self) -> &Roster {
        &self.voters
    }

    /// Those who vote after the change that is under way.
    pub(crate) const fn incoming(&self) -> Option<&Roster> {
        self.incoming.as_ref()
    }

    /// In order.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.voters.keys().map(String::as_str)
    }

    pub(crate) const fn number(&self) -> u64 {
        self.number
    }

    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.id == other.id
    }

    /// Whether that voter is asked anything.
    pub(crate) fn has(&self, voter: VoterId) -> bool {
        self.address_of(voter).is_some()
    }

    /// Whether a voter of this name votes, or will after the change that is under way.
    pub(crate) fn names_voter(&self, name: &str) -> bool {
        self.voters.contains_key(name) || self.incoming.as_ref().is_some_and(|new| new.contains_key(name))
    }

    pub(crate) fn voter_named(&self, name: &str) -> Option<VoterId> {
        self.voters.get(name).map(|(voter, _)| *voter)
    }

    /// Where all who are asked are. One that has moved is where it will be.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = (VoterId, &PeerAddress)> {
        let new = self.incoming.iter().flat_map(BTreeMap::values);
        let old = self
            .voters
            .values()
            .filter(|(voter, _)| !self.incoming.iter().flat_map(BTreeMap::values).any(|(new, _)| new == voter));
        old.chain(new).map(|(voter, address)| (*voter, address))
    }

    pub(crate) fn address_of(&self, voter: VoterId) -> Option<&PeerAddress> {
        self.addresses().find(|(other, _)| *other == voter).map(|(_, address)| address)
    }

    /// What names it in a greeting.
    pub(crate) fn id_bytes(&self) -> Vec<u8> {
        self.id.to_be_bytes().to_vec()
    }
}

impl Configuration for Cluster {
    fn voter_set(&self) -> VoterSet {
        let ids = |roster: &Roster| roster.values().map(|(voter, _)| *voter).collect::<BTreeSet<_>>();
        let all = VoterSet::numbered(self.number, ids(&self.voters), self.incoming.as_ref().map(ids));
        all.expect("it has voters, before a change and after it")
    }

    fn settled(&self) -> Option<Self> {
        let voters = self.incoming.clone()?;
        Some(Self { id: self.id, number: self.number.saturating_add(1), voters, incoming: None })
    }

    fn leads_to(&self, next: &Self) -> bool {
        match self.settled() {
            Some(settled) => settled == *next,
            None => {
                let is_next = self.number.checked_add(1) == Some(next.number) && next.incoming.is_some();
                is_next && self.id == next.id && self.voters == next.voters
            }
        }
    }
}
