//! The elections among peers as published, in seeded networks with ordinary faults: canaries, each of which must break soon.
//!
//! No grant stands behind these machines, so there is no lease and no store to judge them by. What is looked at is whom each peer
//! takes for the leader, after everything that happens.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use crate::pole::{PUBLISHED_WAIT, Published as Pole};
use crate::ring::{HEARTBEAT, Published as Ring};
use crate::roulette::{Majority, Published as Roulette, PublishedSettings, Role, Variant};
use primacy_core::Instant;
use primacy_core::contest::ring::Circle;
use primacy_core::contest::{Contest, Event, PeerId};
use primacy_core::select::Score;

use crate::world::{Link, World};
use primacy_sim::engine::Rng;

/// What a history shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Symptom {
    /// Two lead at one moment.
    TwoLead,
    /// Two have the same round to themselves, as its leaders or as its coordinators.
    TwoOfOne,
    /// Two lead a minute after everything is well again.
    TwoStay,
    /// A leader has a smaller number than one before it.
    Falls,
    /// Nobody who lives leads, a minute after the last fault.
    Nobody,
}

impl fmt::Display for Symptom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TwoLead => "two lead at once",
            Self::TwoOfOne => "two of one round",
            Self::TwoStay => "two lead for ever",
            Self::Falls => "a new leader has a smaller number",
            Self::Nobody => "nobody leads for ever",
        })
    }
}

/// What befalls the peers, once, at a time that the seed says.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    /// One restarts.
    Restart,
    /// One is cut off from all others for a while, as all notice.
    Cut,
    /// Three times one suspects another that lives, for 50 ms.
    Suspicions,
    /// One crashes, as all notice.
    Crash,
    /// One hears nothing any more.
    Deaf,
}

/// A published form and what must show.
#[derive(Clone, Copy)]
pub struct Seeded {
    /// Its name on the command line.
    pub name: &'static str,
    /// Within how many seeds it must show.
    pub within: u64,
    /// What.
    pub symptom: Symptom,
    run: fn(u64, Symptom) -> bool,
}

impl fmt::Debug for Seeded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name, self.symptom)
    }
}

impl Seeded {
    /// Whether it shows in that seed.
    pub fn shows(&self, seed: u64) -> bool {
        (self.run)(seed, self.symptom)
    }

    /// How many seeds from that one on it took, if it shows within this many.
    pub fn hunt(&self, from: u64, within: u64) -> Option<u64> {
        (from..from + within).find(|seed| self.shows(*seed)).map(|seed| seed - from + 1)
    }
}

const fn seeded(name: &'static str, within: u64, symptom: Symptom, run: fn(u64, Symptom) -> bool) -> Seeded {
    Seeded { name, within, symptom, run }
}

/// All of them.
pub const SEEDED: &[Seeded] = &[
    seeded("published-pole-slow", 100, Symptom::TwoLead, slow_poles),
    seeded("published-pole-restart", 50, Symptom::Falls, pole_restarts),
    seeded("published-roulette-slow", 500, Symptom::TwoOfOne, |seed, symptom| {
        roulette(seed, eager(Variant::WaitForAll), Role::Coordinator, Fault::None, symptom)
    }),
    seeded("published-roulette-drawn", 50, Symptom::TwoOfOne, |seed, symptom| {
        roulette(seed, PublishedSettings::new(Variant::AtMajority), Role::Leader, Fault::None, symptom)
    }),
    seeded("published-roulette-restart", 2_000, Symptom::TwoOfOne, |seed, symptom| {
        roulette(seed, eager(Variant::AtMajority), Role::Coordinator, Fault::Restart, symptom)
    }),
    seeded("published-roulette-cut", 50, Symptom::TwoLead, |seed, symptom| {
        let settings = PublishedSettings { majority: Majority::OfUp, ..PublishedSettings::new(Variant::AtMajority) };
        roulette(seed, settings, Role::Leader, Fault::Cut, symptom)
    }),
    seeded("published-ring-suspicion", 200, Symptom::TwoLead, |seed, symptom| ring(seed, Fault::Suspicions, symptom)),
    seeded("published-ring-cut", 50, Symptom::TwoStay, |seed, symptom| ring(seed, Fault::Cut, symptom)),
    seeded("published-ring-start", 50, Symptom::TwoStay, start_race),
    seeded("published-ring-crash", 100, Symptom::Nobody, |seed, symptom| ring(seed, Fault::Crash, symptom)),
    seeded("published-ring-deaf", 50, Symptom::Nobody, |seed, symptom| ring(seed, Fault::Deaf, symptom)),
];

