//! A peer's connections: who comes is greeted, and its questions are passed on.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use primacy_core::quorum::{ConfigRequest, Query, VoterId};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tracing::{debug, warn};

use super::command::{ReplyReceiver, ReplySender, VoterCommand};
use super::hosted_elections::ElectionQuery;
use super::known_voters::KnownVoters;
use super::link::LinkQueue;
use super::principal::{self, Authentication, Principal};
use super::process::ProcessIdentity;
use super::refusals::Refusals;
use super::settings::PeerError;
use crate::clock;
use crate::peers::config::{Cluster, PeerAddress, Role, RoleNames};
use crate::peers::tls::{Tls, TlsError};
use crate::peers::wire::channel::{self, HANDSHAKE, Receiver, Sender};
use crate::peers::wire::{
    self, Body, ConfigRequestFrame, EchoReply, Hello, MalformedFrame, Page, RefusalFrame, VERSION, Welcome,
};
use crate::store::waiting::WaiterInfo;

/// Connections at one time, if the system allows this many files.
const CONNECTIONS_MOST: u64 = 10_000;

/// Files that are kept for the voter itself: one that cannot write has to end.
const FILES_KEPT: u64 = 64;

/// What nobody may say to a voter.
pub(super) const AN_ANSWER: MalformedFrame = MalformedFrame("something that only a voter says");

/// How much of the name of the one that connects is told.
pub(super) const NAME_MOST: usize = 64;

/// As many connections as there may be. Asks the system for as many files as it allows.
fn connections_most() -> usize {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap_or((1_024, 1_024));
    let wanted = hard.min(CONNECTIONS_MOST + FILES_KEPT).max(soft);
    let files = if setrlimit(Resource::RLIMIT_NOFILE, wanted, hard).is_ok() { wanted } else { soft };
    usize::try_from(files.saturating_sub(FILES_KEPT).clamp(1, CONNECTIONS_MOST)).unwrap_or(usize::MAX)
}

/// Accepts the connections of a peer: what every one of them needs.
pub(super) struct Listener {
    /// How it is named.
    pub(super) own: PeerAddress,
    /// Whether all voters are on this machine: then plain text must not leave it.
    pub(super) stays_here: bool,
    pub(super) voter: VoterId,
    pub(super) process: Arc<ProcessIdentity>,
    /// All voters, as this one was told, with their addresses.
    pub(super) told: Vec<PeerAddress>,
    pub(super) roles: RoleNames,
    pub(super) tls: Option<Arc<Tls>>,
    pub(super) known: KnownVoters,
    /// Where connections of a program go, if one takes them.
    pub(super) links: Option<Arc<LinkQueue>>,
    pub(super) post: mpsc::Sender<VoterCommand>,
    pub(super) refusals: Mutex<Refusals>,
    /// How many requests arrive here in a unit of time, in thousandths.
    pub(super) requests: watch::Receiver<Option<u64>>,
}

/// Who has connected.
enum Caller {
    /// Over the network, from there.
    Far(TcpStream, SocketAddr),
    /// From this machine.
    Here(UnixStream),
}

impl Caller {
    /// The files that it takes: what is passed on takes another connection.
    const fn files(&self) -> u32 {
        match self {
            Self::Far(..) => 1,
            Self::Here(_) => 2,
        }
    }

    fn whence(&self) -> String {
        match self {
            Self::Far(_, from) => from.to_string(),
            Self::Here(_) => "this machine".to_owned(),
        }
    }

    fn host(&self) -> String {
        match self {
            Self::Far(_, from) => from.ip().to_string(),
            Self::Here(_) => String::new(),
        }
    }
}

