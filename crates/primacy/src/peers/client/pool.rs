//! The connections to all voters of a cluster, and calls that a quorum client carries out over them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::Path;
use std::sync::Arc;

use futures_util::future::select_all;
use primacy_core::lease::{CallError, Reply};
use primacy_core::quorum::{Ask, BehindNotices, Configuration as _, Output, QuorumCalls, QuorumClient, Round, VoterId};
use tokio::sync::mpsc;
use tracing::{debug, warn};

pub(super) use super::connection::VoterEvent;
use super::connection::{Asker, ConnectionHandle, ConnectionSettings, ConnectionState};
use super::dial::Transport;
use super::endpoints::{VoterEndpoints, cluster_of};
use crate::peers::config::{Cluster, PeerAddress};
use crate::peers::tls::Tls;
use crate::peers::wire::{Body, ElectionRequest, MalformedFrame, Piggyback, RequestBody};
use crate::select::Rank;
use crate::store::{StoreError, Waiting};
use crate::{Instant, clock};

mod behind;

/// One connection to each voter.
pub(super) struct Pool {
    endpoints: VoterEndpoints,
    /// What each connection is made with.
    settings: ConnectionSettings,
    /// Who asks.
    asker: Asker,
    connections: BTreeMap<PeerAddress, ConnectionHandle>,
    /// Which voters have been told that they are behind.
    notices: BehindNotices,
    /// Why a voter has refused something to which the asker has no right, if one has.
    denied: Option<String>,
    pub(super) cluster: Cluster,
    /// Whether voters prove to each other, and to others, who they are.
    pub(super) proves: bool,
    events: mpsc::UnboundedReceiver<VoterEvent>,
    /// Questions that were never sent, because no connection took them.
    lost: VecDeque<(VoterId, u64)>,
    /// Counts questions that no quorum client asks.
    polls: u64,
}

/// The first tag of a poll. No quorum client ever counts this many rounds.
const POLLS_FROM: u64 = 1 << 62;

impl Pool {
    /// Connects to all voters, and returns when a majority can be asked.
    ///
    /// # Errors
    /// If none can: where each failed, and why.
    pub(super) async fn open(
        endpoints: &VoterEndpoints,
        name: &str,
        watches: Option<&str>,
    ) -> Result<Self, StoreError> {
        let proves = endpoints.ask(name).await?;
        let (outbox, events) = mpsc::unbounded_channel();
        let (transport, watches) = (endpoints.transport.clone(), watches.map(str::to_owned));
        let cluster = endpoints.known().map(|known| known.id_bytes()).unwrap_or_default();
        let settings =
            ConnectionSettings { name: name.to_owned(), transport, cluster, seen: Arc::clone(&endpoints.seen) };
        let asker = Asker { watches, events: outbox };
        let connection = |peer: &PeerAddress| endpoints.connection(peer.clone(), &settings, &asker);
        let mut connections: Vec<ConnectionHandle> = endpoints.peers.iter().map(connection).collect();
        loop {
            let states: Vec<ConnectionState> = connections.iter().map(ConnectionHandle::state).collect();
            let all: Vec<Option<Cluster>> = states.iter().map(told).collect();
            let may_tell = states.contains(&ConnectionState::Begun);
            let cluster = match cluster_of(endpoints.known(), &all, endpoints.peers.len(), may_tell) {
                // Others may tell otherwise.
                Err(_) if may_tell => None,
                settled => settled?,
            };
            if let Some(cluster) = &cluster {
                for peer in endpoints.addresses_of(cluster) {
                    if connections.iter().all(|connection| connection.peer != peer) {
                        connections.push(connection(&peer));
                    }
                }
                let up = states.iter().filter_map(|state| match state {
                    ConnectionState::Up { voter, .. } => Some(*voter),
                    ConnectionState::Begun | ConnectionState::Down(_) => None,
                });
                let up: Vec<VoterId> = up.collect();
                if cluster.voter_set().is_quorum(|voter| up.contains(&voter)) {
                    endpoints.note(cluster);
                    let connections =
                        connections.into_iter().map(|connection| (connection.peer.clone(), connection)).collect();
                    let (endpoints, cluster) = (endpoints.clone(), cluster.clone());
                    let (notices, lost) = (BehindNotices::default(), VecDeque::new());
                    let (polls, denied) = (POLLS_FROM, None);
                    let mut pool = Self {
                        endpoints,
                        settings,
                        asker,
                        connections,
                        notices,
                        denied,
                        cluster,
                        proves,
                        events,
                        lost,
                        polls,
                    };
                    pool.connect();
                    return Ok(pool);
                }
            }
            let begun: Vec<_> =
                connections.iter().filter(|connection| connection.state() == ConnectionState::Begun).collect();
            if !begun.is_empty() {
                select_all(begun.into_iter().map(|connection| Box::pin(connection.settled()))).await;
            } else if states.iter().all(|state| *state != ConnectionState::Begun) && states.len() == connections.len() {
                let all: Vec<String> = connections.iter().map(trouble).collect();
                let joint = cluster.as_ref().map(joint).unwrap_or_default();
                let hint = if cluster.is_none() { "; if the voters were exchanged, name those of now" } else { "" };
                let all = all.join(", ");
                return Err(StoreError::Unreachable(format!("no majority of the voters{joint}: {all}{hint}")));
            }
        }
    }

