//! The runner of a program that stays warm: what it makes of the hooks that its warden runs, and how it runs `--on-lost` where there
//! is no warden.

use std::time::Duration;

use nix::sys::signal::Signal;
use primacy::store::EndReason;
use primacy::{Instant, Leadership, Phase, Timing, clock};
use tracing::{error, info, warn};

use crate::output::logging;
use crate::output::span::span;

use super::super::hooks::{HookContext, HookEnd};
use super::super::next_warden::next_warden;
use super::super::process_tree::{self, Attempt, Pauses, ProcessTree};
use super::super::setbacks::Setbacks;
use super::super::signals::{self, Signals};
use super::super::tell;
use super::super::warden_handle::{AttachedWarden, IdleWarden};
use super::super::wire::{self, Deadlines, FromWarden, ToWarden};
use super::super::work::{Act, Hook, Moment, Work};
use super::super::{HOOK_FAILED, Job, LOST, Refusal};
use super::{Ranks, Runner, TermEnd, attach, leave_it_alive, sleep_until};

/// How the work of one leadership has ended.
pub(super) struct WorkEnd {
    /// `--on-lost` has succeeded.
    is_stopped: bool,
    /// `--on-elected` has failed by itself.
    failed: bool,
    reason: Option<EndReason>,
}

/// How long a hook that should have ended may yet be seen running, beside what is usual.
const PATIENCE: Duration = Duration::from_secs(5);

/// Attaches the warden, and has it run `--on-lost`: after a start nobody knows whether the work goes on. Otherwise how the runner
/// ends.
pub(super) async fn cleared(
    warden: IdleWarden,
    job: &Job,
    signals: &mut Signals,
    setbacks: &mut Setbacks,
) -> Result<AttachedWarden, Result<u8, Refusal>> {
    logging::start(&job.common, logging::RUNNING);
    let mut warden = attach(warden, job, None, signals, setbacks).await?;
    loop {
        info!("--on-lost is run, since nobody knows whether the work has stopped");
        warden.tell(&ToWarden::Clear);
        match clearing(&mut warden, job, signals).await {
            Clearing::Over { is_stopped: true } => return Ok(warden),
            Clearing::Over { is_stopped: false } => {
                warden.farewell().await;
                let why = "--on-lost has failed, so that nobody knows whether the work has stopped; this candidate takes no part. \
                           It must succeed also where nothing is to be stopped, and within the grace: see to that, and start again";
                return Err(Err(Refusal::new(HOOK_FAILED, why)));
            }
            Clearing::Signal(signal) => {
                warden.farewell().await;
                return Err(Ok(signals::exit_code(signal)));
            }
            Clearing::WardenFailed => {
                let how = warden.end_warden().await;
                let (tree, mut pauses) = (warden.bereaved(), Pauses::new());
                while matches!(tree.kill(), Attempt::Left { .. }) {
                    // No lease waits for it.
                    tokio::select! {
                        () = tokio::time::sleep(pauses.next()) => {}
                        signal = signals.next() => if signals::ends(signal) {
                            return Err(Ok(signals::exit_code(signal)));
                        },
                    }
                }
                warden = next_warden(how, job, None, signals, setbacks).await?;
            }
        }
    }
}

enum Clearing {
    Over { is_stopped: bool },
    Signal(Signal),
    WardenFailed,
}

async fn clearing(warden: &mut AttachedWarden, job: &Job, signals: &mut Signals) -> Clearing {
    let patience = job.candidate.timing.grace() + PATIENCE;
    let mut overrule_at = Some(clock::now() + patience);
    loop {
        tokio::select! {
            biased;
            () = sleep_until(overrule_at) => return Clearing::WardenFailed,
            message = warden.next() => match message {
                Some(FromWarden::WorkOver { is_stopped }) => return Clearing::Over { is_stopped },
                Some(FromWarden::HookEnded { hook, end }) => {
                    tell::hook_ended(hook, &end, false);
                    overrule_at = Some(clock::now() + patience);
                }
                Some(FromWarden::Immune { processes }) => {
                    error!("{}", wire::immune(&processes));
                    overrule_at = None;
                }
                Some(_) => {}
                None => return Clearing::WardenFailed,
            },
            signal = signals.next() => if signals::ends(signal) {
                return Clearing::Signal(signal);
            },
        }
    }
}

