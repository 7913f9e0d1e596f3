//! Every order of messages among three peers of either form: what can happen when they are slow, or one restarts.
//!
//! A message that is lost is one that comes too late to matter. Each peer has a clock of its own, which stands still or
//! goes to its next deadline, so that any timer may run out before any message comes. Beside each peer is a voter with
//! one vote for each term, on disk: the smallest thing that makes a preference safe.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::hash::Hash;

use primacy_core::Instant;
use primacy_core::contest::{Contest, Context, Effect, Event, PeerId};
use primacy_core::select::{Score, ScoreOracle};
use stateright::{Model, Property};

use primacy_sim::search::Searched;

/// A form of POLE that can be searched. Nominees of the published one lead; those of the repaired one ask for the grant.
pub trait Searchable: Contest<Message: Ord + Send + Sync> + Clone + Debug + Eq + Hash + Send + Sync + 'static {
    /// Whether nominees ask for a grant.
    const ASKS: bool;
    /// A peer that starts with what is kept of its number. The third is the best.
    fn start(index: usize, kept: u64, setup: &PoleSetup) -> Self;
    /// The number of its last nomination: an epoch or a term.
    fn number(&self) -> u64;
    /// What must hold, and what must occur.
    fn properties(setup: &PoleSetup) -> Vec<Property<PoleModel<Self>>>;
}

/// The score of a peer: its number, or whose turn it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Sampled {
    pub(super) index: u8,
    /// In each epoch another is the best.
    pub(super) jitters: bool,
}

impl ScoreOracle for Sampled {
    fn score(&self, epoch: u64) -> Option<Score> {
        let shift = if self.jitters { epoch } else { 0 };
        Some(Score::from(i32::try_from((u64::from(self.index) + shift) % PEERS as u64).expect("a few")))
    }
}

/// How many take part.
pub(super) const PEERS: usize = 3;

pub(super) fn peer(index: usize) -> PeerId {
    PeerId(u16::try_from(index + 1).expect("a few"))
}

fn index(peer: PeerId) -> usize {
    usize::from(peer.0) - 1
}

/// What is searched.
#[derive(Clone, Copy, Debug, Default)]
pub struct PoleSetup {
    /// For the table.
    pub name: &'static str,
    /// The number in which the first peer leads at the start, with all messages delivered; 0 is nobody, and all are new.
    pub led: u64,
    /// Who may find that nobody leads, once each.
    pub vacancies: [bool; PEERS],
    /// How many timers may run out, over a whole history.
    pub wakes: u8,
    /// Which peers may restart, once each.
    pub restarts: [bool; PEERS],
    /// Who has crashed before.
    pub dead: [bool; PEERS],
    /// Messages from one peer to another keep their order.
    pub in_order: bool,
    /// How many may crash for ever.
    pub crashes: u8,
    /// How often all may restart at once, while messages are under way.
    pub full_restarts: u8,
    /// How many may go deaf for ever while nothing is under way: they are heard, and hear nothing.
    pub deaf: u8,
    /// In each epoch another peer has the best score.
    pub jitters: bool,
    /// It is asked what goes on for ever once there are no more faults, with timers that run out as often as it takes. Where all
    /// have named one that cannot lead, all start again. The published form's timers are all due at once.
    pub for_ever: bool,
    /// The one property that is looked at. Without others the first history that breaks it is the shortest.
    pub only: Option<&'static str>,
    /// A planted bug: voters do not keep their votes.
    pub votes_are_forgotten: bool,
    /// A planted bug: peers do not keep their terms.
    pub terms_are_forgotten: bool,
}

/// The model of a setup.
#[derive(Clone, Debug)]
pub struct PoleModel<C: Contest> {
    setup: PoleSetup,
    start: Peers<C>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Content<M> {
    Contest(M),
    Ask(u64),
    Yes(u64),
}

type Packet<M> = (PeerId, PeerId, Content<M>);

/// One peer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Seat<C> {
    /// Its machine.
    pub contest: C,
    /// The time there.
    pub clock: Instant,
    /// Whom it named last.
    pub opinion: Option<PeerId>,
    /// Whether it has crashed.
    pub is_dead: bool,
    /// Whether it hears nothing.
    pub is_deaf: bool,
    may_find_vacant: bool,
    may_restart: bool,
    /// As a nominee: the term that it asks for, and who said yes.
    asks: Option<(u64, BTreeSet<PeerId>)>,
    /// As a voter: the highest term, and for whom.
    vote: (u64, Option<PeerId>),
}

