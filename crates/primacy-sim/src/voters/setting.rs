//! What a seed stands for among peers: how many voters, who lives with whom, and which faults strike how often.

use std::time::Duration;

use super::reconfiguration::ReconfigurationSetting;
use crate::profile::{Part, Profile, Steady, draw_ppm};
use crate::rng::Rng;

/// The part of a world that only elections among peers have.
#[derive(Clone, Debug)]
pub(crate) struct Setting {
    /// How many voters there are, on the first hosts; also those that do not vote yet, where they are exchanged.
    pub(crate) voters: usize,
    /// The host of each candidate: that of a voter, or one of its own.
    pub(crate) hosts: Vec<usize>,
    /// The bound on the voters' clock rates.
    pub(crate) drift_ppm: u32,
    /// The error of each voter's clock rate.
    pub(crate) ppm: Vec<i32>,
    /// Frames keep no order and come twice: beyond what TCP does, and within what voters and clients are made for.
    pub(crate) strays: bool,
    /// Voters are exchanged.
    pub(crate) reconfiguration: Option<ReconfigurationSetting>,
    /// Faults of the present phase.
    pub(crate) rates: Rates,
}

/// How often each fault strikes. Rates are in parts per million.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rates {
    /// Packets lost between two hosts.
    pub(crate) loss: u32,
    /// The shortest time-out after which one is sent again that nothing follows.
    pub(crate) resend: u64,
    /// Receivers tell of what has arrived beyond it (SACK), so that it may be sent again before.
    pub(crate) selective: bool,
    /// Frames that come twice, where they keep no order.
    pub(crate) doubled: u32,
    /// The longest that a flush takes when it is not slow.
    pub(crate) flush_max: u64,
    /// Flushes that are slow.
    pub(crate) flush_slow: u32,
    /// The longest that a slow one takes.
    pub(crate) flush_slow_max: u64,
    /// Flushes that fail: the voter ends.
    pub(crate) flush_fails: u32,
    /// Voters killed while they flush.
    pub(crate) killed_at_flush: u32,
    /// Hosts that lose their power while their voter flushes.
    pub(crate) lost_at_flush: u32,
    /// Connections that break when something is sent.
    pub(crate) breaks: u32,
    /// Mean time between two strikes, or 0 for none.
    pub(crate) strike_every: u64,
    /// How likely each is, by [`Strike`].
    pub(crate) strikes: [u32; Strike::ALL.len()],
    /// Strikes at the leader's host.
    pub(crate) aim: u32,
}

/// What the adversary does at a moment of its choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Strike {
    /// Kills a voter.
    Kill,
    /// Stops a voter's process.
    Stop,
    /// Takes a host's power: everything on it dies, and what was not flushed is gone.
    PowerOff,
    /// A machine sleeps, with all that is on it.
    Sleep,
    /// A disk stands still.
    DiskStands,
    /// The next flush of a disk fails.
    DiskFails,
    /// Nothing that a host says is heard.
    Mute,
    /// A host hears nothing.
    Deaf,
    /// Both.
    CutOff,
    /// One host does not hear one other.
    CutPair,
    /// Two parts do not hear each other.
    Halves,
    /// Each hears its neighbours only.
    Ring,
    /// All connections of a host break.
    Reset,
    /// Changes the rate of a voter's clock.
    Slew,
}

impl Strike {
    /// All of them.
    pub(crate) const ALL: [Self; 14] = [
        Self::Kill,
        Self::Stop,
        Self::PowerOff,
        Self::Sleep,
        Self::DiskStands,
        Self::DiskFails,
        Self::Mute,
        Self::Deaf,
        Self::CutOff,
        Self::CutPair,
        Self::Halves,
        Self::Ring,
        Self::Reset,
        Self::Slew,
    ];
}

impl Setting {
    /// The peers of this seed. `call`: the shortest time-out of a call.
    pub(crate) fn draw(parts: &[Part], profile: Profile, lease: Duration, call: Duration, rng: &mut Rng) -> Self {
        let voters = *rng.pick(&[3, 3, 3, 3, 5, 5, 4, 7]);
        let together = *rng.pick(&[0, 500_000, 1_000_000]);
        let host = |(index, _): (usize, &Part)| if rng.chance(together) { index % voters } else { voters + index };
        let hosts = parts.iter().enumerate().map(host).collect();
        // Each side covers its own clock; one bound for all is what the published failover rests on.
        let drift_ppm = parts.iter().map(|part| part.timing.drift_ppm()).max().unwrap_or(20_000);
        let ppm = (0..voters).map(|_| draw_ppm(drift_ppm, profile, rng)).collect();
        let rates = Rates::draw(profile, crate::nanos(lease), crate::nanos(call), rng);
        let strays = profile != Profile::Calm && rng.chance(300_000);
        Self { voters, hosts, drift_ppm, ppm, strays, reconfiguration: None, rates }
    }