#[derive(Clone, Copy)]
enum Step {
    Vacant(PeerId),
    Down(PeerId, PeerId),
    Up(PeerId, PeerId),
    Restart(PeerId),
    Cut(PeerId, bool),
    Crash(PeerId),
    Deafen(PeerId),
}

type Leads<C> = fn(&World<C>, PeerId) -> bool;

/// One history: a world, who is in it, and what is known of each machine.
struct History<C: Contest> {
    world: World<C>,
    peers: Vec<PeerId>,
    rng: Rng,
    leads: Leads<C>,
    number: fn(&C) -> u64,
    seen: Seen,
}

/// Who led so far, by their numbers.
#[derive(Default)]
struct Seen {
    highest: u64,
    by_number: BTreeMap<u64, PeerId>,
}

impl Seen {
    fn show(&mut self, leaders: &[(PeerId, u64)], symptom: Symptom) -> bool {
        let has_other = |(peer, number): &(PeerId, u64)| *self.by_number.entry(*number).or_insert(*peer) != *peer;
        let falls = leaders.iter().any(|(_, number)| *number < self.highest);
        self.highest = leaders.iter().map(|(_, number)| *number).fold(self.highest, u64::max);
        match symptom {
            Symptom::TwoLead => leaders.len() > 1,
            Symptom::TwoOfOne => leaders.iter().any(has_other),
            Symptom::Falls => falls,
            Symptom::TwoStay | Symptom::Nobody => false,
        }
    }
}

impl<C: Contest> History<C> {
    fn new(seed: u64, world: World<C>, peers: Vec<PeerId>, leads: Leads<C>, number: fn(&C) -> u64) -> Self {
        Self { world, peers, rng: Rng::new(seed ^ 0x5eed), leads, number, seen: Seen::default() }
    }

    fn leaders(&self) -> Vec<(PeerId, u64)> {
        leaders(&self.world, &self.peers, self.leads, self.number)
    }

    fn at(&mut self, least: u64, most: u64) -> Duration {
        self.world.now() + Duration::from_millis(self.rng.between(least, most))
    }

    fn carry_out(&mut self, step: Step, make: &impl Fn(PeerId) -> C) {
        let world = &mut self.world;
        let others = |one: PeerId| self.peers.iter().copied().filter(move |other| *other != one);
        match step {
            Step::Vacant(peer) => world.tell(peer, Event::Vacant),
            Step::Down(by, of) => world.tell(by, Event::Down(of)),
            Step::Up(by, of) => world.tell(by, Event::Up(of)),
            Step::Restart(peer) => world.start(peer, make(peer)),
            Step::Cut(one, is_cut) => {
                for (by, of) in others(one).flat_map(|other| [(one, other), (other, one)]) {
                    world.set_cut(by, of, is_cut);
                    world.tell(by, if is_cut { Event::Down(of) } else { Event::Up(of) });
                }
            }
            Step::Crash(one) => {
                world.crash(one);
                world.tell_all(&Event::Down(one));
            }
            Step::Deafen(one) => others(one).for_each(|other| world.set_cut(other, one, true)),
        }
    }

