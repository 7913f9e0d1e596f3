//! Opens a connection to a voter, and makes sure that it is the one.

use std::io;
use std::path::Path;
use std::sync::Arc;

use primacy_core::quorum::{Role, VoterId};
use tokio::net::{TcpStream, UnixStream};

use crate::peers::config::{Cluster, PeerAddress};
use crate::peers::tls::Tls;
use crate::peers::wire::channel::{self, HANDSHAKE, Receiver, Sender};
use crate::peers::wire::{self, Body, Hello, MalformedFrame, VERSION, Welcome};

/// A connection whose other end has said who it is.
pub(crate) struct EstablishedConnection {
    pub(crate) voter: VoterId,
    /// Its cluster, once there is one.
    pub(crate) cluster: Option<Cluster>,
    /// Whether it knows what an echo is.
    pub(crate) echoes: bool,
    /// Its process, and how often its file has been written.
    pub(crate) process: Vec<u8>,
    pub(crate) generation: u64,
    /// Whether it can be told that it is behind, and asked for what it knows of later voters.
    pub(crate) gives_evidence: bool,
    /// What the one that connects may do there, if it says that.
    pub(crate) role: Option<Role>,
    pub(crate) sender: Sender,
    pub(crate) receiver: Receiver,
}

impl EstablishedConnection {
    /// Which process of which voter it is, and how often its file has been written.
    pub(crate) fn process(&self) -> (VoterId, &[u8], u64) {
        (self.voter, &self.process, self.generation)
    }
}

/// How voters are reached.
#[derive(Clone, Debug)]
pub(crate) enum Transport {
    /// Over the network. Both sides prove who they are, or speak plain text.
    Network(Option<Arc<Tls>>),
    /// Through the peer on this machine that listens on this socket, and passes everything on.
    Socket(Arc<Path>),
}

/// Connects to a peer over the network, and makes sure that it is the one.
pub(crate) async fn connect(peer: &PeerAddress, tls: Option<&Tls>) -> io::Result<Box<dyn channel::Wire>> {
    let stream = TcpStream::connect(peer.place()).await?;
    channel::prepare(&stream)?;
    Ok(match tls {
        Some(tls) => Box::new(tls.connect(peer.name(), stream).await.map_err(io::Error::other)?),
        None => Box::new(stream),
    })
}

/// Says who comes, and hears who is there.
pub(crate) async fn greet(wire: Box<dyn channel::Wire>, hello: Hello) -> io::Result<(Welcome, Sender, Receiver)> {
    let (mut sender, mut receiver) = channel::channel(wire);
    sender.send(0, Body::Hello(hello)).await?;
    let welcome = match receiver.first().await? {
        Body::Welcome(welcome) => welcome,
        Body::Refused(refused) => return Err(io::Error::other(primacy_core::ids::escape(&refused.why))),
        _ => return Err(channel::invalid(MalformedFrame("no welcome"))),
    };
    if welcome.version != VERSION {
        let why = format!("it speaks version {} of the peers' protocol, not {VERSION}", welcome.version);
        return Err(io::Error::other(why));
    }
    Ok((welcome, sender, receiver))
}

/// Whether it is the peer that was meant.
pub(crate) fn check_name(welcome: &Welcome, peer: &PeerAddress) -> io::Result<()> {
    if welcome.name == peer.name() {
        return Ok(());
    }
    let other = primacy_core::ids::escape(&welcome.name);
    Err(io::Error::other(format!("it is called '{other}', not '{}'", peer.name())))
}

/// Unless it takes longer than a greeting may.
pub(crate) async fn in_time<T>(greeting: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    let in_time = tokio::time::timeout(HANDSHAKE, greeting).await;
    in_time.unwrap_or_else(|_| Err(io::Error::new(io::ErrorKind::TimedOut, "it does not answer")))
}

/// What a peer tells of itself over its socket.
pub(crate) struct PeerIntroduction {
    pub(crate) name: String,
    pub(crate) cluster: Option<Cluster>,
    /// Whether those who come over the network must prove who they are.
    pub(crate) proves: bool,
}

/// Asks the peer behind a socket who it is, and who votes.
///
/// # Errors
/// If nobody answers there in time.
pub(crate) async fn introduce(socket: &Path, name: &str) -> io::Result<PeerIntroduction> {
    let hello = Hello { version: VERSION, name: name.to_owned(), ..Hello::default() };
    let greeting = async { greet(Box::new(UnixStream::connect(socket).await?), hello).await };
    let (welcome, ..) = in_time(greeting).await?;
    let cluster = welcome.cluster.map(Cluster::try_from).transpose().map_err(channel::invalid)?;
    Ok(PeerIntroduction { name: primacy_core::ids::escape(&welcome.name), cluster, proves: welcome.proves })
}

/// Connects to a peer and greets it. `cluster`: the one that is meant, or empty.
///
/// # Errors
/// If nobody answers there in time, or somebody else than was meant.
pub(crate) async fn dial(
    peer: &PeerAddress,
    transport: &Transport,
    cluster: Vec<u8>,
    name: &str,
) -> io::Result<EstablishedConnection> {
    let greeting = async {
        let (wire, to) = match transport {
            Transport::Network(tls) => (connect(peer, tls.as_deref()).await?, String::new()),
            Transport::Socket(path) => {
                let stream = UnixStream::connect(path).await;
                let stream = stream.map_err(|error| {
                    io::Error::new(error.kind(), format!("the peer on the way cannot be reached: {error}"))
                })?;
                (Box::new(stream) as Box<dyn channel::Wire>, peer.to_string())
            }
        };
        let hello = Hello { version: VERSION, cluster, name: name.to_owned(), to, ..Hello::default() };
        let (welcome, sender, receiver) = greet(wire, hello).await?;
        check_name(&welcome, peer)?;
        let voter = wire::voter(&welcome.voter).map_err(channel::invalid)?;
        let cluster = welcome.cluster.map(Cluster::try_from).transpose().map_err(channel::invalid)?;
        let (gives_evidence, role) = (welcome.gives_evidence, wire::role(welcome.role));
        let Welcome { echoes, process, generation, .. } = welcome;
        Ok(EstablishedConnection {
            voter,
            cluster,
            echoes,
            process,
            generation,
            gives_evidence,
            role,
            sender,
            receiver,
        })
    };
    in_time(greeting).await
}
