//! The ways to all voters of a cluster, and calls that a quorum client carries out over them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::future::select_all;
use primacy_core::lease::{CallError, Reply};
use primacy_core::quorum::{Ask, Configuration as _, Output, QuorumCalls, QuorumClient, Round, VoterId};
use tokio::sync::mpsc;
use tracing::{debug, warn};

use super::address::PeerAddress;
use super::cluster::Cluster;
pub(super) use super::link::Back as Heard;
use super::link::{Ends, Introduced, Link, State, Way, introduce};
use super::tls::Tls;
use super::twins::Sightings;
use super::wire::{Asked, Body, Malformed, Question, Told};
use crate::select::Rank;
use crate::store::{StoreError, Waiting};
use crate::{Instant, clock};

mod behind;

/// Where the voters are, and how they are talked to.
#[derive(Clone, Debug)]
pub(super) struct Places {
    /// Those that were named. Through a socket nobody need be.
    pub(super) peers: Vec<PeerAddress>,
    pub(super) way: Way,
    /// The latest voters that anybody here has heard of: they may all be others by now than those that were named.
    known: Arc<Mutex<Option<Cluster>>>,
    /// Which processes have answered as which voter, to anybody here.
    seen: Arc<Sightings>,
}

impl Places {
    pub(super) fn new(peers: Vec<PeerAddress>, way: Way) -> Self {
        Self { peers, way, known: Arc::default(), seen: Arc::default() }
    }

    fn known(&self) -> Option<Cluster> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Where to look for these voters. One that was named is where it was named: there may be another way to it than the voters
    /// have among each other. Only if voters were exchanged, it may be another by now.
    fn ways(&self, cluster: &Cluster) -> BTreeSet<PeerAddress> {
        let named = |name: &str| self.peers.iter().find(|peer| peer.name() == name);
        let mut ways = BTreeSet::new();
        for (_, peer) in cluster.addresses() {
            let named = named(peer.name());
            ways.extend(named.cloned());
            if named.is_none() || cluster.number() > 0 {
                ways.insert(peer.clone());
            }
        }
        ways
    }

    /// Asks the peer behind the socket who votes, if that is the way. Returns whether voters prove to each other who they are.
    async fn ask(&self, name: &str) -> Result<bool, StoreError> {
        let path = match &self.way {
            Way::Network(tls) => return Ok(tls.is_some()),
            Way::Socket(path) => path,
        };
        let at = path.display();
        let introduced = introduce(path, name).await;
        let Introduced { name, cluster, proves } =
            introduced.map_err(|error| StoreError::Unreachable(format!("the peer behind {at}: {error}")))?;
        let Some(told) = cluster else {
            let why = format!("'{name}', the peer behind {at}, does not vote yet: it waits for the other voters");
            return Err(StoreError::Unreachable(why));
        };
        if let Some(cluster) = cluster_of(self.known(), &[Some(told)], 1, false)? {
            self.note(&cluster);
        }
        Ok(proves)
    }

    fn note(&self, cluster: &Cluster) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.as_ref().is_none_or(|known| known.number() < cluster.number()) {
            *known = Some(cluster.clone());
        }
    }
}

/// One connection to each voter.
pub(super) struct Pool {
    places: Places,
    /// What each connection is made with.
    ends: Ends,
    links: BTreeMap<PeerAddress, Link>,
    /// The number of the voters that each has been told of, since it has last said that it knows of earlier ones.
    told: BTreeMap<VoterId, u64>,
    /// Why a voter has refused something to which the asker has no right, if one has.
    denied: Option<String>,
    pub(super) cluster: Cluster,
    /// Whether voters prove to each other, and to others, who they are.
    pub(super) proves: bool,
    back: mpsc::UnboundedReceiver<Heard>,
    /// Questions that could not even be asked.
    lost: VecDeque<(VoterId, u64)>,
    /// Counts questions that no quorum client asks.
    polls: u64,
}

/// No quorum client counts so many rounds.
const POLLS_FROM: u64 = 1 << 62;

/// With the number of the voters that are told of: nobody waits for an answer to that.
const TOLD: u64 = 1 << 63;

