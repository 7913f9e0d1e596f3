//! How voters come to vote together: once, by the word of one of them.
//!
//! Majorities must be majorities of the same voters, or two of them could miss each other. So it is not enough that each peer
//! was told of the same addresses: behind an address there may be a new voter that knows nothing of what the old one promised.
//! The voters' identities are written down, once, by the peer whose name is the least, when it has heard from all of them. It
//! keeps that on its own disk before it tells anybody; whoever is told keeps it too, if it is one of them, and tells it to
//! others that ask. Had two peers the right to decide, two different decisions could be made.

use std::collections::BTreeSet;
use std::time::Duration;

use primacy_core::quorum::{Configuration as _, VoterId};
use tokio::sync::{mpsc, oneshot, watch};
use tracing::{debug, warn};

use super::super::address::PeerAddress;
use super::super::cluster::{Cluster, Roster};
use super::super::link::{Greeted, Way, dial};
use super::super::wire::Body;
use super::tally::Work;
use super::{PeerError, PeerSettings};

/// How often the others are asked.
const AGAIN: Duration = Duration::from_millis(200);

/// After so many times, people are told what is waited for, and then every so often.
const PATIENCE: u64 = 25;

/// After so many times, people are told of what may pass by itself, and then ever more rarely.
const SOON: u64 = 8;

const fn is_told(turn: u64) -> bool {
    turn >= SOON && turn.is_power_of_two()
}

/// Brings the voters together, or waits until another peer has; and one that comes back hears whether they have been exchanged
/// without it. Never ends.
pub(super) async fn bring_together(
    settings: PeerSettings,
    voter: VoterId,
    post: mpsc::Sender<Work>,
    known: watch::Receiver<Option<Cluster>>,
    stranger: watch::Sender<Option<String>>,
) -> Result<(), PeerError> {
    let others: Vec<&PeerAddress> = settings.voters.iter().filter(|peer| peer.name() != settings.name).collect();
    let decides = others.iter().all(|peer| settings.name.as_str() < peer.name());
    let (mut told, mut heard) = (BTreeSet::new(), BTreeSet::from([voter]));
    for turn in 1_u64.. {
        let cluster = known.borrow().clone();
        let news = match cluster {
            Some(cluster) if decides && cluster.number() == 0 && told.len() < others.len() => {
                tell(&cluster, &settings, &others, &mut told).await;
                None
            }
            Some(cluster) if !cluster.membership().is_quorum(|voter| heard.contains(&voter)) => {
                hear(&cluster, &settings, &mut heard, is_told(turn)).await
            }
            Some(_) => std::future::pending().await,
            None => ask(&settings, voter, &others, decides, turn, &stranger).await,
        };
        if let Some(cluster) = news {
            let (done, kept) = oneshot::channel();
            let _ = post.send(Work::Found { cluster, done }).await;
            // If it cannot be kept, the task that keeps it tells why.
            let _ = kept.await;
            continue;
        }
        tokio::time::sleep(AGAIN).await;
    }
    Ok(())
}

fn way(settings: &PeerSettings) -> Way {
    Way::Network(settings.tls.clone())
}

/// Later voters than these, if one of these knows of any.
async fn hear(
    cluster: &Cluster,
    settings: &PeerSettings,
    heard: &mut BTreeSet<VoterId>,
    complains: bool,
) -> Option<Cluster> {
    let mut missing = Vec::new();
    for (voter, peer) in cluster.addresses().filter(|(voter, _)| !heard.contains(voter)).collect::<Vec<_>>() {
        let greeted = dial(peer, &way(settings), cluster.id_bytes(), &settings.name).await;
        match greeted {
            Ok(Greeted { cluster: Some(told), .. }) if told.is_same(cluster) && told.number() > cluster.number() => {
                return Some(told);
            }
            Ok(Greeted { voter: there, .. }) if there == voter => {
                heard.insert(voter);
            }
            Ok(_) => missing.push(format!("{peer} (another voter answers there)")),
            Err(error) => missing.push(format!("{peer} ({error})")),
        }
    }
    if complains && !missing.is_empty() {
        let missing = missing.join(", ");
        warn!(%missing, "no majority of the voters has been heard yet: perhaps they were exchanged meanwhile");
    }
    None
}

/// The voters that this peer is to vote with, if that can be known now.
async fn ask(
    settings: &PeerSettings,
    voter: VoterId,
    others: &[&PeerAddress],
    decides: bool,
    turn: u64,
    stranger: &watch::Sender<Option<String>>,
) -> Option<Cluster> {
    let complains = turn.is_multiple_of(PATIENCE);
    let own = settings.voters.iter().find(|peer| peer.name() == settings.name).cloned();
    let mut voters: Roster = own.into_iter().map(|own| (settings.name.clone(), (voter, own))).collect();
    let mut missing = Vec::new();
    for peer in others {
        match dial(peer, &way(settings), Vec::new(), &settings.name).await {
            Ok(Greeted { cluster: Some(cluster), .. }) if cluster.has(voter) => return Some(cluster),
            Ok(Greeted { cluster: Some(cluster), .. }) => {
                outside(&cluster, settings, stranger, complains);
                return None;
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
        if is_told(turn) {
            let names = voters.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
            warn!(
                "two addresses lead to one voter, of {names}: one has a copy of another's folder; give it an empty folder of \
                 its own"
            );
        }
        return None;
    }
    (decides && missing.is_empty()).then(|| Cluster::of(voters))
}

/// Says that the others vote without this one, and how it is taken in.
fn outside(cluster: &Cluster, settings: &PeerSettings, stranger: &watch::Sender<Option<String>>, complains: bool) {
    let name = &settings.name;
    let own = settings.voters.iter().find(|peer| peer.name() == name).map(ToString::to_string).unwrap_or_default();
    let why = if cluster.voter_named(name).is_some() {
        format!(
            "the other peers vote with another '{name}' than the voter in {}, which is new. If the old folder was only moved, \
             put it back; if it was lost, take this voter in instead: primacy peer replace {name} {own}",
            settings.folder.display()
        )
    } else {
        let voters = cluster.names().collect::<Vec<_>>().join(", ");
        format!("{voters} vote together without '{name}': take it in with primacy peer add {own}")
    };
    let is_new = stranger.borrow().as_ref() != Some(&why);
    if is_new || complains {
        warn!("{why}");
    }
    if is_new {
        stranger.send_replace(Some(why));
    }
}

/// Tells those who have not been told yet.
async fn tell(cluster: &Cluster, settings: &PeerSettings, others: &[&PeerAddress], told: &mut BTreeSet<String>) {
    for peer in others {
        if told.contains(peer.name()) {
            continue;
        }
        match dial(peer, &way(settings), cluster.id_bytes(), &settings.name).await {
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
