//! A peer: a process that has a vote in every election of its cluster.

mod found;
mod listener;
#[cfg(test)]
mod matrix;
mod refusals;
mod socket;
mod task;
mod twins;
mod watchers;

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use primacy_core::quorum::VoterId;
use tokio::net::TcpListener;
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tracing::{info, warn};

use super::address::PeerAddress;
use super::cluster::Cluster;
use super::file::{FileError, VoterFile};
use super::hosted_elections::HostedElections;
use super::roles::RoleNames;
use super::tls::Tls;
use super::twins::ProcessIdentity;
use crate::clock;
use crate::select::Score;

/// How a peer takes part.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PeerSettings {
    /// What it is called. One of `voters`.
    pub name: String,
    /// Where it listens. The port may be 0, for any.
    pub listen: SocketAddr,
    /// All that vote, itself too, as all of them are told.
    pub voters: Vec<PeerAddress>,
    /// The folder of its voter's file. No other process may use it, ever.
    pub folder: PathBuf,
    /// Where programs on this machine reach all voters without certificates: anyone who may use this socket may lead.
    /// Its user and group may, as far as its folder lets them to it.
    pub socket: Option<PathBuf>,
    /// By how much the rate of its clock may be wrong, in parts per million.
    pub drift_ppm: u32,
    /// Which certificates are those of operators and of observers.
    pub roles: RoleNames,
    /// How peers and candidates prove to each other who they are. Without, everybody who can connect is believed.
    pub tls: Option<Arc<Tls>>,
}

impl PeerSettings {
    /// A peer without a socket and without TLS, whose clock's rate is right within 2 %.
    pub fn new(name: String, listen: SocketAddr, voters: Vec<PeerAddress>, folder: PathBuf) -> Self {
        let roles = RoleNames::default();
        Self { name, listen, voters, folder, socket: None, drift_ppm: 20_000, roles, tls: None }
    }
}

/// Why a peer cannot vote.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PeerError {
    /// Its file cannot be used.
    #[error(transparent)]
    File(#[from] FileError),
    /// It does not stand among those that vote.
    #[error("'{name}' is not among the voters; name it as one of them, as {name}@HOST:PORT")]
    Stranger {
        /// What it is called.
        name: String,
    },
    /// Its certificate is for another: nobody would believe that it is the one.
    #[error("the certificate is for '{certified}', not for '{name}'; make one by 'primacy peer certs'")]
    Certificate {
        /// What it is called.
        name: String,
        /// Whom its certificate names first.
        certified: String,
    },
    /// It cannot listen.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// Where.
        address: SocketAddr,
        /// Why not.
        source: io::Error,
    },
    /// Its socket cannot be had.
    #[error("cannot listen on {}: {why}", path.display())]
    Socket {
        /// Where.
        path: PathBuf,
        /// Why not.
        why: String,
    },
    /// Its file is that of another of the voters.
    #[error("the voter in {} is not '{name}': give each peer the folder that it had before", folder.display())]
    Another {
        /// What it is called.
        name: String,
        /// Its folder.
        folder: PathBuf,
    },
    /// The voters have been exchanged, and it is none of them any more.
    #[error(
        "this voter ({voter}) was taken out by an exchange of voters: it votes no more, and its folder can be removed. To have \
         it vote again, start it with an empty folder, and take it in with 'primacy peer add'"
    )]
    Removed {
        /// Who it was.
        voter: VoterId,
    },
    /// Another process answers as this voter, at the address by which all know it.
    #[error(
        "another process answers as this voter ({voter}) at {address}: one of the two runs on a copy of the other's folder. Two \
         would vote twice, so this one ends. If the other is the copy, stop it, take the voter out and in again with an empty \
         folder (primacy peer replace); if this one is, remove {}",
        folder.display()
    )]
    Copied {
        /// Who it is.
        voter: VoterId,
        /// Where the other answers.
        address: PeerAddress,
        /// The folder of this one.
        folder: PathBuf,
    },
    /// Its file names other voters than it was told now.
    #[error("the voter in {} votes together with {kept}, not with {told}: name the same voters as before. They are exchanged by 'primacy peer add' and 'remove'", folder.display())]
    OtherVoters {
        /// Its folder.
        folder: PathBuf,
        /// As the file says.
        kept: String,
        /// As it was told.
        told: String,
    },
}

/// Tells a peer how many requests arrive at its place, for candidates that want to lead from near there.
#[derive(Clone, Debug)]
pub struct RequestRate(Arc<watch::Sender<Option<u64>>>);

impl RequestRate {
    /// So many from now on, in a unit of time that is the same for all peers; `None` while it is not known.
    pub fn tell(&self, requests: Option<Score>) {
        let thousandths = |requests: Score| u64::try_from(requests.thousandths()).unwrap_or(0);
        self.0.send_replace(requests.map(thousandths));
    }
}

/// A running peer. It stops when this is dropped.
#[derive(Debug)]
pub struct Peer {
    address: SocketAddr,
    voter: VoterId,
    cluster: watch::Receiver<Option<Cluster>>,
    stranger: watch::Receiver<Option<String>>,
    requests: RequestRate,
    _socket: Option<socket::SocketFile>,
    tasks: JoinSet<Result<(), PeerError>>,
}

