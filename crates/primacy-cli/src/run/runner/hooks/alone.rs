//! The runner of a program that stays warm, when its warden is gone: the next warden runs `--on-lost`, and where there is none, the
//! runner does.

use std::time::Duration;

use nix::unistd::Pid;
use primacy::{Instant, Phase, clock};
use tracing::{error, warn};

use super::super::super::campaign::Guard;
use super::super::super::hooks::{HookContext, HookEnd};
use super::super::super::nanos;
use super::super::super::process_tree::{self, Attempt, Pauses, ProcessTree};
use super::super::super::signals;
use super::super::super::tell;
use super::super::super::warden_handle::IdleWarden;
use super::super::super::wire::{self, Deadlines};
use super::super::super::work::{Act, Hook, Moment, Spans, Work};
use super::super::bury::leave_it_alive;
use super::super::expectation::{AT_LEAST, Expectation};
use super::super::{Runner, TermEnd, ranks};
use super::{FOR_THE_IMMUNE, leave_in_doubt};

impl Runner {
    /// The warden is gone or hangs: has the work stopped without it.
    pub(super) async fn take_over(&mut self, leadership: &Guard) -> TermEnd {
        self.led.send_replace(None);
        // What does not die may keep it from giving the lease back, and nobody else from leading when that has run out.
        self.campaign.resign();
        loop {
            let (how, tree, all_dead) = self.bury(Some(clock::now() + self.timing.grace() / 8)).await;
            // A warden would not know of what the one before has left.
            if !all_dead || !self.next_warden_clears(leadership, &how).await {
                self.stop_work_alone(leadership, tree, !all_dead).await;
                return TermEnd::StoppedAlone(how);
            }
            let mut expected = Expectation::default();
            expected.must_start(&self.timing);
            match self.follow_work(leadership, leadership.phases(), expected).await {
                TermEnd::WardenFailed => {}
                end => return end,
            }
        }
    }

    /// Starts another warden and has it run `--on-lost`: should this process die meanwhile, it goes on. `false` if there is none in
    /// time.
    async fn next_warden_clears(&mut self, leadership: &Guard, how: &str) -> bool {
        if !self.setbacks.is_calm(clock::now()) {
            return false;
        }
        self.setbacks.note(clock::now());
        warn!("the warden {how}; another is started now, and runs --on-lost");
        let id = self.campaign.id();
        let within = (self.timing.grace() / 4).max(AT_LEAST);
        let started =
            tokio::time::timeout(within, async { IdleWarden::start()?.watch_over(&self.job, id).await }).await;
        let (Ok(Ok(warden)), Some(term)) = (started, self.term) else { return false };
        self.warden = warden;
        match ranks(&self.job) {
            Ok(ranks) => self.ranks = ranks,
            Err(error) => warn!(%error, "the system gives no thread for the score, which stays as it is"),
        }
        let term = Deadlines { kill_at: clock::to_boot_nanos(kill_at(&leadership.phases().borrow())), ..term };
        self.warden.clear(self.leading(leadership, term), leadership.connection());
        true
    }

    /// Runs `--on-lost` without a warden, and returns when the work has stopped. If it does not, the process ends. `before` is all
    /// that the warden had started; `haunted`: some of it is not dead.
    async fn stop_work_alone(&mut self, leadership: &Guard, before: ProcessTree, haunted: bool) {
        warn!("there is no warden: --on-lost is run without one");
        let phases = leadership.phases();
        let moment = || Moment {
            now: clock::boot_nanos().unwrap_or(u64::MAX),
            kill_at: clock::to_boot_nanos(kill_at(&phases.borrow())),
        };
        let (mut work, mut act) = Work::in_doubt(Spans::of(nanos(self.timing.grace())), haunted, moment());
        // The hook that runs, or that has left something.
        let mut running: Option<(Pid, ProcessTree)> = None;
        let (mut pauses, mut on_purpose, mut tell_at, mut leave_at) = (Pauses::new(), false, Instant::ZERO, None);
        while !work.is_over() {
            match act {
                Act::Nothing => {}
                Act::Kill => on_purpose = true,
                Act::Run(hook) => match self.start_alone(hook, leadership.token().get()) {
                    Ok(pid) => {
                        if let Some((left, _)) = running.replace((pid, before.succeeded_by(pid))) {
                            tell::hook_ended(hook, &HookEnd::of(process_tree::end_of_dead(left), on_purpose), true);
                        }
                        (on_purpose, leave_at, pauses) = (false, None, Pauses::new());
                    }
                    Err(why) => {
                        tell::hook_ended(hook, &HookEnd::NotStarted(why), true);
                        act = work.hook_not_started(moment());
                        continue;
                    }
                },
            }
            let own_end = running.as_ref().and_then(|(pid, _)| process_tree::end_of_dead(*pid));
            let mut pause = LOOK;
            if let Some((pid, tree)) = running.as_ref().filter(|(pid, _)| on_purpose || process_tree::is_dead(*pid)) {
                let pid = *pid;
                match tree.kill() {
                    Attempt::Gone(end) => {
                        let end = HookEnd::of(end, on_purpose);
                        tell::hook_ended(Hook::Lost, &end, true);
                        (running, on_purpose) = (None, false);
                        act = work.hook_gone(end.is_success(), moment());
                        continue;
                    }
                    Attempt::Left { immune } => {
                        if !immune.is_empty() && clock::now() >= tell_at {
                            tell_at = clock::now() + Duration::from_secs(60);
                            let processes: Vec<String> = immune.into_iter().map(process_tree::describe).collect();
                            error!("{}", wire::immune(&processes));
                        }
                        if process_tree::is_dead(pid) {
                            work.hook_left(HookEnd::of(own_end, on_purpose).is_success(), moment());
                        }
                    }
                }
                pause = pauses.next();
            }
            if work.waits_for_the_dying() {
                if leave_at.is_none() {
                    error!("{}", wire::WAITS);
                }
                let is_over = clock::now() >= *leave_at.get_or_insert(clock::now() + FOR_THE_IMMUNE);
                if is_over && self.ending.is_some() {
                    leave_it_alive();
                }
            }
            act = work.wake(moment());
            if act != Act::Nothing {
                continue;
            }
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                signal = self.signals.next() => if signals::ends(signal) {
                    self.ending = Some(signal);
                },
            }
        }
        if !work.is_stopped() {
            leave_in_doubt();
        }
    }

    fn start_alone(&self, hook: Hook, token: u64) -> Result<Pid, String> {
        let hooks = self.job.hooks.as_ref().ok_or("there are no hooks")?;
        let context = HookContext {
            election: self.job.source.election().as_str(),
            label: self.job.candidate.label.as_str(),
            rights: self.job.rights,
            token: Some(token),
        };
        hooks.spawn(hook, context).map_err(|error| error.to_string())
    }
}

/// How often a runner without a warden looks whether its hook has ended.
const LOOK: Duration = Duration::from_millis(5);

/// When a program would be killed in this phase, if the runner stops it now.
fn kill_at(phase: &Phase) -> Instant {
    match phase {
        Phase::Leading { until, timing, .. } => timing.kill_at(*until).min(clock::now() + timing.grace()),
        Phase::Draining { by, .. } => *by,
        _ => Instant::ZERO,
    }
}
