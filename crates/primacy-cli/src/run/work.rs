//! What a warm program may be doing, which hook is run next, and when the lease may be given back. Pure: the warden and the runner
//! go by it with a clock of their own. The design page on the runner has the argument.

use serde::{Deserialize, Serialize};

mod flaws;
#[cfg(test)]
mod tests;

use flaws::{Flaw, Planted};

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
    /// Run this hook. None runs, but some of one before it may be left that does not die.
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

/// How long things may take, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Spans {
    /// How long `--on-lost` is tried where no lease says it.
    grace: u64,
    /// Before the next try after a failure, at first and at most.
    pause: u64,
    longest_pause: u64,
    /// How long a hook that was killed may take to be gone before `--on-lost` is run beside it.
    dying: u64,
}

impl Spans {
    /// With this grace.
    pub(super) const fn of(grace: u64) -> Self {
        const PAUSE: u64 = 100_000_000;
        let share = grace / 8;
        let pause = if share < PAUSE { share } else { PAUSE };
        Self { grace, pause, longest_pause: 10 * PAUSE, dying: share }
    }
}

/// The work from one election to its end, or from a start in doubt.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Work {
    stage: Stage,
    spans: Spans,
    /// The leadership ends.
    must_stop: bool,
    /// Something of a hook may be alive that was started before the last one.
    haunted: bool,
    planted: Planted,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Stage {
    /// `--on-elected` runs, or is being killed.
    Starting {
        /// When `--on-lost` is run beside it, if it is to be gone.
        leave_at: Option<u64>,
    },
    /// It has succeeded.
    Working,
    /// `--on-lost` is tried.
    Stopping {
        lost: Lost,
        /// Until when.
        limit: u64,
        bound: Bound,
        /// Before the next try.
        pause: u64,
    },
    /// `--on-lost` has succeeded.
    Stopped,
    /// It has not, and is tried no more.
    Doubtful,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Lost {
    Runs,
    /// It has ended or was killed, and something of a hook is still there.
    Ends {
        /// When it is run again all the same. `None`: it has succeeded.
        leave_at: Option<u64>,
    },
    /// It is run again then.
    Pauses {
        until: u64,
    },
}

/// What sets the limit of the tries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Bound {
    /// The lease.
    Lease,
    /// One grace, since there is no lease any more. Another one follows.
    Grace,
    /// One grace, and none follows.
    LastGrace,
}

impl Work {
    /// The candidate leads, and its work was stopped until now.
    pub(super) fn elected(spans: Spans) -> (Self, Act) {
        (Self::at(Stage::Starting { leave_at: None }, spans), Act::Run(Hook::Elected))
    }

    /// Nobody here knows whether the work goes on: primacy has just started, or the process is dead that ran the hooks. `haunted`:
    /// some of what that had started does not die.
    pub(super) fn in_doubt(spans: Spans, haunted: bool, moment: Moment) -> (Self, Act) {
        Self::doubted(spans, haunted, moment, Planted::default())
    }

    fn doubted(spans: Spans, haunted: bool, moment: Moment, planted: Planted) -> (Self, Act) {
        let mut work = Self { must_stop: true, haunted, planted, ..Self::at(Stage::Stopped, spans) };
        let act = if planted.is(Flaw::TrustsTheDead) { Act::Nothing } else { work.begin_lost(moment) };
        (work, act)
    }

    fn at(stage: Stage, spans: Spans) -> Self {
        Self { stage, spans, must_stop: false, haunted: false, planted: Planted::default() }
    }

