//! How voters come to vote together: once, by the word of one of them.
//!
//! Majorities must be majorities of the same voters, or two of them could miss each other. So it is not enough that each peer
//! was told of the same addresses: behind an address there may be a new voter that knows nothing of what the old one promised.
//! The voters' identities are written down, once, by the peer whose name is the least, when it has heard from all of them. It
//! keeps that on its own disk before it tells anybody; a peer that is told keeps it too, if it is one of them, and
//! tells it to others that ask. Had two peers the right to decide, two different decisions could be made.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use primacy_core::quorum::{ConfigEvidence, Configuration as _, Inquiry, VoterId, VoterSet};
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tracing::{debug, warn};

use super::command::VoterCommand;
use super::settings::{PeerError, PeerSettings};
use crate::clock;
use crate::peers::client::dial::{EstablishedConnection, Transport, dial};
use crate::peers::config::{Cluster, PeerAddress, Roster};
use crate::peers::wire::channel::invalid;
use crate::peers::wire::{Body, MalformedFrame};

/// How often the others are asked while they have not met.
const AGAIN: Duration = Duration::from_millis(200);

/// How many times the others are asked until people are told what is waited for, and between that and the next time.
const PATIENCE: u64 = 25;

/// How many times the others are asked until people are told of what may pass by itself; then it is told ever more rarely.
const SOON: u64 = 8;

const fn is_told(turn: u64) -> bool {
    turn >= SOON && turn.is_power_of_two()
}

/// Brings the voters together, or waits until another peer has; and one that comes back hears whether they have been exchanged
/// without it. Never ends.
pub(super) async fn bring_together(
    settings: PeerSettings,
    voter: VoterId,
    post: mpsc::Sender<VoterCommand>,
    known: watch::Receiver<Option<Cluster>>,
    stranger: ExclusionNotice,
    behind: Arc<Notify>,
) -> Result<(), PeerError> {
    let others: Vec<&PeerAddress> = settings.voters.iter().filter(|peer| peer.name() != settings.name).collect();
    let decides = others.iter().all(|peer| settings.name.as_str() < peer.name());
    let mut told = BTreeSet::new();
    let mut inquiry = Inquiry::new(voter);
    for turn in 1_u64.. {
        let cluster = known.borrow().clone();
        match cluster {
            Some(cluster) if decides && cluster.number() == 0 && told.len() < others.len() => {
                tell(&cluster, &settings, &others, &mut told).await;
                tokio::time::sleep(AGAIN).await;
            }
            Some(cluster) => {
                wait(&mut inquiry, &cluster.voter_set(), &behind).await;
                let cluster = known.borrow().clone().unwrap_or(cluster);
                let (voters, number) = (cluster.voter_set(), cluster.number());
                let complains = !inquiry.has_heard(&voters) && is_told(turn);
                inquiry.begin(&voters);
                let said = inquire(&cluster, (&settings, voter), complains).await;
                let may_prove = inquiry.heard(&said);
                if may_prove {
                    bring(&post, |done| VoterCommand::Learn { said, done }).await;
                }
                let has_gone_on = known.borrow().as_ref().is_some_and(|known| known.number() > number);
                inquiry.over(&voters, has_gone_on, clock::now());
                if may_prove && !has_gone_on && is_told(turn) {
                    warn!(
                        "the voters were exchanged while this one was away, and no majority of those that it knows can prove it; if \
                         they are gone, an operator brings this one up to date: primacy peer confirm"
                    );
                }
            }
            None => {
                if let Some(cluster) = ask(&settings, voter, &others, decides, turn, &stranger).await {
                    bring(&post, |done| VoterCommand::Found { cluster, done }).await;
                }
                if known.borrow().is_none() {
                    tokio::time::sleep(AGAIN).await;
                }
            }
        }
    }
    Ok(())
}

/// Waits until the others are to be asked.
async fn wait(inquiry: &mut Inquiry, voters: &VoterSet, behind: &Notify) {
    loop {
        let (next, now) = (inquiry.next(voters), clock::now());
        if next.is_some_and(|at| at <= now) {
            return;
        }
        tokio::select! {
            () = behind.notified() => inquiry.told(),
            () = tokio::time::sleep(next.unwrap_or_default().since(now)), if next.is_some() => {}
        }
    }
}

/// Gives this to the task that keeps it, and waits until it is on disk. If it cannot be, that task tells why.
async fn bring(post: &mpsc::Sender<VoterCommand>, command: impl FnOnce(oneshot::Sender<()>) -> VoterCommand) {
    let (done, kept) = oneshot::channel();
    let _ = post.send(command(done)).await;
    let _ = kept.await;
}

