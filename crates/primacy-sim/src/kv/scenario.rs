//! What a seed stands for: nodes, groups, clients, clocks, disks, and which faults strike.

use std::time::Duration;

use primacy_core::log::{Limits, Reading};
#[cfg(feature = "canaries")]
use primacy_kv::group::AnyFlaw;
use primacy_kv::snapshots::LogBounds;
#[cfg(feature = "canaries")]
use primacy_kv::wal;

use super::tally::Fault;
use crate::rng::Rng;

/// Which promises hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Leases keep their bounds, and all that clients see is linearizable.
    Fenced,
    /// Two may believe at once, tokens are repeated and forged: writes and quorum reads are linearizable all the same.
    Wild,
}

/// What to simulate beside the seed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Setup {
    /// Which promises hold; drawn if absent.
    pub kind: Option<Kind>,
    /// A bug for the checkers to find.
    #[cfg(feature = "canaries")]
    pub flaw: Option<Planted>,
}

/// A bug.
#[cfg(feature = "canaries")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planted {
    /// Of a group, or of the replicated log in it.
    Group(AnyFlaw),
    /// Of the write-ahead log.
    Wal(wal::PlantedFlaw),
}

pub(super) const MILLI: u64 = 1_000_000;

/// Faults that came later, and by which part of the seed each is drawn, so that the worlds without it stay as they were.
const DRAWN_APART: [(Fault, u64); 3] = [
    (Fault::LeaderOutlasted, 0x6f75_746c_6173_7465),
    (Fault::FlushFails, 0x666c_7573_6866_6169),
    (Fault::RefusalUnheard, 0x756e_6865_6172_6421),
];

/// A world before its first moment.
#[derive(Clone, Debug)]
pub(super) struct Scenario {
    pub(super) kind: Kind,
    pub(super) nodes: usize,
    pub(super) groups: u16,
    /// The lease of all groups, in nanoseconds.
    pub(super) lease: u64,
    /// How long a message takes when nothing fails.
    pub(super) latency: (u64, u64),
    /// By how much clocks are wrong at most, in parts per million.
    pub(super) drift: u32,
    pub(super) reads: Reading,
    /// The longest that a flush takes when nothing fails.
    pub(super) flush: u64,
    /// The longest that a turn of the loop waits for further input.
    pub(super) gather: u64,
    /// Clients of each node.
    pub(super) clients: usize,
    /// How many writes a client has under way at most.
    pub(super) depth: usize,
    /// How long a client waits between two requests, on average.
    pub(super) think: u64,
    pub(super) limits: Limits,
    pub(super) snapshot_every: usize,
    pub(super) chunk: usize,
    pub(super) entry_bytes: usize,
    pub(super) uncommitted_bytes: usize,
    /// For how long faults strike.
    pub(super) span: u64,
    /// How long between two faults, on average.
    pub(super) blow_every: u64,
    /// Which faults strike.
    pub(super) faults: Vec<Fault>,
    /// How many new nodes there may be.
    pub(super) spares: usize,
    /// A bug for the checkers to find.
    #[cfg(feature = "canaries")]
    pub(super) flaw: Option<Planted>,
    /// How long the segments of logs are.
    pub(super) segment_bytes: u32,
    /// How long logs may become.
    pub(super) log_bounds: LogBounds,
    /// What happens to disks.
    pub(super) disks: Rng,
    pub(super) rng: Rng,
}

impl Scenario {
    pub(super) fn draw(seed: u64, setup: &Setup) -> Self {
        let mut rng = Rng::new(seed ^ 0x6b76_6b76_6b76_6b76);
        let mut disks = Rng::new(seed ^ 0x6469_736b_6469_736b);
        let drawn = if rng.chance(250_000) { Kind::Wild } else { Kind::Fenced };
        let kind = setup.kind.unwrap_or(drawn);
        let lease = *rng.pick(&[100 * MILLI, 300 * MILLI, 1_000 * MILLI]);
        let slowest = rng.spread(lease / 2_000, lease / 16);
        let nodes = if rng.chance(300_000) { 5 } else { 3 };
        let groups = *rng.pick(&[1, 1, 1, 2, 2, 3]);
        let quorum_reads = rng.chance(300_000);
        let small = rng.chance(500_000);
        let limits = if small { Limits { message_bytes: 300, window_bytes: 900 } } else { Limits::default() };
        let segment_bytes = *disks.pick(&[8 << 10, 16 << 10]);
        // Drawn apart, since they came later.
        let mut bounds = Rng::new(seed ^ 0x626f_756e_6473_626f);
        let log_bounds =
            LogBounds { before_asking: *bounds.pick(&[1, 2, 8]), for_late: *bounds.pick(&[1, 2, 16]), segment_bytes };
        let mut scenario = Self {
            kind,
            nodes,
            groups,
            lease,
            latency: (slowest / 10, slowest),
            drift: 20_000,
            reads: if quorum_reads { Reading::Quorum } else { Reading::Lease },
            flush: rng.spread(lease / 10_000, lease / 40),
            gather: rng.spread(1_000, lease / 500),
            clients: rng.between(1, 2) as usize,
            depth: *rng.pick(&[1, 2, 4, 8]),
            think: lease / rng.between(2, 5),
            limits,
            snapshot_every: *rng.pick(&[1_500, 4_000, 1 << 20]),
            chunk: *rng.pick(&[200, 1_000, 1 << 16]),
            entry_bytes: if rng.chance(300_000) { 100 } else { 256 << 10 },
            uncommitted_bytes: if rng.chance(300_000) { 250 } else { 16 << 20 },
            span: lease * rng.between(4, 7),
            blow_every: lease / rng.between(1, 6),
            faults: Vec::new(),
            spares: rng.below(3) as usize,
            #[cfg(feature = "canaries")]
            flaw: setup.flaw,
            segment_bytes,
            log_bounds,
            disks,
            rng: rng.clone(),
        };
        let share = *rng.pick(&[200_000, 400_000, 700_000]);
        for fault in Fault::ALL {
            let is_wild = matches!(fault, Fault::TwoBelievers | Fault::TokenRepeated | Fault::WentBack | Fault::Forged);
            let may = (!is_wild || kind == Kind::Wild) && !DRAWN_APART.iter().any(|(apart, _)| apart == fault);
            if may && rng.chance(if is_wild { 700_000 } else { share }) {
                scenario.faults.push(*fault);
            }
        }
        for (fault, mask) in DRAWN_APART {
            if Rng::new(seed ^ mask).chance(300_000) {
                scenario.faults.push(fault);
            }
        }
        scenario.rng = rng;
        scenario
    }

    pub(super) fn lease(&self) -> Duration {
        Duration::from_nanos(self.lease)
    }
}
