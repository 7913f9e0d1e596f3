//! How voters come to vote together: once, by the word of one of them.
//!
//! Majorities must be majorities of the same voters, or two of them could miss each other. So it is not enough that each peer
//! was told of the same addresses: behind an address there may be a new voter that knows nothing of what the old one promised.
//! The voters' identities are written down, once, by the peer whose name is the least, when it has heard from all of them. It
//! keeps that on its own disk before it tells anybody; whoever is told keeps it too, if it is one of them, and tells it to
//! others that ask. Had two peers the right to decide, two different decisions could be made.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use primacy_core::quorum::VoterId;
use tokio::sync::{mpsc, oneshot, watch};
use tracing::{debug, warn};

use super::super::address::PeerAddress;
use super::super::cluster::Cluster;
use super::super::link::{Greeted, dial};
use super::super::wire::Body;
use super::tally::Work;
use super::{PeerError, PeerSettings, check};

/// How often the others are asked.
const AGAIN: Duration = Duration::from_millis(200);

/// After so many times, people are told what is waited for, and then every so often.
const PATIENCE: u64 = 25;

/// Brings the voters together, or waits until another peer has. Never ends but with an error.
pub(super) async fn bring_together(
    settings: PeerSettings,
    voter: VoterId,
    post: mpsc::Sender<Work>,
    known: watch::Receiver<Option<Cluster>>,
) -> Result<(), PeerError> {
    let others: Vec<&PeerAddress> = settings.voters.iter().filter(|peer| peer.name() != settings.name).collect();
    let decides = others.iter().all(|peer| settings.name.as_str() < peer.name());
    let mut told = BTreeSet::new();
    for turn in 1_u64.. {
        let cluster = known.borrow().clone();
        match cluster {
            Some(_) if !decides || told.len() == others.len() => std::future::pending().await,
            Some(cluster) => tell(&cluster, &settings, &others, &mut told).await,
            None => {
                if let Some(cluster) = ask(&settings, voter, &others, decides, turn.is_multiple_of(PATIENCE)).await? {
                    let (done, kept) = oneshot::channel();
                    let _ = post.send(Work::Found { cluster, done }).await;
                    // If it cannot be kept, the task that keeps it tells why.
                    let _ = kept.await;
                    continue;
                }
            }
        }
        tokio::time::sleep(AGAIN).await;
    }
    Ok(())
}

/// The voters that this peer is to vote with, if that can be known now.
async fn ask(
    settings: &PeerSettings,
    voter: VoterId,
    others: &[&PeerAddress],
    decides: bool,
    complains: bool,
) -> Result<Option<Cluster>, PeerError> {
    let own = settings.voters.iter().find(|peer| peer.name() == settings.name).cloned();
    let mut voters: BTreeMap<String, (VoterId, PeerAddress)> =
        own.map(|own| (settings.name.clone(), (voter, own))).into_iter().collect();
    let mut missing = Vec::new();
    for peer in others {
        match dial(peer, settings.tls.as_deref(), Vec::new(), &settings.name).await {
            Ok(Greeted { cluster: Some(cluster), .. }) => {
                check(&cluster, settings, voter)?;
                return Ok(Some(cluster));
            }
            Ok(Greeted { voter, cluster: None, .. }) => {
                voters.insert(peer.name().to_owned(), (voter, (*peer).clone()));
            }
            Err(error) => missing.push(format!("{peer} ({error})")),
        }
    }
    if complains && !missing.is_empty() {
        warn!(missing = %missing.join(", "), "no lease can be granted before all voters have met once");
    } else if complains && !decides {
        warn!("all voters are there; the one whose name is the least has not brought them together yet");
    }
    let distinct: BTreeSet<VoterId> = voters.values().map(|(voter, _)| *voter).collect();
    if distinct.len() < voters.len() {
        warn!("two addresses lead to one voter: each peer needs an address and a folder of its own");
        return Ok(None);
    }
    Ok((decides && missing.is_empty()).then(|| Cluster::of(voters)))
}

/// Tells those who have not been told yet.
async fn tell(cluster: &Cluster, settings: &PeerSettings, others: &[&PeerAddress], told: &mut BTreeSet<String>) {
    for peer in others {
        if told.contains(peer.name()) {
            continue;
        }
        match dial(peer, settings.tls.as_deref(), cluster.id_bytes(), &settings.name).await {
            Ok(Greeted { cluster: Some(_), .. }) => {
                told.insert(peer.name().to_owned());
            }
            Ok(Greeted { voter, mut sender, .. }) if cluster.voter_named(peer.name()) == Some(voter) => {
                if let Err(error) = sender.send(0, Body::Found(cluster.into())).await {
                    debug!(%peer, %error, "could not be told");
                }
            }
            Ok(Greeted { voter, .. }) => {
                warn!(%peer, %voter, "is another voter than the one that was there before, and cannot vote");
                told.insert(peer.name().to_owned());
            }
            Err(error) => debug!(%peer, %error, "could not be told"),
        }
    }
}
