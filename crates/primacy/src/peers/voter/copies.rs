//! Looks whether another process answers as this voter, and whether the others are who they were.

use std::sync::Arc;
use std::time::Duration;

use primacy_core::quorum::VoterId;
use tokio::sync::{oneshot, watch};
use tracing::{debug, error};

use super::process::ProcessIdentity;
use super::settings::{PeerError, PeerSettings};
use crate::clock;
use crate::peers::client::copies::CopyDetector;
use crate::peers::client::dial::{EstablishedConnection, Transport, dial};
use crate::peers::config::{Cluster, PeerAddress};

/// How often all voters are visited.
const EVERY: Duration = Duration::from_secs(30);

/// The second look at a process that answers in the place of this one: the first may have been at one that was just ending.
const AGAIN: Duration = Duration::from_millis(250);

/// Visits all voters at the addresses by which they are known, this one first, and `met` is told when that is done. A voter
/// that cannot be reached proves nothing.
///
/// # Errors
/// If another process answers as this voter at its address.
pub(super) async fn look_out(
    settings: PeerSettings,
    voter: VoterId,
    process: Arc<ProcessIdentity>,
    mut known: watch::Receiver<Option<Cluster>>,
    met: oneshot::Sender<()>,
) -> Result<(), PeerError> {
    let (seen, mut met) = (CopyDetector::default(), Some(met));
    let transport = Transport::Network(settings.tls.clone());
    loop {
        let cluster = known.borrow_and_update().clone();
        if let Some(cluster) = &cluster {
            for (_, own) in cluster.addresses().filter(|(other, _)| *other == voter) {
                if is_another(own, &transport, cluster, &settings, (voter, &process)).await {
                    let error = PeerError::Copied { voter, address: own.clone(), folder: settings.folder };
                    error!("{error}");
                    return Err(error);
                }
            }
        }
        if let Some(met) = met.take() {
            // The voter may have waited long enough.
            let _ = met.send(());
        }
        for (_, peer) in cluster.iter().flat_map(Cluster::addresses).filter(|(other, _)| *other != voter) {
            let began = clock::now();
            let id = cluster.as_ref().map(Cluster::id_bytes).unwrap_or_default();
            match dial(peer, &transport, id, &settings.name).await {
                // It says in the log what it finds.
                Ok(greeted) => drop(seen.note(greeted.process(), peer, began)),
                Err(error) => debug!(%peer, %error, "not visited"),
            }
        }
        tokio::select! {
            () = tokio::time::sleep(EVERY) => {}
            changed = known.changed() => if changed.is_err() {
                return Ok(());
            }
        }
    }
}

/// Whether another process answers there as this voter, twice.
async fn is_another(
    own: &PeerAddress,
    transport: &Transport,
    cluster: &Cluster,
    settings: &PeerSettings,
    (voter, process): (VoterId, &ProcessIdentity),
) -> bool {
    for turn in 0..2 {
        if turn > 0 {
            tokio::time::sleep(AGAIN).await;
        }
        let greeted = dial(own, transport, cluster.id_bytes(), &settings.name).await;
        let is_another = |greeted: EstablishedConnection| {
            greeted.voter == voter && !greeted.process.is_empty() && greeted.process != process.bytes()
        };
        if !greeted.is_ok_and(is_another) {
            return false;
        }
    }
    true
}