/// Everything at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Peers<C: Contest> {
    /// The peers.
    pub seats: Vec<Seat<C>>,
    packets: Vec<Packet<C::Message>>,
    wakes: u8,
    crashes: u8,
    full_restarts: u8,
    deaf: u8,
    is_endless: bool,
    /// The highest number with which one named itself.
    highest: u64,
    /// Whether one named itself with a lower one.
    pub fell: bool,
    /// Who was granted which term.
    pub granted: BTreeMap<u64, PeerId>,
    /// Whether a term was granted again.
    pub twice: bool,
}

/// What happens next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoleStep {
    /// A peer finds that nobody leads.
    Vacant(PeerId),
    /// A peer's timer runs out.
    Wake(PeerId),
    /// The message of this number arrives.
    Deliver {
        /// Its place among those under way.
        at: usize,
        /// Whose it is.
        from: PeerId,
        /// To whom.
        to: PeerId,
    },
    /// A peer restarts.
    Restart(PeerId),
    /// A peer crashes.
    Crash(PeerId),
    /// From now on nothing reaches it.
    Deafen(PeerId),
    /// All restart: nobody follows whom all have named, or they lose their power.
    StartAgain,
}

impl<C: Searchable> Peers<C> {
    fn push(&mut self, from: PeerId, to: PeerId, content: Content<C::Message>) {
        let seat = &self.seats[index(to)];
        let packet = (from, to, content);
        // Where there is no end to what may be sent, of equal messages all but one are lost.
        let is_lost = seat.is_dead || seat.is_deaf || self.is_endless && self.packets.contains(&packet);
        if !is_lost {
            self.packets.push(packet);
        }
    }

    fn tell(&mut self, to: PeerId, event: Event<C::Message>) {
        let seat = &mut self.seats[index(to)];
        let mut effects = Vec::new();
        seat.contest.handle(event, &mut Context { now: seat.clock, entropy: &mut || 0, effects: &mut effects });
        for effect in effects {
            match effect {
                Effect::Send { to: other, message } => self.push(to, other, Content::Contest(message)),
                Effect::Nominate(nominee) => self.nominated(to, nominee),
            }
        }
    }

    fn nominated(&mut self, by: PeerId, nominee: PeerId) {
        let seat = &mut self.seats[index(by)];
        seat.opinion = Some(nominee);
        if by != nominee {
            return;
        }
        let number = seat.contest.number();
        self.fell |= number < self.highest;
        self.highest = self.highest.max(number);
        if C::ASKS {
            seat.asks = Some((number, BTreeSet::new()));
            for other in (0..PEERS).map(peer).filter(|other| *other != by) {
                self.push(by, other, Content::Ask(number));
            }
            if self.vote(by, by, number) {
                self.agreed(by, by, number);
            }
        }
    }

    /// One vote for each term.
    fn vote(&mut self, voter: PeerId, candidate: PeerId, term: u64) -> bool {
        let vote = &mut self.seats[index(voter)].vote;
        if term > vote.0 {
            *vote = (term, Some(candidate));
        }
        *vote == (term, Some(candidate))
    }

    fn agreed(&mut self, nominee: PeerId, voter: PeerId, term: u64) {
        let Some((asked, voters)) = &mut self.seats[index(nominee)].asks else { return };
        if *asked != term {
            return;
        }
        voters.insert(voter);
        if voters.len() > PEERS / 2 {
            self.seats[index(nominee)].asks = None;
            self.twice |= self.granted.insert(term, nominee).is_some();
        }
    }

    fn deliver(&mut self, at: usize) {
        let (from, to, content) = self.packets.remove(at);
        match content {
            Content::Contest(message) => self.tell(to, Event::Heard { from, message }),
            Content::Ask(term) => {
                if self.vote(to, from, term) {
                    self.push(to, from, Content::Yes(term));
                }
            }
            Content::Yes(term) => self.agreed(to, from, term),
        }
    }

