//! One election after the leader's crash, on any topology, in either form; and many, by seed.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::pole::{DurableTerm, Pole, PoleSettings, Published};
use primacy_core::contest::{Contest, Event, PeerId};
use primacy_core::select::{Measurements, Metric, Names, Oracle, Rank, Selector};

use crate::world::{Link, Nomination, World};
use primacy_sim::engine::Rng;

/// Which POLE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Algorithm 1.
    Published,
    /// With its repairs.
    Repaired,
}

/// Peers, what is between them, and what comes to them, after one of them has crashed.
#[derive(Clone, Debug)]
pub struct Topology {
    /// All, in order, with how many requests come to each in a second.
    pub peers: BTreeMap<PeerId, u64>,
    /// Round trips, by the smaller id and the larger.
    pub round_trips: BTreeMap<(PeerId, PeerId), Duration>,
    /// Who led, and has crashed.
    pub crashed: PeerId,
}

/// How messages and notices of the crash go astray.
#[derive(Clone, Copy, Debug, Default)]
pub struct Weather {
    /// How long after the first survivor the last may notice the crash.
    pub spread: Duration,
    /// By how many millionths a way may be longer than half a round trip.
    pub jitter_ppm: u32,
    /// How many of a million messages are lost.
    pub loss_ppm: u32,
}

/// What one election came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Election {
    /// Whom all survivors named in the end, if they agreed.
    pub elected: Option<PeerId>,
    /// From the first survivor's notice until a majority of all named one that named itself too.
    pub decided: Option<Duration>,
    /// Whether two named themselves.
    pub is_split: bool,
    /// Messages, from that notice on until all survivors agreed.
    pub messages: u64,
}

impl Topology {
    /// From three to seven peers anywhere, with round trips of 0.1 to 200 ms, and requests anywhere.
    pub fn random(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let count = u16::try_from(rng.between(3, 7)).expect("a small number");
        let peers: BTreeMap<_, _> = (1..=count).map(|id| (PeerId(id), rng.between(0, 1_000))).collect();
        let mut round_trips = BTreeMap::new();
        for (one, other) in pairs(peers.keys().copied().collect()) {
            round_trips.insert((one, other), Duration::from_nanos(rng.between(100_000, 200_000_000)));
        }
        let crashed = PeerId(u16::try_from(rng.between(1, u64::from(count))).expect("a small number"));
        Self { peers, round_trips, crashed }
    }

    /// This many peers, equally far from each other, the last of which has crashed.
    pub fn even(count: u16, round_trip: Duration) -> Self {
        let peers: BTreeMap<_, _> = (1..=count).map(|id| (PeerId(id), 100 + u64::from(id))).collect();
        let round_trips = pairs(peers.keys().copied().collect()).map(|pair| (pair, round_trip)).collect();
        Self { peers, round_trips, crashed: PeerId(count) }
    }

    /// Who is left.
    pub fn survivors(&self) -> Vec<PeerId> {
        self.peers.keys().copied().filter(|peer| *peer != self.crashed).collect()
    }

    /// What every peer has learnt before the crash.
    pub fn facts(&self) -> Measurements {
        let mut facts = Measurements::new(self.peers.keys().copied());
        facts.set_leader(Some(self.crashed));
        self.peers.iter().for_each(|(peer, rate)| facts.set_rate(*peer, *rate));
        self.round_trips.iter().for_each(|((one, other), trip)| facts.set_round_trip(*one, *other, *trip));
        facts
    }

    /// The crash, and the election that follows. Slots and waits are longer than the longest round trip.
    pub fn elect(&self, form: Form, metric: Metric, seed: u64, weather: Weather) -> Election {
        let facts = self.facts();
        let peers: Vec<PeerId> = self.peers.keys().copied().collect();
        let longest = self.round_trips.values().max().copied().unwrap_or_default();
        let wait = longest * 2 + Duration::from_millis(1);
        match form {
            Form::Published => {
                let mut world = self.world(seed, weather);
                for peer in self.survivors() {
                    let oracle = Oracle { metric, peer, facts: facts.clone() };
                    world.start(peer, Published::new(peer, peers.clone(), wait, oracle));
                }
                self.crash(world, seed, weather.spread)
            }
            Form::Repaired => {
                let mut world = self.world(seed, weather);
                let settings = PoleSettings { wait, slot: wait, ..PoleSettings::default() };
                for peer in &peers {
                    let mut pole = Pole::new(*peer, peers.clone(), settings, DurableTerm::default());
                    pole.set_rank(rank(metric, *peer, &facts));
                    world.start(*peer, pole);
                }
                world.tell_all(&Event::Led(self.crashed));
                world.run(Duration::from_millis(2_500), |_| false);
                world.crash(self.crashed);
                self.crash(world, seed, weather.spread)
            }
        }
    }

