//! How candidates of the `registers` protocol share processes.

use std::time::Duration;

use primacy_core::registers::{Rounds, RoundsSettings};
use primacy_core::select::{FailBack, Rank};
use primacy_core::{Timing, TimingSettings};

use crate::profile::Part;
use crate::protocol::Protocol;
use crate::rng::Rng;

/// How the candidates of the `registers` protocol take part.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GroupSetup {
    /// How long rounds last.
    pub(crate) rounds: Rounds,
    /// When a leader makes way for a better one.
    pub(crate) fail_back: FailBack,
    /// How many processes there are.
    pub(crate) processes: usize,
}

impl GroupSetup {
    /// Puts candidates into processes: those of one process share its clock, and all share the timing of the first, which
    /// the rounds decide from now on.
    pub(crate) fn draw(protocol: Protocol, parts: &mut [Part], rng: &mut Rng) -> Option<Self> {
        if matches!(protocol, Protocol::Lease | Protocol::Peers) {
            return None;
        }
        let first = parts.first()?.timing;
        let rounds = draw_rounds(&first, rng);
        let lease = rounds.lease(rounds.round());
        // A grace that fits the shortest lease fits all.
        let timing = first.with_other_lease(lease).unwrap_or_else(|_| plain(lease, first.drift_ppm()));
        let crowded = rng.chance(350_000);
        let ranked = rng.chance(300_000);
        let mut processes = 0;
        for index in 0..parts.len() {
            let drift = i32::try_from(timing.drift_ppm()).unwrap_or(i32::MAX);
            // The first is of the protocol in any case, or there would be none.
            let apart = protocol == Protocol::Mixed && index > 0 && rng.chance(500_000);
            let shares = index > 0 && crowded && rng.chance(500_000);
            let mate =
                parts[..index].iter().rev().find_map(|part| Some((part.process_host?, part.ppm))).filter(|_| shares);
            let part = &mut parts[index];
            if apart {
                continue;
            }
            part.timing = timing;
            part.ppm = part.ppm.clamp(-drift, drift);
            part.rank = Some(if ranked { rank(rng.below(3) as i32) } else { Rank::default() });
            part.process_host = Some(processes);
            match mate {
                Some((host, ppm)) => {
                    part.process_host = Some(host);
                    part.ppm = ppm;
                    // A few only take part: their process beats for them too.
                    part.rank = part.rank.filter(|_| !rng.chance(100_000));
                }
                None => processes += 1,
            }
        }
        let after = Duration::from_nanos(rng.spread(1_000_000, crate::nanos(lease) * 2));
        let fail_back = if rng.chance(250_000) { FailBack::After(after) } else { FailBack::Never };
        Some(Self { rounds, fail_back, processes })
    }

    /// Whether leases may get longer than they were at first.
    pub(crate) fn varies(&self) -> bool {
        self.rounds.most() > self.rounds.round()
    }
}

fn draw_rounds(timing: &Timing, rng: &mut Rng) -> Rounds {
    let least = Duration::from_millis(50);
    let missed = *rng.pick(&[2, 2, 2, 3, 5]);
    let missed = if timing.lease() / missed < least { 2 } else { missed };
    let round = (timing.lease() / missed).max(least);
    let step = (round / *rng.pick(&[1, 4, 40])).max(Duration::from_millis(1));
    let most = *rng.pick(&[None, None, Some(round), Some(round * 2), Some(round * 3)]);
    let settings = RoundsSettings { round, missed, step, most, drift_ppm: timing.drift_ppm() };
    Rounds::new(settings).expect("a lease of 100ms to a day has such rounds")
}

fn plain(lease: Duration, drift_ppm: u32) -> Timing {
    let settings = TimingSettings { drift_ppm, grace: Duration::ZERO, ..TimingSettings::new(lease) };
    Timing::new(settings).expect("a lease from 100ms, an allowed drift and no grace are valid")
}

fn rank(place: i32) -> Rank {
    Rank::new(&[place]).expect("one class is few enough")
}
