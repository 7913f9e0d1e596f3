//! A complete search of what peers of a small ring can do: the real machines under every order of messages.
//!
//! Messages from one peer to another keep their order, as over one connection, or not; each may take as long as it likes. By a
//! budget an adversary makes peers start, suspect each other, crash, come back and lose patience. Every clock stands still until
//! its peer loses patience: then it jumps to the deadline.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::hash::Hash;

use primacy_core::Instant;
use primacy_core::contest::{Contest, Context, Effect, Event, PeerId};
use stateright::{Model, Property};

use primacy_sim::search::Searched;

/// Of the published form, and the one property for which it is remembered who had won ([`World::over`]).
pub const LATE: &str = "once an election is over, what is late of it makes no other leader";

/// A machine that can be searched.
pub trait Subject: Contest<Message: Ord + Send + Sync> + Clone + Debug + Eq + Hash + Send + Sync + 'static {
    /// The election in which it has just nominated itself, if it then asks for a grant.
    fn asks_in(&self) -> Option<u64>;
    /// As that peer comes back from a crash, if it does, with its disk or without.
    fn revived(&self, me: PeerId, has_disk: bool) -> Option<Self>;
    /// Whether an election is over, in everybody's eyes who has heard of it.
    fn is_over(world: &World<Self>) -> bool;
    /// What must hold, and what must occur.
    fn properties(search: &Search<Self>) -> Vec<Property<Search<Self>>>;
}

/// What may happen beside messages that come.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Budget {
    /// Who may find, once, that nobody leads.
    pub starts: BTreeSet<PeerId>,
    /// How often a peer may come to suspect another that lives.
    pub suspicions: u8,
    /// How many may crash. Others may then come to know it.
    pub crashes: u8,
    /// How many of those may come back.
    pub returns: u8,
    /// Whether they come back without what their disk has kept: a planted bug.
    pub loses_disk: bool,
    /// How often somebody may lose patience.
    pub wakes: u8,
    /// How many may go deaf for ever: they are heard, so nobody suspects them, and hear nothing.
    pub deaf: u8,
    /// How often one may be cut off from all others for a while. Each side may then suspect the other.
    pub cuts: u8,
    /// A peer that follows nobody that leads may start, and timers may run out, as often as it takes. Of equal messages
    /// on the same way all but one are lost, so that there is an end to what can happen.
    pub endless: bool,
}

/// One search.
#[derive(Clone, Debug)]
pub struct Search<C: Subject> {
    /// For the table.
    pub name: &'static str,
    /// Where it begins.
    pub from: World<C>,
    /// Whether messages from one peer to another keep their order.
    pub in_order: bool,
    /// Whether messages are faster than any timer: it runs out when none is under way.
    pub is_prompt: bool,
    /// Whether it is asked of every state if there is a way back to a leader.
    pub asks_for_ways: bool,
    /// The one property that is looked at. Without others the first history that breaks it is the shortest.
    pub only: Option<&'static str>,
}

/// One peer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Seat<C> {
    /// Its machine, also after a crash.
    pub machine: C,
    /// Whether it runs.
    pub lives: bool,
    /// Whether it has found that nobody leads.
    pub seeks: bool,
    /// Whom it nominated last.
    pub named: Option<PeerId>,
    clock: Instant,
    suspects: BTreeSet<PeerId>,
    /// The vote that it gave in each term: what its disk keeps.
    votes: BTreeMap<u64, PeerId>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Packet<M> {
    from: PeerId,
    to: PeerId,
    content: Content<M>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Content<M> {
    Contest(M),
    /// The sender asks for the grant in that term.
    Ask(u64),
}

/// Everything at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World<C: Contest> {
    /// The peers 1, 2, …
    pub seats: Vec<Seat<C>>,
    packets: Vec<Packet<C::Message>>,
    budget: Budget,
    /// Who has asked for a grant, and who gave it a vote.
    asked: BTreeMap<(u64, PeerId), BTreeSet<PeerId>>,
    /// Whether somebody asked again in a term in which it had asked before.
    pub asked_again: bool,
    /// Who hears nothing any more.
    pub deaf: BTreeSet<PeerId>,
    /// Who is cut off from all others.
    pub cut: Option<PeerId>,
    /// Who had won when an election was over and nobody was left to start another, if that is looked at.
    pub over: Option<PeerId>,
}

