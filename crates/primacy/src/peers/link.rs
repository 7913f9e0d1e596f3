//! The way to one voter: a connection that is made again when it breaks, and the questions that wait for answers.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use primacy_core::quorum::VoterId;
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinHandle, JoinSet};
use tracing::{debug, warn};

use super::address::PeerAddress;
use super::channel::{self, HANDSHAKE, Receiver, Sender};
use super::cluster::Cluster;
use super::roles::{self, Role};
use super::tls::Tls;
use super::twins::Sightings;
use super::wire::{self, Body, Hello, Malformed, VERSION, Welcome};
use crate::clock;

/// A connection whose other end has said who it is.
pub(super) struct Greeted {
    pub(super) voter: VoterId,
    /// Its cluster, once there is one.
    pub(super) cluster: Option<Cluster>,
    /// Whether it knows what an echo is.
    pub(super) echoes: bool,
    /// Its process, and how often its file has been written.
    pub(super) process: Vec<u8>,
    pub(super) generation: u64,
    /// Whether it can be told that it is behind, and asked for what it knows of later voters.
    pub(super) testifies: bool,
    /// What the one that connects may do there, if it says that.
    pub(super) role: Option<Role>,
    pub(super) sender: Sender,
    pub(super) receiver: Receiver,
}

/// How voters are reached.
#[derive(Clone, Debug)]
pub(super) enum Way {
    /// Over the network. Both sides prove who they are, or speak plain text.
    Network(Option<Arc<Tls>>),
    /// Through the peer on this machine that listens on this socket, and passes everything on.
    Socket(Arc<Path>),
}

/// Connects to a peer over the network, and makes sure that it is the one.
pub(super) async fn connect(peer: &PeerAddress, tls: Option<&Tls>) -> io::Result<Box<dyn channel::Wire>> {
    let stream = TcpStream::connect(peer.place()).await?;
    channel::prepare(&stream)?;
    Ok(match tls {
        Some(tls) => Box::new(tls.connect(peer.name(), stream).await.map_err(io::Error::other)?),
        None => Box::new(stream),
    })
}

