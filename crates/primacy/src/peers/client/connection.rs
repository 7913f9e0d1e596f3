//! The connection to one voter: the sockets and the timer of a [`VoterConnection`].

use std::path::Path;
use std::sync::Arc;
use std::{io, mem};

use primacy_core::quorum::{ConnectionEffect, Role, VoterConnection, VoterId};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinHandle, JoinSet};
use tracing::{debug, warn};

use super::copies::CopyDetector;
use crate::peers::config::{Cluster, PeerAddress};
use crate::peers::tls::Tls;
use crate::peers::wire::channel::{self, HANDSHAKE, Receiver, Sender};
use crate::peers::wire::{self, Body, Hello, MalformedFrame, VERSION, Welcome};
use crate::store::BoxFuture;
use crate::{Instant, clock};

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

async fn in_time<T>(greeting: impl Future<Output = io::Result<T>>) -> io::Result<T> {
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
    let hello = Hello { version: VERSION, cluster: Vec::new(), name: name.to_owned(), to: String::new(), role: 0 };
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
        let hello = Hello { version: VERSION, cluster, name: name.to_owned(), to, role: 0 };
        let (welcome, sender, receiver) = greet(wire, hello).await?;
        if welcome.name != peer.name() {
            let other = primacy_core::ids::escape(&welcome.name);
            return Err(io::Error::other(format!("it is called '{other}', not '{}'", peer.name())));
        }
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

/// The state of the connection to one voter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ConnectionState {
    /// It is being made for the first time.
    Begun,
    /// It is open.
    Up { voter: VoterId, cluster: Option<Cluster>, echoes: bool, gives_evidence: bool },
    /// It does not, and why.
    Down(String),
}

/// What a connection tells the one that asks.
pub(crate) enum VoterEvent {
    /// Its answer to the question with this tag.
    Answer(VoterId, u64, Box<Body>),
    /// No answer to that will come.
    Lost(VoterId, u64),
    /// Something may have changed in the election that is watched.
    Hint,
    /// These are the voters by now, it says.
    Moved(Cluster),
}

/// A request to a voter, not sent yet.
struct OutgoingRequest {
    /// Behind the address may be another voter by now, which knows nothing of what the right one has promised.
    voter: VoterId,
    tag: u64,
    body: Body,
}

/// A handle of the task that keeps the connection to one voter. The connection is closed when the handle is dropped.
pub(crate) struct ConnectionHandle {
    pub(crate) peer: PeerAddress,
    state: watch::Receiver<ConnectionState>,
    questions: mpsc::UnboundedSender<OutgoingRequest>,
    task: JoinHandle<()>,
}

impl Drop for ConnectionHandle {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// What a connection is made with: who asks and what it watches; and where its events go.
#[derive(Clone)]
pub(crate) struct ConnectionSettings {
    /// For people.
    pub(crate) name: String,
    pub(crate) transport: Transport,
    /// The cluster that is meant, or empty while none is known.
    pub(crate) cluster: Vec<u8>,
    /// The election whose hints are wanted.
    pub(crate) watches: Option<String>,
    pub(crate) events: mpsc::UnboundedSender<VoterEvent>,
    /// Which processes have answered as which voter.
    pub(crate) seen: Arc<CopyDetector>,
}

impl ConnectionHandle {
    /// Begins to make the connection, and to make it again whenever it breaks.
    pub(crate) fn open(peer: PeerAddress, settings: ConnectionSettings) -> Self {
        let (post, state) = watch::channel(ConnectionState::Begun);
        let (questions, inbox) = mpsc::unbounded_channel();
        let task = tokio::spawn(keep(peer.clone(), settings, inbox, post));
        Self { peer, state, questions, task }
    }

    /// Asks, if this voter is there. An answer, or word that there is none, comes back with this tag; `false` if neither will.
    pub(crate) fn ask(&self, voter: VoterId, tag: u64, body: Body) -> bool {
        self.questions.send(OutgoingRequest { voter, tag, body }).is_ok()
    }

    pub(crate) fn state(&self) -> ConnectionState {
        self.state.borrow().clone()
    }

    /// Waits until the connection has been made, or could not be.
    pub(crate) async fn settled(&mut self) {
        // If its task is gone, so is the runtime.
        let _ = self.state.wait_for(|state| *state != ConnectionState::Begun).await;
    }
}

/// An open connection.
struct OpenConnection {
    sender: Sender,
    /// Frames are read by a task of their own: half of one is not lost when something else comes first.
    answers: mpsc::Receiver<io::Result<(u64, Body)>>,
    /// Ends with this: it holds half of the connection, which is open until both halves are gone.
    _reader: JoinSet<()>,
}

impl OpenConnection {
    fn new(sender: Sender, receiver: Receiver) -> Self {
        let (heard, answers) = mpsc::channel(64);
        let mut reader = JoinSet::new();
        reader.spawn(read(receiver, heard));
        Self { sender, answers, _reader: reader }
    }

    /// Sends, unless the other side has read nothing for so long that an answer would be too late.
    async fn send(&mut self, number: u64, body: Body) -> io::Result<()> {
        match tokio::time::timeout(Connection::SILENCE, self.sender.send(number, body)).await {
            Ok(sent) => sent,
            Err(_) => Err(silent()),
        }
    }

    async fn next(this: Option<&mut Self>) -> io::Result<(u64, Body)> {
        match this {
            Some(open_connection) => {
                open_connection.answers.recv().await.unwrap_or_else(|| Err(io::ErrorKind::UnexpectedEof.into()))
            }
            None => std::future::pending().await,
        }
    }
}

fn silent() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "it does not answer any more")
}