    /// All find that nobody leads, and something befalls one of them.
    fn script(&mut self, fault: Fault) -> Vec<(Duration, Step)> {
        let peers = self.peers.clone();
        let mut script: Vec<_> = peers.iter().map(|peer| (self.at(0, 100), Step::Vacant(*peer))).collect();
        let (from, one) = (self.at(0, 200), *self.rng.pick(&peers));
        match fault {
            Fault::None => {}
            Fault::Restart => script.push((from, Step::Restart(one))),
            Fault::Cut => script.extend([(from, Step::Cut(one, true)), (self.at(2_000, 5_000), Step::Cut(one, false))]),
            Fault::Suspicions => {
                for _ in 0..3 {
                    let (from, by, of) = (self.at(0, 150), *self.rng.pick(&peers), *self.rng.pick(&peers));
                    script.push((from, Step::Down(by, of)));
                    script.push((from + Duration::from_millis(50), Step::Up(by, of)));
                }
                script.retain(|(_, step)| !matches!(step, Step::Down(by, of) | Step::Up(by, of) if by == of));
            }
            Fault::Crash => script.push((from, Step::Crash(one))),
            Fault::Deaf => script.push((self.world.now(), Step::Deafen(one))),
        }
        script.sort_by_key(|(at, _)| *at);
        script
    }

    /// Lets time pass until then, or until the symptom shows.
    fn shows_until(&mut self, limit: Duration, symptom: Symptom) -> bool {
        let Self { world, peers, leads, number, seen, .. } = self;
        world.run(limit, |world| seen.show(&leaders(world, peers, *leads, *number), symptom))
    }

    /// What must show, until a minute after the last fault.
    fn shows(mut self, fault: Fault, symptom: Symptom, make: impl Fn(PeerId) -> C) -> bool {
        for (at, step) in self.script(fault) {
            if self.shows_until(at, symptom) {
                return true;
            }
            self.carry_out(step, &make);
        }
        let end = self.at(60_000, 60_000);
        self.shows_until(end, symptom) || self.shows_at_last(symptom)
    }

    fn shows_at_last(&self, symptom: Symptom) -> bool {
        match symptom {
            Symptom::TwoStay => self.leaders().len() > 1,
            Symptom::Nobody => self.leaders().is_empty(),
            _ => false,
        }
    }
}

fn leaders<C: Contest>(
    world: &World<C>,
    peers: &[PeerId],
    leads: Leads<C>,
    number: fn(&C) -> u64,
) -> Vec<(PeerId, u64)> {
    let leading = peers.iter().copied().filter(|peer| leads(world, *peer));
    leading.filter_map(|peer| Some((peer, number(world.contest(peer)?)))).collect()
}

/// Messages take up to this long.
fn link(most: u64) -> Link {
    Link { most: Duration::from_millis(most), ..Link::exact(Duration::from_millis(1)) }
}

type Scored = Pole<Option<Score>>;

/// Three peers, with waits of 200 ms, whose messages take up to this long.
fn poles(seed: u64, slow: u64) -> (History<Scored>, impl Fn(PeerId) -> Scored) {
    let peers: Vec<PeerId> = (1..=3).map(PeerId).collect();
    let all = peers.clone();
    let make = move |me: PeerId| Pole::new(me, all.clone(), PUBLISHED_WAIT, Some(Score::from(i32::from(me.0))));
    let mut world = World::new(seed, link(slow));
    peers.iter().for_each(|peer| world.start(*peer, make(*peer)));
    let leads = |world: &World<Scored>, peer| world.contest(peer).is_some_and(|pole| pole.leader() == Some(peer));
    (History::new(seed, world, peers, leads, Pole::epoch), make)
}

fn slow_poles(seed: u64, symptom: Symptom) -> bool {
    let (history, make) = poles(seed, 300);
    history.shows(Fault::None, symptom, make)
}

/// Five elections in a fast network; then it is slow, and one restarts.
fn pole_restarts(seed: u64, symptom: Symptom) -> bool {
    let (mut history, make) = poles(seed, 20);
    for _ in 0..5 {
        history.world.tell_all(&Event::Vacant);
        let end = history.at(1_000, 1_000);
        history.shows_until(end, symptom);
    }
    for (from, to) in [(1, 2), (1, 3), (2, 1), (2, 3), (3, 1), (3, 2)] {
        history.world.set_link(PeerId(from), PeerId(to), link(300));
    }
    let one = *history.rng.pick(&history.peers);
    history.carry_out(Step::Restart(one), &make);
    history.carry_out(Step::Vacant(one), &make);
    let end = history.at(60_000, 60_000);
    history.shows_until(end, symptom)
}

