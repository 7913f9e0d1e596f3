//! Every order of messages and timers among a few peers, within stated bounds: a search for two of what must be one.
//!
//! Time stands still, and every timer that runs may be up at any moment; a message is delivered when it suits the adversary, or
//! never. So no constant of the machines matters, and what is found does not depend on any. Self-nominations ask three trivial
//! voters for a grant: each gives one for a term, and remembers.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};

use primacy_core::Instant;
use primacy_core::contest::{Context, Effect, Event, PeerId};
use stateright::{Model, Property};

use super::machine::Machine;
use primacy_sim::search::{Searched, gets_there, print_of};

/// Something that is asked of every state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// No two peers draw as coordinators of the same round.
    OneCoordinator,
    /// No two peers take themselves for the leader at the same time.
    OneLeader,
    /// No two peers nominate themselves in the same round.
    OneNominee,
    /// No two peers have a majority's grant for the same round.
    OneGrant,
    /// No round in which every vote was given and counted, and none was lost, ends as if it had not been.
    Decides,
    /// No draw of a number leaves all as it was.
    Progress,
    /// When nothing is under way, who was drawn leads.
    Announced,
    /// From everywhere there is a way to a grant, without any more faults. Only of a machine that asks for one.
    Way,
    /// Somewhere a nominee has a majority's grant. A search that never gets there shows nothing.
    Granted,
    /// Somewhere two peers have nominated themselves, in whatever rounds: nominees are not leaders.
    TwoNominees,
}

/// What is searched.
#[derive(Clone)]
pub struct Duel<C> {
    /// For the table.
    pub name: &'static str,
    /// The peers as they are when nobody leads.
    pub peers: Vec<C>,
    /// A peer as it starts again with what was kept: what it forgets, it forgets there.
    pub restarted: fn(&C, PeerId) -> C,
    /// How often a timer of each peer may be up.
    pub wakes: Vec<u8>,
    /// How often a peer may be restarted.
    pub restarts: u8,
    /// How many may crash for ever.
    pub crashes: u8,
    /// How often the network may be cut in two, for ever: one peer from the others, and all know whom they do not reach.
    pub cuts: u8,
    /// Whether a coordinator may draw another one because it has heard of none.
    pub redraws: bool,
    /// Pairs that do not hear each other meanwhile.
    pub slow: BTreeSet<(PeerId, PeerId)>,
    /// What is asked.
    pub claims: Vec<Claim>,
}

/// What is on its way.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Content<M> {
    /// The contest's own.
    Message(M),
    /// A nominee asks for the grant of this round.
    Ask(u64),
}

/// On its way from one to another.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Packet<M> {
    from: PeerId,
    to: PeerId,
    content: Content<M>,
}

/// Everything at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Play<C: Machine> {
    peers: Vec<C>,
    /// In an order that depends on what they are alone.
    packets: Vec<Packet<C::Message>>,
    wakes: Vec<u8>,
    restarts: u8,
    crashes: u8,
    cuts: u8,
    dead: BTreeSet<PeerId>,
    /// Who is alone on its side.
    cut: Option<PeerId>,
    /// Whether a number was drawn to no effect.
    drew_in_vain: bool,
    is_endless: bool,
    /// Who drew, by round.
    coordinators: BTreeMap<u64, BTreeSet<PeerId>>,
    /// Who nominated itself, by round.
    nominees: BTreeMap<u64, BTreeSet<PeerId>>,
    /// What each voter granted, by round, for ever.
    grants: Vec<BTreeMap<u64, PeerId>>,
}

/// What happens next. `high` is what chance brings: the upper end of the wheel, or the lower.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step<M> {
    /// A timer is up.
    Wake {
        /// Whose.
        peer: PeerId,
        /// Chance.
        high: bool,
    },
    /// A message arrives.
    Deliver {
        /// Which.
        packet: Packet<M>,
        /// Chance.
        high: bool,
    },
    /// A process ends, starts again and sees that nobody leads.
    Restart {
        /// Whose.
        peer: PeerId,
    },
    /// A process ends.
    Crash {
        /// Whose.
        peer: PeerId,
    },
    /// One is cut from the others.
    Cut {
        /// Which.
        peer: PeerId,
    },
}