    /// Keeps connections to the voters, and to nobody else.
    fn connect(&mut self) {
        let addresses = self.endpoints.addresses_of(&self.cluster);
        self.connections.retain(|peer, _| addresses.contains(peer));
        let Self { endpoints, settings, asker, connections, .. } = self;
        for peer in addresses {
            connections.entry(peer).or_insert_with_key(|peer| endpoints.connection(peer.clone(), settings, asker));
        }
    }

    /// The connection to a voter: one on which it answers, if there is any.
    fn connection(&self, voter: VoterId) -> Option<&ConnectionHandle> {
        let name = self.cluster.address_of(voter)?.name();
        let mut connections = self.connections.values().filter(|connection| connection.peer.name() == name);
        let first = connections.clone().next();
        connections
            .find(|connection| {
                connection
                    .with_state(|state| matches!(state, ConnectionState::Up { voter: there, .. } if *there == voter))
            })
            .or(first)
    }

    /// Whether a voter is there and knows what an echo is.
    pub(super) fn can_echo(&self, voter: VoterId) -> bool {
        let can = |state: &ConnectionState| matches!(state, ConnectionState::Up { voter: there, echoes: true, .. } if *there == voter);
        self.connection(voter).is_some_and(|connection| connection.with_state(can))
    }

    /// Waits until each voter, by the latest that is known here, has been reached or could not be.
    pub(super) async fn settle(&mut self) {
        self.catch_up();
        for connection in self.connections.values() {
            connection.settled().await;
        }
    }

    /// Why a voter is not reached, if it is not.
    pub(super) fn trouble(&self, voter: VoterId) -> Option<String> {
        match self.connection(voter).map(ConnectionHandle::state)? {
            ConnectionState::Down(why) => Some(why),
            ConnectionState::Begun => Some("it does not answer".to_owned()),
            ConnectionState::Up { voter: there, .. } => {
                (there != voter).then(|| "another voter answers there".to_owned())
            }
        }
    }

    /// These are the voters, says somebody who can know. Questions from now on are for them, if they are later ones.
    pub(super) fn learn(&mut self, cluster: &Cluster) {
        if cluster.is_same(&self.cluster) && cluster.number() > self.cluster.number() {
            self.cluster = cluster.clone();
            self.endpoints.note(cluster);
            self.connect();
        }
    }

    /// Takes note of what others here have heard of.
    fn catch_up(&mut self) {
        if let Some(known) = self.endpoints.later_than(&self.cluster) {
            self.learn(&known);
        }
    }