    /// The work must stop. May be said again, also with an earlier `kill_at`.
    pub(super) fn stop(&mut self, moment: Moment) -> Act {
        self.must_stop = true;
        let Spans { grace, dying, .. } = self.spans;
        let leave_by = self.leave_at(moment);
        match &mut self.stage {
            Stage::Starting { .. } if self.planted.is(Flaw::RunsBoth) => self.begin_lost(moment),
            // What it has started must not go on beside `--on-lost`, nor after it.
            Stage::Starting { leave_at } => {
                *leave_at = Some(leave_at.map_or(leave_by, |at| at.min(leave_by)));
                Act::Kill
            }
            Stage::Working => {
                let act = self.begin_lost(moment);
                if self.planted.is(Flaw::StoppedWhileLostRuns) {
                    self.stage = Stage::Stopped;
                }
                act
            }
            // It is over before its time: to kill what runs would only lose what that has done so far.
            Stage::Stopping { limit, bound: bound @ Bound::Lease, .. }
                if moment.kill_at <= moment.now && !self.planted.is(Flaw::KillsWithTheLease) =>
            {
                // When its time has come, runner and clock say so at once.
                if moment.now.saturating_add(dying) < *limit {
                    (*limit, *bound) = (moment.now.saturating_add(grace), Bound::Grace);
                }
                Act::Nothing
            }
            Stage::Stopping { limit, bound: Bound::Lease, .. } => {
                *limit = moment.kill_at.min(*limit);
                self.wake(moment)
            }
            Stage::Stopping { .. } | Stage::Stopped | Stage::Doubtful => Act::Nothing,
        }
    }

    /// The hook's own process has ended, and something of it, or of one before it, has not died yet. May be said again.
    pub(super) fn hook_left(&mut self, success: bool, moment: Moment) {
        let (leave_at, Spans { dying, .. }) = (self.leave_at(moment), self.spans);
        match &mut self.stage {
            Stage::Starting { leave_at: at @ None } if !success => {
                *at = Some(leave_at);
                self.must_stop = true;
            }
            Stage::Stopping { lost: lost @ Lost::Runs, limit, pause, .. } => {
                let again_at = leave_at.max(moment.now.saturating_add(*pause)).min(limit.saturating_add(dying));
                *lost = Lost::Ends { leave_at: (!success).then_some(again_at) };
            }
            _ => {}
        }
    }

    /// The hook could not be started.
    pub(super) fn hook_not_started(&mut self, moment: Moment) -> Act {
        match self.stage {
            Stage::Starting { .. } => self.begin_lost(moment),
            Stage::Stopping { .. } => self.pause(moment),
            Stage::Working | Stage::Stopped | Stage::Doubtful => Act::Nothing,
        }
    }

    /// The hook that ran and all that any hook has started are gone. `success`: it has ended by itself with code 0.
    pub(super) fn hook_gone(&mut self, success: bool, moment: Moment) -> Act {
        let beside = std::mem::take(&mut self.haunted) && !self.planted.is(Flaw::CountsBeside);
        match self.stage {
            Stage::Starting { .. } if success && (!self.must_stop || self.planted.is(Flaw::WorksOn)) => {
                self.stage = Stage::Working;
                Act::Nothing
            }
            // It may have begun what it was to do.
            Stage::Starting { .. } => self.begin_lost(moment),
            Stage::Stopping { lost: Lost::Pauses { .. }, .. } => Act::Nothing,
            // What was there beside it may have undone what it did. However long that was there: there is time for one more.
            Stage::Stopping { limit, .. } if beside && success && moment.now >= limit => {
                self.begin_lost(Moment { kill_at: 0, ..moment })
            }
            Stage::Stopping { .. } if beside && success => self.run_lost(moment),
            Stage::Stopping { .. } if success || self.planted.is(Flaw::StoppedByFailure) => {
                self.stage = Stage::Stopped;
                Act::Nothing
            }
            Stage::Stopping { .. } => self.pause(moment),
            Stage::Working | Stage::Stopped | Stage::Doubtful => Act::Nothing,
        }
    }

    /// It is so late. May be said at any time, and is [due](Self::due) from time to time.
    pub(super) fn wake(&mut self, moment: Moment) -> Act {
        let leave_by = self.leave_at(moment);
        let is_due = self.due().is_some_and(|due| moment.now >= due);
        match &mut self.stage {
            Stage::Starting { .. } if is_due && !self.planted.is(Flaw::WaitsForTheDying) => {
                self.haunted = true;
                self.begin_lost(moment)
            }
            Stage::Stopping { lost: lost @ Lost::Runs, .. } if is_due && !self.planted.is(Flaw::WaitsForEver) => {
                *lost = Lost::Ends { leave_at: Some(leave_by) };
                Act::Kill
            }
            Stage::Stopping { lost: Lost::Ends { .. }, .. } if is_due => {
                self.haunted = true;
                self.run_lost(moment)
            }
            Stage::Stopping { lost: Lost::Pauses { .. }, .. } if is_due => self.run_lost(moment),
            _ => Act::Nothing,
        }
    }