impl<C: Machine> Duel<C> {
    /// Tells a peer of an event, and carries out what follows. `None` if chance was asked to no effect, or is not the lower
    /// end and was not asked at all: that is the same as with the lower one.
    fn tell(&self, play: &mut Play<C>, peer: PeerId, event: Event<C::Message>, high: bool) -> Option<()> {
        let index = usize::from(peer.0);
        let machine = &mut play.peers[index];
        let (former, before) = (machine.clone(), machine.tally());
        let asked = Cell::new(false);
        // Above any threshold in use, and a greater number for a greater peer.
        let bits = if high { u64::MAX / 100 * (90 + u64::from(peer.0)) } else { 0 };
        let mut entropy = || {
            asked.set(true);
            bits
        };
        let mut effects = Vec::new();
        machine.handle(event, &mut Context { now: Instant::ZERO, entropy: &mut entropy, effects: &mut effects });
        let in_vain = asked.get() && !high && effects.is_empty();
        if in_vain && !self.claims.contains(&Claim::Progress) || !asked.get() && high {
            return None;
        }
        play.drew_in_vain |= in_vain && *machine == former;
        let round = machine.round();
        if machine.tally().won > before.won {
            play.coordinators.entry(round).or_default().insert(peer);
        }
        for effect in effects {
            match effect {
                Effect::Send { to, message } => {
                    play.push(Packet { from: peer, to, content: Content::Message(message) });
                }
                Effect::Nominate(nominee) if nominee == peer => {
                    play.nominees.entry(round).or_default().insert(peer);
                    for to in (0..play.grants.len()).map(peer_id) {
                        play.push(Packet { from: peer, to, content: Content::Ask(round) });
                    }
                }
                Effect::Nominate(_) => {}
            }
        }
        Some(())
    }
}

fn peer_id(index: usize) -> PeerId {
    PeerId(u16::try_from(index).expect("a few peers"))
}

impl<C: Machine> Model for Duel<C> {
    type State = Play<C>;
    type Action = Step<C::Message>;

    fn init_states(&self) -> Vec<Play<C>> {
        let asks = self.claims.iter().any(|claim| matches!(claim, Claim::OneGrant | Claim::Way));
        vec![Play {
            peers: self.peers.clone(),
            packets: Vec::new(),
            wakes: self.wakes.clone(),
            restarts: self.restarts,
            crashes: self.crashes,
            cuts: self.cuts,
            dead: BTreeSet::new(),
            cut: None,
            drew_in_vain: false,
            is_endless: false,
            coordinators: BTreeMap::new(),
            nominees: BTreeMap::new(),
            grants: if asks { vec![BTreeMap::new(); self.peers.len()] } else { Vec::new() },
        }]
    }

    fn actions(&self, play: &Play<C>, steps: &mut Vec<Step<C::Message>>) {
        for (index, machine) in play.peers.iter().enumerate() {
            let peer = peer_id(index);
            if play.dead.contains(&peer) {
                continue;
            }
            let may_wake = (self.redraws || !machine.may_redraw()) && (play.wakes[index] > 0 || play.is_endless);
            if machine.deadline().is_some() && may_wake {
                steps.extend([false, true].map(|high| Step::Wake { peer, high }));
            }
            if play.restarts > 0 {
                steps.push(Step::Restart { peer });
            }
            if play.crashes > 0 {
                steps.push(Step::Crash { peer });
            }
            if play.cuts > 0 {
                steps.push(Step::Cut { peer });
            }
        }
        for (at, packet) in play.packets.iter().enumerate() {
            let is_slow =
                self.slow.contains(&(packet.from, packet.to)) && matches!(packet.content, Content::Message(_));
            if is_slow || play.packets[..at].contains(packet) {
                continue;
            }
            steps.extend([false, true].map(|high| Step::Deliver { packet: packet.clone(), high }));
        }
    }

    fn next_state(&self, before: &Play<C>, step: Step<C::Message>) -> Option<Play<C>> {
        let mut play = before.clone();
        match step {
            Step::Wake { peer, high } => {
                let wakes = &mut play.wakes[usize::from(peer.0)];
                *wakes = wakes.saturating_sub(1);
                self.tell(&mut play, peer, Event::Wake, high)?;
            }
            Step::Deliver { packet, high } => {
                let at = play.packets.iter().position(|other| *other == packet)?;
                let Packet { from, to, content } = play.packets.remove(at);
                match content {
                    Content::Message(message) => self.tell(&mut play, to, Event::Heard { from, message }, high)?,
                    Content::Ask(_) if high => return None,
                    Content::Ask(round) => drop(play.grants[usize::from(to.0)].entry(round).or_insert(from)),
                }
            }
            Step::Restart { peer } => {
                play.restarts -= 1;
                let machine = &mut play.peers[usize::from(peer.0)];
                *machine = (self.restarted)(machine, peer);
                self.tell(&mut play, peer, Event::Vacant, false)?;
            }
            Step::Crash { peer } => {
                play.crashes -= 1;
                play.dead.insert(peer);
                play.packets.retain(|packet| packet.to != peer);
            }
            Step::Cut { peer } => {
                play.cuts -= 1;
                play.cut = Some(peer);
                play.packets.retain(|packet| (packet.from == peer) == (packet.to == peer));
                for other in (0..self.peers.len()).map(peer_id).filter(|other| *other != peer) {
                    // That nobody asks for chance is not the point here.
                    let _ = self.tell(&mut play, peer, Event::Down(other), false);
                    let _ = self.tell(&mut play, other, Event::Down(peer), false);
                }
            }
        }
        // Messages pass each other: their order tells nothing.
        play.packets.sort_by_cached_key(print_of);
        Some(play)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        self.claims.iter().map(|claim| claim.property()).collect()
    }
}