    /// Asks a voter. An answer or word that there will be none comes from [`heard`](Self::heard). A voter that may have missed
    /// an exchange is told first that there was one, and asks the others: it would not answer otherwise.
    pub(super) fn ask(&mut self, voter: VoterId, tag: u64, body: Body) {
        let number = self.cluster.number();
        let asked = self.connection(voter).is_some_and(|connection| {
            let known = connection.with_state(|state| match state {
                // One of an earlier release does not take a notice.
                ConnectionState::Up { cluster: Some(known), gives_evidence: true, .. } => Some(known.number()),
                _ => None,
            });
            if let Some(notice) = self.notices.before_question(voter, number, known) {
                connection.ask(voter, notice.0, Body::Behind(number));
            }
            connection.ask(voter, tag, body)
        });
        if !asked {
            self.lost.push_back((voter, tag));
        }
    }

    /// Of a question that no quorum client asks, and that was not asked before.
    pub(super) fn tag(&mut self) -> u64 {
        self.polls += 1;
        self.polls
    }

    /// Asks all voters what no quorum client asks, and waits until each has answered or will not.
    ///
    /// # Errors
    /// If no majority has answered.
    pub(super) async fn poll(&mut self, body: &Body) -> Result<BTreeMap<VoterId, Body>, StoreError> {
        self.denied = None;
        let tag = self.tag();
        let voter_set = self.cluster.voter_set();
        let mut open: BTreeSet<VoterId> = voter_set.voters().collect();
        open.iter().for_each(|voter| self.ask(*voter, tag, body.clone()));
        let mut answers = BTreeMap::new();
        while !open.is_empty() {
            match self.heard().await {
                VoterEvent::Answer(voter, same, body) if same == tag => {
                    open.remove(&voter);
                    answers.insert(voter, *body);
                }
                VoterEvent::Lost(voter, same) if same == tag => {
                    open.remove(&voter);
                }
                _ => {}
            }
        }
        answers.retain(|_, body| !matches!(body, Body::Refused(refused) if refused.is_denied));
        if voter_set.is_quorum(|voter| answers.contains_key(&voter)) {
            Ok(answers)
        } else {
            Err(self.denied().map_or_else(|| StoreError::Unreachable(self.reasons()), StoreError::Unusable))
        }
    }

    /// The next event.
    pub(super) async fn heard(&mut self) -> VoterEvent {
        if let Some((voter, tag)) = self.lost.pop_front() {
            return VoterEvent::Lost(voter, tag);
        }
        match self.events.recv().await {
            Some(heard) => self.noted(heard),
            None => std::future::pending().await,
        }
    }

    /// The next event, if there is one already.
    fn heard_already(&mut self) -> Option<VoterEvent> {
        if let Some((voter, tag)) = self.lost.pop_front() {
            return Some(VoterEvent::Lost(voter, tag));
        }
        let heard = self.events.try_recv().ok()?;
        Some(self.noted(heard))
    }

    /// Whatever else it says, it may tell of later voters.
    fn noted(&mut self, heard: VoterEvent) -> VoterEvent {
        match &heard {
            VoterEvent::Moved(cluster) => self.learn(cluster),
            VoterEvent::Answer(voter, tag, body) => {
                self.notices.answered(*voter, Round(*tag));
                if let Body::Moved(cluster) = &**body
                    && let Ok(cluster) = Cluster::try_from(cluster.clone())
                {
                    self.notices.knows_only(*voter, cluster.number(), self.cluster.number());
                    self.learn(&cluster);
                }
                if let Body::Refused(refused) = &**body
                    && refused.is_denied
                {
                    self.denied = Some(primacy_core::ids::escape(&refused.why));
                }
            }
            VoterEvent::Lost(..) | VoterEvent::Hint => {}
        }
        heard
    }

    /// Why a voter has refused what the asker has no right to, if one has.
    pub(super) fn denied(&self) -> Option<String> {
        self.denied.clone()
    }

