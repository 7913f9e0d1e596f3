//! Where the voters of a cluster are, how they are reached, and who they are by the word of several peers.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use super::connection::{Asker, ConnectionHandle, ConnectionSettings, SharedConnections};
use super::copies::CopyDetector;
use super::dial::{PeerIntroduction, Transport, introduce};
use crate::peers::config::{Cluster, PeerAddress};
use crate::store::StoreError;

/// Where the voters are, and how they are reached.
#[derive(Clone, Debug)]
pub(super) struct VoterEndpoints {
    /// Those that were named. Through a socket nobody need be.
    pub(super) peers: Vec<PeerAddress>,
    pub(super) transport: Transport,
    /// The latest voters that anybody here has heard of: they may all be others by now than those that were named.
    known: Arc<Mutex<Option<Cluster>>>,
    /// Which processes have answered as which voter, to anybody here.
    pub(super) seen: Arc<CopyDetector>,
    /// The connections, if all who ask share them.
    shared: Option<SharedConnections>,
}

impl VoterEndpoints {
    pub(super) fn new(peers: Vec<PeerAddress>, transport: Transport) -> Self {
        Self { peers, transport, known: Arc::default(), seen: Arc::default(), shared: None }
    }

    /// The same voters, for those who share connections to them.
    pub(super) fn sharing(&self) -> Self {
        Self { shared: Some(SharedConnections::default()), ..self.clone() }
    }

    /// The connection to the voter there.
    pub(super) fn connection(
        &self,
        peer: PeerAddress,
        settings: &ConnectionSettings,
        asker: &Asker,
    ) -> ConnectionHandle {
        let (settings, asker) = (settings.clone(), asker.clone());
        match &self.shared {
            Some(shared) => shared.join(peer, settings, asker),
            None => ConnectionHandle::open(peer, settings, asker),
        }
    }

    pub(super) fn known(&self) -> Option<Cluster> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The voters that are known, if they are later ones than these.
    pub(super) fn later_than(&self, cluster: &Cluster) -> Option<Cluster> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.as_ref().filter(|known| known.number() > cluster.number()).cloned()
    }

    /// Where to look for these voters. One that was named is where it was named: the voters may reach each other at other addresses.
    /// Only if voters were exchanged, it may be another by now.
    pub(super) fn addresses_of(&self, cluster: &Cluster) -> BTreeSet<PeerAddress> {
        let named = |name: &str| self.peers.iter().find(|peer| peer.name() == name);
        let mut addresses = BTreeSet::new();
        for (_, peer) in cluster.addresses() {
            let named = named(peer.name());
            addresses.extend(named.cloned());
            if named.is_none() || cluster.number() > 0 {
                addresses.insert(peer.clone());
            }
        }
        addresses
    }

    /// Asks the peer behind the socket who votes, if voters are reached through one. Returns whether voters prove to each other who
    /// they are.
    pub(super) async fn ask(&self, name: &str) -> Result<bool, StoreError> {
        let path = match &self.transport {
            Transport::Network(tls) => return Ok(tls.is_some()),
            Transport::Socket(path) => path,
        };
        let at = path.display();
        let introduced = introduce(path, name).await;
        let PeerIntroduction { name, cluster, proves } =
            introduced.map_err(|error| StoreError::Unreachable(format!("the peer behind {at}: {error}")))?;
        let Some(told) = cluster else {
            let why = format!("'{name}', the peer behind {at}, does not vote yet: it waits for the other voters");
            return Err(StoreError::Unreachable(why));
        };
        if let Some(cluster) = cluster_of(self.known(), &[Some(told)], 1, false)? {
            self.note(&cluster);
        }
        Ok(proves)
    }

    pub(super) fn note(&self, cluster: &Cluster) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.as_ref().is_none_or(|known| known.number() < cluster.number()) {
            *known = Some(cluster.clone());
        }
    }
}