    /// When it must be [woken](Self::wake).
    pub(super) fn due(&self) -> Option<u64> {
        match self.stage {
            Stage::Starting { leave_at } => leave_at,
            Stage::Stopping { lost: Lost::Runs, limit, .. } => Some(limit),
            Stage::Stopping { lost: Lost::Ends { leave_at }, .. } => leave_at,
            Stage::Stopping { lost: Lost::Pauses { until }, limit, .. } => Some(until.min(limit)),
            Stage::Working | Stage::Stopped | Stage::Doubtful => None,
        }
    }

    /// By when at the latest one hears that something more has happened, if the clock alone has it happen.
    pub(super) fn heard_by(&self) -> Option<u64> {
        let dying = if matches!(self.stage, Stage::Stopping { lost: Lost::Runs, .. }) { self.spans.dying } else { 0 };
        self.due().map(|due| due.saturating_add(dying))
    }

    /// Whether the work goes on until it is told to stop.
    pub(super) const fn lasts(&self) -> bool {
        matches!(self.stage, Stage::Starting { .. } | Stage::Working) && !self.must_stop
    }

    /// Whether `--on-lost` has succeeded, and something of a hook must be gone before more is done.
    pub(super) const fn waits_for_the_dying(&self) -> bool {
        matches!(self.stage, Stage::Stopping { lost: Lost::Ends { leave_at: None }, .. })
    }

    /// Whether the work has stopped: the lease may be given back, and the candidate may campaign.
    pub(super) const fn is_stopped(&self) -> bool {
        matches!(self.stage, Stage::Stopped)
    }

    /// Whether no hook will run any more.
    pub(super) const fn is_over(&self) -> bool {
        matches!(self.stage, Stage::Stopped | Stage::Doubtful)
    }

    fn begin_lost(&mut self, Moment { now, kill_at }: Moment) -> Act {
        let in_time = now < kill_at;
        let limit = if in_time { kill_at } else { now.saturating_add(self.spans.grace) };
        let bound = if in_time { Bound::Lease } else { Bound::Grace };
        self.stage = Stage::Stopping { lost: Lost::Runs, limit, bound, pause: self.spans.pause };
        Act::Run(Hook::Lost)
    }

    /// The next try, unless it is too late for one.
    fn run_lost(&mut self, moment: Moment) -> Act {
        let Stage::Stopping { limit, bound, pause, .. } = self.stage else { return Act::Nothing };
        let (limit, bound, pause) = match bound {
            _ if moment.now < limit => (limit, bound, pause),
            Bound::Lease | Bound::Grace => {
                (moment.now.saturating_add(self.spans.grace), Bound::LastGrace, self.spans.pause)
            }
            Bound::LastGrace => {
                self.stage = Stage::Doubtful;
                return Act::Nothing;
            }
        };
        self.stage = Stage::Stopping { lost: Lost::Runs, limit, bound, pause };
        Act::Run(Hook::Lost)
    }

    /// A try has failed.
    fn pause(&mut self, moment: Moment) -> Act {
        let longest = self.spans.longest_pause;
        let Stage::Stopping { lost, limit, pause, .. } = &mut self.stage else { return Act::Nothing };
        if moment.now >= *limit {
            return self.run_lost(moment);
        }
        *lost = Lost::Pauses { until: moment.now.saturating_add(*pause) };
        *pause = pause.saturating_mul(2).min(longest);
        Act::Nothing
    }

    /// Until when what was killed may take to be gone.
    fn leave_at(&self, Moment { now, kill_at }: Moment) -> u64 {
        let left = kill_at.saturating_sub(now);
        let dying = if left > 0 { self.spans.dying.min(left / 8) } else { self.spans.dying };
        now.saturating_add(dying)
    }
}