/// Where it is told of that others vote without this peer.
pub(super) struct ExclusionNotice {
    /// For people.
    pub(super) why: watch::Sender<Option<String>>,
    /// Who they are.
    pub(super) seen: watch::Sender<Option<Cluster>>,
    /// The peer is a part of a program that has links of its own, and its own way to take it in, which that program tells.
    pub(super) is_hosted: bool,
}

fn transport(settings: &PeerSettings) -> Transport {
    Transport::Network(settings.tls.clone())
}

/// What the other voters of this configuration know of later ones, each by its own disk.
async fn inquire(
    cluster: &Cluster,
    (settings, own): (&PeerSettings, VoterId),
    complains: bool,
) -> BTreeMap<VoterId, ConfigEvidence<Cluster>> {
    let (mut missing, mut said) = (Vec::new(), BTreeMap::new());
    let others = cluster.addresses().filter(|(voter, _)| *voter != own);
    let asked =
        others.map(|(voter, peer)| async move { (voter, peer, evidence(cluster, settings, voter, peer).await) });
    for (voter, peer, answer) in join_all(asked).await {
        match answer {
            Ok(evidence) => drop(said.insert(voter, evidence)),
            Err(error) => missing.push(format!("{peer} ({error})")),
        }
    }
    if complains && !missing.is_empty() {
        let missing = missing.join(", ");
        warn!(
            %missing,
            "no majority of the voters has been heard yet: bring them back; if they were exchanged meanwhile and are gone, an \
             operator brings this one up to date: primacy peer confirm"
        );
    }
    said
}

/// What one voter says.
async fn evidence(
    cluster: &Cluster,
    settings: &PeerSettings,
    voter: VoterId,
    peer: &PeerAddress,
) -> io::Result<ConfigEvidence<Cluster>> {
    let greeted = dial(peer, &transport(settings), cluster.id_bytes(), &settings.name).await?;
    let EstablishedConnection { voter: there, cluster: told, gives_evidence, mut sender, mut receiver, .. } = greeted;
    if there != voter {
        return Err(io::Error::other("another voter answers there"));
    }
    let is_later = |told: &Cluster| told.is_same(cluster) && told.number() > cluster.number();
    if !gives_evidence || !told.as_ref().is_some_and(|told| is_later(told) || told.is_same(cluster)) {
        // One of an earlier release knows the last step only.
        return Ok(ConfigEvidence { adopted: told.into_iter().filter(is_later).collect(), taken: None });
    }
    sender.send(1, Body::Testify(cluster.number())).await?;
    match receiver.first().await? {
        Body::Testified(said) => said.checked(cluster).map_err(invalid),
        _ => Err(invalid(MalformedFrame("an answer to another question"))),
    }
}

