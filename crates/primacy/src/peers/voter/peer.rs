//! A peer: a process that has a vote in every election of its cluster.

use std::net::SocketAddr;
use std::sync::Arc;

use primacy_core::quorum::VoterId;
use tokio::net::TcpListener;
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tracing::{info, warn};

use super::file::{FileError, VoterFile};
use super::hosted_elections::HostedElections;
use super::known_voters::KnownVoters;
use super::link::LinkQueue;
use super::links::{LinkDialer, Links};
use super::process::ProcessIdentity;
use super::settings::{PeerError, PeerSettings};
use super::{copies, founding, listener, socket, task};
use crate::clock;
use crate::peers::config::{Cluster, PeerAddress};
use crate::peers::local_socket::SocketFile;
use crate::select::Score;

/// Tells a peer how many requests arrive at its place, for candidates that want to lead from near there.
#[derive(Clone, Debug)]
pub struct RequestRate(Arc<watch::Sender<Option<u64>>>);

impl RequestRate {
    /// This many from now on, in a unit of time that is the same for all peers; `None` while it is not known.
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
    _socket: Option<SocketFile>,
    tasks: JoinSet<Result<(), PeerError>>,
}

impl Peer {
    /// Opens the voter's file, making a new voter if there is none, and listens.
    ///
    /// # Errors
    /// If the file cannot be used, the settings do not fit it, or the address cannot be had.
    pub async fn start(settings: PeerSettings) -> Result<Self, PeerError> {
        Self::launch(settings, None).await.map(|(peer, _)| peer)
    }

    /// The same, and takes and opens connections of a program's own protocol between peers. They come over the voters' port,
    /// from voters only, and may be opened before the voters have met.
    ///
    /// # Errors
    /// As for [`start`](Self::start).
    pub async fn start_with_links(settings: PeerSettings) -> Result<(Self, Links), PeerError> {
        let queue = Arc::<LinkQueue>::default();
        let (peer, dialer) = Self::launch(settings, Some(Arc::clone(&queue))).await?;
        Ok((peer, Links::new(queue, dialer)))
    }

    pub(super) async fn launch(
        settings: PeerSettings,
        links: Option<Arc<LinkQueue>>,
    ) -> Result<(Self, LinkDialer), PeerError> {
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
        let (adopted, cluster) = watch::channel(cluster);
        let (outside, stranger) = watch::channel(None);
        let mut names: Vec<String> = voters.iter().map(|peer| peer.name().to_owned()).collect();
        names.sort_unstable();
        let stays_here = voters.iter().all(PeerAddress::is_here);
        let (tls, post_box) = (tls.clone(), post.clone());
        let (process, (met, alone)) = (Arc::new(ProcessIdentity::new()), oneshot::channel());
        let (rate, requests) = watch::channel(None);
        let (introduced, seen) = watch::channel(None);
        let behind = Arc::new(Notify::new());
        let known = KnownVoters { names, cluster: cluster.clone(), seen };
        let dialer = LinkDialer { name: name.clone(), voter, tls: tls.clone(), stays_here, known: known.clone() };
        let is_hosted = links.is_some();
        let listener = listener::Listener {
            own,
            stays_here,
            voter,
            process: Arc::clone(&process),
            told: voters.clone(),
            roles: roles.clone(),
            tls,
            known,
            links,
            post: post_box,
            refusals: Default::default(),
            requests,
        };
        let listener = Arc::new(listener);
        let mut tasks = JoinSet::new();
        let (meeting, bell) = ((Arc::clone(&process), alone), Arc::clone(&behind));
        tasks.spawn(task::keep(file, voter, elections, inbox, adopted, meeting, bell));
        tasks.spawn(listener::listen(network, socket, listener));
        tasks.spawn(copies::look_out(settings.clone(), voter, process, cluster.clone(), met));
        let outside = founding::ExclusionNotice { why: outside, seen: introduced, is_hosted };
        tasks.spawn(founding::bring_together(settings, voter, post, cluster.clone(), outside, behind));
        let requests = RequestRate(Arc::new(rate));
        Ok((Self { address, voter, cluster, stranger, requests, _socket: socket_file, tasks }, dialer))
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
