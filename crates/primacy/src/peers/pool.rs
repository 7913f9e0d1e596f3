//! The ways to all voters of a cluster, and calls that a clerk carries out over them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::select_all;
use primacy_core::lease::{CallError, Reply};
use primacy_core::quorum::{Ask, Clerk, Output, Round, VoterId};
use tokio::sync::mpsc;

use super::address::PeerAddress;
use super::cluster::Cluster;
use super::link::{Back, Ends, Link, State};
use super::tls::Tls;
use super::wire::{Asked, Body, Malformed, Question, Told};
use crate::select::Rank;
use crate::store::{StoreError, Waiting};

/// Where the voters are, and how they are talked to.
#[derive(Clone, Debug)]
pub(super) struct Places {
    pub(super) peers: Vec<PeerAddress>,
    pub(super) tls: Option<Arc<Tls>>,
}

/// One connection to each voter.
pub(super) struct Pool {
    links: BTreeMap<VoterId, Link>,
    pub(super) cluster: Cluster,
    back: mpsc::UnboundedReceiver<(PeerAddress, Back)>,
    /// Questions that could not even be asked.
    lost: VecDeque<(VoterId, u64)>,
    /// Counts questions that no clerk asks.
    polls: u64,
}

/// For how long a look that could end waits for voters that might know of a later grant.
const CURIOSITY: Duration = Duration::from_millis(20);

/// No clerk counts so many rounds.
const POLLS_FROM: u64 = 1 << 62;

/// What came back from a voter.
pub(super) enum Heard {
    Answer(VoterId, u64, Box<Body>),
    Lost(VoterId, u64),
    Hint,
}

impl Pool {
    /// Connects to all voters, and returns when a majority can be asked.
    ///
    /// # Errors
    /// If none can: where each failed, and why.
    pub(super) async fn open(places: &Places, name: &str, watches: Option<&str>) -> Result<Self, StoreError> {
        let (outbox, back) = mpsc::unbounded_channel();
        let link = |peer: PeerAddress| {
            let (tls, back) = (places.tls.clone(), outbox.clone());
            Link::open(peer, Ends { name: name.to_owned(), tls, watches: watches.map(str::to_owned), back })
        };
        let mut links: Vec<Link> = places.peers.iter().cloned().map(&link).collect();
        loop {
            let states: Vec<State> = links.iter().map(Link::state).collect();
            if let Some(cluster) = cluster_of(&states)? {
                // Voters that were not named here.
                for (_, peer) in cluster.addresses() {
                    if links.iter().all(|link| link.peer.name() != peer.name()) {
                        links.push(link(peer.clone()));
                    }
                }
                let up = states.iter().filter_map(|state| match state {
                    State::Up { voter, .. } => Some(*voter),
                    State::Begun | State::Down(_) => None,
                });
                let up: Vec<VoterId> = up.collect();
                if cluster.membership().is_quorum(|voter| up.contains(&voter)) {
                    let voter = |link: Link| Some((cluster.voter_named(link.peer.name())?, link));
                    let links = links.into_iter().filter_map(voter).collect();
                    return Ok(Self { links, cluster, back, lost: VecDeque::new(), polls: POLLS_FROM });
                }
            }
            let begun: Vec<_> = links.iter_mut().filter(|link| link.state() == State::Begun).collect();
            if !begun.is_empty() {
                select_all(begun.into_iter().map(|link| Box::pin(link.settled()))).await;
            } else if states.iter().all(|state| *state != State::Begun) && states.len() == links.len() {
                let all: Vec<String> = links.iter().map(trouble).collect();
                return Err(StoreError::Unreachable(format!("no majority of the voters: {}", all.join(", "))));
            }
        }
    }

    /// Asks a voter. An answer or word that there will be none comes from [`heard`](Self::heard).
    pub(super) fn ask(&mut self, voter: VoterId, tag: u64, body: Body) {
        match self.links.get(&voter) {
            Some(link) if link.ask(voter, tag, body) => {}
            _ => self.lost.push_back((voter, tag)),
        }
    }

    /// Asks all voters what no clerk asks, and waits until each has answered or will not.
    ///
    /// # Errors
    /// If no majority has answered.
    pub(super) async fn poll(&mut self, body: &Body) -> Result<BTreeMap<VoterId, Body>, StoreError> {
        self.polls += 1;
        let tag = self.polls;
        let membership = self.cluster.membership();
        let mut open: BTreeSet<VoterId> = membership.voters().collect();
        open.iter().for_each(|voter| self.ask(*voter, tag, body.clone()));
        let mut answers = BTreeMap::new();
        while !open.is_empty() {
            match self.heard().await {
                Heard::Answer(voter, same, body) if same == tag => {
                    open.remove(&voter);
                    answers.insert(voter, *body);
                }
                Heard::Lost(voter, same) if same == tag => {
                    open.remove(&voter);
                }
                _ => {}
            }
        }
        if membership.is_quorum(|voter| answers.contains_key(&voter)) {
            Ok(answers)
        } else {
            Err(StoreError::Unreachable(self.reasons()))
        }
    }

    /// What comes back next.
    pub(super) async fn heard(&mut self) -> Heard {
        loop {
            if let Some((voter, tag)) = self.lost.pop_front() {
                return Heard::Lost(voter, tag);
            }
            match self.back.recv().await {
                Some(back) => {
                    if let Some(heard) = self.of(back) {
                        return heard;
                    }
                }
                None => std::future::pending().await,
            }
        }
    }

