//! Which promises a world puts to the test, and who takes part in it.

use std::time::Duration;

use primacy_core::select::Rank;
use primacy_core::{Label, Timing};

use crate::rng::Rng;

/// Which promises are put to the test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
pub enum Profile {
    /// Each seed draws one of the others, most often `faults`.
    All,
    /// Everything may fail that primacy promises to withstand.
    Faults,
    /// As `faults`, and the store goes back in time.
    Regress,
    /// As `faults`, and clocks are wrong by more than the configured bound.
    Wild,
    /// Nothing fails but what the drills of the healed phase do: what failover costs.
    Calm,
}

/// A long time in which only packets are lost, and the leader must stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Steady {
    /// For how long, once there is a leader.
    pub span: Duration,
    /// Packets lost between two hosts, in parts per million.
    pub loss_ppm: u32,
}

/// One candidate's part.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    /// What people call it.
    pub(crate) label: Label,
    /// Its timing.
    pub(crate) timing: Timing,
    /// The error of its clock's rate.
    pub(crate) ppm: i32,
    /// The process that it shares with others, in the `registers` protocol.
    pub(crate) process_host: Option<usize>,
    /// How it stands by preference there; `None`: it never leads.
    pub(crate) rank: Option<Rank>,
}

/// The error of a clock's rate: half of all clocks are as wrong as they may be.
pub(crate) fn draw_ppm(bound: u32, profile: Profile, rng: &mut Rng) -> i32 {
    let bound = if profile == Profile::Wild { 200_000 } else { bound as i32 };
    match rng.below(4) {
        0 => bound,
        1 => -bound,
        _ => rng.between(0, 2 * bound as u64) as i32 - bound,
    }
}

impl Profile {
    /// No majority of disks goes back in time.
    pub(crate) const fn among_peers(self) -> Self {
        match self {
            Self::Regress => Self::Faults,
            other => other,
        }
    }
}
