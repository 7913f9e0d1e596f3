//! How long a round lasts, and how many may be missed: checked settings of the registers protocol.

use core::time::Duration;

use crate::time::{HumanDuration, stretched};

/// What may be chosen about the rounds of an election. Checked by [`Rounds::new`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RoundsSettings {
    /// The round time to begin with, and the shortest that there will be: `T_p` of the paper, 2 s there. 50 ms to 1 h.
    pub round: Duration,
    /// How many rounds a process may miss before it counts as dead: `Max_mhb` of the paper, 2 there. 2 to 100.
    pub missed: u32,
    /// By how much the round time grows at least when it was too short: `Δ` of the paper, 50 ms there.
    pub step: Duration,
    /// The longest that the round time may grow to. By default ten times the shortest. The lease grows with it, and with the
    /// lease the wait after a silent loss: `most` × `missed`, and a little. A smaller limit evicts who is slower than it.
    pub most: Option<Duration>,
    /// By how much the *rate* of any participant's clock may be wrong, in parts per million.
    pub drift_ppm: u32,
}

impl RoundsSettings {
    /// The settings of the paper (section 6), with this round time.
    pub const fn new(round: Duration) -> Self {
        Self { round, missed: 2, step: Duration::from_millis(50), most: None, drift_ppm: 20_000 }
    }
}

/// Round settings that fit together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rounds {
    round: Duration,
    missed: u32,
    step: Duration,
    most: Duration,
    drift_ppm: u32,
}

/// Why round settings were refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RoundsError {
    /// The round time is outside of 50 ms to 1 h.
    #[error("a round of {} is not supported; choose 50ms to 1h", HumanDuration(*.round))]
    Round {
        /// What was asked for.
        round: Duration,
    },
    /// One missed round would be taken for death, or a hundred for nothing.
    #[error("{missed} missed rounds are not supported; choose 2 to 100")]
    Missed {
        /// What was asked for.
        missed: u32,
    },
    /// The step is nothing, or longer than the round itself.
    #[error("a round cannot grow by {} at a time; choose 1ms to the round time", HumanDuration(*.step))]
    Step {
        /// What was asked for.
        step: Duration,
    },
    /// The longest round is shorter than the shortest, or longer than a day together with the rounds that may be missed.
    #[error(
        "the round time cannot grow up to {}; choose at least the round time, and a lease of at most a day",
        HumanDuration(*.most)
    )]
    Most {
        /// What was asked for.
        most: Duration,
    },
}

impl Rounds {
    /// Checks that the settings fit together.
    ///
    /// # Errors
    /// When they do not; the error says what would.
    pub fn new(settings: RoundsSettings) -> Result<Self, RoundsError> {
        let RoundsSettings { round, missed, step, most, drift_ppm } = settings;
        if !(Duration::from_millis(50)..=Duration::from_secs(3_600)).contains(&round) {
            return Err(RoundsError::Round { round });
        }
        if !(2..=100).contains(&missed) {
            return Err(RoundsError::Missed { missed });
        }
        if !(Duration::from_millis(1)..=round).contains(&step) {
            return Err(RoundsError::Step { step });
        }
        let day = Duration::from_secs(86_400);
        let most = most.unwrap_or((round * 10).min(day / missed));
        if most < round || most > day / missed {
            return Err(RoundsError::Most { most });
        }
        Ok(Self { round, missed, step, most, drift_ppm })
    }

    /// The shortest round time, and the first.
    pub const fn round(&self) -> Duration {
        self.round
    }

    /// The longest round time.
    pub const fn most(&self) -> Duration {
        self.most
    }

    /// By how much the round time grows at least.
    pub const fn step(&self) -> Duration {
        self.step
    }

    /// How many rounds a process may miss.
    pub const fn missed(&self) -> u32 {
        self.missed
    }

    /// The length of the leader's lease while rounds are this long: `T_p · Max_mhb` (paper, section 4.4). The paper's `μ`
    /// is the margin of [`Timing`](crate::Timing).
    pub fn lease(&self, round: Duration) -> Duration {
        round.saturating_mul(self.missed)
    }

    /// How long a process may be silent, on the clock of the process that watches it, before it counts as dead (rule R3).
    pub fn patience(&self, round: Duration) -> Duration {
        stretched(self.lease(round), self.drift_ppm)
    }

    /// Whether a process whose beats come `late` is close to being taken for dead.
    pub(super) fn is_tight(&self, round: Duration, late: Duration) -> bool {
        round.saturating_add(late) > self.lease(round).mul_f64(0.9)
    }

    /// The round time at which beats that come `late` leave a quarter of the patience to spare.
    pub(super) fn needed(&self, late: Duration) -> Duration {
        let spare = 0.75 * f64::from(self.missed) - 1.0;
        late.min(self.most).div_f64(spare).clamp(self.round, self.most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paper() -> Rounds {
        Rounds::new(RoundsSettings::new(Duration::from_secs(2))).expect("the paper's settings")
    }

    #[test]
    fn the_papers_settings_give_its_lease() {
        assert_eq!(paper().lease(paper().round()), Duration::from_secs(4));
        assert_eq!(paper().patience(paper().round()), Duration::from_millis(4_080));
    }

    #[test]
    fn what_is_needed_is_not_tight() {
        for late in [0, 10, 900, 3_000, 6_000].map(Duration::from_millis) {
            let round = paper().needed(late);
            assert!(!paper().is_tight(round, late), "{late:?} {round:?}");
        }
        assert_eq!(paper().needed(Duration::MAX), paper().most());
    }

    #[test]
    fn absurd_settings_are_refused() {
        let with = |change: fn(&mut RoundsSettings)| {
            let mut settings = RoundsSettings::new(Duration::from_secs(2));
            change(&mut settings);
            Rounds::new(settings)
        };
        assert!(matches!(with(|s| s.round = Duration::ZERO), Err(RoundsError::Round { .. })));
        assert!(matches!(with(|s| s.missed = 1), Err(RoundsError::Missed { .. })));
        assert!(matches!(with(|s| s.step = Duration::ZERO), Err(RoundsError::Step { .. })));
        assert!(matches!(with(|s| s.most = Some(Duration::from_secs(1))), Err(RoundsError::Most { .. })));
        assert!(matches!(with(|s| s.most = Some(Duration::MAX)), Err(RoundsError::Most { .. })));
    }
}