impl Pool {
    /// Connects to all voters, and returns when a majority can be asked.
    ///
    /// # Errors
    /// If none can: where each failed, and why.
    pub(super) async fn open(places: &Places, name: &str, watches: Option<&str>) -> Result<Self, StoreError> {
        let proves = places.ask(name).await?;
        let (outbox, back) = mpsc::unbounded_channel();
        let (way, watches) = (places.way.clone(), watches.map(str::to_owned));
        let cluster = places.known().map(|known| known.id_bytes()).unwrap_or_default();
        let ends = Ends { name: name.to_owned(), way, cluster, watches, back: outbox, seen: Arc::clone(&places.seen) };
        let link = |peer: &PeerAddress| Link::open(peer.clone(), ends.clone());
        let mut links: Vec<Link> = places.peers.iter().map(link).collect();
        loop {
            let states: Vec<State> = links.iter().map(Link::state).collect();
            let all: Vec<Option<Cluster>> = states.iter().map(told).collect();
            let may_tell = states.contains(&State::Begun);
            let cluster = match cluster_of(places.known(), &all, places.peers.len(), may_tell) {
                // Others may tell otherwise.
                Err(_) if may_tell => None,
                settled => settled?,
            };
            if let Some(cluster) = &cluster {
                for peer in places.ways(cluster) {
                    if links.iter().all(|link| link.peer != peer) {
                        links.push(link(&peer));
                    }
                }
                let up = states.iter().filter_map(|state| match state {
                    State::Up { voter, .. } => Some(*voter),
                    State::Begun | State::Down(_) => None,
                });
                let up: Vec<VoterId> = up.collect();
                if cluster.voter_set().is_quorum(|voter| up.contains(&voter)) {
                    places.note(cluster);
                    let links = links.into_iter().map(|link| (link.peer.clone(), link)).collect();
                    let (places, cluster) = (places.clone(), cluster.clone());
                    let (told, lost) = (BTreeMap::new(), VecDeque::new());
                    let (polls, denied) = (POLLS_FROM, None);
                    let mut pool = Self { places, ends, links, told, denied, cluster, proves, back, lost, polls };
                    pool.connect();
                    return Ok(pool);
                }
            }
            let begun: Vec<_> = links.iter_mut().filter(|link| link.state() == State::Begun).collect();
            if !begun.is_empty() {
                select_all(begun.into_iter().map(|link| Box::pin(link.settled()))).await;
            } else if states.iter().all(|state| *state != State::Begun) && states.len() == links.len() {
                let all: Vec<String> = links.iter().map(trouble).collect();
                let joint = cluster.as_ref().map(joint).unwrap_or_default();
                let hint = if cluster.is_none() { "; if the voters were exchanged, name those of now" } else { "" };
                let all = all.join(", ");
                return Err(StoreError::Unreachable(format!("no majority of the voters{joint}: {all}{hint}")));
            }
        }
    }

    /// Links to the voters, and to nobody else.
    fn connect(&mut self) {
        let ways = self.places.ways(&self.cluster);
        self.links.retain(|peer, _| ways.contains(peer));
        for peer in ways {
            let ends = &self.ends;
            self.links.entry(peer).or_insert_with_key(|peer| Link::open(peer.clone(), ends.clone()));
        }
    }

    /// The way to a voter: one on which it answers, if there is any.
    fn link(&self, voter: VoterId) -> Option<&Link> {
        let name = self.cluster.address_of(voter)?.name();
        let mut links = self.links.values().filter(|link| link.peer.name() == name);
        let first = links.clone().next();
        links.find(|link| matches!(link.state(), State::Up { voter: there, .. } if there == voter)).or(first)
    }

    /// Whether a voter is there and knows what an echo is.
    pub(super) fn can_echo(&self, voter: VoterId) -> bool {
        let state = self.link(voter).map(Link::state);
        matches!(state, Some(State::Up { voter: there, echoes: true, .. }) if there == voter)
    }

    /// Waits until each voter, by the latest that is known here, has been reached or could not be.
    pub(super) async fn settle(&mut self) {
        self.catch_up();
        for link in self.links.values_mut() {
            link.settled().await;
        }
    }