    /// Frames keep no order, and many come twice.
    pub(crate) fn stray(&mut self) {
        self.strays = true;
        self.rates.doubled = self.rates.doubled.max(200_000);
        self.rates.loss = self.rates.loss.max(50_000);
    }
}

impl Setting {
    /// Three voters, with the candidates on their hosts, and nothing but packets that are lost.
    pub(crate) fn steady(parts: &[Part], steady: Steady, profile: Profile, rng: &mut Rng) -> Self {
        let drift_ppm = parts.iter().map(|part| part.timing.drift_ppm()).max().unwrap_or(20_000);
        Self {
            voters: 3,
            hosts: (0..parts.len()).map(|index| index % 3).collect(),
            drift_ppm,
            ppm: (0..3).map(|_| draw_ppm(drift_ppm, profile, rng)).collect(),
            strays: false,
            reconfiguration: None,
            rates: Rates::steady(steady),
        }
    }
}

impl Rates {
    /// A lossy network for a steady world. Linux waits at least this `resend` time for a lost packet after which nothing was sent.
    pub(crate) fn steady(steady: Steady) -> Self {
        Self { loss: steady.loss_ppm, resend: 200_000_000, ..Self::healed(2_000_000) }
    }

    /// A healthy world, in which a flush takes at most this long.
    pub(crate) fn healed(flush_max: u64) -> Self {
        Self { flush_max, resend: 1_000_000, selective: true, ..Self::default() }
    }

    fn draw(profile: Profile, lease: u64, call: u64, rng: &mut Rng) -> Self {
        if profile == Profile::Calm {
            return Self::healed((call / 20).min(2_000_000));
        }
        let mut some = |most: u64| if rng.chance(500_000) { rng.spread(1_000, most) as u32 } else { 0 };
        let mut rates = Self {
            loss: some(200_000),
            doubled: some(300_000),
            flush_slow: some(300_000),
            flush_fails: some(20_000),
            killed_at_flush: some(50_000),
            lost_at_flush: some(50_000),
            breaks: some(20_000),
            ..Self::default()
        };
        rates.resend = *rng.pick(&[call / 4, call, 200_000_000]);
        rates.selective = rng.chance(500_000);
        rates.flush_max = rng.spread(100_000, (call / 8).max(100_000));
        rates.flush_slow_max = rng.spread(call / 8, call * 2);
        rates.strike_every = rng.spread(lease / 16, lease * 4);
        rates.strikes.iter_mut().for_each(|weight| *weight = rng.below(2) as u32 * rng.between(1, 8) as u32);
        rates.aim = *rng.pick(&[0, 300_000, 700_000]);
        rates
    }
}

impl Setting {
    /// In a third of all worlds, or in `all`, some of those that could vote do not at first, and voters are exchanged.
    pub(crate) fn with_reconfigurations(
        mut self,
        parts: &[Part],
        profile: Profile,
        lease: u64,
        all: bool,
        rng: &mut Rng,
    ) -> Self {
        let some = rng.chance(333_333);
        if !some && !all {
            return self;
        }
        let (first, spares) = (self.voters, rng.between(1, 4) as usize);
        for host in self.hosts.iter_mut().filter(|host| **host >= first) {
            *host = if rng.chance(250_000) { first + rng.below(spares as u64) as usize } else { *host + spares };
        }
        debug_assert_eq!(parts.len(), self.hosts.len());
        self.ppm.extend((0..spares).map(|_| draw_ppm(self.drift_ppm, profile, rng)));
        self.voters += spares;
        let every = if profile == Profile::Calm { 0 } else { rng.spread(lease / 8, lease * 6) };
        let mut some = |most: u64| if rng.chance(500_000) { rng.spread(1_000, most) as u32 } else { 0 };
        let (both, killed, many, cut_short) = (some(1_000_000), some(1_000_000), some(1_000_000), some(300_000));
        self.reconfiguration = Some(ReconfigurationSetting { first, every, both, killed, cut_short, many });
        self
    }

    /// How many vote at first.
    pub(crate) fn first(&self) -> usize {
        self.reconfiguration.map_or(self.voters, |reconfiguration| reconfiguration.first)
    }
}