    fn world<C: Contest>(&self, seed: u64, weather: Weather) -> World<C> {
        let link = |trip: Duration| Link {
            most: trip / 2
                + Duration::from_nanos(
                    primacy_sim::engine::nanos(trip / 2) / 1_000_000 * u64::from(weather.jitter_ppm),
                ),
            loss_ppm: weather.loss_ppm,
            ..Link::exact(trip / 2)
        };
        let mut world = World::new(seed, link(Duration::ZERO));
        for ((one, other), trip) in &self.round_trips {
            world.set_link(*one, *other, link(*trip));
            world.set_link(*other, *one, link(*trip));
        }
        world
    }

    /// From the first notice of the crash on.
    fn crash<C: Contest>(&self, mut world: World<C>, seed: u64, spread: Duration) -> Election {
        let mut rng = Rng::new(seed);
        let begin = world.now();
        let (said, sent) = (world.nominations.len(), world.sent);
        let survivors = self.survivors();
        let mut notices: Vec<_> =
            survivors.iter().map(|peer| (rng.between(0, primacy_sim::engine::nanos(spread)), *peer)).collect();
        notices.sort_unstable();
        let first = notices.first().map_or(0, |(after, _)| *after);
        for (after, peer) in notices {
            world.run(begin + Duration::from_nanos(after - first), |_| false);
            world.tell(peer, Event::Vacant);
        }
        let majority = self.peers.len() / 2 + 1;
        let agreed = |world: &World<C>| decided(&world.nominations[said..], survivors.len()).is_some();
        world.run(begin + Duration::from_secs(60), agreed);
        let nominations = &world.nominations[said..];
        let selves: BTreeSet<_> =
            nominations.iter().filter(|said| said.by == said.nominee).map(|said| said.by).collect();
        Election {
            elected: decided(nominations, survivors.len()).map(|said| said.nominee),
            decided: decided(nominations, majority).map(|said| said.at.saturating_sub(begin)),
            is_split: selves.len() > 1,
            messages: world.sent - sent,
        }
    }
}

/// The nomination by which this many peers name one, which names itself.
fn decided(nominations: &[Nomination], many: usize) -> Option<Nomination> {
    let mut opinions = BTreeMap::new();
    nominations.iter().copied().find(|said| {
        opinions.insert(said.by, said.nominee);
        let agree = opinions.values().filter(|nominee| **nominee == said.nominee).count();
        agree >= many && opinions.get(&said.nominee) == Some(&said.nominee)
    })
}

/// The rank that a metric gives a peer, when every difference counts.
pub(super) fn rank(metric: Metric, peer: PeerId, facts: &Measurements) -> Option<Rank> {
    let scores = facts.scores(&[metric], peer, 0).expect("one score")?;
    let mut selector = Selector::new(Names::default(), Vec::new()).expect("no classes");
    selector.rank(&"peer".parse().expect("a label"), &scores).expect("latencies below 2 s")
}

pub(super) fn pairs(peers: Vec<PeerId>) -> impl Iterator<Item = (PeerId, PeerId)> {
    let others = peers.clone();
    peers.into_iter().flat_map(move |one| {
        others.clone().into_iter().filter(move |other| one < *other).map(move |other| (one, other))
    })
}

/// What many elections cost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Costs {
    /// Times until a majority agreed, the shortest first.
    pub decided: Vec<Duration>,
    /// Messages, the fewest first.
    pub messages: Vec<u64>,
    /// In how many elections two named themselves.
    pub splits: usize,
    /// In how many nobody was agreed on within a minute.
    pub undecided: usize,
}

impl Costs {
    /// This many elections, one for each seed.
    pub fn of(topology: &Topology, form: Form, elections: u64, weather: Weather) -> Self {
        let mut costs = Self::default();
        for seed in 0..elections {
            let election = topology.elect(form, Metric::RequestRate, seed, weather);
            costs.messages.push(election.messages);
            costs.splits += usize::from(election.is_split);
            match election.decided {
                Some(decided) => costs.decided.push(decided),
                None => costs.undecided += 1,
            }
        }
        costs.decided.sort_unstable();
        costs.messages.sort_unstable();
        costs
    }

    /// The time and the messages that this many of a hundred elections do not exceed.
    pub fn percentile(&self, percent: usize) -> Option<(Duration, u64)> {
        let at = |len: usize| (len * percent / 100).min(len.saturating_sub(1));
        Some((*self.decided.get(at(self.decided.len()))?, *self.messages.get(at(self.messages.len()))?))
    }
}