/// One number above the threshold is enough, so that several ask at once.
fn eager(variant: Variant) -> PublishedSettings {
    PublishedSettings { draws: 1, ..PublishedSettings::new(variant) }
}

/// Three peers, with the paper's numbers; messages may outlast patience.
fn roulette(seed: u64, settings: PublishedSettings, watched: Role, fault: Fault, symptom: Symptom) -> bool {
    let ids: BTreeSet<PeerId> = (1..=3).map(PeerId).collect();
    let peers: Vec<PeerId> = ids.iter().copied().collect();
    let make = move |me: PeerId| Roulette::new(me, &ids, settings);
    let mut world = World::new(seed, link(if fault == Fault::Cut { 10 } else { 150 }));
    peers.iter().for_each(|peer| world.start(*peer, make(*peer)));
    let leads: Leads<Roulette> = match watched {
        Role::Coordinator => |world, peer| is_in(world, peer, Role::Coordinator),
        _ => |world, peer| is_in(world, peer, Role::Leader),
    };
    let number = |machine: &Roulette| u64::from(machine.round());
    History::new(seed, world, peers, leads, number).shows(fault, symptom, make)
}

fn is_in(world: &World<Roulette>, peer: PeerId, role: Role) -> bool {
    world.contest(peer).is_some_and(|machine| machine.role() == role)
}

fn named_itself(world: &World<Ring>, peer: PeerId) -> bool {
    let last = world.nominations.iter().rfind(|one| one.by == peer);
    world.contest(peer).is_some() && last.is_some_and(|one| one.nominee == peer)
}

fn history_of_a_ring(seed: u64) -> (History<Ring>, Circle) {
    let peers: Vec<PeerId> = (1..=3).map(PeerId).collect();
    let circle = Circle::new(peers.clone());
    let world = World::new(seed, link(20));
    (History::new(seed, world, peers, named_itself, |_| 0), circle)
}

/// Three servers with the paper's heartbeats.
fn ring(seed: u64, fault: Fault, symptom: Symptom) -> bool {
    let (mut history, circle) = history_of_a_ring(seed);
    let make = move |me| Ring::member(me, circle.clone(), HEARTBEAT);
    history.peers.iter().for_each(|peer| history.world.start(*peer, make(*peer)));
    history.shows(fault, symptom, make)
}

/// Three servers are started within five seconds.
fn start_race(seed: u64, symptom: Symptom) -> bool {
    let (mut history, circle) = history_of_a_ring(seed);
    let mut starts: Vec<_> = history.peers.clone().into_iter().map(|peer| (history.at(0, 5_000), peer)).collect();
    starts.sort_unstable();
    for (at, peer) in starts {
        history.world.run(at, |_| false);
        let now = Instant::ZERO + at;
        history.world.start(peer, Ring::starting(peer, circle.clone(), HEARTBEAT, now));
    }
    let end = history.at(60_000, 60_000);
    history.world.run(end, |_| false);
    history.shows_at_last(symptom)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_published_form_breaks_in_time() {
        for seeded in SEEDED {
            assert!(seeded.hunt(0, seeded.within).is_some(), "{seeded:?} does not show in {} seeds", seeded.within);
        }
    }

    /// What breaks by a fault does not without it.
    #[test]
    fn without_the_fault_it_does_not_show() {
        for seed in 0..100 {
            let one = (eager(Variant::AtMajority), Role::Coordinator);
            assert!(!roulette(seed, one.0, one.1, Fault::None, Symptom::TwoOfOne), "{seed}");
            for symptom in [Symptom::TwoLead, Symptom::TwoStay, Symptom::Nobody] {
                assert!(!ring(seed, Fault::None, symptom), "{seed}: {symptom}");
            }
        }
    }
}