    fn restart(&mut self, who: PeerId, setup: &PoleSetup) {
        let seat = &mut self.seats[index(who)];
        let kept = if setup.terms_are_forgotten { 0 } else { seat.contest.number() };
        seat.contest = C::start(index(who), kept, setup);
        seat.opinion = None;
        seat.asks = None;
        seat.may_find_vacant = true;
        if setup.votes_are_forgotten {
            seat.vote = (0, None);
        }
    }

    fn tidy(&mut self, in_order: bool) {
        if in_order {
            self.packets.sort_by_key(|packet| (packet.0, packet.1));
        } else {
            self.packets.sort_unstable();
        }
    }

    /// Whether nothing is under way.
    pub fn is_quiet(&self) -> bool {
        self.packets.is_empty()
    }

    /// Whether two ask for the grant of one term.
    pub fn split(&self) -> bool {
        let terms: Vec<u64> = self.seats.iter().filter_map(|seat| Some(seat.asks.as_ref()?.0)).collect();
        terms.iter().collect::<BTreeSet<_>>().len() < terms.len()
    }

    /// How many name themselves.
    pub fn leaders(&self) -> usize {
        self.seats.iter().enumerate().filter(|(at, seat)| seat.opinion == Some(peer(*at))).count()
    }

    /// Those who have not crashed.
    pub fn living(&self) -> impl Iterator<Item = &Seat<C>> {
        self.seats.iter().filter(|seat| !seat.is_dead)
    }

    /// That one.
    pub fn seat(&self, peer: PeerId) -> &Seat<C> {
        &self.seats[index(peer)]
    }

    /// Whether a majority follows one that takes itself for the leader, and hears them.
    pub fn is_led(&self) -> bool {
        (0..PEERS).map(peer).any(|leader| {
            let followers = self.living().filter(|seat| seat.opinion == Some(leader)).count();
            let seat = self.seat(leader);
            seat.opinion == Some(leader) && !seat.is_dead && !seat.is_deaf && followers > PEERS / 2
        })
    }

    /// Whether all who hear follow a deaf one, and nothing else is under way.
    pub fn is_in_vain(&self) -> bool {
        let mut hearing = self.living().filter(|seat| !seat.is_deaf);
        self.is_quiet() && hearing.all(|seat| seat.opinion.is_some_and(|leader| self.seat(leader).is_deaf))
    }

    /// The same without any more faults, where timers run out as often as it takes.
    pub fn in_peace(&self) -> Self {
        Self { crashes: 0, full_restarts: 0, deaf: 0, wakes: 0, is_endless: true, ..self.clone() }
    }
}

impl<C: Searchable> PoleModel<C> {
    /// The model of a setup.
    pub fn new(setup: PoleSetup) -> Self {
        let seat = |at| Seat {
            contest: C::start(at, 0, &setup),
            clock: Instant::ZERO,
            opinion: None,
            is_dead: setup.dead[at],
            is_deaf: false,
            may_find_vacant: setup.vacancies[at],
            may_restart: setup.restarts[at],
            asks: None,
            vote: (0, None),
        };
        let mut start = Peers {
            seats: (0..PEERS).map(seat).collect(),
            packets: Vec::new(),
            wakes: setup.wakes,
            crashes: setup.crashes,
            full_restarts: setup.full_restarts,
            deaf: setup.deaf,
            is_endless: false,
            highest: setup.led,
            fell: false,
            granted: BTreeMap::new(),
            twice: false,
        };
        for _ in 0..setup.led {
            for who in (0..PEERS).map(peer) {
                start.tell(who, Event::Vacant);
            }
            while !start.packets.is_empty() {
                start.deliver(0);
            }
            for who in (0..PEERS).map(peer) {
                start.tell(who, Event::Led(peer(0)));
            }
            while !start.packets.is_empty() {
                start.deliver(0);
            }
        }
        // All tell each other once more, and have heard of each other's last number.
        let due = start.seats.iter().filter_map(|seat| seat.contest.deadline()).max();
        for (who, due) in (0..PEERS).map(peer).zip(due.into_iter().cycle()) {
            start.seats[index(who)].clock = due;
            start.tell(who, Event::Wake);
        }
        while !start.packets.is_empty() {
            start.deliver(0);
        }
        for (at, seat) in start.seats.iter_mut().enumerate() {
            seat.opinion = Some(peer(0)).filter(|_| setup.led > 0);
            seat.asks = None;
            seat.vote = (if C::ASKS { setup.led } else { 0 }, None);
            seat.may_find_vacant = setup.vacancies[at];
        }
        start.fell = false;
        start.twice = false;
        start.granted.clear();
        start.highest = start.seats.iter().map(|seat| seat.contest.number()).max().unwrap_or(0);
        start.tidy(setup.in_order);
        Self { setup, start }
    }
}