    /// What has come back already, if anything.
    fn heard_already(&mut self) -> Option<Heard> {
        if let Some((voter, tag)) = self.lost.pop_front() {
            return Some(Heard::Lost(voter, tag));
        }
        loop {
            let back = self.back.try_recv().ok()?;
            if let Some(heard) = self.of(back) {
                return Some(heard);
            }
        }
    }

    fn of(&self, (peer, back): (PeerAddress, Back)) -> Option<Heard> {
        let voter = self.cluster.voter_named(peer.name())?;
        Some(match back {
            Back::Answer(tag, body) => Heard::Answer(voter, tag, body),
            Back::Lost(tag) => Heard::Lost(voter, tag),
            Back::Hint => Heard::Hint,
        })
    }

    pub(super) fn reasons(&self) -> String {
        let down = self.links.values().filter(|link| !matches!(link.state(), State::Up { .. })).map(trouble);
        let down: Vec<String> = down.collect();
        if down.is_empty() {
            "no majority of the voters is free, or answers in time".to_owned()
        } else {
            format!("no majority of the voters answers or is free; not reached: {}", down.join(", "))
        }
    }

    /// How many voters are connected now.
    pub(super) fn up(&self) -> usize {
        self.links.values().filter(|link| matches!(link.state(), State::Up { .. })).count()
    }
}

/// The cluster that the peers tell of.
fn cluster_of(states: &[State]) -> Result<Option<Cluster>, StoreError> {
    let mut told = states.iter().filter_map(|state| match state {
        State::Up { cluster, .. } => cluster.as_ref(),
        State::Begun | State::Down(_) => None,
    });
    let Some(first) = told.next() else { return Ok(None) };
    if told.any(|other| other != first) {
        let why = "the peers that were named belong to different clusters: name those of one".to_owned();
        return Err(StoreError::Unusable(why));
    }
    Ok(Some(first.clone()))
}

/// What stands in the way to a voter, for people.
fn trouble(link: &Link) -> String {
    let why = match link.state() {
        State::Down(why) => why,
        State::Begun => "it does not answer".to_owned(),
        State::Up { cluster: None, .. } => "it waits for the other voters".to_owned(),
        State::Up { .. } => "it is there".to_owned(),
    };
    format!("{} ({why})", link.peer)
}

/// What was told beside the answers to one call.
#[derive(Default)]
pub(super) struct Beside {
    pub(super) told: BTreeMap<VoterId, Told>,
}

impl Beside {
    /// Who waits, as all voters tell together: each as lately as anybody has heard of it.
    pub(super) fn waiting(&self) -> Vec<Waiting> {
        let mut all: Vec<Waiting> = Vec::new();
        for waiting in self.told.values().flat_map(|told| &told.waiting) {
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

/// Carries out one call of the clerk: `begin` begins it, and `dress` makes a message of each of its questions.
pub(super) async fn carry_out(
    pool: &mut Pool,
    clerk: &mut Clerk,
    begin: impl FnOnce(&mut Clerk, &mut Vec<Output>),
    dress: impl Fn(Asked) -> Question,
) -> (Result<Reply, CallError>, Beside) {
    let mut beside = Beside::default();
    let mut out = Vec::new();
    // What came too late for the last call may still be worth something: a voter that has to catch up.
    while let Some(heard) = pool.heard_already() {
        tell(clerk, heard, &mut beside, &mut out);
        send(pool, &mut out, &dress);
    }
    beside.told.clear();
    begin(clerk, &mut out);
    loop {
        if let Some(result) = send(pool, &mut out, &dress) {
            return (result, beside);
        }
        if clerk.is_curious() {
            // A majority has answered. Who would only make it surer is not waited for as if it were needed: it may be gone.
            match tokio::time::timeout(CURIOSITY, pool.heard()).await {
                Ok(heard) => tell(clerk, heard, &mut beside, &mut out),
                Err(_) => clerk.conclude(&mut out),
            }
        } else {
            let heard = pool.heard().await;
            tell(clerk, heard, &mut beside, &mut out);
        }
    }
}

/// Sends what the clerk wants sent, and gives the result of its call if that is over.
fn send(
    pool: &mut Pool,
    out: &mut Vec<Output>,
    dress: &impl Fn(Asked) -> Question,
) -> Option<Result<Reply, CallError>> {
    let mut done = None;
    for output in out.drain(..) {
        match output {
            Output::Send { to, round, ask } => {
                let asked = <Asked as From<&Ask>>::from(&ask);
                pool.ask(to, round.0, Body::Ask(dress(asked)));
            }
            Output::Done(result) => done = Some(result),
        }
    }
    done
}

fn tell(clerk: &mut Clerk, heard: Heard, beside: &mut Beside, out: &mut Vec<Output>) {
    match heard {
        Heard::Answer(voter, tag, body) => match answer(&body) {
            Ok(told) => {
                let counts = Round(tag) == clerk.round();
                clerk.answered(voter, Round(tag), told.answer.clone(), out);
                // A late answer may be about an earlier call, and at a desk about another election.
                if counts {
                    beside.told.insert(voter, told);
                }
            }
            Err(error) => {
                tracing::warn!(%voter, %error, "an answer cannot be used");
                clerk.unheard(voter, Round(tag), out);
            }
        },
        Heard::Lost(voter, tag) => clerk.unheard(voter, Round(tag), out),
        Heard::Hint => {}
    }
}

fn answer(body: &Body) -> Result<Told, Malformed> {
    match body {
        Body::Answer(reply) => reply.try_into(),
        _ => Err(Malformed("an answer to another question")),
    }
}