    /// What stands in the way to a voter, if anything.
    pub(super) fn trouble(&self, voter: VoterId) -> Option<String> {
        match self.link(voter).map(Link::state)? {
            State::Down(why) => Some(why),
            State::Begun => Some("it does not answer".to_owned()),
            State::Up { voter: there, .. } => (there != voter).then(|| "another voter answers there".to_owned()),
        }
    }

    /// These are the voters, says somebody who can know. Questions from now on are for them, if they are later ones.
    pub(super) fn learn(&mut self, cluster: &Cluster) {
        if cluster.is_same(&self.cluster) && cluster.number() > self.cluster.number() {
            self.cluster = cluster.clone();
            self.places.note(cluster);
            self.connect();
        }
    }

    /// Takes note of what others here have heard of.
    fn catch_up(&mut self) {
        if let Some(known) = self.places.known() {
            self.learn(&known);
        }
    }

    /// Asks a voter. An answer or word that there will be none comes from [`heard`](Self::heard). A voter that may have missed
    /// an exchange is told first that there was one, and asks the others: it would not answer otherwise.
    pub(super) fn ask(&mut self, voter: VoterId, tag: u64, body: Body) {
        let number = self.cluster.number();
        let asked = self.link(voter).is_some_and(|link| {
            let listens = |state| match state {
                State::Up { cluster: Some(known), gives_evidence, .. } => gives_evidence && known.number() < number,
                _ => false,
            };
            if number > 0 && self.told.get(&voter) != Some(&number) && listens(link.state()) {
                link.ask(voter, TOLD | number, Body::Behind(number));
            }
            link.ask(voter, tag, body)
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
        answers.retain(|_, body| !matches!(body, Body::Refused(refused) if refused.is_denied));
        if voter_set.is_quorum(|voter| answers.contains_key(&voter)) {
            Ok(answers)
        } else {
            Err(self.denied().map_or_else(|| StoreError::Unreachable(self.reasons()), StoreError::Unusable))
        }
    }

    /// What comes back next.
    pub(super) async fn heard(&mut self) -> Heard {
        if let Some((voter, tag)) = self.lost.pop_front() {
            return Heard::Lost(voter, tag);
        }
        match self.back.recv().await {
            Some(heard) => self.noted(heard),
            None => std::future::pending().await,
        }
    }

    /// What has come back already, if anything.
    fn heard_already(&mut self) -> Option<Heard> {
        if let Some((voter, tag)) = self.lost.pop_front() {
            return Some(Heard::Lost(voter, tag));
        }
        let heard = self.back.try_recv().ok()?;
        Some(self.noted(heard))
    }

    /// Whatever else it says, it may tell of later voters.
    fn noted(&mut self, heard: Heard) -> Heard {
        match &heard {
            Heard::Moved(cluster) => self.learn(cluster),
            Heard::Answer(voter, tag @ TOLD.., _) => drop(self.told.insert(*voter, tag ^ TOLD)),
            Heard::Answer(voter, _, body) => {
                if let Body::Moved(cluster) = &**body
                    && let Ok(cluster) = Cluster::try_from(cluster.clone())
                {
                    if cluster.number() < self.cluster.number() {
                        // It could not find out yet.
                        self.told.remove(voter);
                    }
                    self.learn(&cluster);
                }
                if let Body::Refused(refused) = &**body
                    && refused.is_denied
                {
                    self.denied = Some(primacy_core::ids::escape(&refused.why));
                }
            }
            Heard::Lost(..) | Heard::Hint => {}
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
        match &self.places.way {
            Way::Network(_) => None,
            Way::Socket(path) => Some(path),
        }
    }

    /// By what it is proven here who asks, if it is.
    pub(super) fn tls(&self) -> Option<&Tls> {
        match &self.places.way {
            Way::Network(tls) => tls.as_deref(),
            Way::Socket(_) => None,
        }
    }

    /// Whether all voters are on this machine.
    pub(super) fn is_here(&self) -> bool {
        let voters = self.cluster.addresses().map(|(_, peer)| peer);
        voters.chain(&self.places.peers).all(PeerAddress::is_here)
    }
}

/// Why more voters than usual are needed, if they are.
fn joint(cluster: &Cluster) -> String {
    let Some(incoming) = cluster.incoming() else { return String::new() };
    let old = cluster.names().collect::<Vec<_>>().join(", ");
    let new = incoming.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
    format!(" (an exchange of voters is under way: it takes more than half of {old} and of {new})")
}

/// The latest voters that are told of, first by so many peers that were named. A peer of another cluster that has come among
/// them is passed over: what counts is what is known already, or else what more than half of those that were named tell. Fewer
/// are enough if all others are silent, which is known when nobody `may_tell` any more: voters may have been exchanged.
fn cluster_of(
    known: Option<Cluster>,
    told: &[Option<Cluster>],
    named: usize,
    may_tell: bool,
) -> Result<Option<Cluster>, StoreError> {
    let all: Vec<&Cluster> = told.iter().flatten().collect();
    let by_named = || told.iter().take(named).flatten();
    let tell = |one: &Cluster| by_named().filter(|other| other.is_same(one)).count();
    let own = match (&known, all.first()) {
        (None, None) => return Ok(None),
        (Some(known), Some(_)) if !all.iter().any(|other| other.is_same(known)) => {
            let why = "other voters than before answer there: this candidate has to start anew";
            return Err(StoreError::Unusable(why.to_owned()));
        }
        (Some(known), _) => known,
        (None, Some(first)) if all.iter().all(|other| other.is_same(first)) => {
            if may_tell && tell(first) * 2 <= named {
                return Ok(None);
            }
            first
        }
        (None, Some(_)) => by_named().find(|one| tell(one) * 2 > named).ok_or_else(|| {
            let why = "the peers that were named belong to different clusters: name those of one";
            StoreError::Unusable(why.to_owned())
        })?,
    };
    let same = known.iter().chain(all).filter(|cluster| cluster.is_same(own));
    Ok(same.max_by_key(|cluster| cluster.number()).cloned())
}

/// The voters that somebody tells of who has been reached.
fn told(state: &State) -> Option<Cluster> {
    match state {
        State::Up { cluster, .. } => cluster.clone(),
        State::Begun | State::Down(_) => None,
    }
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

/// Carries out one call: `begin` begins it, and `dress` makes a message of each of its questions.
pub(super) async fn carry_out(
    pool: &mut Pool,
    calls: &mut QuorumCalls,
    begin: impl FnOnce(&mut QuorumClient, &mut Vec<Output>),
    dress: impl Fn(Asked) -> Question,
) -> (Result<Reply, CallError>, Beside) {
    let mut beside = Beside::default();
    let mut out = Vec::new();
    pool.denied = None;
    pool.catch_up();
    calls.abandon();
    calls.moved(pool.cluster.voter_set(), clock::now(), &mut out);
    // What came too late for the last call may still be worth something: a voter that has to catch up.
    while let Some(heard) = pool.heard_already() {
        tell(pool, calls, heard, &mut beside, &mut out);
        send(pool, &mut out, &dress);
    }
    beside.told.clear();
    calls.begin(begin, clock::now(), &mut out);
    loop {
        if let Some(result) = send(pool, &mut out, &dress) {
            return (result, beside);
        }
        let now = clock::now();
        let due = calls.due(now).unwrap_or(Instant::FAR);
        // Who would only make an answer surer is not waited for as if it were needed, and who is late is asked again.
        match tokio::time::timeout(due.since(now), pool.heard()).await {
            Ok(heard) => tell(pool, calls, heard, &mut beside, &mut out),
            Err(_) => calls.act(clock::now(), &mut out),
        }
    }
}

/// Sends what the quorum client wants sent, and gives the result of its call if that is over.
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
                let voters = pool.cluster.number();
                pool.ask(to, round.0, Body::Ask(Question { voters, ..dress(asked) }));
            }
            Output::Done(result) => done = Some(result),
        }
    }
    done
}