impl<C: Searchable> Model for PoleModel<C> {
    type State = Peers<C>;
    type Action = PoleStep;

    fn init_states(&self) -> Vec<Peers<C>> {
        vec![self.start.clone()]
    }

    fn actions(&self, peers: &Peers<C>, actions: &mut Vec<PoleStep>) {
        if peers.is_endless && peers.is_in_vain() || peers.full_restarts > 0 {
            actions.push(PoleStep::StartAgain);
        }
        for (at, seat) in peers.seats.iter().enumerate().filter(|(_, seat)| !seat.is_dead) {
            if peers.crashes > 0 {
                actions.push(PoleStep::Crash(peer(at)));
            }
            if peers.deaf > 0 && peers.is_quiet() {
                actions.push(PoleStep::Deafen(peer(at)));
            }
            if seat.may_find_vacant {
                actions.push(PoleStep::Vacant(peer(at)));
            }
            if (peers.wakes > 0 || peers.is_endless) && seat.contest.deadline().is_some() {
                actions.push(PoleStep::Wake(peer(at)));
            }
            if seat.may_restart {
                actions.push(PoleStep::Restart(peer(at)));
            }
        }
        for (at, packet) in peers.packets.iter().enumerate() {
            let comes_after = |other: &Packet<C::Message>| (other.0, other.1) == (packet.0, packet.1);
            let is_late = self.setup.in_order && peers.packets[..at].iter().any(comes_after);
            if !is_late && (at == 0 || peers.packets[at - 1] != *packet) {
                actions.push(PoleStep::Deliver { at, from: packet.0, to: packet.1 });
            }
        }
    }

    fn next_state(&self, before: &Peers<C>, step: PoleStep) -> Option<Peers<C>> {
        let mut peers = before.clone();
        match step {
            PoleStep::Vacant(who) => {
                peers.seats[index(who)].may_find_vacant = false;
                peers.tell(who, Event::Vacant);
            }
            PoleStep::Wake(who) => {
                peers.wakes = peers.wakes.saturating_sub(1);
                let seat = &mut peers.seats[index(who)];
                seat.clock = seat.clock.max(seat.contest.deadline()?);
                peers.tell(who, Event::Wake);
            }
            PoleStep::Deliver { at, .. } => peers.deliver(at),
            PoleStep::Restart(who) => {
                peers.seats[index(who)].may_restart = false;
                peers.restart(who, &self.setup);
            }
            PoleStep::Crash(who) => {
                peers.crashes -= 1;
                peers.seats[index(who)].is_dead = true;
                peers.packets.retain(|packet| packet.1 != who);
            }
            PoleStep::Deafen(who) => {
                peers.deaf -= 1;
                peers.seats[index(who)].is_deaf = true;
                peers.packets.retain(|packet| packet.1 != who);
            }
            PoleStep::StartAgain => {
                peers.full_restarts = peers.full_restarts.saturating_sub(1);
                for at in 0..PEERS {
                    peers.restart(peer(at), &self.setup);
                    peers.seats[at].may_find_vacant = self.setup.vacancies[at];
                }
            }
        }
        peers.tidy(self.setup.in_order);
        Some(peers)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = C::properties(&self.setup);
        properties.retain(|property| self.setup.only.is_none_or(|only| property.name == only));
        properties
    }
}

impl<C: Searchable> Searched for PoleModel<C> {
    fn name(&self) -> &'static str {
        self.setup.name
    }

    fn describe(peers: &Peers<C>) -> String {
        let seat = |(at, seat): (usize, &Seat<C>)| {
            let (who, number) = (peer(at), seat.contest.number());
            format!("\n             {who} at {}: number {number}, names {:?}", seat.clock, seat.opinion)
        };
        peers.seats.iter().enumerate().map(seat).collect()
    }
}