impl Runner {
    /// Leads until no hook will run any more.
    pub(super) async fn lead_hooks(&mut self, leadership: &Leadership) -> TermEnd {
        self.start_log();
        let mut phases = leadership.phases();
        let token = leadership.token().get();
        let first = phases.borrow_and_update().clone();
        let Phase::Leading { until, version, timing } = first else { return TermEnd::NeverBegan };
        self.timing = timing;
        self.warden.tell(&ToWarden::Lead { token, term: Deadlines::of(until, version, &timing) });
        info!("this candidate leads {} with token {token}; --on-elected is run", self.job.election.name());
        self.immune = false;
        let (mut reason, mut failed, mut watching) = (None, false, true);
        let mut lost = LostHook::default();
        loop {
            tokio::select! {
                biased;
                () = sleep_until(lost.overrule_at) => return TermEnd::WardenFailed,
                message = self.warden.next() => match message {
                    Some(FromWarden::HookStarted { hook: Hook::Lost, until, .. }) => lost.started(until, &self.timing),
                    Some(FromWarden::HookEnded { hook, end }) => {
                        tell::hook_ended(hook, &end, true);
                        match hook {
                            Hook::Elected if end.is_success() => {
                                self.rests.clear();
                                self.tell_led(leadership);
                            }
                            Hook::Elected if end != HookEnd::Killed => {
                                failed = true;
                                let handle = self.candidate.handle();
                                tokio::spawn(async move { handle.resign().await });
                            }
                            Hook::Elected => {}
                            // It tells at once whether it runs again.
                            Hook::Lost => lost.must_start(&self.timing),
                        }
                    }
                    Some(FromWarden::WorkOver { is_stopped }) => {
                        return TermEnd::Work(WorkEnd { is_stopped, failed, reason });
                    }
                    Some(FromWarden::Immune { processes }) => {
                        error!("{}", wire::immune(&processes));
                        // The warden does what can be done.
                        (self.immune, lost.overrule_at) = (true, None);
                        self.led.send_replace(None);
                        if self.ending.is_some() {
                            return TermEnd::Immune;
                        }
                    }
                    Some(_) => {}
                    None => return TermEnd::WardenFailed,
                },
                signal = self.signals.next() => if signals::ends(signal) {
                    if self.immune {
                        return TermEnd::Immune;
                    }
                    if self.ending.replace(signal).is_none() {
                        info!("{signal}: --on-lost is run");
                    }
                    self.candidate.handle().shutdown();
                },
                rank = Ranks::next(&mut self.ranks) => self.prefer(rank),
                changed = phases.changed(), if watching => {
                    watching = changed.is_ok();
                    let phase = phases.borrow_and_update().clone();
                    tell::hooks_ending(token, &phase);
                    reason = self.pass_on(&phase).or(reason);
                    if !self.immune {
                        lost.phase(&phase, &self.timing);
                    }
                }
            }
        }
    }

    /// Gives the lease back if the work has stopped, and only then. Returns how the runner ends, if it does.
    pub(super) async fn work_over(&mut self, leadership: Leadership, end: WorkEnd) -> Option<Result<u8, Refusal>> {
        if !end.is_stopped {
            self.warden.tell(&ToWarden::Farewell);
            leave_in_doubt();
        }
        // R9: the work has stopped by now.
        tell::giving_back(leadership.token().get(), end.reason.as_ref());
        drop(leadership);
        if self.ending.is_some() {
            return Some(Ok(0));
        }
        match (end.failed, self.job.once) {
            (true, true) => Some(Ok(HOOK_FAILED)),
            (false, true) => Some(Ok(LOST)),
            (true, false) => self.rest().await,
            (false, false) => None,
        }
    }

    /// Keeps out of the election for a while: the next `--on-elected` would fail as the last one did.
    async fn rest(&mut self) -> Option<Result<u8, Refusal>> {
        let rest = self.rests.next();
        warn!("this candidate keeps out of the election for {}, since --on-elected has failed", span(rest));
        let stays_out = self.job.candidate.measured_preference.is_none();
        if stays_out {
            self.candidate.prefer(None);
        }
        let over = tokio::time::sleep(rest);
        tokio::pin!(over);
        loop {
            tokio::select! {
                biased;
                signal = self.signals.next() => if signals::ends(signal) {
                    return Some(Ok(signals::exit_code(signal)));
                },
                message = self.warden.next() => if message.is_none() {
                    let (how, _) = self.bury().await;
                    if let Some(end) = self.renew_warden(how).await {
                        return Some(end);
                    }
                },
                elected = self.candidate.elected() => match elected {
                    // It had asked before. Nothing has begun to work.
                    Ok(leadership) => drop(leadership),
                    Err(reason) => return Some(Err(Refusal::new(super::UNAVAILABLE, reason.to_string()))),
                },
                rank = Ranks::next(&mut self.ranks) => self.rank = rank,
                () = &mut over => break,
            }
        }
        if stays_out {
            self.candidate.prefer(self.rank);
        }
        None
    }