/// What happens next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A peer finds that nobody leads.
    Start(PeerId),
    /// A message arrives.
    Deliver(usize),
    /// The first comes to suspect the second.
    Suspect(PeerId, PeerId),
    /// And not any more.
    Trust(PeerId, PeerId),
    /// A peer crashes.
    Crash(PeerId),
    /// It comes back.
    Return(PeerId),
    /// A peer loses patience.
    Wake(PeerId),
    /// From now on nothing reaches it.
    Deafen(PeerId),
    /// It is cut off from all others.
    Cut(PeerId),
    /// And not any more.
    Mend(PeerId),
}

impl<C: Subject> Search<C> {
    /// Messages keep their order and take as long as they like, and it is not asked for ways.
    pub fn new(name: &'static str, from: World<C>) -> Self {
        Self { name, from, in_order: true, is_prompt: false, asks_for_ways: false, only: None }
    }
}

impl<C: Subject> World<C> {
    /// The peers at the beginning.
    pub fn new(machines: Vec<C>, budget: Budget) -> Self {
        let seat = |machine| Seat {
            machine,
            lives: true,
            seeks: false,
            named: None,
            clock: Instant::ZERO,
            suspects: BTreeSet::new(),
            votes: BTreeMap::new(),
        };
        let seats = machines.into_iter().map(seat).collect();
        Self {
            seats,
            packets: Vec::new(),
            budget,
            asked: BTreeMap::new(),
            asked_again: false,
            deaf: BTreeSet::new(),
            cut: None,
            over: None,
        }
    }

    /// The same moment, from which on something else may happen.
    pub fn with(self, budget: Budget) -> Self {
        Self { budget, ..self }
    }

    fn ids(&self) -> impl Iterator<Item = PeerId> + use<C> {
        (1..).map(PeerId).take(self.seats.len())
    }

    /// That peer.
    pub fn seat(&self, peer: PeerId) -> &Seat<C> {
        &self.seats[usize::from(peer.0) - 1]
    }

    fn seat_mut(&mut self, peer: PeerId) -> &mut Seat<C> {
        &mut self.seats[usize::from(peer.0) - 1]
    }

    /// Those who run.
    pub fn living(&self) -> impl Iterator<Item = (PeerId, &Seat<C>)> {
        self.ids().zip(&self.seats).filter(|(_, seat)| seat.lives)
    }

    /// Who runs and would have itself lead.
    pub fn leaders(&self) -> usize {
        self.living().filter(|(peer, seat)| seat.named == Some(*peer)).count()
    }

    /// Whether something that a dead peer has sent is still under way.
    pub fn hears_the_dead(&self) -> bool {
        self.packets.iter().any(|packet| !self.seat(packet.from).lives)
    }

    /// Whether no message is under way.
    pub fn is_quiet(&self) -> bool {
        self.packets.is_empty()
    }

    /// Whether everybody has started who may.
    pub fn has_started(&self) -> bool {
        self.budget.starts.is_empty()
    }

    /// Whether a message of the contest is under way of which this is true.
    pub fn tells(&self, of: impl Fn(&C::Message) -> bool) -> bool {
        self.packets.iter().any(|packet| matches!(&packet.content, Content::Contest(message) if of(message)))
    }

    /// Whether all who live and hear follow one of them, who leads.
    pub fn is_led(&self) -> bool {
        let mut named = self.living().filter(|(peer, _)| !self.deaf.contains(peer)).map(|(_, seat)| seat.named);
        let first = named.next().flatten();
        first.is_some_and(|leader| self.leads(leader) && !self.deaf.contains(&leader))
            && named.all(|other| other == first)
    }