pub(super) async fn listen(
    network: TcpListener,
    socket: Option<UnixListener>,
    listener: Arc<Listener>,
) -> Result<(), PeerError> {
    let mut connections = JoinSet::new();
    let room = Arc::new(Semaphore::new(connections_most()));
    loop {
        let caller = tokio::select! {
            caller = network.accept() => caller.map(|(stream, from)| Caller::Far(stream, from)),
            caller = here(socket.as_ref()) => caller.map(Caller::Here),
            Some(_) = connections.join_next() => continue,
        };
        match caller {
            Ok(caller) => match Arc::clone(&room).try_acquire_many_owned(caller.files()) {
                Ok(taken) => {
                    let listener = Arc::clone(&listener);
                    connections.spawn(async move {
                        listener.greet(caller, taken).await;
                    });
                }
                Err(_) => {
                    const WHY: &str = "there are too many connections: this one is refused";
                    listener.complain(String::new(), WHY.to_owned(), || warn!(from = %caller.whence(), "{WHY}"));
                }
            },
            Err(error) => {
                let say = || warn!(%error, "no connection can be taken just now");
                listener.complain(String::new(), error.to_string(), say);
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn here(socket: Option<&UnixListener>) -> io::Result<UnixStream> {
    match socket {
        Some(socket) => socket.accept().await.map(|(stream, _)| stream),
        None => std::future::pending().await,
    }
}

/// Says that this connection has no purpose, and ends it.
pub(super) async fn refuse(sender: &mut Sender, why: String, is_passing: bool) -> io::Result<()> {
    let told = RefusalFrame { why: why.clone(), is_passing, is_denied: false };
    sender.send(0, Body::Refused(told)).await?;
    Err(io::Error::new(io::ErrorKind::InvalidData, why))
}

/// The first frame of a connection.
pub(super) async fn greeting(receiver: &mut Receiver) -> io::Result<Hello> {
    match receiver.first().await? {
        Body::Hello(hello) => Ok(hello),
        _ => Err(channel::invalid(MalformedFrame("no greeting"))),
    }
}

impl Listener {
    /// For as long as the connection stands, `taken` of all that there may be.
    async fn greet(&self, caller: Caller, taken: OwnedSemaphorePermit) {
        let (from, host) = (caller.whence(), caller.host());
        let served = match caller {
            Caller::Far(stream, _) => self.serve(stream, taken).await,
            Caller::Here(stream) => self.serve_here(stream).await,
        };
        if let Err(error) = served {
            let is_refused = error.kind() == io::ErrorKind::InvalidData;
            debug!(%from, %error, "a connection has ended");
            if is_refused {
                let is_malformed = error.get_ref().is_some_and(|error| error.is::<MalformedFrame>());
                let hint =
                    if is_malformed { "; only programs of primacy, of one release, may connect here" } else { "" };
                let stood = error.get_ref().and_then(|error| error.downcast_ref::<TlsError>());
                let stood = matches!(stood, Some(TlsError::Ended { .. }));
                let say = || match stood {
                    true => warn!(%from, "{error}"),
                    false => warn!(%from, "a connection is refused: {error}{hint}"),
                };
                self.complain(host, error.to_string(), say);
            }
        }
    }

    /// Writes down that somebody is refused, unless the log has enough of that.
    pub(super) fn complain(&self, host: String, why: String, say: impl FnOnce()) {
        let mut refusals = self.refusals.lock().unwrap_or_else(PoisonError::into_inner);
        let (is_told, left_out) = refusals.note(host, why, clock::now());
        drop(refusals);
        if let Some(count) = left_out {
            warn!(count, "more connections were refused in the last minute than are told of here");
        }
        if is_told {
            say();
        }
    }

    async fn serve(&self, stream: TcpStream, taken: OwnedSemaphorePermit) -> io::Result<()> {
        channel::prepare(&stream)?;
        let (wire, authentication): (Box<dyn channel::Wire>, _) = match &self.tls {
            Some(tls) => {
                let proving = tokio::time::timeout(HANDSHAKE, tls.accept(stream)).await;
                let stream = proving.map_err(|_| io::ErrorKind::TimedOut)?.map_err(refused)?;
                let authentication = Authentication::Certificate(stream.peer_name());
                (Box::new(stream), authentication)
            }
            None => (Box::new(stream), Authentication::Nothing),
        };
        let (sender, mut receiver) = channel::channel(wire);
        let hello = greeting(&mut receiver).await?;
        // Who comes through another peer is not that peer.
        let principal = Principal { is_relayed: !hello.to.is_empty(), ..Principal::new(authentication) };
        if hello.protocol.is_empty() {
            self.converse(hello, sender, receiver, principal).await
        } else {
            self.link(hello, (sender, receiver), principal, taken).await
        }
    }

    /// What somebody may do here. Asked anew for each frame, since voters come and go.
    pub(super) fn role(&self, principal: &Principal) -> Role {
        principal.role(&self.roles, |name| self.known.is_voter(name))
    }

    /// Answers somebody for as long as the connection stands.
    pub(super) async fn converse(
        &self,
        hello: Hello,
        mut sender: Sender,
        receiver: Receiver,
        mut principal: Principal,
    ) -> io::Result<()> {
        principal.claim = wire::role(hello.role);
        if let Some(why) = self.objection(&hello) {
            return refuse(&mut sender, why, false).await;
        }
        let who = principal.own_name().map_or_else(|| shown(&hello.name), str::to_owned);
        sender.send(0, Body::Welcome(self.welcome(&principal))).await?;
        let (out, answers) = ReplySender::new();
        let (id, end) = (out.id, Arc::clone(&out.end));
        let ended = tokio::select! {
            () = end.notified() => Err(io::Error::other("it does not read its answers")),
            ended = write(sender, answers) => ended,
            ended = self.read(receiver, out, (&who, &principal)) => ended,
            why = self.comes_to_object(&hello) => Err(io::Error::other(why)),
        };
        // If the voter answers nothing more, nobody needs to hear of it.
        let _ = self.post.send(VoterCommand::Gone { id }).await;
        ended
    }

    /// How it greets somebody.
    pub(super) fn welcome(&self, principal: &Principal) -> Welcome {
        Welcome {
            version: VERSION,
            voter: wire::voter_bytes(self.voter),
            name: self.own.name().to_owned(),
            cluster: self.known.cluster.borrow().as_ref().map(Into::into),
            proves: self.tls.is_some(),
            echoes: true,
            process: self.process.bytes(),
            generation: self.process.generation(),
            gives_evidence: true,
            role: wire::role_number(self.role(principal)),
            is_link: false,
        }
    }

    /// Why it has nothing to do with one that greets like this.
    pub(super) fn objection(&self, hello: &Hello) -> Option<String> {
        let (who, own) = (shown(&hello.name), self.own.name());
        if hello.version != VERSION {
            return Some(format!(
                "'{who}' speaks version {} of the peers' protocol, and '{own}' speaks version {VERSION}: give both the same \
                 release of primacy",
                hello.version
            ));
        }
        if !hello.to.is_empty() && hello.to.parse::<PeerAddress>().is_ok_and(|meant| meant.name() != self.own.name()) {
            return Some(format!("'{who}' means another than '{own}': mend the addresses that it was told of"));
        }
        let cluster = self.known.cluster.borrow();
        let is_other = cluster.as_ref().is_some_and(|own| !hello.cluster.is_empty() && own.id_bytes() != hello.cluster);
        is_other.then(|| {
            format!(
                "'{who}' belongs to another cluster than '{own}': tell it of the peers of its own, and start it anew; a peer, in \
                 the folder that it had there"
            )
        })
    }

    /// Waits until this voter comes to belong to a cluster that the one that greeted like this does not mean. It is refused when it
    /// comes again.
    async fn comes_to_object(&self, hello: &Hello) -> String {
        let mut cluster = self.known.cluster.clone();
        loop {
            if let Some(why) = self.objection(hello) {
                return why;
            }
            if cluster.changed().await.is_err() {
                return std::future::pending().await; // the voter answers nothing more
            }
        }
    }

    async fn read(&self, mut receiver: Receiver, out: ReplySender, who: (&str, &Principal)) -> io::Result<()> {
        while let Some((number, body)) = receiver.next().await? {
            let command = self.command(number, body, &out, who).map_err(channel::invalid)?;
            let Some(command) = command else { continue };
            if self.post.send(command).await.is_err() {
                return Ok(()); // the voter answers nothing more
            }
        }
        Ok(())
    }

    /// What is to be done for somebody who says this, if it may.
    fn command(
        &self,
        number: u64,
        body: Body,
        out: &ReplySender,
        (who, principal): (&str, &Principal),
    ) -> Result<Option<VoterCommand>, MalformedFrame> {
        let Some(command) = self.parse(number, body, out, principal)? else { return Ok(None) };
        let (role, (least, what)) = (self.role(principal), principal::right(&command));
        if role >= least {
            return Ok(Some(command));
        }
        let why = principal::denial(who, role, least, what);
        self.complain(who.to_owned(), why.clone(), || warn!("refused: {why}"));
        out.post(number, Body::Refused(RefusalFrame { why, is_passing: false, is_denied: true }));
        // Candidates of earlier releases say in this way that there are later voters.
        let later = match &command {
            VoterCommand::Config { page, .. } => match &page.ask {
                ConfigRequest::Adopt(cluster) => Some(cluster.number()),
                _ => None,
            },
            _ => None,
        };
        let quiet = ReplySender::new().0;
        Ok(later.filter(|_| role >= Role::Candidate).map(|voters| VoterCommand::Behind { number, voters, out: quiet }))
    }

    /// What somebody asks for, if it can be done at all.
    pub(super) fn parse(
        &self,
        number: u64,
        body: Body,
        out: &ReplySender,
        principal: &Principal,
    ) -> Result<Option<VoterCommand>, MalformedFrame> {
        let founds = matches!(body, Body::Found(_) | Body::ConfigRequest(_));
        if self.known.cluster.borrow().is_none() && !founds {
            let why = format!("'{}' waits for the other voters, to be brought together with them", self.own.name());
            out.post(number, Body::Refused(RefusalFrame { why, is_passing: true, is_denied: false }));
            return Ok(None);
        }
        if let Body::Echo(_) = body {
            out.post(number, Body::Echoed(EchoReply { requests: *self.requests.borrow() }));
            return Ok(None);
        }
        let out = out.clone();
        Ok(Some(match body {
            Body::Ask(request) => VoterCommand::Ask { number, query: Box::new(query(request)?), out },
            Body::Watch(election) => VoterCommand::Watch { election: wire::election(&election)?, out },
            Body::Leave(leave) => {
                let (election, id) = (wire::election(&leave.election)?, wire::candidate(&leave.id)?);
                VoterCommand::Leave { number, election, id, out }
            }
            Body::List(_) => VoterCommand::List { number, after: None, out },
            Body::ListAfter(name) => VoterCommand::List { number, after: Some(wire::election(&name)?), out },
            Body::Recall(recall) => {
                VoterCommand::Recall { number, election: wire::election(&recall.election)?, limit: recall.limit, out }
            }
            Body::Probe(_) => VoterCommand::Probe { number, out },
            Body::ConfigRequest(question) => {
                VoterCommand::Config { number, page: Box::new(self.config_page(question)?), out }
            }
            Body::Found(cluster) => match self.founded(cluster, principal.own_name())? {
                Some(cluster) => VoterCommand::Found { cluster, done: oneshot::channel().0 },
                None => return Ok(None),
            },
            Body::Behind(voters) => VoterCommand::Behind { number, voters, out },
            Body::Testify(after) => VoterCommand::Testify { number, after, out },
            Body::Hello(_) => return Err(MalformedFrame("a second greeting")),
            Body::Welcome(_)
            | Body::Refused(_)
            | Body::Answer(_)
            | Body::Hint(_)
            | Body::Listed(_)
            | Body::Recalled(_)
            | Body::Probed(_)
            | Body::Left(_)
            | Body::Moved(_)
            | Body::ConfigReply(_)
            | Body::Echo(_)
            | Body::Echoed(_)
            | Body::Testified(_) => return Err(AN_ANSWER),
        }))
    }

    /// What is asked about who votes, if it is about this voter's cluster. One that has none yet is taken into another, which
    /// has come together without it.
    fn config_page(&self, question: ConfigRequestFrame) -> Result<Page, MalformedFrame> {
        let page = question.checked()?;
        let own = self.known.cluster.borrow();
        let fits = match (&page.ask, own.as_ref()) {
            (ConfigRequest::Adopt(cluster) | ConfigRequest::Take { proposal: cluster, .. }, Some(own)) => {
                cluster.is_same(own)
            }
            (ConfigRequest::Adopt(cluster), None) => cluster.number() > 0 && cluster.has(self.voter),
            _ => true,
        };
        if fits { Ok(page) } else { Err(MalformedFrame("voters that this one has nothing to do with")) }
    }

    /// Voters that this one is told to vote with. The one that tells it has asked all of them, this one too. `None`: it
    /// votes with them already, and was told again before that was seen.
    fn founded(&self, cluster: wire::Cluster, proven: Option<&str>) -> Result<Option<Cluster>, MalformedFrame> {
        let cluster = Cluster::try_from(cluster)?;
        if self.tls.is_some() && proven != self.known.names.first().map(String::as_str) {
            return Err(MalformedFrame("voters that another peer has to bring together"));
        }
        if self.known.cluster.borrow().as_ref() == Some(&cluster) {
            return Ok(None);
        }
        let is_first = cluster.number() == 0 && self.known.cluster.borrow().is_none();
        if is_first
            && cluster.voter_named(self.own.name()) == Some(self.voter)
            && cluster.names().eq(self.known.names.iter())
        {
            Ok(Some(cluster))
        } else {
            Err(MalformedFrame("other voters than this one was told of"))
        }
    }
}

fn query(request: wire::ElectionRequest) -> Result<ElectionQuery, MalformedFrame> {
    let announce = request.waits.map(|waits| {
        let who = waits.who.as_ref().ok_or(MalformedFrame("nobody waits"))?;
        let notice = WaiterInfo { who: who.try_into()?, note: cut(waits.note, 256) };
        Ok((notice.who.id, wire::rank(&waits.rank)?, notice))
    });
    let query = Query {
        number: request.voters,
        election: wire::election(&request.election)?,
        ask: request.body.as_ref().ok_or(MalformedFrame("a question that asks nothing"))?.try_into()?,
        asker: wire::candidate(&request.asker)?,
        announce: announce.transpose()?,
    };
    Ok(ElectionQuery { query, lists: request.lists, reason: cut(request.reason, 64) })
}

/// The first characters of a text, this many at most.
fn cut(mut text: String, most: usize) -> String {
    // It has no more characters than bytes.
    if text.len() > most
        && let Some((end, _)) = text.char_indices().nth(most)
    {
        text.truncate(end);
        // It is kept for as long as its candidate waits.
        text.shrink_to_fit();
    }
    text
}

/// A name that somebody gives itself, as people can be told of it.
pub(super) fn shown(name: &str) -> String {
    primacy_core::ids::escape(&name.chars().take(NAME_MOST).collect::<String>())
}

/// A stranger is told of in the log, a connection that only broke is not.
fn refused(error: TlsError) -> io::Error {
    let kind = match &error {
        TlsError::Handshake { source, .. } => source.kind(),
        _ => io::ErrorKind::InvalidData,
    };
    io::Error::new(kind, error)
}

async fn write(mut sender: Sender, mut answers: ReplyReceiver) -> io::Result<()> {
    while let Some((number, body)) = answers.next().await {
        sender.feed(number, body).await?;
        // Those of one flush of the voter's file leave together.
        while let Some((number, body)) = answers.next_ready() {
            sender.feed(number, body).await?;
        }
        sender.flush().await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