    /// The warden is gone: runs `--on-lost` in its place, and returns when the work has stopped. If it does not, the process ends.
    /// `tree` is all that the warden had started, which is dead.
    pub(super) async fn stop_work_alone(&mut self, leadership: &Leadership, tree: ProcessTree) {
        warn!("the warden died or hung: --on-lost is run without it");
        let token = leadership.token().get();
        let phases = leadership.phases();
        let moment = || Moment {
            now: clock::boot_nanos().unwrap_or(u64::MAX),
            kill_at: clock::to_boot_nanos(kill_at(&phases.borrow())),
        };
        let (mut work, mut act) = Work::in_doubt(self.job.grace_ns(), moment());
        while let Act::Run(hook) = act {
            let end = self.run_hook(hook, token, &mut work, &tree).await;
            tell::hook_ended(hook, &end, true);
            act = work.hook_gone(end.is_success(), moment());
        }
        if !work.is_stopped() {
            leave_in_doubt();
        }
    }

    /// Runs a hook until it and all that it has started are gone.
    async fn run_hook(&mut self, hook: Hook, token: u64, work: &mut Work, before: &ProcessTree) -> HookEnd {
        let Some(hooks) = &self.job.hooks else { return HookEnd::NotStarted("there is none".to_owned()) };
        let context = HookContext {
            election: self.job.election.name().as_str(),
            label: self.job.candidate.label.as_str(),
            rights: self.job.rights,
            token: Some(token),
        };
        let pid = match hooks.spawn(hook, context) {
            Ok(pid) => pid,
            Err(error) => return HookEnd::NotStarted(error.to_string()),
        };
        let tree = before.succeeded_by(pid);
        let (mut pauses, mut on_purpose, mut tell_at) = (Pauses::new(), false, clock::now());
        loop {
            on_purpose |= work.wake(clock::boot_nanos().unwrap_or(u64::MAX)) == Act::Kill;
            let mut pause = LOOK;
            if on_purpose || process_tree::is_dead(pid) {
                match tree.kill() {
                    Attempt::Gone(end) => return HookEnd::of(end, on_purpose),
                    Attempt::Left { immune } if !immune.is_empty() => {
                        if clock::now() >= tell_at {
                            tell_at = clock::now() + Duration::from_secs(60);
                            let processes: Vec<String> = immune.into_iter().map(process_tree::describe).collect();
                            error!("{}", wire::immune(&processes));
                        }
                        if self.ending.is_some() {
                            leave_it_alive();
                        }
                    }
                    Attempt::Left { .. } => {}
                }
                pause = pauses.next();
            }
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                signal = self.signals.next() => if signals::ends(signal) {
                    self.ending = Some(signal);
                },
            }
        }
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

/// Until when the warden must have done what it is for at the end of a leadership.
#[derive(Default)]
struct LostHook {
    /// `--on-lost` runs.
    runs: bool,
    overrule_at: Option<Instant>,
}

impl LostHook {
    fn started(&mut self, until: Option<u64>, timing: &Timing) {
        self.runs = true;
        let now = clock::boot_nanos().unwrap_or(u64::MAX);
        let left = Duration::from_nanos(until.unwrap_or(now).saturating_sub(now));
        self.overrule_at = Some(clock::now() + left + timing.kill() / 2);
    }

    /// A kill takes no time, and `--on-lost` does: so a warden that hangs is noticed before its deadline.
    fn must_start(&mut self, timing: &Timing) {
        self.runs = false;
        self.overrule_at = Some(clock::now() + (timing.grace() / 4).max(LOOK));
    }

    fn phase(&mut self, phase: &Phase, timing: &Timing) {
        match phase {
            Phase::Leading { .. } => {}
            Phase::Draining { by, .. } if self.runs => {
                self.overrule_at = Instant::earliest(self.overrule_at, Some(*by + timing.kill() / 2));
            }
            _ if self.runs || self.overrule_at.is_some() => {}
            _ => self.must_start(timing),
        }
    }
}

/// Ends the runner although nobody knows whether the work has stopped. The lease is not given back: nothing may be dropped.
#[expect(clippy::disallowed_methods, reason = "no destructor may run: it would release the lease")]
fn leave_in_doubt() -> ! {
    error!("{}", wire::IN_DOUBT);
    std::process::exit(i32::from(HOOK_FAILED))
}