/// The latest voters that are told of, of which the first `named` are told by peers that were named. A peer of another cluster that has come among
/// them is passed over: what counts is what is known already, or else what more than half of those that were named tell. Fewer
/// are enough if all others are silent, which is known when nobody `may_tell` any more: voters may have been exchanged.
pub(super) fn cluster_of(
    known: Option<Cluster>,
    told: &[Option<Cluster>],
    named: usize,
    may_tell: bool,
) -> Result<Option<Cluster>, StoreError> {
    let all: Vec<&Cluster> = told.iter().flatten().collect();
    let by_named = || told.iter().take(named).flatten();
    let tell = |one: &Cluster| by_named().filter(|other| other.is_same(one)).count();
    let own = match (&known, all.first()) {
        (None, None) => return Ok(None),
        (Some(known), Some(_)) if !all.iter().any(|other| other.is_same(known)) => {
            let why = "other voters than before answer there: this candidate has to start anew";
            return Err(StoreError::Unusable(why.to_owned()));
        }
        (Some(known), _) => known,
        (None, Some(first)) if all.iter().all(|other| other.is_same(first)) => {
            if may_tell && tell(first) * 2 <= named {
                return Ok(None);
            }
            first
        }
        (None, Some(_)) => by_named().find(|one| tell(one) * 2 > named).ok_or_else(|| {
            let why = "the peers that were named belong to different clusters: name those of one";
            StoreError::Unusable(why.to_owned())
        })?,
    };
    let same = known.iter().chain(all).filter(|cluster| cluster.is_same(own));
    Ok(same.max_by_key(|cluster| cluster.number()).cloned())
}

#[cfg(test)]
mod tests {
    use primacy_core::quorum::{Configuration as _, VoterId};

    use super::*;
    use crate::peers::config::Roster;

    fn cluster(first: u128) -> Cluster {
        let voter = |(name, n): (&str, u128)| {
            let place = format!("{name}@h{n}:1").parse().expect("an address");
            (name.to_owned(), (VoterId::from_bits(first + n), place))
        };
        Cluster::of([("a", 1), ("b", 2), ("c", 3)].into_iter().map(voter).collect::<Roster>())
    }

    #[test]
    fn a_peer_of_another_cluster_is_passed_over_and_a_majority_of_others_is_refused() {
        let (own, other) = (cluster(10), cluster(20));
        let later = own.joint(cluster(10).voters().clone()).settled().expect("it is joint");
        let (is_own, is_other, silent) = (|| Some(own.clone()), || Some(other.clone()), || None);
        let chosen = |known: Option<Cluster>, told: &[Option<Cluster>]| cluster_of(known, told, 3, false).ok();
        let while_others_may = |told: &[Option<Cluster>]| cluster_of(None, told, 3, true).ok();
        assert_eq!(while_others_may(&[is_other(), silent(), silent()]), Some(None), "one does not speak for all");
        assert_eq!(while_others_may(&[is_own(), silent(), is_own()]), Some(is_own()));
        assert_eq!(chosen(None, &[silent(), silent(), silent()]), Some(None));
        assert_eq!(chosen(None, &[silent(), is_own(), silent()]), Some(is_own()));
        assert_eq!(chosen(None, &[is_other(), is_own(), is_own()]), Some(is_own()));
        assert_eq!(chosen(None, &[is_own(), is_other(), Some(later.clone())]), Some(Some(later.clone())));
        // One against one is no majority, and nobody counts that was not named.
        assert_eq!(chosen(None, &[is_own(), is_other(), silent()]), None);
        assert_eq!(chosen(None, &[is_own(), silent(), is_other(), is_own(), is_own()]), None);
        // What is known is never left for another.
        assert_eq!(chosen(is_own(), &[is_other(), is_other(), is_own()]), Some(is_own()));
        assert_eq!(chosen(Some(later.clone()), &[silent(), is_own(), silent()]), Some(Some(later)));
        assert_eq!(chosen(is_own(), &[is_other(), silent(), silent()]), None);
    }
}
