//! What a seed stands for: how many processes, which constants and clocks, and which faults strike how often.

use std::time::Duration;

use super::algorithm::Settings;
use super::choices::{Choices, Clocks, Orders};
use primacy_sim::engine::Rng;
use primacy_sim::engine::nanos;

/// A world before its first moment. Chances are in parts per million, spans of time in nanoseconds.
#[derive(Clone, Debug)]
pub(super) struct Scenario {
    /// How Algorithm 1 is implemented.
    pub(super) choices: Choices,
    /// Its constants.
    pub(super) settings: Settings,
    /// The error of each process's clock.
    pub(super) rates: Vec<i32>,
    /// When the world ends.
    pub(super) end: u64,
    /// The round time up to which μ covers what clocks differ by. The world ends when it is outgrown.
    pub(super) period_max: Duration,
    /// The longest way to the database or back that is not slow.
    pub(super) way_max: u64,
    /// Ways that are slow.
    pub(super) slow: u32,
    /// The longest of those.
    pub(super) slow_max: u64,
    /// Requests that the database answers with an abort.
    pub(super) refused: u32,
    /// Answers to commits that are lost.
    pub(super) lost: u32,
    /// Processes that are stopped when an answer comes.
    pub(super) paused: u32,
    /// The longest stop.
    pub(super) pause_max: u64,
    /// Mean time between two crashes, or 0 for none.
    pub(super) crash_every: u64,
    /// Mean time between two steps of a wall clock, or 0 for none.
    pub(super) step_every: u64,
    /// Mean time between two orders of an operator, or 0 for none.
    pub(super) order_every: u64,
    /// How long the database lets a transaction wait for the lock.
    pub(super) lock_wait_max: u64,
    /// How long the database lets a transaction say nothing.
    pub(super) idle_max: u64,
    /// How long a process waits for a round.
    pub(super) round_max: u64,
    /// For the run itself.
    pub(super) rng: Rng,
}

impl Scenario {
    /// The world of a seed. It is the same for all choices, but for clocks and operators.
    pub(super) fn draw(seed: u64, choices: Choices) -> Self {
        let mut rng = Rng::new(seed);
        let period = Duration::from_secs(*rng.pick(&[1, 2]));
        let period_max = period * 2;
        let max_missed = *rng.pick(&[2, 2, 2, 3]);
        let bound_ppm: u32 = *rng.pick(&[100, 1_000, 20_000]);
        // A holder's slow clock and a challenger's fast one together.
        let apart = period_max * max_missed * 2 * bound_ppm / 1_000_000;
        let settings = Settings { max_missed, margin: apart + Duration::from_millis(1), growth: period / 40, period };
        let wrong_ppm = if choices.clocks == Clocks::BeyondMu { bound_ppm * 4 } else { bound_ppm };
        let rates = (0..rng.between(2, 5)).map(|_| rate(&mut rng, wrong_ppm)).collect();
        let t = nanos(period);
        let order_every = rng.between(5 * t, 50 * t);
        let step_every = rng.between(2 * t, 20 * t);
        Self {
            choices,
            settings,
            rates,
            end: rng.between(40 * t, 120 * t),
            period_max,
            way_max: rng.spread(t / 10_000, t / 20),
            slow: sometimes(&mut rng, 100_000),
            slow_max: rng.between(t / 4, 3 * t),
            refused: sometimes(&mut rng, 100_000),
            lost: sometimes(&mut rng, 30_000),
            paused: sometimes(&mut rng, 20_000),
            pause_max: rng.between(t / 2, 5 * t),
            crash_every: if rng.chance(500_000) { rng.between(5 * t, 50 * t) } else { 0 },
            step_every: if choices.clocks == Clocks::Wall { step_every } else { 0 },
            order_every: if choices.orders == Orders::ForceLead { order_every } else { 0 },
            lock_wait_max: rng.between(t / 2, 4 * t),
            idle_max: rng.between(t / 4, 3 * t),
            round_max: rng.between(t, 6 * t),
            rng: rng.fork(),
        }
    }
}

/// A chance up to `most`: absent from half of all worlds, so that each fault is seen without each other.
fn sometimes(rng: &mut Rng, most: u64) -> u32 {
    let ppm = rng.spread(1_000, most) as u32;
    if rng.chance(500_000) { ppm } else { 0 }
}

/// At a limit in half of all cases: what is inside is no worse.
fn rate(rng: &mut Rng, most: u32) -> i32 {
    let most = most as i32;
    match rng.below(4) {
        0 => most,
        1 => -most,
        _ => rng.below(2 * most as u64 + 1) as i32 - most,
    }
}
