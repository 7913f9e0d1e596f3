//! What elections in rings cost and how they end, by seed.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::ring::{HEARTBEAT, Published};
use primacy_core::Instant;
use primacy_core::contest::ring::{Circle, DurableTerm, Ring, Settings};
use primacy_core::contest::{Contest, Event, PeerId};

use super::hall::{Granted, Hall};
use crate::world::{Link, World};
use primacy_sim::engine::Rng;

/// Longer than any of these worlds: heartbeats that never come.
const NEVER: Duration = Duration::from_secs(1_000_000);

/// One election without faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cost {
    /// When the winner knew.
    pub known: Duration,
    /// When a majority agreed.
    pub shared: Duration,
    /// When all agreed.
    pub all: Duration,
    /// Messages of all kinds.
    pub messages: u64,
}

/// How elections with faults ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Elections.
    pub runs: u32,
    /// Those in which two thought at one time that they lead, or asked for the grant of one term.
    pub split: u32,
    /// Those that ended with one leader who is known to all.
    pub settled: u32,
    /// When those had their leader, in order.
    pub took: Vec<Duration>,
    /// Messages, together.
    pub messages: u64,
}

impl Tally {
    /// The time within which this many of a hundred of those that settled did so.
    pub fn percentile(&self, percent: usize) -> Option<Duration> {
        let last = self.took.len().checked_sub(1)?;
        self.took.get(last * percent.min(100) / 100).copied()
    }
}

/// The ids 1 to `peers` in the order that a seed gives them.
pub fn shuffled(peers: u16, seed: u64) -> Vec<u16> {
    let mut rng = Rng::new(seed);
    let mut ids: Vec<u16> = (1..=peers).collect();
    for at in (1..ids.len()).rev() {
        let with = rng.below(at as u64 + 1) as usize;
        ids.swap(at, with);
    }
    ids
}

fn cost<C: Contest>(mut world: World<C>, peers: usize, limit: Duration) -> Option<Cost> {
    world.run(limit, |_| false);
    let winner = world.nominations.first()?.nominee;
    let agrees: BTreeSet<PeerId> = world.nominations.iter().map(|nomination| nomination.by).collect();
    if agrees.len() < peers || world.nominations.iter().any(|nomination| nomination.nominee != winner) {
        return None;
    }
    let nth = |nth: usize| world.nominations.get(nth).map(|nomination| nomination.at);
    Some(Cost { known: nth(0)?, shared: nth(peers / 2)?, all: nth(peers - 1)?, messages: world.sent })
}

fn members(ring: &[u16], heartbeat: Duration, seed: u64, link: Link) -> World<Published> {
    let circle = super::circle(ring);
    let mut world = World::new(seed, link);
    for id in ring {
        world.start(PeerId(*id), Published::member(PeerId(*id), circle.clone(), heartbeat));
    }
    world
}

/// One election of the published form in which these start at once, and nothing goes wrong. `None` if it has no single winner.
pub fn published(ring: &[u16], starters: &[u16], link: Link, seed: u64) -> Option<Cost> {
    let mut world = members(ring, NEVER, seed, link);
    starters.iter().for_each(|id| world.tell(PeerId(*id), Event::Vacant));
    cost(world, ring.len(), NEVER / 2)
}

/// The same of the repaired form.
pub fn repaired(ring: &[u16], starters: &[u16], link: Link, seed: u64) -> Option<Cost> {
    let settings = Settings { hop: link.most * 3, patience: NEVER, grant: NEVER, ..Settings::default() };
    let circle = super::circle(ring);
    let mut world = World::new(seed, link);
    for id in ring {
        world.start(PeerId(*id), Ring::new(PeerId(*id), circle.clone(), settings, DurableTerm::default()));
    }
    starters.iter().for_each(|id| world.tell(PeerId(*id), Event::Vacant));
    cost(world, ring.len(), NEVER / 2)
}

/// How long the published form takes from the crash of a leader that has this many others, until the new one knows: its
/// heartbeats have phases of their own, and the crash comes at any time.
pub fn takeover(others: u16, link: Link, seed: u64) -> Option<Duration> {
    let mut rng = Rng::new(seed);
    let old = PeerId(others + 1);
    let mut world = members(&shuffled(others + 1, seed), HEARTBEAT, seed, link);
    world.tell(old, Event::Led(old));
    let mut phases: Vec<(u64, u16)> =
        (1..=others).map(|id| (rng.below(primacy_sim::engine::nanos(HEARTBEAT)), id)).collect();
    phases.sort_unstable();
    for (phase, id) in phases {
        world.run(Duration::from_nanos(phase), |_| false);
        world.tell(PeerId(id), Event::Led(old));
    }
    let crash = HEARTBEAT * 4 + Duration::from_nanos(rng.below(primacy_sim::engine::nanos(HEARTBEAT)));
    world.run(crash, |_| false);
    world.crash(old);
    world.tell_all(&Event::Down(old));
    let is_known = |world: &World<Published>| world.nominations.iter().any(|one| one.by == one.nominee);
    world.run(crash + HEARTBEAT * 10, is_known).then(|| world.now() - crash)
}

