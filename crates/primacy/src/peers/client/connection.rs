//! The connection to one voter: the sockets and the timer of a [`VoterConnection`], for all who ask over it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::{io, mem};

use primacy_core::quorum::{ConnectionEffect, VoterConnection, VoterId};
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinHandle, JoinSet};
use tracing::{debug, warn};

use super::copies::CopyDetector;
use super::dial::{EstablishedConnection, Transport, dial};
use crate::peers::config::{Cluster, PeerAddress};
use crate::peers::wire::Body;
use crate::peers::wire::channel::{self, Receiver, Sender};
use crate::store::BoxFuture;
use crate::{Instant, clock};

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

/// What a connection tells one that asks over it.
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

/// What a connection is made with.
#[derive(Clone)]
pub(crate) struct ConnectionSettings {
    /// For people.
    pub(crate) name: String,
    pub(crate) transport: Transport,
    /// The cluster that is meant, or empty while none is known.
    pub(crate) cluster: Vec<u8>,
    /// Which processes have answered as which voter.
    pub(crate) seen: Arc<CopyDetector>,
}

/// One that asks over a connection: the election whose hints it wants, and where it is told what concerns it.
#[derive(Clone)]
pub(crate) struct Asker {
    pub(crate) watches: Option<String>,
    pub(crate) events: mpsc::UnboundedSender<VoterEvent>,
}

/// Tells those who ask over one connection apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct AskerId(u64);

/// What the task of a connection is told.
#[expect(clippy::large_enum_variant, reason = "nearly all are requests")]
enum ConnectionCommand {
    /// This one asks from now on.
    Join(AskerId, Asker),
    /// A request to a voter. Behind the address may be another by now, which knows nothing of what the right one has promised.
    Ask { asker: AskerId, voter: VoterId, tag: u64, body: Body },
    /// It asks no more.
    Leave(AskerId),
}

/// How many commands are taken before their requests leave together.
const BATCH: usize = 256;

/// One asker's handle of the connection to one voter. The connection is closed when the last is dropped.
pub(crate) struct ConnectionHandle {
    pub(crate) peer: PeerAddress,
    id: AskerId,
    connection: Arc<SharedConnection>,
}

impl Drop for ConnectionHandle {
    fn drop(&mut self) {
        self.connection.tell(ConnectionCommand::Leave(self.id));
    }
}

/// The task that keeps a connection.
#[derive(Debug)]
struct SharedConnection {
    state: Arc<watch::Sender<ConnectionState>>,
    commands: mpsc::UnboundedSender<ConnectionCommand>,
    task: JoinHandle<()>,
}

impl SharedConnection {
    /// Begins to make the connection, and to make it again whenever it breaks.
    fn open(peer: PeerAddress, settings: ConnectionSettings) -> Self {
        let state = Arc::new(watch::Sender::new(ConnectionState::Begun));
        let (commands, inbox) = mpsc::unbounded_channel();
        let task = tokio::spawn(ConnectionTask::new(peer, settings, Arc::clone(&state)).run(inbox));
        Self { state, commands, task }
    }

    /// `false` if the task has gone, and the runtime with it.
    fn tell(&self, command: ConnectionCommand) -> bool {
        self.commands.send(command).is_ok()
    }
}

impl Drop for SharedConnection {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Connections that many askers share, by the addresses of voters. All of them are used in one runtime.
#[derive(Clone, Debug, Default)]
pub(crate) struct SharedConnections(Arc<Mutex<BTreeMap<PeerAddress, Weak<SharedConnection>>>>);

impl SharedConnections {
    /// The connection there, made now if nobody asks over it yet.
    pub(crate) fn join(&self, peer: PeerAddress, settings: ConnectionSettings, asker: Asker) -> ConnectionHandle {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let standing = all.get(&peer).and_then(Weak::upgrade).filter(|connection| !connection.commands.is_closed());
        let connection = standing.unwrap_or_else(|| {
            all.retain(|_, connection| connection.strong_count() > 0);
            let opened = Arc::new(SharedConnection::open(peer.clone(), settings));
            all.insert(peer.clone(), Arc::downgrade(&opened));
            opened
        });
        drop(all);
        ConnectionHandle::join(peer, connection, asker)
    }
}

impl ConnectionHandle {
    /// A connection of the asker's own.
    pub(crate) fn open(peer: PeerAddress, settings: ConnectionSettings, asker: Asker) -> Self {
        let connection = Arc::new(SharedConnection::open(peer.clone(), settings));
        Self::join(peer, connection, asker)
    }

    fn join(peer: PeerAddress, connection: Arc<SharedConnection>, asker: Asker) -> Self {
        static LAST: AtomicU64 = AtomicU64::new(0);
        let id = AskerId(LAST.fetch_add(1, Ordering::Relaxed));
        // It waits for the next attempt, as for a first one.
        connection.state.send_if_modified(|state| {
            let is_down = matches!(state, ConnectionState::Down(_));
            if is_down {
                *state = ConnectionState::Begun;
            }
            is_down
        });
        connection.tell(ConnectionCommand::Join(id, asker));
        Self { peer, id, connection }
    }

