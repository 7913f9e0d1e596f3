//! Many elections by seed, and what they took.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use primacy_core::contest::{Event, PeerId};

use super::machine::Machine;
use crate::world::{Link, World};
use primacy_sim::engine::Rng;

/// No election is watched for longer.
const LIMIT: Duration = Duration::from_secs(60);

/// Where elections are held.
#[derive(Clone, Copy, Debug)]
pub struct Stand {
    /// Peers, dead ones included.
    pub peers: u16,
    /// How many of them are dead, as all the others know.
    pub dead: u16,
    /// All links.
    pub link: Link,
    /// Each peer notices the vacancy at a time between these, any as likely.
    pub notice: (Duration, Duration),
}

impl Stand {
    /// All of them alive; all notice at once.
    pub fn new(peers: u16, link: Link) -> Self {
        Self { peers, dead: 0, link, notice: (Duration::ZERO, Duration::ZERO) }
    }
}

/// How one election went. Times count from the vacancy, at which the leader was lost.
#[derive(Clone, Copy, Debug)]
pub struct Course {
    /// When the first peer noticed.
    pub noticed: Duration,
    /// When somebody nominated itself.
    pub named: Option<Duration>,
    /// How many messages were sent, late answers too, but not the heartbeats of a leader.
    pub messages: u64,
    /// When a majority of all peers, itself included, named the same peer. Only the published form tells them all.
    pub shared: Option<Duration>,
    /// How often somebody asked for votes. More than one of a round is a split vote.
    pub launched: u32,
    /// How often somebody asked and was not elected.
    pub lost: u32,
    /// In which round a leader was drawn. Only the published form has one.
    pub round: u64,
}

impl Course {
    /// From the first suspicion to the nominee.
    pub fn suspicion_to_nominee(&self) -> Option<Duration> {
        Some(self.named?.saturating_sub(self.noticed))
    }
}

/// One election for each seed, among peers that `make` starts. `is_told`: goes on until a majority names the same.
pub fn courses<C: Machine>(
    stand: &Stand,
    seeds: std::ops::Range<u64>,
    is_told: bool,
    make: impl Fn(PeerId, &BTreeSet<PeerId>) -> C,
) -> Vec<Course> {
    seeds.map(|seed| course(stand, seed, is_told, &make)).collect()
}

fn course<C: Machine>(
    stand: &Stand,
    seed: u64,
    is_told: bool,
    make: impl Fn(PeerId, &BTreeSet<PeerId>) -> C,
) -> Course {
    let mut rng = Rng::new(seed);
    let peers: BTreeSet<PeerId> = (0..stand.peers).map(PeerId).collect();
    let living: Vec<PeerId> = (stand.dead..stand.peers).map(PeerId).collect();
    let mut world = World::new(rng.bits(), stand.link);
    let (least, most) = (primacy_sim::engine::nanos(stand.notice.0), primacy_sim::engine::nanos(stand.notice.1));
    let mut notices: Vec<(Duration, PeerId)> = Vec::new();
    for peer in &living {
        world.start(*peer, make(*peer, &peers));
        notices.push((Duration::from_nanos(rng.between(least, most)), *peer));
    }
    notices.sort_unstable();

    let mut course = Course {
        noticed: notices.first().map_or(Duration::ZERO, |(at, _)| *at),
        named: None,
        messages: 0,
        shared: None,
        launched: 0,
        lost: 0,
        round: 0,
    };
    let mut watch = |world: &World<C>| {
        course.watch(world, stand);
        if is_told { course.shared.is_some() } else { course.named.is_some() }
    };
    let mut over = false;
    for (at, peer) in notices {
        over = over || world.run(at, &mut watch);
        if over {
            break;
        }
        (0..stand.dead).for_each(|dead| world.tell(peer, Event::Down(PeerId(dead))));
        world.tell(peer, Event::Vacant);
    }
    if !over {
        world.run(LIMIT, &mut watch);
    }
    // What is under way arrives, and is answered.
    world.run(world.now() + stand.link.most, |_| false);
    course.messages = world.sent;
    for machine in living.iter().filter_map(|peer| world.contest(*peer)) {
        let tally = machine.tally();
        course.launched += tally.launched;
        course.lost += tally.lost;
        course.round = course.round.max(if machine.leads() { machine.round() } else { 0 });
        course.messages -= if machine.leads() { living.len() as u64 - 1 } else { 0 };
    }
    course
}

impl Course {
    fn watch<C: Machine>(&mut self, world: &World<C>, stand: &Stand) {
        if self.named.is_none()
            && let Some(named) = world.nominations.iter().find(|nomination| nomination.by == nomination.nominee)
        {
            self.named = Some(named.at);
        }
        if self.named.is_some() && self.shared.is_none() {
            let opinions: BTreeMap<PeerId, PeerId> =
                world.nominations.iter().map(|nomination| (nomination.by, nomination.nominee)).collect();
            let is_shared = opinions.values().any(|nominee| {
                opinions.values().filter(|other| *other == nominee).count() > usize::from(stand.peers) / 2
            });
            self.shared = is_shared.then(|| world.now());
        }
    }
}

/// Spans of time, to ask about their distribution.
#[derive(Clone, Debug)]
pub struct Spans(Vec<Duration>);

impl FromIterator<Duration> for Spans {
    fn from_iter<T: IntoIterator<Item = Duration>>(spans: T) -> Self {
        let mut spans: Vec<_> = spans.into_iter().collect();
        spans.sort_unstable();
        Self(spans)
    }
}

impl Spans {
    /// How many.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// The mean, in milliseconds; 0 of none.
    pub fn mean_ms(&self) -> f64 {
        self.0.iter().map(Duration::as_secs_f64).sum::<f64>() * 1e3 / self.0.len().max(1) as f64
    }

    /// What this many per thousand do not exceed, in milliseconds; 0 of none.
    pub fn quantile_ms(&self, per_mille: usize) -> f64 {
        let index = (self.0.len() * per_mille).div_ceil(1_000).saturating_sub(1);
        self.0.get(index).map_or(0.0, |span| span.as_secs_f64() * 1e3)
    }

    /// The greatest difference between the share that is over by some time and the one that is expected by then.
    pub fn distance(&self, expected: impl Fn(Duration) -> f64) -> f64 {
        let share = |count: usize| count as f64 / self.0.len().max(1) as f64;
        let off = |(index, span): (usize, &Duration)| {
            let expected = expected(*span);
            (expected - share(index)).abs().max((expected - share(index + 1)).abs())
        };
        self.0.iter().enumerate().map(off).fold(0.0, f64::max)
    }

    /// How many per cent do not exceed this.
    pub fn percent_within(&self, bound: Duration) -> f64 {
        let within = self.0.partition_point(|span| *span <= bound);
        within as f64 * 100.0 / self.0.len().max(1) as f64
    }
}