/// The voters that this peer is to vote with, if that can be known now.
async fn ask(
    settings: &PeerSettings,
    voter: VoterId,
    others: &[&PeerAddress],
    decides: bool,
    turn: u64,
    stranger: &ExclusionNotice,
) -> Option<Cluster> {
    let complains = turn.is_multiple_of(PATIENCE);
    let own = settings.voters.iter().find(|peer| peer.name() == settings.name).cloned();
    let mut voters: Roster = own.into_iter().map(|own| (settings.name.clone(), (voter, own))).collect();
    let mut missing = Vec::new();
    for peer in others {
        match dial(peer, &transport(settings), Vec::new(), &settings.name).await {
            Ok(EstablishedConnection { cluster: Some(cluster), .. }) if cluster.has(voter) => return Some(cluster),
            Ok(EstablishedConnection { cluster: Some(cluster), .. }) => {
                outside(&cluster, settings, stranger, complains);
                stranger.seen.send_replace(Some(cluster));
                return None;
            }
            Ok(EstablishedConnection { voter, cluster: None, .. }) => {
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
fn outside(cluster: &Cluster, settings: &PeerSettings, stranger: &ExclusionNotice, complains: bool) {
    let (name, is_hosted, stranger) = (&settings.name, stranger.is_hosted, &stranger.why);
    let own = settings.voters.iter().find(|peer| peer.name() == name).map(ToString::to_string).unwrap_or_default();
    let why = if cluster.voter_named(name).is_some() {
        let how = if is_hosted { String::new() } else { format!(": primacy peer replace {name} {own}") };
        format!(
            "the other peers vote with another '{name}' than the voter in {}, which is new. If the old folder was only moved, \
             put it back; if it was lost, take this voter in instead{how}",
            settings.folder.display()
        )
    } else {
        let voters = cluster.names().collect::<Vec<_>>().join(", ");
        let how = if is_hosted { String::new() } else { format!(": take it in with primacy peer add {own}") };
        format!("{voters} vote together without '{name}'{how}")
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
        match dial(peer, &transport(settings), cluster.id_bytes(), &settings.name).await {
            Ok(EstablishedConnection { cluster: Some(_), .. }) => {
                told.insert(peer.name().to_owned());
            }
            Ok(EstablishedConnection { voter, mut sender, .. }) if cluster.voter_named(peer.name()) == Some(voter) => {
                if let Err(error) = sender.send(0, Body::Found(cluster.into())).await {
                    debug!(%peer, %error, "could not be told");
                }
            }
            Ok(EstablishedConnection { voter, .. }) => {
                warn!(%peer, %voter, "is another voter than the one that was there before, and cannot vote");
                told.insert(peer.name().to_owned());
            }
            Err(error) => debug!(%peer, %error, "could not be told"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use primacy_core::quorum::Configuration as _;
    use prost::Message as _;
    use tokio::net::{TcpListener, TcpStream};
    use tokio::task::JoinSet;

    use super::super::file::VoterFile;
    use super::super::file_data::VoterFileData;
    use super::super::peer::Peer;
    use super::*;
    use crate::peers::config::RoleNames;
    use crate::peers::wire;

    const PATIENCE: Duration = Duration::from_secs(20);

    fn settings(folder: &Path, name: &str, listen: std::net::SocketAddr, voters: &[PeerAddress]) -> PeerSettings {
        let folder = folder.join(name);
        let (voters, roles) = (voters.to_vec(), RoleNames::default());
        PeerSettings {
            name: name.to_owned(),
            listen,
            voters,
            folder,
            socket: None,
            drift_ppm: 20_000,
            roles,
            tls: None,
        }
    }

    fn keep(folder: &Path, voter: VoterId, cluster: &Cluster) {
        let mut data = VoterFileData::of(voter);
        data.cluster = Some(wire::Cluster::from(cluster).encode_to_vec());
        let (mut file, _) = VoterFile::open(folder, true).expect("it can be made");
        file.save(&data).expect("it can be written");
    }

    /// The others know only the last of many steps. What cannot be proven costs them a round of questions now and then.
    #[tokio::test]
    async fn a_voter_of_the_first_configuration_that_cannot_prove_the_next_asks_at_its_pace() {
        let folder = tempfile::tempdir().expect("a folder for the test");
        let held = ["a", "b", "c"].map(|_| std::net::TcpListener::bind("127.0.0.1:0").expect("a port"));
        let places = held.each_ref().map(|held| held.local_addr().expect("it is bound"));
        drop(held);
        // A relay between c and a, on which it is seen how often c asks.
        let relay = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let seen = relay.local_addr().expect("it is bound");
        let address = |name: &str, place| format!("{name}@{place}").parse::<PeerAddress>().expect("an address");
        let voters = [("a", places[0]), ("b", places[1]), ("c", places[2])].map(|(name, place)| address(name, place));
        let id = |n: u128| VoterId::from_bits(n + 1);
        let roster = |voters: &[PeerAddress]| -> Roster {
            let voters = voters.iter().zip(0..);
            voters.map(|(peer, n)| (peer.name().to_owned(), (id(n), peer.clone()))).collect()
        };
        let mut by_relay = voters.clone();
        by_relay[0] = address("a", seen);
        let first = Cluster::of(roster(&by_relay));
        let later = (0..3).fold(first.clone(), |now, _| now.joint(roster(&voters)).settled().expect("it is joint"));
        keep(&folder.path().join("a"), id(0), &later);
        keep(&folder.path().join("b"), id(1), &later);
        keep(&folder.path().join("c"), id(2), &first);
        let mut peers = Vec::new();
        for (name, listen) in ["a", "b", "c"].into_iter().zip(places) {
            peers.push(Peer::start(settings(folder.path(), name, listen, &voters)).await.expect("it starts"));
        }
        let passing = async {
            let mut begin = None;
            let mut passed = JoinSet::new();
            for _ in 0..12 {
                let (mut asks, _) = relay.accept().await.expect("c asks");
                begin.get_or_insert_with(clock::now);
                passed.spawn(async move {
                    let mut a = TcpStream::connect(places[0]).await.expect("a listens");
                    tokio::io::copy_bidirectional(&mut asks, &mut a).await
                });
            }
            clock::now().since(begin.expect("c has asked"))
        };
        let took = tokio::time::timeout(PATIENCE, passing).await.expect("it asks again");
        // It visits all voters once besides.
        assert!(took >= Inquiry::PAUSE_MIN * 8, "a dozen questions in {took:?}");
    }
}