    fn leads(&self, peer: PeerId) -> bool {
        self.seat(peer).lives && self.seat(peer).named == Some(peer)
    }

    /// Whether nothing gets from one of them to the other.
    fn is_cut(&self, one: PeerId, other: PeerId) -> bool {
        self.cut.is_some_and(|cut| (cut == one) != (cut == other))
    }

    fn push(&mut self, packet: Packet<C::Message>) {
        let is_lost = self.deaf.contains(&packet.to) || self.is_cut(packet.from, packet.to);
        let is_endless = self.budget.endless && (!self.seat(packet.to).lives || self.packets.contains(&packet));
        if !is_lost && !is_endless {
            self.packets.push(packet);
        }
    }

    /// Who has asked for a grant, by term.
    pub fn asked(&self) -> impl Iterator<Item = (u64, PeerId)> {
        self.asked.keys().copied()
    }

    /// Who has a majority's votes, by term.
    pub fn granted(&self) -> impl Iterator<Item = (u64, PeerId)> {
        self.asked.iter().filter(|(_, votes)| votes.len() * 2 > self.seats.len()).map(|(asked, _)| *asked)
    }

    fn tell(&mut self, peer: PeerId, event: Event<C::Message>) {
        let seat = self.seat_mut(peer);
        let mut effects = Vec::new();
        let mut context = Context { now: seat.clock, entropy: &mut || 0, effects: &mut effects };
        seat.machine.handle(event, &mut context);
        for effect in effects {
            match effect {
                Effect::Send { to, message } => {
                    self.push(Packet { from: peer, to, content: Content::Contest(message) });
                }
                Effect::Nominate(nominee) => self.nominated(peer, nominee),
            }
        }
    }

    fn nominated(&mut self, by: PeerId, nominee: PeerId) {
        self.seat_mut(by).named = Some(nominee);
        let Some(term) = self.seat(by).machine.asks_in().filter(|_| by == nominee) else { return };
        self.asked_again |= self.asked.insert((term, by), BTreeSet::new()).is_some();
        self.ask(by, by, term);
        for to in self.ids().filter(|to| *to != by) {
            self.push(Packet { from: by, to, content: Content::Ask(term) });
        }
    }

    /// One vote for each term, and none taken back. That the answer comes late only costs time.
    fn ask(&mut self, voter: PeerId, nominee: PeerId, term: u64) {
        let vote = *self.seat_mut(voter).votes.entry(term).or_insert(nominee);
        if vote == nominee {
            self.asked.entry((term, nominee)).or_default().insert(voter);
        }
    }
}

impl<C: Subject> Model for Search<C> {
    type State = World<C>;
    type Action = Step;

    fn init_states(&self) -> Vec<World<C>> {
        vec![self.from.clone()]
    }

    fn actions(&self, world: &World<C>, actions: &mut Vec<Step>) {
        for (peer, seat) in world.ids().zip(&world.seats) {
            if !seat.lives {
                if world.budget.returns > 0 {
                    actions.push(Step::Return(peer));
                }
                continue;
            }
            let endless = world.budget.endless;
            let is_alone = endless && seat.named.is_none_or(|named| !world.leads(named));
            if world.budget.starts.contains(&peer) || is_alone {
                actions.push(Step::Start(peer));
            }
            let is_patient = self.is_prompt && !world.is_quiet();
            if (world.budget.wakes > 0 || endless) && seat.machine.deadline().is_some() && !is_patient {
                actions.push(Step::Wake(peer));
            }
            if world.budget.crashes > 0 {
                actions.push(Step::Crash(peer));
            }
            if world.budget.deaf > 0 {
                actions.push(Step::Deafen(peer));
            }
            if world.budget.cuts > 0 {
                actions.push(Step::Cut(peer));
            }
            for other in world.ids().filter(|other| *other != peer) {
                let is_there = world.seat(other).lives && !world.is_cut(peer, other);
                match seat.suspects.contains(&other) {
                    true if is_there => actions.push(Step::Trust(peer, other)),
                    false if !is_there || world.budget.suspicions > 0 => actions.push(Step::Suspect(peer, other)),
                    _ => {}
                }
            }
        }
        actions.extend(world.cut.map(Step::Mend));
        for (at, packet) in world.packets.iter().enumerate() {
            let is_same = |other: &Packet<C::Message>| (other.from, other.to) == (packet.from, packet.to);
            let comes_after = self.in_order && world.packets[..at].iter().any(is_same);
            let is_equal = at > 0 && world.packets[at - 1] == *packet;
            if !comes_after && !is_equal {
                actions.push(Step::Deliver(at));
            }
        }
    }