type Connection = VoterConnection<u64, Body>;

/// Carries out what a [`VoterConnection`] wants done until nobody asks any more.
async fn keep(
    peer: PeerAddress,
    settings: ConnectionSettings,
    mut inbox: mpsc::UnboundedReceiver<OutgoingRequest>,
    state: watch::Sender<ConnectionState>,
) {
    #[expect(clippy::disallowed_methods, reason = "it is compared with timers of the same clock")]
    let began = tokio::time::Instant::now();
    let now = || Instant::ZERO + began.elapsed();
    let mut out = Vec::new();
    let mut connection = Connection::open(&mut out);
    let mut cluster_id = settings.cluster.clone();
    let mut open_connection: Option<OpenConnection> = None;
    let mut dialing: Option<BoxFuture<'_, io::Result<EstablishedConnection>>> = None;
    // What there is to do comes first, and why the connection has ended, if it has.
    loop {
        let mut ended = None;
        for effect in mem::take(&mut out) {
            match effect {
                ConnectionEffect::Connect => dialing = Some(Box::pin(dial_anew(&peer, &settings, cluster_id.clone()))),
                ConnectionEffect::Send { number, question } => {
                    // With the connection, all that was asked over it is lost.
                    let Some(open) = open_connection.as_mut().filter(|_| ended.is_none()) else { continue };
                    ended = open.send(number, question).await.err();
                }
                ConnectionEffect::Close => {
                    open_connection = None;
                    state.send_if_modified(|state| {
                        let is_up = matches!(state, ConnectionState::Up { .. });
                        if is_up {
                            *state = ConnectionState::Down(silent().to_string());
                        }
                        is_up
                    });
                }
                ConnectionEffect::Lost { voter, tag } => drop(settings.events.send(VoterEvent::Lost(voter, tag))),
            }
        }
        if ended.is_none() {
            let tick = connection.next_tick();
            tokio::select! {
                request = inbox.recv() => {
                    let Some(OutgoingRequest { voter, tag, body }) = request else { return };
                    connection.ask(voter, tag, body, now(), &mut out);
                }
                greeted = dialed(dialing.as_mut()) => {
                    dialing = None;
                    match greeted {
                        Ok(EstablishedConnection { voter, cluster, echoes, gives_evidence, sender, receiver, .. }) => {
                            if let Some(cluster) = &cluster {
                                cluster_id = cluster.id_bytes();
                            }
                            let mut open = OpenConnection::new(sender, receiver);
                            ended = match &settings.watches {
                                Some(election) => open.send(0, Body::Watch(election.clone())).await.err(),
                                None => None,
                            };
                            open_connection = Some(open);
                            state.send_replace(ConnectionState::Up { voter, cluster, echoes, gives_evidence });
                            connection.connected(voter, now(), &mut out);
                        }
                        Err(error) => {
                            if error.kind() == io::ErrorKind::InvalidData {
                                warn!(%peer, %error, "something else than a voter answers there");
                            }
                            state.send_replace(ConnectionState::Down(error.to_string()));
                            connection.failed(now(), &mut out);
                        }
                    }
                }
                frame = OpenConnection::next(open_connection.as_mut()) => {
                    ended = frame.and_then(|(number, body)| take(number, body, &mut connection, &settings)).err();
                }
                () = tokio::time::sleep(tick.unwrap_or_default().since(now())), if tick.is_some() => {
                    connection.tick(now(), &mut out);
                }
            }
        }
        if let Some(error) = ended {
            match error.kind() {
                io::ErrorKind::InvalidData => warn!(%peer, %error, "the connection to a voter has ended"),
                _ => debug!(%peer, %error, "the connection to a voter has ended"),
            }
            open_connection = None;
            state.send_replace(ConnectionState::Down(error.to_string()));
            connection.failed(now(), &mut out);
        }
    }
}

/// What a voter has sent.
fn take(number: u64, body: Body, connection: &mut Connection, settings: &ConnectionSettings) -> io::Result<()> {
    let events = match (number, body) {
        (0, Body::Hint(_)) => VoterEvent::Hint,
        (0, Body::Moved(cluster)) => VoterEvent::Moved(Cluster::try_from(cluster).map_err(channel::invalid)?),
        (number, body) => match connection.answered(number) {
            Some((voter, tag)) => VoterEvent::Answer(voter, tag, Box::new(body)),
            None => return Ok(()),
        },
    };
    // The asker may be gone.
    drop(settings.events.send(events));
    Ok(())
}

async fn dialed(
    dialing: Option<&mut BoxFuture<'_, io::Result<EstablishedConnection>>>,
) -> io::Result<EstablishedConnection> {
    match dialing {
        Some(dialing) => dialing.await,
        None => std::future::pending().await,
    }
}

/// Connects, and looks whether the one there was another before.
async fn dial_anew(
    peer: &PeerAddress,
    settings: &ConnectionSettings,
    cluster: Vec<u8>,
) -> io::Result<EstablishedConnection> {
    let began = clock::now();
    let greeted = dial(peer, &settings.transport, cluster, &settings.name).await?;
    settings.seen.note(greeted.process(), peer, began).map_err(io::Error::other)?;
    Ok(greeted)
}

async fn read(mut receiver: Receiver, heard: mpsc::Sender<io::Result<(u64, Body)>>) {
    loop {
        let next = receiver.next().await.transpose();
        let Some(frame) = next else { return };
        let is_over = frame.is_err();
        if heard.send(frame).await.is_err() || is_over {
            return;
        }
    }
}

#[cfg(test)]
mod tests;