/// False suspicions that come and go, and when each peer finds that nobody leads.
struct Script(Vec<(Duration, PeerId, Tell)>);

#[derive(Clone, Copy)]
enum Tell {
    Vacant,
    Down(PeerId),
    Up(PeerId),
}

impl Tell {
    fn event<M>(self) -> Event<M> {
        match self {
            Self::Vacant => Event::Vacant,
            Self::Down(peer) => Event::Down(peer),
            Self::Up(peer) => Event::Up(peer),
        }
    }
}

impl Script {
    fn of(peers: u16, suspicions: u32, seed: u64) -> Self {
        let mut rng = Rng::new(seed ^ 0x5eed);
        let span = |rng: &mut Rng, most: u64| Duration::from_micros(rng.below(most * 1_000));
        let mut script: Vec<_> = (1..=peers).map(|id| (span(&mut rng, 100), PeerId(id), Tell::Vacant)).collect();
        for _ in 0..suspicions {
            let by = 1 + rng.below(u64::from(peers)) as u16;
            let of = PeerId(1 + (by + rng.below(u64::from(peers) - 1) as u16) % peers);
            let from = span(&mut rng, 150);
            script.push((from, PeerId(by), Tell::Down(of)));
            script.push((from + Duration::from_millis(50), PeerId(by), Tell::Up(of)));
        }
        script.sort_by_key(|(at, ..)| *at);
        Self(script)
    }
}

/// Elections of the published form, one for each seed, among this many peers of whom some are suspected falsely for 50 ms each.
/// Each has ten seconds, so some fourteen heartbeats, to come to one leader.
pub fn published_with_suspicions(peers: u16, suspicions: u32, link: Link, seeds: u32) -> Tally {
    let limit = Duration::from_secs(10);
    let mut tally = Tally { runs: seeds, ..Tally::default() };
    for seed in (0..seeds).map(u64::from) {
        let mut world = members(&shuffled(peers, seed), HEARTBEAT, seed, link);
        for (at, peer, tell) in Script::of(peers, suspicions, seed).0 {
            world.run(at, |_| false);
            world.tell(peer, tell.event());
        }
        world.run(limit, |_| false);
        tally.messages += world.sent;
        let mut named = vec![None; usize::from(peers) + 1];
        let (mut split, mut since) = (false, Duration::ZERO);
        for one in &world.nominations {
            if named[usize::from(one.by.0)].replace(one.nominee) != Some(one.nominee) {
                since = one.at;
            }
            let leads = |id: &PeerId| named[usize::from(id.0)] == Some(*id);
            split |= (1..=peers).map(PeerId).filter(leads).count() > 1;
        }
        tally.split += u32::from(split);
        let first = named.get(1).copied().flatten();
        if first.is_some() && named.iter().skip(1).all(|other| *other == first) {
            tally.settled += 1;
            tally.took.push(since);
        }
    }
    tally.took.sort_unstable();
    tally
}

/// The same of the repaired form, with grants: what counts is when the grant is given.
pub fn repaired_with_suspicions(peers: u16, suspicions: u32, link: Link, seeds: u32) -> Tally {
    let limit = Duration::from_secs(10);
    let mut tally = Tally { runs: seeds, ..Tally::default() };
    for seed in (0..seeds).map(u64::from) {
        let settings = Settings { hop: link.most * 3, ..Settings::default() };
        let mut hall = Hall::new(super::circle(&shuffled(peers, seed)), settings, link, seed);
        for (at, peer, tell) in Script::of(peers, suspicions, seed).0 {
            hall.run(at);
            // Who is told of a leader by its grant does not find afterwards that there is none.
            if hall.granted().is_none() || !matches!(tell, Tell::Vacant) {
                hall.world.tell(peer, tell.event());
            }
        }
        hall.run(limit);
        tally.messages += hall.world.sent;
        tally.split += u32::from(hall.has_split());
        if let Some(Granted { at, .. }) = hall.granted() {
            tally.settled += 1;
            tally.took.push(at);
        }
    }
    tally.took.sort_unstable();
    tally
}

/// Two servers of the published form start, the second so much later. Gives how many of them lead a while after.
pub fn published_start(later: Duration, link: Link, seed: u64) -> usize {
    let circle: Circle = super::circle(&[1, 2]);
    let mut world = World::new(seed, link);
    for (id, at) in [(1, Duration::ZERO), (2, later)] {
        world.run(at, |_| false);
        let now = Instant::ZERO + at;
        world.start(PeerId(id), Published::starting(PeerId(id), circle.clone(), HEARTBEAT, now));
    }
    world.run(HEARTBEAT * 20, |_| false);
    let leads = |id: u16| world.nominations.iter().rfind(|one| one.by.0 == id).is_some_and(|one| one.nominee.0 == id);
    [1, 2].into_iter().filter(|id| leads(*id)).count()
}
