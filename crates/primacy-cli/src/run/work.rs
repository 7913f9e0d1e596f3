//! What a warm program may be doing, which hook is run next, and when the lease may be given back. Pure: the warden and the runner
//! go by it with a clock of their own. The design page on the runner has the argument.

use serde::{Deserialize, Serialize};

mod flaws;
#[cfg(test)]
mod tests;

use flaws::{Flaw, Planted};

/// How often `--on-lost` is run, one time after another, before the work is doubtful.
const ATTEMPTS: u32 = 2;

/// A command that is run in the place of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) enum Hook {
    /// `--on-elected`.
    Elected,
    /// `--on-lost`.
    Lost,
}

/// What to do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Act {
    /// Nothing.
    Nothing,
    /// Run this hook. None runs.
    Run(Hook),
    /// Kill the hook that runs, and all that it has started.
    Kill,
}

/// A moment, on the machine's boot clock in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    pub(super) now: u64,
    /// When a program would be killed by what is known of the lease. Without a lease that moment has passed.
    pub(super) kill_at: u64,
}

/// The work from one election to its end, or from a start in doubt.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Work {
    stage: Stage,
    /// How long `--on-lost` may take where no lease says it, in nanoseconds.
    grace: u64,
    /// The leadership ends.
    must_stop: bool,
    planted: Planted,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Stage {
    /// `--on-elected` runs, or is being killed.
    Starting,
    /// It has succeeded.
    Working,
    /// `--on-lost` runs, or is being killed.
    Stopping {
        attempt: u32,
        /// When it is killed.
        limit: u64,
        /// The lease sets the limit.
        in_time: bool,
    },
    /// `--on-lost` has succeeded.
    Stopped,
    /// It has failed each time.
    Doubtful,
}

impl Work {
    /// The candidate leads, and its work was stopped until now.
    pub(super) fn elected(grace: u64) -> (Self, Act) {
        (Self::at(Stage::Starting, grace), Act::Run(Hook::Elected))
    }

    /// Nobody here knows whether the work goes on: primacy has just started, or the process is dead that ran the hooks.
    pub(super) fn in_doubt(grace: u64, moment: Moment) -> (Self, Act) {
        Self::doubted(grace, moment, Planted::default())
    }

    fn doubted(grace: u64, moment: Moment, planted: Planted) -> (Self, Act) {
        let mut work = Self { must_stop: true, planted, ..Self::at(Stage::Stopped, grace) };
        let act = if planted.is(Flaw::TrustsTheDead) { Act::Nothing } else { work.run_lost(1, moment) };
        (work, act)
    }

    fn at(stage: Stage, grace: u64) -> Self {
        Self { stage, grace, must_stop: false, planted: Planted::default() }
    }

    /// The work must stop. May be said again, also with an earlier `kill_at`.
    pub(super) fn stop(&mut self, moment: Moment) -> Act {
        self.must_stop = true;
        match &mut self.stage {
            Stage::Starting if self.planted.is(Flaw::RunsBoth) => self.run_lost(1, moment),
            // What it has started must not go on beside `--on-lost`, nor after it.
            Stage::Starting => Act::Kill,
            Stage::Working => {
                let act = self.run_lost(1, moment);
                if self.planted.is(Flaw::StoppedWhileLostRuns) {
                    self.stage = Stage::Stopped;
                }
                act
            }
            Stage::Stopping { limit, in_time: true, .. } => {
                *limit = moment.kill_at.min(*limit);
                self.wake(moment.now)
            }
            Stage::Stopping { .. } | Stage::Stopped | Stage::Doubtful => Act::Nothing,
        }
    }

    /// The hook that ran and all that it has started are gone, or it could not be started. `success`: it has ended by itself with
    /// code 0.
    pub(super) fn hook_gone(&mut self, success: bool, moment: Moment) -> Act {
        match self.stage {
            Stage::Starting if success && (!self.must_stop || self.planted.is(Flaw::WorksOn)) => {
                self.stage = Stage::Working;
                Act::Nothing
            }
            // It may have begun what it was to do.
            Stage::Starting => self.run_lost(1, moment),
            Stage::Stopping { .. } if success || self.planted.is(Flaw::StoppedByFailure) => {
                self.stage = Stage::Stopped;
                Act::Nothing
            }
            Stage::Stopping { attempt, .. } if attempt < ATTEMPTS => self.run_lost(attempt + 1, moment),
            Stage::Stopping { .. } => {
                self.stage = Stage::Doubtful;
                Act::Nothing
            }
            Stage::Working | Stage::Stopped | Stage::Doubtful => Act::Nothing,
        }
    }

    /// It is so late. May be said at any time, and is due at the [limit](Self::limit).
    pub(super) fn wake(&mut self, now: u64) -> Act {
        let is_late = self.limit().is_some_and(|limit| now >= limit) && !self.planted.is(Flaw::WaitsForEver);
        if is_late { Act::Kill } else { Act::Nothing }
    }

    /// When the hook that runs is killed, if it is `--on-lost`.
    pub(super) const fn limit(&self) -> Option<u64> {
        match self.stage {
            Stage::Stopping { limit, .. } => Some(limit),
            _ => None,
        }
    }

    /// Whether the work goes on until it is told to stop.
    pub(super) const fn lasts(&self) -> bool {
        matches!(self.stage, Stage::Starting | Stage::Working) && !self.must_stop
    }

    /// Whether the work has stopped: the lease may be given back, and the candidate may campaign.
    pub(super) const fn is_stopped(&self) -> bool {
        matches!(self.stage, Stage::Stopped)
    }

    /// Whether no hook will run any more.
    pub(super) const fn is_over(&self) -> bool {
        matches!(self.stage, Stage::Stopped | Stage::Doubtful)
    }

    fn run_lost(&mut self, attempt: u32, Moment { now, kill_at }: Moment) -> Act {
        let in_time = attempt == 1 && now < kill_at;
        let limit = if in_time { kill_at } else { now.saturating_add(self.grace) };
        self.stage = Stage::Stopping { attempt, limit, in_time };
        Act::Run(Hook::Lost)
    }
}