impl Peer {
    /// Opens the voter's file, making a new voter if there is none, and listens.
    ///
    /// # Errors
    /// If the file cannot be used, the settings do not fit it, or the address cannot be had.
    pub async fn start(settings: PeerSettings) -> Result<Self, PeerError> {
        let PeerSettings { name, listen, voters, folder, socket, drift_ppm, roles, tls } = &settings;
        let Some(own) = voters.iter().find(|voter| voter.name() == name).cloned() else {
            return Err(PeerError::Stranger { name: name.clone() });
        };
        if let Some(certified) = tls.as_ref().map(|tls| tls.name()).filter(|certified| certified != name) {
            return Err(PeerError::Certificate { name: name.clone(), certified });
        }
        let (file, data) = VoterFile::open(folder, true)?;
        let voter = data.voter();
        let damaged = |error| FileError::Damaged { file: folder.join("voter"), why: format!("{error}") };
        let elections = HostedElections::restarted(data, folder, *drift_ppm, clock::now()).map_err(damaged)?;
        let cluster = elections.cluster().cloned();
        if let Some(cluster) = &cluster {
            check(cluster, &settings, voter)?;
        }
        let network = TcpListener::bind(listen).await;
        let network = network.map_err(|source| PeerError::Listen { address: *listen, source })?;
        let address = network.local_addr().map_err(|source| PeerError::Listen { address: *listen, source })?;
        let (socket, socket_file) = socket.as_deref().map(socket::bind).transpose()?.unzip();
        info!(%name, %voter, %address, "a voter listens");
        if voters.len() % 2 == 0 {
            warn!(voters = voters.len(), "an even number of voters survives no more losses than one less");
        }
        let (post, inbox) = mpsc::channel(1_024);
        let (known, cluster) = watch::channel(cluster);
        let (outside, stranger) = watch::channel(None);
        let mut names: Vec<String> = voters.iter().map(|peer| peer.name().to_owned()).collect();
        names.sort_unstable();
        let stays_here = voters.iter().all(PeerAddress::is_here);
        let (tls, post_box) = (tls.clone(), post.clone());
        let (process, (met, alone)) = (Arc::new(ProcessIdentity::new()), oneshot::channel());
        let (rate, requests) = watch::channel(None);
        let (introduced, seen) = watch::channel(None);
        let behind = Arc::new(Notify::new());
        let listener = listener::Listener {
            own,
            stays_here,
            voter,
            process: Arc::clone(&process),
            names,
            told: voters.clone(),
            roles: roles.clone(),
            tls,
            cluster: cluster.clone(),
            seen,
            post: post_box,
            refusals: Default::default(),
            requests,
        };
        let listener = Arc::new(listener);
        let mut tasks = JoinSet::new();
        let (meeting, bell) = ((Arc::clone(&process), alone), Arc::clone(&behind));
        tasks.spawn(task::keep(file, voter, elections, inbox, known, meeting, bell));
        tasks.spawn(listener::listen(network, socket, listener));
        tasks.spawn(twins::look_out(settings.clone(), voter, process, cluster.clone(), met));
        let outside = found::ExclusionNotice { why: outside, seen: introduced };
        tasks.spawn(found::bring_together(settings, voter, post, cluster.clone(), outside, behind));
        let requests = RequestRate(Arc::new(rate));
        Ok(Self { address, voter, cluster, stranger, requests, _socket: socket_file, tasks })
    }

    /// Where it listens.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Who it is.
    pub const fn voter(&self) -> VoterId {
        self.voter
    }

    /// By which it is told how many requests arrive at its place.
    pub fn requests(&self) -> RequestRate {
        self.requests.clone()
    }

    /// Waits until all voters know each other: from then on they grant leases. Never ends if the peer ends first, and
    /// [`run`](Self::run) tells why.
    pub fn founded(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut cluster = self.cluster.clone();
        async move {
            if cluster.wait_for(Option::is_some).await.is_err() {
                std::future::pending().await
            }
        }
    }

    /// Waits until it is known that the others vote without this one, which waits to be taken in, and tells what to do. Never
    /// ends if that does not happen.
    pub fn outside(&self) -> impl Future<Output = String> + Send + use<> {
        let mut stranger = self.stranger.clone();
        async move {
            while stranger.borrow_and_update().is_none() {
                if stranger.changed().await.is_err() {
                    return std::future::pending().await;
                }
            }
            stranger.borrow().clone().unwrap_or_default()
        }
    }

    /// Votes until it cannot any more.
    ///
    /// # Errors
    /// Always: why it cannot. Nothing is promised that is not on disk.
    pub async fn run(mut self) -> PeerError {
        loop {
            match self.tasks.join_next().await {
                Some(Ok(Err(error))) => return error,
                Some(Ok(Ok(()))) => {}
                Some(Err(error)) => std::panic::resume_unwind(error.into_panic()),
                None => unreachable!("one of its tasks never ends"),
            }
        }
    }
}

/// Whether this voter is one of these, and they are those of the settings, if they were never exchanged: later those that vote
/// are known to them alone.
fn check(cluster: &Cluster, settings: &PeerSettings, voter: VoterId) -> Result<(), PeerError> {
    let PeerSettings { name, voters, folder, .. } = settings;
    let Some(own) = cluster.address_of(voter) else { return Err(PeerError::Removed { voter }) };
    if own.name() != name {
        return Err(PeerError::Another { name: name.clone(), folder: folder.clone() });
    }
    let kept: Vec<&str> = cluster.names().collect();
    let mut told: Vec<&str> = voters.iter().map(PeerAddress::name).collect();
    told.sort_unstable();
    if kept != told {
        let (kept, told) = (kept.join(", "), told.join(", "));
        if cluster.number() == 0 {
            return Err(PeerError::OtherVoters { folder: folder.clone(), kept, told });
        }
        info!(%kept, %told, "the voters have been exchanged since they were named: those that are kept vote");
    }
    Ok(())
}