impl<C: Machine> Searched for Duel<C> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn describe(play: &Play<C>) -> String {
        play.peers.iter().map(|peer| format!("\n             {peer:?}")).collect()
    }
}

impl Claim {
    /// What the search calls it.
    pub fn name(self) -> &'static str {
        match self {
            Self::OneCoordinator => "a round has one coordinator",
            Self::OneLeader => "one leader at a time",
            Self::OneNominee => "a round has one nominee",
            Self::OneGrant => "a round is granted once",
            Self::Decides => "a round in which all votes are counted decides, or changes something",
            Self::Progress => "no draw of a number leaves all as it was",
            Self::Announced => "when nothing is under way, who was drawn leads",
            Self::Way => "there is a way to a grant to one that lives",
            Self::Granted => "a nominee is granted its round",
            Self::TwoNominees => "there are two nominees, in different rounds",
        }
    }

    fn property<C: Machine>(self) -> Property<Duel<C>> {
        let name = self.name();
        match self {
            Self::OneCoordinator => Property::always(name, |_, play: &Play<C>| has_one(&play.coordinators)),
            Self::OneLeader => Property::always(name, |_, play: &Play<C>| {
                play.peers.iter().filter(|machine| machine.leads()).count() < 2
            }),
            Self::Decides => Property::always(name, |duel: &Duel<C>, play: &Play<C>| {
                // Who is still in that round has nothing to wait for any more.
                let again = |(now, then): (&C, &C)| {
                    let now = if now.round() == then.round() { waited(now) } else { now.clone() };
                    now.round() > then.round() && now.is_as(then)
                };
                !play.packets.is_empty() || !play.peers.iter().zip(&duel.peers).all(again)
            }),
            Self::Progress => Property::always(name, |_, play: &Play<C>| !play.drew_in_vain),
            Self::Announced => Property::always(name, |_, play: &Play<C>| {
                let leads = |(at, machine): (usize, &C)| machine.leads() && !play.dead.contains(&peer_id(at));
                let is_led = play.peers.iter().enumerate().any(leads);
                !play.packets.is_empty() || is_led || !play.peers.iter().any(Machine::may_redraw)
            }),
            Self::Way => Property::always(name, |duel: &Duel<C>, play: &Play<C>| {
                let peace = Play { is_endless: true, restarts: 0, crashes: 0, cuts: 0, ..play.clone() };
                gets_there(duel, &peace, LONG, Play::is_led, soonest)
            }),
            Self::OneNominee => Property::always(name, |_, play: &Play<C>| has_one(&play.nominees)),
            Self::OneGrant => Property::always(name, |_, play: &Play<C>| {
                play.nominees.iter().all(|(round, nominees)| {
                    nominees.iter().filter(|nominee| play.is_granted(*round, **nominee)).count() < 2
                })
            }),
            Self::Granted => Property::sometimes(name, |_, play: &Play<C>| {
                let mut all =
                    play.nominees.iter().flat_map(|(round, peers)| peers.iter().map(move |peer| (round, peer)));
                all.any(|(round, peer)| play.is_granted(*round, *peer))
            }),
            Self::TwoNominees => Property::sometimes(name, |_, play: &Play<C>| {
                play.nominees.values().flatten().collect::<BTreeSet<_>>().len() > 1
            }),
        }
    }
}

/// That machine after its patience.
fn waited<C: Machine>(machine: &C) -> C {
    let mut machine = machine.clone();
    machine.handle(Event::Wake, &mut Context { now: Instant::ZERO, entropy: &mut || 0, effects: &mut Vec::new() });
    machine
}

/// No way is longer.
const LONG: usize = 300;

/// Messages come first, then timers.
fn soonest<C: Machine>(_: &Play<C>, step: &Step<C::Message>) -> u64 {
    u64::from(!matches!(step, Step::Deliver { .. }))
}

fn has_one(by_round: &BTreeMap<u64, BTreeSet<PeerId>>) -> bool {
    by_round.values().all(|peers| peers.len() < 2)
}

impl<C: Machine> Play<C> {
    fn push(&mut self, packet: Packet<C::Message>) {
        let is_cut = self.cut.is_some_and(|cut| (packet.from == cut) != (packet.to == cut));
        if !is_cut && !self.dead.contains(&packet.to) {
            self.packets.push(packet);
        }
    }

    /// Whether one that lives, on the greater side of a cut, has a majority's grant.
    fn is_led(&self) -> bool {
        let mut all = self.nominees.iter().flat_map(|(round, peers)| peers.iter().map(move |peer| (*round, *peer)));
        all.any(|(round, peer)| !self.dead.contains(&peer) && self.cut != Some(peer) && self.is_granted(round, peer))
    }

    fn is_granted(&self, round: u64, nominee: PeerId) -> bool {
        let granted = self.grants.iter().filter(|voter| voter.get(&round) == Some(&nominee)).count();
        granted > self.grants.len() / 2
    }
}
