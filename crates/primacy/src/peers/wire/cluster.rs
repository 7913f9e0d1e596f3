//! A cluster on the wire, and back again, checked.

use std::collections::BTreeSet;

use primacy_core::quorum::VoterId;

use super::convert::{voter as voter_id, voter_bytes};
use super::messages::{self, MalformedFrame, Member};
use crate::peers::config::{Cluster, PeerAddress, Roster};

impl From<&Cluster> for messages::Cluster {
    fn from(cluster: &Cluster) -> Self {
        let members = |roster: &Roster| roster.iter().map(member).collect();
        Self {
            id: cluster.id_bytes(),
            voters: members(cluster.voters()),
            number: cluster.number(),
            incoming: cluster.incoming().map(members).unwrap_or_default(),
        }
    }
}

fn member((name, (voter, address)): (&String, &(VoterId, PeerAddress))) -> Member {
    Member { voter: voter_bytes(*voter), name: name.clone(), address: address.to_string() }
}

impl TryFrom<messages::Cluster> for Cluster {
    type Error = MalformedFrame;

    fn try_from(cluster: messages::Cluster) -> Result<Self, MalformedFrame> {
        let id = <[u8; 16]>::try_from(&*cluster.id).map_err(|_| MalformedFrame("a cluster without a name"))?;
        let incoming = (!cluster.incoming.is_empty()).then(|| roster(&cluster.incoming)).transpose()?;
        Ok(Self::known(u128::from_be_bytes(id), cluster.number, roster(&cluster.voters)?, incoming))
    }
}

fn roster(members: &[Member]) -> Result<Roster, MalformedFrame> {
    let mut voters = Roster::new();
    for Member { voter, name, address } in members {
        let address: PeerAddress = address.parse().map_err(|_| MalformedFrame("a voter's address"))?;
        if address.name() != name || voters.insert(name.clone(), (voter_id(voter)?, address)).is_some() {
            return Err(MalformedFrame("two voters of one name"));
        }
    }
    let identities: BTreeSet<VoterId> = voters.values().map(|(voter, _)| *voter).collect();
    if identities.is_empty() || identities.len() != voters.len() {
        return Err(MalformedFrame("no voters, or two that are one"));
    }
    Ok(voters)
}