/// Says who comes, and hears who is there.
pub(super) async fn greet(wire: Box<dyn channel::Wire>, hello: Hello) -> io::Result<(Welcome, Sender, Receiver)> {
    let (mut sender, mut receiver) = channel::channel(wire);
    sender.send(0, Body::Hello(hello)).await?;
    let welcome = match receiver.first().await? {
        Body::Welcome(welcome) => welcome,
        Body::Refused(refused) => return Err(io::Error::other(primacy_core::ids::escape(&refused.why))),
        _ => return Err(channel::invalid(Malformed("no welcome"))),
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
pub(super) struct Introduced {
    pub(super) name: String,
    pub(super) cluster: Option<Cluster>,
    /// Whether those who come over the network must prove who they are.
    pub(super) proves: bool,
}

/// Asks the peer behind a socket who it is, and who votes.
///
/// # Errors
/// If nobody answers there in time.
pub(super) async fn introduce(socket: &Path, name: &str) -> io::Result<Introduced> {
    let hello = Hello { version: VERSION, cluster: Vec::new(), name: name.to_owned(), to: String::new(), role: 0 };
    let greeting = async { greet(Box::new(UnixStream::connect(socket).await?), hello).await };
    let (welcome, ..) = in_time(greeting).await?;
    let cluster = welcome.cluster.map(Cluster::try_from).transpose().map_err(channel::invalid)?;
    Ok(Introduced { name: primacy_core::ids::escape(&welcome.name), cluster, proves: welcome.proves })
}

/// Connects to a peer and greets it. `cluster`: the one that is meant, or empty.
///
/// # Errors
/// If nobody answers there in time, or somebody else than was meant.
pub(super) async fn dial(peer: &PeerAddress, way: &Way, cluster: Vec<u8>, name: &str) -> io::Result<Greeted> {
    let greeting = async {
        let (wire, to) = match way {
            Way::Network(tls) => (connect(peer, tls.as_deref()).await?, String::new()),
            Way::Socket(path) => {
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
        let (testifies, role) = (welcome.testifies, roles::numbered(welcome.role));
        let Welcome { echoes, process, generation, .. } = welcome;
        Ok(Greeted { voter, cluster, echoes, process, generation, testifies, role, sender, receiver })
    };
    in_time(greeting).await
}

/// How a link stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// It is being made for the first time.
    Begun,
    /// It stands.
    Up { voter: VoterId, cluster: Option<Cluster>, echoes: bool, testifies: bool },
    /// It does not, and why.
    Down(String),
}

/// What comes back from a voter.
pub(super) enum Back {
    /// Its answer to the question with this tag.
    Answer(VoterId, u64, Box<Body>),
    /// No answer to that will come.
    Lost(VoterId, u64),
    /// Something may have changed in the election that is watched.
    Hint,
    /// These are the voters by now, it says.
    Moved(Cluster),
}

struct Asking {
    /// Behind the address may be another voter by now, which knows nothing of what the right one has promised.
    voter: VoterId,
    tag: u64,
    body: Body,
}

/// The way to one voter. It is cut when this is dropped.
pub(super) struct Link {
    pub(super) peer: PeerAddress,
    state: watch::Receiver<State>,
    questions: mpsc::UnboundedSender<Asking>,
    task: JoinHandle<()>,
}

impl Drop for Link {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Who asks, what it watches, and what came back.
#[derive(Clone)]
pub(super) struct Ends {
    /// For people.
    pub(super) name: String,
    pub(super) way: Way,
    /// The cluster that is meant, or empty while none is known.
    pub(super) cluster: Vec<u8>,
    /// The election whose hints are wanted.
    pub(super) watches: Option<String>,
    pub(super) back: mpsc::UnboundedSender<Back>,
    /// Which processes have answered as which voter.
    pub(super) seen: Arc<Sightings>,
}

impl Link {
    /// Begins to make the connection, and to make it again whenever it breaks.
    pub(super) fn open(peer: PeerAddress, ends: Ends) -> Self {
        let (post, state) = watch::channel(State::Begun);
        let (questions, inbox) = mpsc::unbounded_channel();
        let task = tokio::spawn(keep(peer.clone(), ends, inbox, post));
        Self { peer, state, questions, task }
    }

    /// Asks, if this voter is there. An answer, or word that there is none, comes back with this tag; `false` if neither will.
    pub(super) fn ask(&self, voter: VoterId, tag: u64, body: Body) -> bool {
        self.questions.send(Asking { voter, tag, body }).is_ok()
    }

    pub(super) fn state(&self) -> State {
        self.state.borrow().clone()
    }

    /// Waits until the connection has been made, or could not be.
    pub(super) async fn settled(&mut self) {
        // If its task is gone, so is the runtime.
        let _ = self.state.wait_for(|state| *state != State::Begun).await;
    }
}

/// The wait before a lost connection is made anew; doubled up to [`LATE`].
const SOON: Duration = Duration::from_millis(20);
const LATE: Duration = Duration::from_secs(1);

/// A question that has waited for so long will not be answered.
const SILENCE: Duration = Duration::from_secs(1);

async fn keep(peer: PeerAddress, ends: Ends, mut inbox: mpsc::UnboundedReceiver<Asking>, state: watch::Sender<State>) {
    let mut wait = SOON;
    let mut cluster_id = ends.cluster.clone();
    // What is asked before there could be an answer waits for the first connection.
    let mut greeted = dial_anew(&peer, &ends, cluster_id.clone()).await;
    loop {
        match greeted {
            Ok(Greeted { voter, cluster, echoes, testifies, sender, receiver, .. }) => {
                wait = SOON;
                if let Some(cluster) = &cluster {
                    cluster_id = cluster.id_bytes();
                }
                state.send_replace(State::Up { voter, cluster, echoes, testifies });
                let error = converse(&ends, voter, sender, receiver, &mut inbox).await;
                match error.kind() {
                    io::ErrorKind::InvalidData => warn!(%peer, %error, "the connection to a voter has ended"),
                    _ => debug!(%peer, %error, "the connection to a voter has ended"),
                }
                state.send_replace(State::Down(error.to_string()));
            }
            Err(error) => {
                if error.kind() == io::ErrorKind::InvalidData {
                    warn!(%peer, %error, "something else than a voter answers there");
                }
                state.send_replace(State::Down(error.to_string()));
            }
        }
        if deaf(tokio::time::sleep(wait), &ends, &mut inbox).await.is_none() {
            return;
        }
        wait = (wait * 2).min(LATE);
        let dialing = dial_anew(&peer, &ends, cluster_id.clone());
        let Some(again) = deaf(dialing, &ends, &mut inbox).await else { return };
        greeted = again;
    }
}

/// Connects, and looks whether the one there was another before.
async fn dial_anew(peer: &PeerAddress, ends: &Ends, cluster: Vec<u8>) -> io::Result<Greeted> {
    let began = clock::now();
    let greeted = dial(peer, &ends.way, cluster, &ends.name).await?;
    ends.seen.note(&greeted, peer, began).map_err(io::Error::other)?;
    Ok(greeted)
}

/// Does something during which nothing that is asked is answered. `None` when nobody asks any more.
async fn deaf<F: Future>(doing: F, ends: &Ends, inbox: &mut mpsc::UnboundedReceiver<Asking>) -> Option<F::Output> {
    tokio::pin!(doing);
    loop {
        tokio::select! {
            done = &mut doing => return Some(done),
            asking = inbox.recv() => {
                let Asking { voter, tag, .. } = asking?;
                // Whoever asked may be gone.
                drop(ends.back.send(Back::Lost(voter, tag)));
            }
        }
    }
}

/// Asks and hears until the connection ends. Then nothing is left that waits for an answer.
async fn converse(
    ends: &Ends,
    voter: VoterId,
    mut sender: Sender,
    receiver: Receiver,
    inbox: &mut mpsc::UnboundedReceiver<Asking>,
) -> io::Error {
    let mut asked: BTreeMap<u64, (u64, tokio::time::Instant)> = BTreeMap::new();
    let mut number = 0_u64;
    // Frames are read by a task of their own: half of one is not lost when something else comes first.
    let (heard, mut answers) = mpsc::channel(64);
    // It ends with this call however that ends: it holds half of the connection, which is open until both halves are gone.
    let mut reader = JoinSet::new();
    reader.spawn(read(receiver, heard));
    if let Some(election) = &ends.watches
        && let Err(error) = sender.send(0, Body::Watch(election.clone())).await
    {
        return error;
    }
    let back = |back| drop(ends.back.send(back));
    let error = loop {
        let silence = asked.first_key_value().map(|(_, (_, since))| *since + SILENCE);
        tokio::select! {
            asking = inbox.recv() => {
                let Some(Asking { voter: meant, tag, body }) = asking else {
                    break io::Error::other("nobody asks any more");
                };
                if meant != voter {
                    back(Back::Lost(meant, tag));
                    continue;
                }
                number += 1;
                #[expect(clippy::disallowed_methods, reason = "it is compared with timers of the same clock")]
                asked.insert(number, (tag, tokio::time::Instant::now()));
                if let Err(error) = sender.send(number, body).await {
                    break error;
                }
            }
            frame = answers.recv() => match frame {
                Some(Ok((0, Body::Hint(_)))) => back(Back::Hint),
                Some(Ok((0, Body::Moved(cluster)))) => match Cluster::try_from(cluster) {
                    Ok(cluster) => back(Back::Moved(cluster)),
                    Err(error) => break channel::invalid(error),
                },
                Some(Ok((number, body))) => {
                    if let Some((tag, _)) = asked.remove(&number) {
                        back(Back::Answer(voter, tag, Box::new(body)));
                    }
                }
                Some(Err(error)) => break error,
                None => break io::ErrorKind::UnexpectedEof.into(),
            },
            () = tokio::time::sleep_until(silence.unwrap_or_else(far)), if silence.is_some() => {
                break io::Error::new(io::ErrorKind::TimedOut, "it does not answer any more");
            }
        }
    };
    for (_, (tag, _)) in asked {
        back(Back::Lost(voter, tag));
    }
    error
}

#[expect(clippy::disallowed_methods, reason = "a timer that is not armed")]
fn far() -> tokio::time::Instant {
    tokio::time::Instant::now()
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