fn tell(pool: &Pool, calls: &mut QuorumCalls, heard: Heard, beside: &mut Beside, out: &mut Vec<Output>) {
    let now = clock::now();
    if pool.cluster.number() > calls.client().voter_set().number() {
        // What was told beside answers of other voters is told again.
        beside.told.clear();
        return calls.moved(pool.cluster.voter_set(), now, out);
    }
    match heard {
        Heard::Answer(_, TOLD.., _) | Heard::Lost(_, TOLD..) => {}
        Heard::Answer(voter, tag, body) => match answer(&body) {
            Ok(None) => calls.unheard(voter, Round(tag), now, out),
            Ok(Some(told)) => {
                let counts = Round(tag) == calls.client().round();
                calls.answered(voter, Round(tag), told.answer.clone(), now, out);
                // A late answer may be about an earlier call, and at an operator's about another election.
                if counts {
                    beside.told.insert(voter, told);
                }
            }
            Err(error) => {
                warn!(%voter, %error, "an answer cannot be used");
                calls.unheard(voter, Round(tag), now, out);
            }
        },
        Heard::Lost(voter, tag) => calls.unheard(voter, Round(tag), now, out),
        Heard::Hint | Heard::Moved(_) => {}
    }
}

/// What a voter has answered; nothing, if it does not vote yet, or not with those it was asked as one of: the asker may
/// know sooner or later than it.
fn answer(body: &Body) -> Result<Option<Told>, Malformed> {
    match body {
        Body::Answer(reply) => reply.try_into().map(Some),
        Body::Refused(refused) => {
            debug!(why = %primacy_core::ids::escape(&refused.why), "no answer");
            Ok(None)
        }
        // To a question of other voters; what it tells has been learned by now.
        Body::Moved(_) => Ok(None),
        _ => Err(Malformed("an answer to another question")),
    }
}

