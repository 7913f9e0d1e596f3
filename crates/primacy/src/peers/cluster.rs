//! Which voters grant leases together.

use std::collections::BTreeMap;

use primacy_core::quorum::{Membership, VoterId};

use super::address::PeerAddress;
use super::wire::{self, Malformed, Member};

/// The voters of one cluster: brought together once, and known to each of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cluster {
    id: u128,
    /// By name.
    voters: BTreeMap<String, (VoterId, PeerAddress)>,
}

impl Cluster {
    /// A new one, of these voters. Their names and identities differ.
    pub(super) fn of(voters: BTreeMap<String, (VoterId, PeerAddress)>) -> Self {
        Self { id: rand::random(), voters }
    }

    /// In order.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.voters.keys().map(String::as_str)
    }

    pub(super) fn voter_named(&self, name: &str) -> Option<VoterId> {
        self.voters.get(name).map(|(voter, _)| *voter)
    }

    pub(super) fn addresses(&self) -> impl Iterator<Item = (VoterId, &PeerAddress)> {
        self.voters.values().map(|(voter, address)| (*voter, address))
    }

    /// What names it in a greeting.
    pub(super) fn id_bytes(&self) -> Vec<u8> {
        self.id.to_be_bytes().to_vec()
    }

    pub(super) fn membership(&self) -> Membership {
        Membership::new(self.voters.values().map(|(voter, _)| *voter).collect()).expect("it has voters")
    }
}

impl From<&Cluster> for wire::Cluster {
    fn from(cluster: &Cluster) -> Self {
        let member = |(name, (voter, address)): (&String, &(VoterId, PeerAddress))| Member {
            voter: wire::voter_bytes(*voter),
            name: name.clone(),
            address: address.to_string(),
        };
        Self { id: cluster.id_bytes(), voters: cluster.voters.iter().map(member).collect() }
    }
}

impl TryFrom<wire::Cluster> for Cluster {
    type Error = Malformed;

    fn try_from(cluster: wire::Cluster) -> Result<Self, Malformed> {
        let id = <[u8; 16]>::try_from(&*cluster.id).map_err(|_| Malformed("a cluster without a name"))?;
        let mut voters = BTreeMap::new();
        for Member { voter, name, address } in &cluster.voters {
            let address: PeerAddress = address.parse().map_err(|_| Malformed("a voter's address"))?;
            if address.name() != name || voters.insert(name.clone(), (wire::voter(voter)?, address)).is_some() {
                return Err(Malformed("two voters of one name"));
            }
        }
        let mut identities: Vec<VoterId> = voters.values().map(|(voter, _)| *voter).collect();
        identities.sort_unstable();
        identities.dedup();
        if identities.is_empty() || identities.len() != voters.len() {
            return Err(Malformed("no voters, or two that are one"));
        }
        Ok(Self { id: u128::from_be_bytes(id), voters })
    }
}
