//! The contests that are measured, each as its peers are made.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::time::Duration;

use anyhow::Result;
use clap::ValueEnum;
use primacy_core::contest::ring::{Circle, Ring};
use primacy_core::contest::{PeerId, ring};
use primacy_core::select::{Measurements, Metric, Oracle, Rank};
use primacy_papers::plain::{LowestId, Named, Plain, Preference, Sticky};
use primacy_papers::ring::HEARTBEAT;
use primacy_papers::roulette::{PublishedSettings, Roulette, Variant};
use primacy_papers::{plain, pole, roulette};
use serde::Serialize;

use super::network::Network;
use super::peer::Machine;
use super::trial::{Setup, Trials, measure};
use primacy_bench::Entropy;

/// A contest, in one of its forms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Which {
    PolePublished,
    Pole,
    RoulettePublished,
    /// The paper's second variant.
    RouletteAtMajority,
    Roulette,
    RingPublished,
    Ring,
    LowestId,
    Named,
    Sticky,
}

impl Which {
    /// Whether its nominee asks for the grant; or leads by its own belief, as published.
    pub(super) fn is_granted(self) -> bool {
        !matches!(self, Self::PolePublished | Self::RoulettePublished | Self::RouletteAtMajority | Self::RingPublished)
    }

    /// Measures it.
    ///
    /// # Errors
    /// As [`measure`] does.
    pub(super) fn measure(self, setup: &Setup) -> Result<Trials> {
        let peers: BTreeSet<PeerId> = (1..=setup.peers).map(PeerId).collect();
        let network = &*setup.network;
        match self {
            Self::PolePublished => measure(setup, |me, (), _| {
                let wait = pole::PUBLISHED_WAIT + network.round_trip();
                // The paper's "request": a higher id has more of them.
                let mut facts = Measurements::new(peers.iter().copied());
                peers.iter().for_each(|peer| facts.set_rate(*peer, 100 + u64::from(peer.0)));
                let oracle = Oracle { metric: Metric::RequestRate, peer: me, facts };
                pole::Published::new(me, peers.iter().copied(), wait, oracle)
            }),
            Self::Pole => measure(setup, |me, kept, _| {
                let settings = pole::PoleSettings {
                    wait: Duration::from_millis(200) + network.round_trip(),
                    slot: slot(network),
                    ..pole::PoleSettings::default()
                };
                let mut pole = pole::Pole::new(me, peers.iter().copied(), settings, kept);
                pole.set_rank(Some(Rank::from([-i32::from(me.0), 0, 0, 0, 0, 0, 0, 0])));
                pole
            }),
            Self::RoulettePublished => roulette_published(setup, &peers, Variant::WaitForAll),
            Self::RouletteAtMajority => roulette_published(setup, &peers, Variant::AtMajority),
            Self::Roulette => measure(setup, |me, kept, _| {
                let defaults = roulette::Settings::default();
                let settings = roulette::Settings {
                    round_trip: network.round_trip(),
                    patience: defaults.patience + network.round_trip() * 8,
                    ..defaults
                };
                Roulette::new(me, &peers, settings, kept)
            }),
            Self::RingPublished => measure(setup, |me, (), seed| {
                primacy_papers::ring::Published::member(me, circle(&peers, seed), HEARTBEAT)
            }),
            Self::Ring => measure(setup, |me, kept, seed| {
                let defaults = ring::Settings::default();
                let settings = ring::Settings {
                    hop: defaults.hop + network.round_trip(),
                    patience: defaults.patience + network.round_trip() * u32::from(setup.peers) * 2,
                    ..defaults
                };
                Ring::new(me, circle(&peers, seed), settings, kept)
            }),
            Self::LowestId => plain(setup, &peers, || LowestId),
            Self::Named => plain(setup, &peers, || Named(peers.iter().rev().copied().collect())),
            Self::Sticky => plain(setup, &peers, || Sticky),
        }
    }
}

/// Longer than a grant takes, and than peers differ in when they notice.
fn slot(network: &Network) -> Duration {
    network.grant_patience() + network.round_trip()
}

/// The paper's, with time for answers over this network.
pub(super) fn published_lot(network: &Network, variant: Variant) -> PublishedSettings {
    let defaults = PublishedSettings::new(variant);
    PublishedSettings { patience: defaults.patience + network.round_trip() * 2, ..defaults }
}

fn roulette_published(setup: &Setup, peers: &BTreeSet<PeerId>, variant: Variant) -> Result<Trials> {
    let settings = published_lot(&setup.network, variant);
    measure(setup, |me, (), _| roulette::Published::new(me, peers, settings))
}

fn plain<P: Preference + Clone + Debug + Eq + Send + 'static>(
    setup: &Setup,
    peers: &BTreeSet<PeerId>,
    preference: impl Fn() -> P,
) -> Result<Trials> {
    let settings = plain::Settings { slot: slot(&setup.network), ..plain::Settings::default() };
    measure(setup, |me, (), _| Plain::new(me, peers, preference(), settings))
}

/// Another order for each seed: how much an election costs depends on it.
fn circle(peers: &BTreeSet<PeerId>, seed: u64) -> Circle {
    let mut order: Vec<(u64, PeerId)> =
        peers.iter().map(|peer| (Entropy(seed ^ u64::from(peer.0) << 48).next(), *peer)).collect();
    order.sort_unstable();
    Circle::new(order.into_iter().map(|(_, peer)| peer))
}

impl Machine for pole::Published<Oracle> {
    const IS_GRANTED: bool = false;
    type Durable = ();
    fn kept(&self) {}
}

impl Machine for pole::Pole {
    const IS_GRANTED: bool = true;
    type Durable = pole::DurableTerm;
    fn kept(&self) -> pole::DurableTerm {
        pole::Pole::kept(self)
    }
}

impl Machine for roulette::Published {
    const IS_GRANTED: bool = false;
    type Durable = ();
    fn kept(&self) {}
    fn launched(&self) -> Option<u32> {
        Some(self.tally().launched)
    }
    fn round(&self) -> u64 {
        roulette::Published::round(self).into()
    }
}

impl Machine for Roulette {
    const IS_GRANTED: bool = true;
    type Durable = roulette::DurableTerm;
    fn kept(&self) -> roulette::DurableTerm {
        Roulette::kept(self)
    }
    fn launched(&self) -> Option<u32> {
        Some(self.tally().launched)
    }
    fn round(&self) -> u64 {
        Roulette::kept(self).term
    }
}

impl Machine for primacy_papers::ring::Published {
    const IS_GRANTED: bool = false;
    type Durable = ();
    fn kept(&self) {}
}

impl Machine for Ring {
    const IS_GRANTED: bool = true;
    type Durable = ring::DurableTerm;
    fn kept(&self) -> ring::DurableTerm {
        Ring::kept(self)
    }
}

impl<P: Preference + Clone + Debug + Eq + Send + 'static> Machine for Plain<P> {
    const IS_GRANTED: bool = true;
    type Durable = ();
    fn kept(&self) {}
}
