//! Every order of messages among three peers of either form: what can happen when they are slow, or one restarts.
//!
//! A message that is lost is one that comes too late to matter. Each peer has a clock of its own, which stands still or
//! goes to its next deadline, so that any timer may run out before any message comes. Beside each peer is a voter with
//! one vote for each term, on disk: the smallest thing that makes a preference safe.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::hash::Hash;

use primacy_core::Instant;
use primacy_core::contest::pole::{Kept, PUBLISHED_WAIT, Pole, PoleSettings, Published};
use primacy_core::contest::{Contest, Context, Effect, Event, PeerId};
use primacy_core::select::{Rank, Score};
use stateright::{Model, Property};

use crate::model::Searched;

pub(super) const ONE_LEADER: &str = "no two peers name themselves";
pub(super) const RISING: &str = "who names itself has a number above all before it";
pub(super) const ONE_GRANT: &str = "no term is granted twice";
pub(super) const GRANTED: &str = "a nominee is granted its term";
pub(super) const SPLIT: &str = "two nominees ask in one term";

/// A form of POLE that can be searched. Nominees of the published one lead; those of the repaired one ask for the grant.
pub trait Searchable: Contest<Message: Ord + Send + Sync> + Clone + Debug + Eq + Hash + Send + Sync + 'static {
    /// Whether nominees ask for a grant.
    const ASKS: bool;
    /// A peer that starts with what is kept of its number. The third is the best.
    fn start(index: usize, kept: u64) -> Self;
    /// The number of its last nomination: an epoch or a term.
    fn number(&self) -> u64;
}

impl Searchable for Published<Option<Score>> {
    const ASKS: bool = false;

    fn start(index: usize, _kept: u64) -> Self {
        Self::new(peer(index), (0..PEERS).map(peer), PUBLISHED_WAIT, Some(Score::from(i32::from(peer(index).0))))
    }

    fn number(&self) -> u64 {
        self.epoch()
    }
}

impl Searchable for Pole {
    const ASKS: bool = true;

    fn start(index: usize, kept: u64) -> Self {
        let mut pole = Self::new(peer(index), (0..PEERS).map(peer), PoleSettings::default(), Kept { term: kept });
        pole.set_rank(Some(Rank::new(&[-i32::from(peer(index).0)]).expect("one element")));
        pole
    }

    fn number(&self) -> u64 {
        self.kept().term
    }
}

const PEERS: usize = 3;

fn peer(index: usize) -> PeerId {
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

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Seat<C> {
    contest: C,
    clock: Instant,
    opinion: Option<PeerId>,
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
    seats: Vec<Seat<C>>,
    packets: Vec<Packet<C::Message>>,
    wakes: u8,
    /// The highest number with which one named itself.
    highest: u64,
    fell: bool,
    granted: BTreeMap<u64, PeerId>,
    twice: bool,
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
}

impl<C: Searchable> Peers<C> {
    fn tell(&mut self, to: PeerId, event: Event<C::Message>) {
        let seat = &mut self.seats[index(to)];
        let mut effects = Vec::new();
        seat.contest.handle(event, &mut Context { now: seat.clock, entropy: &mut || 0, effects: &mut effects });
        for effect in effects {
            match effect {
                Effect::Send { to: other, message } => self.packets.push((to, other, Content::Contest(message))),
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
                self.packets.push((by, other, Content::Ask(number)));
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
                    self.packets.push((to, from, Content::Yes(term)));
                }
            }
            Content::Yes(term) => self.agreed(to, from, term),
        }
    }

    fn restart(&mut self, who: PeerId, setup: &PoleSetup) {
        let seat = &mut self.seats[index(who)];
        let kept = if setup.terms_are_forgotten { 0 } else { seat.contest.number() };
        seat.contest = C::start(index(who), kept);
        seat.opinion = None;
        seat.asks = None;
        seat.may_find_vacant = true;
        if setup.votes_are_forgotten {
            seat.vote = (0, None);
        }
    }

    fn tidy(&mut self) {
        self.packets.sort_unstable();
    }

    fn split(&self) -> bool {
        let terms: Vec<u64> = self.seats.iter().filter_map(|seat| Some(seat.asks.as_ref()?.0)).collect();
        terms.iter().collect::<BTreeSet<_>>().len() < terms.len()
    }

    fn leaders(&self) -> usize {
        self.seats.iter().enumerate().filter(|(at, seat)| seat.opinion == Some(peer(*at))).count()
    }
}

impl<C: Searchable> PoleModel<C> {
    /// The model of a setup.
    pub fn new(setup: PoleSetup) -> Self {
        let seat = |at| Seat {
            contest: C::start(at, 0),
            clock: Instant::ZERO,
            opinion: None,
            may_find_vacant: setup.vacancies[at],
            may_restart: setup.restarts[at],
            asks: None,
            vote: (0, None),
        };
        let mut start = Peers {
            seats: (0..PEERS).map(seat).collect(),
            packets: Vec::new(),
            wakes: setup.wakes,
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
        start.tidy();
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
        for (at, seat) in peers.seats.iter().enumerate() {
            if seat.may_find_vacant {
                actions.push(PoleStep::Vacant(peer(at)));
            }
            if peers.wakes > 0 && seat.contest.deadline().is_some() {
                actions.push(PoleStep::Wake(peer(at)));
            }
            if seat.may_restart {
                actions.push(PoleStep::Restart(peer(at)));
            }
        }
        for (at, packet) in peers.packets.iter().enumerate() {
            if at == 0 || peers.packets[at - 1] != *packet {
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
                peers.wakes -= 1;
                let seat = &mut peers.seats[index(who)];
                seat.clock = seat.clock.max(seat.contest.deadline()?);
                peers.tell(who, Event::Wake);
            }
            PoleStep::Deliver { at, .. } => peers.deliver(at),
            PoleStep::Restart(who) => {
                peers.seats[index(who)].may_restart = false;
                peers.restart(who, &self.setup);
            }
        }
        peers.tidy();
        Some(peers)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        if C::ASKS {
            let mut properties = vec![
                Property::always(ONE_GRANT, |_, peers: &Peers<C>| !peers.twice),
                Property::sometimes(GRANTED, |_, peers: &Peers<C>| !peers.granted.is_empty()),
            ];
            // The next in line asks when its timer has run out.
            if self.setup.wakes > 0 {
                properties.push(Property::sometimes(SPLIT, |_, peers: &Peers<C>| peers.split()));
            }
            return properties;
        }
        vec![
            Property::always(ONE_LEADER, |_, peers: &Peers<C>| peers.leaders() < 2),
            Property::always(RISING, |_, peers: &Peers<C>| !peers.fell),
        ]
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