    fn next_state(&self, before: &World<C>, step: Step) -> Option<World<C>> {
        let mut world = before.clone();
        match step {
            Step::Start(peer) => {
                world.budget.starts.remove(&peer);
                world.seat_mut(peer).seeks = true;
                world.tell(peer, Event::Vacant);
            }
            Step::Deliver(at) => {
                let Packet { from, to, content } = world.packets.remove(at);
                match content {
                    _ if !world.seat(to).lives => {}
                    Content::Contest(message) => world.tell(to, Event::Heard { from, message }),
                    Content::Ask(term) => world.ask(to, from, term),
                }
            }
            Step::Suspect(by, whom) => {
                if world.seat(whom).lives && !world.is_cut(by, whom) {
                    world.budget.suspicions -= 1;
                }
                world.seat_mut(by).suspects.insert(whom);
                world.tell(by, Event::Down(whom));
            }
            Step::Trust(by, whom) => {
                world.seat_mut(by).suspects.remove(&whom);
                world.tell(by, Event::Up(whom));
            }
            Step::Crash(peer) => {
                world.budget.crashes -= 1;
                world.seat_mut(peer).lives = false;
                world.packets.retain(|packet| packet.to != peer);
            }
            Step::Return(peer) => {
                world.budget.returns -= 1;
                let has_disk = !world.budget.loses_disk;
                let seat = world.seat_mut(peer);
                seat.machine = seat.machine.revived(peer, has_disk)?;
                (seat.lives, seat.seeks, seat.named) = (true, true, None);
                seat.suspects.clear();
                world.tell(peer, Event::Vacant);
            }
            Step::Wake(peer) => {
                world.budget.wakes = world.budget.wakes.saturating_sub(1);
                let seat = world.seat_mut(peer);
                seat.clock = seat.clock.max(seat.machine.deadline()?);
                world.tell(peer, Event::Wake);
            }
            Step::Deafen(peer) => {
                world.budget.deaf -= 1;
                world.deaf.insert(peer);
                world.packets.retain(|packet| packet.to != peer);
            }
            Step::Cut(peer) => {
                world.budget.cuts -= 1;
                world.cut = Some(peer);
                world.packets.retain(|packet| packet.to != peer && packet.from != peer);
            }
            Step::Mend(_) => world.cut = None,
        }
        if self.only == Some(LATE) && world.over.is_none() && world.has_started() && C::is_over(&world) {
            let winner = world.living().map(|(peer, _)| peer).find(|peer| world.leads(*peer));
            world.over = winner;
        }
        // One order, so that equal states are equal.
        if self.in_order {
            world.packets.sort_by_key(|packet| (packet.from, packet.to));
        } else {
            world.packets.sort();
        }
        Some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = C::properties(self);
        properties.retain(|property| self.only.is_none_or(|only| property.name == only));
        properties
    }
}

impl<C: Subject> Searched for Search<C> {
    fn name(&self) -> &'static str {
        self.name
    }
}
