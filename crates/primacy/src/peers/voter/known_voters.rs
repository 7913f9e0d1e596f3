//! Who votes, as far as a peer knows: from those that it was told of to those that are on its disk.

use tokio::sync::watch;

use crate::peers::config::Cluster;

/// The voters that a peer knows, at any time.
#[derive(Clone, Debug)]
pub(super) struct KnownVoters {
    /// All of them, as this peer was told, in order.
    pub(super) names: Vec<String>,
    /// Those that vote with it, once they have met.
    pub(super) cluster: watch::Receiver<Option<Cluster>>,
    /// Those that vote without it, as one of those says that it was told of.
    pub(super) seen: watch::Receiver<Option<Cluster>>,
}

impl KnownVoters {
    /// Whether one of them is called so. Asked anew each time, since voters come and go.
    pub(super) fn is_voter(&self, name: &str) -> bool {
        let (own, seen) = (self.cluster.borrow(), self.seen.borrow());
        let is_told = own.is_none() && self.names.iter().any(|told| told == name);
        is_told || own.as_ref().or(seen.as_ref()).is_some_and(|voters| voters.names_voter(name))
    }

    /// The random bits of its cluster, or none before its voters have met.
    pub(super) fn cluster_id(&self) -> Vec<u8> {
        self.cluster.borrow().as_ref().map(Cluster::id_bytes).unwrap_or_default()
    }

    /// Whether its voters have met, and are another cluster than this one, if that is known.
    pub(super) fn is_other(&self, cluster: &[u8]) -> bool {
        let own = self.cluster_id();
        !own.is_empty() && !cluster.is_empty() && own != cluster
    }

    /// Waits until one with this name, of this cluster if that is known, is a fellow voter no more, and tells why.
    pub(super) async fn parted(mut self, name: String, cluster: Vec<u8>) -> String {
        loop {
            if self.is_other(&cluster) {
                return format!("'{name}' belongs to another cluster");
            }
            if !self.is_voter(&name) {
                return format!("'{name}' is not among the voters any more");
            }
            let changed = tokio::select! {
                changed = self.cluster.changed() => changed,
                changed = self.seen.changed() => changed,
            };
            if changed.is_err() {
                return std::future::pending().await; // the peer has ended, and the program decides what becomes of its links
            }
        }
    }
}