    pub(super) fn reasons(&self) -> String {
        let down = |(voter, peer)| Some(format!("{peer} ({})", self.trouble(voter)?));
        let down: Vec<String> = self.cluster.addresses().filter_map(down).collect();
        let joint = joint(&self.cluster);
        if down.is_empty() {
            format!("no majority of the voters is free, or answers in time{joint}")
        } else {
            format!("no majority of the voters answers or is free{joint}; not reached: {}", down.join(", "))
        }
    }

    /// The socket through which all voters are reached, if one is.
    pub(super) fn socket(&self) -> Option<&Path> {
        match &self.endpoints.transport {
            Transport::Network(_) => None,
            Transport::Socket(path) => Some(path),
        }
    }

    /// By what it is proven here who asks, if it is.
    pub(super) fn tls(&self) -> Option<&Tls> {
        match &self.endpoints.transport {
            Transport::Network(tls) => tls.as_deref(),
            Transport::Socket(_) => None,
        }
    }

    /// Whether all voters are on this machine.
    pub(super) fn is_here(&self) -> bool {
        let voters = self.cluster.addresses().map(|(_, peer)| peer);
        voters.chain(&self.endpoints.peers).all(PeerAddress::is_here)
    }
}

/// Why more voters than usual are needed, if they are.
fn joint(cluster: &Cluster) -> String {
    let Some(incoming) = cluster.incoming() else { return String::new() };
    let old = cluster.names().collect::<Vec<_>>().join(", ");
    let new = incoming.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
    format!(" (an exchange of voters is under way: it takes more than half of {old} and of {new})")
}

/// The voters that somebody tells of who has been reached.
fn told(state: &ConnectionState) -> Option<Cluster> {
    match state {
        ConnectionState::Up { cluster, .. } => cluster.clone(),
        ConnectionState::Begun | ConnectionState::Down(_) => None,
    }
}

/// Why a peer is not reached, or does not vote yet, for people.
fn trouble(connection: &ConnectionHandle) -> String {
    let why = match connection.state() {
        ConnectionState::Down(why) => why,
        ConnectionState::Begun => "it does not answer".to_owned(),
        ConnectionState::Up { cluster: None, .. } => "it waits for the other voters".to_owned(),
        ConnectionState::Up { .. } => "it is there".to_owned(),
    };
    format!("{} ({why})", connection.peer)
}

/// The data piggybacked on the voters' answers to one call.
#[derive(Default)]
pub(super) struct CallPiggyback {
    pub(super) by_voter: BTreeMap<VoterId, Piggyback>,
}

impl CallPiggyback {
    /// Who waits, as all voters tell together: each as lately as anybody has heard of it.
    pub(super) fn waiting(&self) -> Vec<Waiting> {
        let mut all: Vec<Waiting> = Vec::new();
        for waiting in self.by_voter.values().flat_map(|reply| &reply.waiting) {
            match all.iter_mut().find(|known| known.who.id == waiting.who.id) {
                Some(known) if waiting.age < known.age => *known = waiting.clone(),
                Some(_) => {}
                None => all.push(waiting.clone()),
            }
        }
        all.sort_by_key(|waiting| (waiting.rank.unwrap_or(Rank::LAST), waiting.who.id));
        all
    }
}

/// Carries out one call: `begin` begins it, and `dress` makes a message of each of its questions.
pub(super) async fn carry_out(
    pool: &mut Pool,
    calls: &mut QuorumCalls,
    begin: impl FnOnce(&mut QuorumClient, &mut Vec<Output>),
    dress: impl Fn(RequestBody) -> ElectionRequest,
) -> (Result<Reply, CallError>, CallPiggyback) {
    let mut piggyback = CallPiggyback::default();
    let mut out = Vec::new();
    pool.denied = None;
    pool.catch_up();
    calls.abandon();
    follow(pool, calls, clock::now(), &mut out);
    // What came too late for the last call may still be worth something: a voter that has to catch up.
    while let Some(heard) = pool.heard_already() {
        tell(pool, calls, heard, &mut piggyback, &mut out);
        send(pool, &mut out, &dress);
    }
    piggyback.by_voter.clear();
    calls.begin(begin, clock::now(), &mut out);
    loop {
        if let Some(result) = send(pool, &mut out, &dress) {
            return (result, piggyback);
        }
        let now = clock::now();
        let due = calls.due(now).unwrap_or(Instant::FAR);
        // Who would only make an answer surer is not waited for as if it were needed, and who is late is asked again.
        match tokio::time::timeout(due.since(now), pool.heard()).await {
            Ok(heard) => tell(pool, calls, heard, &mut piggyback, &mut out),
            Err(_) => calls.act(clock::now(), &mut out),
        }
    }
}