    /// Asks, if this voter is there. An answer, or word that there is none, comes back with this tag; `false` if neither will.
    pub(crate) fn ask(&self, voter: VoterId, tag: u64, body: Body) -> bool {
        self.connection.tell(ConnectionCommand::Ask { asker: self.id, voter, tag, body })
    }

    pub(crate) fn state(&self) -> ConnectionState {
        self.with_state(Clone::clone)
    }

    /// Something about the state, which is not copied.
    pub(crate) fn with_state<T>(&self, about: impl FnOnce(&ConnectionState) -> T) -> T {
        about(&self.connection.state.borrow())
    }

    /// Waits until the connection has been made, or could not be.
    pub(crate) async fn settled(&self) {
        // If its task is gone, so is the runtime.
        let mut state = self.connection.state.subscribe();
        let _ = state.wait_for(|state| *state != ConnectionState::Begun).await;
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

    /// Sends these together, unless the other side has read nothing for so long that an answer would be too late.
    async fn send(&mut self, frames: Vec<(u64, Body)>) -> io::Result<()> {
        let sending = async {
            for (number, body) in frames {
                self.sender.feed(number, body).await?;
            }
            self.sender.flush().await
        };
        match tokio::time::timeout(Connection::SILENCE, sending).await {
            Ok(sent) => sent,
            Err(_) => Err(silent()),
        }
    }

    /// What has come and was not taken yet.
    fn next_ready(&mut self) -> Option<io::Result<(u64, Body)>> {
        self.answers.try_recv().ok()
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

type Connection = VoterConnection<(AskerId, u64), Body>;

/// Carries out what a [`VoterConnection`] wants done.
struct ConnectionTask {
    peer: PeerAddress,
    settings: ConnectionSettings,
    state: Arc<watch::Sender<ConnectionState>>,
    askers: BTreeMap<AskerId, Asker>,
    /// The same by what they watch.
    watchers: BTreeMap<String, BTreeSet<AskerId>>,
    connection: Connection,
    /// What the connection wants done.
    out: Vec<ConnectionEffect<(AskerId, u64), Body>>,
    /// The elections whose hints are still to be asked for.
    unwatched: BTreeSet<String>,
    open: Option<OpenConnection>,
}

impl ConnectionTask {
    fn new(peer: PeerAddress, settings: ConnectionSettings, state: Arc<watch::Sender<ConnectionState>>) -> Self {
        let mut out = Vec::new();
        let connection = Connection::open(&mut out);
        let (askers, watchers, unwatched) = (BTreeMap::new(), BTreeMap::new(), BTreeSet::new());
        Self { peer, settings, state, askers, watchers, connection, out, unwatched, open: None }
    }

    /// Until nobody asks any more.
    async fn run(mut self, mut inbox: mpsc::UnboundedReceiver<ConnectionCommand>) {
        #[expect(clippy::disallowed_methods, reason = "it is compared with timers of the same clock")]
        let began = tokio::time::Instant::now();
        let now = || Instant::ZERO + began.elapsed();
        let mut dialing: Option<BoxFuture<'static, io::Result<EstablishedConnection>>> = None;
        let mut commands = Vec::with_capacity(BATCH);
        loop {
            // What there is to do comes first, and why the connection has ended, if it has.
            let mut ended = self.carry_out(&mut dialing).await.err();
            if ended.is_none() {
                let tick = self.connection.next_tick();
                tokio::select! {
                    frame = OpenConnection::next(self.open.as_mut()) => {
                        ended = frame.and_then(|(number, body)| self.take(number, body, now())).err();
                    }
                    greeted = dialed(dialing.as_mut()) => {
                        dialing = None;
                        match greeted {
                            Ok(established) => self.connected(established, now()),
                            Err(error) => {
                                if error.kind() == io::ErrorKind::InvalidData {
                                    warn!(peer = %self.peer, %error, "something else than a voter answers there");
                                }
                                self.state.send_replace(ConnectionState::Down(error.to_string()));
                                self.connection.failed(now(), &mut self.out);
                            }
                        }
                    }
                    // Those who ask at the same time are heard together, and so their requests leave together.
                    count = inbox.recv_many(&mut commands, BATCH) => {
                        if count == 0 {
                            return;
                        }
                        commands.drain(..).for_each(|command| self.obey(command, now()));
                    }
                    () = tokio::time::sleep(tick.unwrap_or_default().since(now())), if tick.is_some() => {
                        // This process may have been stopped meanwhile: what has come is not late.
                        while ended.is_none()
                            && let Some(frame) = self.open.as_mut().and_then(OpenConnection::next_ready)
                        {
                            ended = frame.and_then(|(number, body)| self.take(number, body, now())).err();
                        }
                        self.connection.tick(now(), &mut self.out);
                    }
                }
            }
            if let Some(error) = ended {
                match error.kind() {
                    io::ErrorKind::InvalidData => {
                        warn!(peer = %self.peer, %error, "the connection to a voter has ended")
                    }
                    _ => debug!(peer = %self.peer, %error, "the connection to a voter has ended"),
                }
                self.open = None;
                self.state.send_replace(ConnectionState::Down(error.to_string()));
                self.connection.failed(now(), &mut self.out);
            }
        }
    }

    async fn carry_out(
        &mut self,
        dialing: &mut Option<BoxFuture<'static, io::Result<EstablishedConnection>>>,
    ) -> io::Result<()> {
        let mut frames = Vec::new();
        for effect in mem::take(&mut self.out) {
            match effect {
                ConnectionEffect::Connect => {
                    *dialing = Some(Box::pin(dial_anew(self.peer.clone(), self.settings.clone())));
                }
                ConnectionEffect::Send { number, question } => frames.push((number, question)),
                ConnectionEffect::Close => {
                    self.open = None;
                    self.state.send_if_modified(|state| {
                        let is_up = matches!(state, ConnectionState::Up { .. });
                        if is_up {
                            *state = ConnectionState::Down(silent().to_string());
                        }
                        is_up
                    });
                }
                ConnectionEffect::Lost { voter, tag: (asker, tag) } => self.tell(asker, VoterEvent::Lost(voter, tag)),
            }
        }
        // With the connection, all that was asked over it is lost.
        let Some(open) = &mut self.open else { return Ok(()) };
        frames.extend(mem::take(&mut self.unwatched).into_iter().map(|election| (0, Body::Watch(election))));
        if frames.is_empty() { Ok(()) } else { open.send(frames).await }
    }

    fn obey(&mut self, command: ConnectionCommand, now: Instant) {
        match command {
            ConnectionCommand::Join(id, asker) => {
                if let Some(election) = asker.watches.clone() {
                    self.watchers.entry(election.clone()).or_default().insert(id);
                    // Asked for once more it is answered by a hint, with which listening begins.
                    self.unwatched.insert(election);
                }
                self.askers.insert(id, asker);
            }
            ConnectionCommand::Ask { asker, voter, tag, body } => {
                self.connection.ask(voter, (asker, tag), body, now, &mut self.out);
            }
            ConnectionCommand::Leave(id) => {
                let watched = self.askers.remove(&id).and_then(|asker| asker.watches);
                if let Some(election) = watched
                    && let Some(watchers) = self.watchers.get_mut(&election)
                {
                    watchers.remove(&id);
                    if watchers.is_empty() {
                        self.watchers.remove(&election);
                    }
                }
                self.connection.give_up(|(asker, _)| asker == id, now, &mut self.out);
            }
        }
    }

    fn connected(&mut self, established: EstablishedConnection, now: Instant) {
        let EstablishedConnection { voter, cluster, echoes, gives_evidence, sender, receiver, .. } = established;
        if let Some(cluster) = &cluster {
            self.settings.cluster = cluster.id_bytes();
        }
        self.open = Some(OpenConnection::new(sender, receiver));
        self.unwatched = self.watchers.keys().cloned().collect();
        self.state.send_replace(ConnectionState::Up { voter, cluster, echoes, gives_evidence });
        self.connection.connected(voter, now, &mut self.out);
    }

    /// What a voter has sent.
    fn take(&mut self, number: u64, body: Body, now: Instant) -> io::Result<()> {
        self.connection.heard(now);
        match (number, body) {
            (0, Body::Hint(election)) => {
                for asker in self.watchers.get(&election).into_iter().flatten() {
                    self.tell(*asker, VoterEvent::Hint);
                }
            }
            (0, Body::Moved(cluster)) => {
                let cluster = Cluster::try_from(cluster).map_err(channel::invalid)?;
                for asker in self.askers.values() {
                    drop(asker.events.send(VoterEvent::Moved(cluster.clone())));
                }
            }
            (number, body) => {
                if let Some((voter, (asker, tag))) = self.connection.answered(number) {
                    self.tell(asker, VoterEvent::Answer(voter, tag, Box::new(body)));
                }
            }
        }
        Ok(())
    }

    /// The asker may be gone.
    fn tell(&self, asker: AskerId, event: VoterEvent) {
        if let Some(asker) = self.askers.get(&asker) {
            drop(asker.events.send(event));
        }
    }
}

async fn dialed(
    dialing: Option<&mut BoxFuture<'static, io::Result<EstablishedConnection>>>,
) -> io::Result<EstablishedConnection> {
    match dialing {
        Some(dialing) => dialing.await,
        None => std::future::pending().await,
    }
}

/// Connects, and looks whether the one there was another before.
async fn dial_anew(peer: PeerAddress, settings: ConnectionSettings) -> io::Result<EstablishedConnection> {
    let began = clock::now();
    let greeted = dial(&peer, &settings.transport, settings.cluster, &settings.name).await?;
    settings.seen.note(greeted.process(), &peer, began).map_err(io::Error::other)?;
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