#[cfg(test)]
mod tests {
    use primacy_core::quorum::Configuration as _;

    use super::super::cluster::Roster;
    use super::*;
    use crate::peers::wire::Refused;

    fn cluster(first: u128) -> Cluster {
        let voter = |(name, n): (&str, u128)| {
            let place = format!("{name}@h{n}:1").parse().expect("an address");
            (name.to_owned(), (VoterId::from_bits(first + n), place))
        };
        Cluster::of([("a", 1), ("b", 2), ("c", 3)].into_iter().map(voter).collect::<Roster>())
    }

    #[test]
    fn a_peer_of_another_cluster_is_passed_over_and_a_majority_of_others_is_refused() {
        let (own, other) = (cluster(10), cluster(20));
        let later = own.joint(cluster(10).voters().clone()).settled().expect("it is joint");
        let (is_own, is_other, silent) = (|| Some(own.clone()), || Some(other.clone()), || None);
        let chosen = |known: Option<Cluster>, told: &[Option<Cluster>]| cluster_of(known, told, 3, false).ok();
        let while_others_may = |told: &[Option<Cluster>]| cluster_of(None, told, 3, true).ok();
        assert_eq!(while_others_may(&[is_other(), silent(), silent()]), Some(None), "one does not speak for all");
        assert_eq!(while_others_may(&[is_own(), silent(), is_own()]), Some(is_own()));
        assert_eq!(chosen(None, &[silent(), silent(), silent()]), Some(None));
        assert_eq!(chosen(None, &[silent(), is_own(), silent()]), Some(is_own()));
        assert_eq!(chosen(None, &[is_other(), is_own(), is_own()]), Some(is_own()));
        assert_eq!(chosen(None, &[is_own(), is_other(), Some(later.clone())]), Some(Some(later.clone())));
        // One against one is no majority, and nobody counts that was not named.
        assert_eq!(chosen(None, &[is_own(), is_other(), silent()]), None);
        assert_eq!(chosen(None, &[is_own(), silent(), is_other(), is_own(), is_own()]), None);
        // What is known is never left for another.
        assert_eq!(chosen(is_own(), &[is_other(), is_other(), is_own()]), Some(is_own()));
        assert_eq!(chosen(Some(later.clone()), &[silent(), is_own(), silent()]), Some(Some(later)));
        assert_eq!(chosen(is_own(), &[is_other(), silent(), silent()]), None);
    }

    #[test]
    fn a_voter_that_does_not_vote_yet_has_not_answered_and_one_that_talks_nonsense_is_told_of() {
        let why = "'c' waits for the other voters".to_owned();
        let passing = Body::Refused(Refused { why, is_passing: true, is_denied: false });
        assert!(matches!(answer(&passing), Ok(None)));
        assert!(answer(&Body::Left(true)).is_err());
    }
}