/// Sends what the quorum client wants sent, and gives the result of its call if that is over.
fn send(
    pool: &mut Pool,
    out: &mut Vec<Output>,
    dress: &impl Fn(RequestBody) -> ElectionRequest,
) -> Option<Result<Reply, CallError>> {
    let mut done = None;
    for output in out.drain(..) {
        match output {
            Output::Send { to, round, ask } => {
                let body = <RequestBody as From<&Ask>>::from(&ask);
                let voters = pool.cluster.number();
                pool.ask(to, round.0, Body::Ask(ElectionRequest { voters, ..dress(body) }));
            }
            Output::Done(result) => done = Some(result),
        }
    }
    done
}

/// Whether there are later voters than those that are asked. From now on these are.
fn follow(pool: &Pool, calls: &mut QuorumCalls, now: Instant, out: &mut Vec<Output>) -> bool {
    let are_later = pool.cluster.number() > calls.client().voter_set().number();
    if are_later {
        calls.moved(pool.cluster.voter_set(), now, out);
    }
    are_later
}

fn tell(pool: &Pool, calls: &mut QuorumCalls, heard: VoterEvent, piggyback: &mut CallPiggyback, out: &mut Vec<Output>) {
    let now = clock::now();
    if follow(pool, calls, now, out) {
        // What was piggybacked on answers of other voters is told again.
        return piggyback.by_voter.clear();
    }
    match heard {
        VoterEvent::Answer(_, tag, _) | VoterEvent::Lost(_, tag) if BehindNotices::is_notice(Round(tag)) => {}
        VoterEvent::Answer(voter, tag, body) => match answer(&body) {
            Ok(None) => calls.unheard(voter, Round(tag), now, out),
            Ok(Some(reply)) => {
                let counts = Round(tag) == calls.client().round();
                calls.answered(voter, Round(tag), reply.answer.clone(), now, out);
                // A late answer may be about an earlier call, and at an operator's about another election.
                if counts {
                    piggyback.by_voter.insert(voter, reply);
                }
            }
            Err(error) => {
                warn!(%voter, %error, "an answer cannot be used");
                calls.unheard(voter, Round(tag), now, out);
            }
        },
        VoterEvent::Lost(voter, tag) => calls.unheard(voter, Round(tag), now, out),
        VoterEvent::Hint | VoterEvent::Moved(_) => {}
    }
}

/// What a voter has answered; nothing, if it does not vote yet, or not with those it was asked as one of: the asker may
/// know sooner or later than it.
fn answer(body: &Body) -> Result<Option<Piggyback>, MalformedFrame> {
    match body {
        Body::Answer(reply) => reply.try_into().map(Some),
        Body::Refused(refused) => {
            debug!(why = %primacy_core::ids::escape(&refused.why), "no answer");
            Ok(None)
        }
        // To a question of other voters; what it tells has been learned by now.
        Body::Moved(_) => Ok(None),
        _ => Err(MalformedFrame("an answer to another question")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers::wire::RefusalFrame;

    #[test]
    fn a_voter_that_does_not_vote_yet_has_not_answered_and_one_that_talks_nonsense_is_told_of() {
        let why = "'c' waits for the other voters".to_owned();
        let passing = Body::Refused(RefusalFrame { why, is_passing: true, is_denied: false });
        assert!(matches!(answer(&passing), Ok(None)));
        assert!(answer(&Body::Left(true)).is_err());
    }
}
