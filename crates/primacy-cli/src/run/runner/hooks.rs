//! The runner of a program that stays warm: what it makes of the hooks that its warden runs, and how it runs `--on-lost` where there
//! is no warden.

use std::time::Duration;

use nix::sys::signal::Signal;
use primacy::store::{EndReason, Why};
use primacy::{Phase, Status, clock};
use tokio::sync::watch;
use tracing::{error, info, warn};

use crate::output::logging;
use crate::output::span::span;
use crate::standing::Standing;

use super::super::campaign::Guard;
use super::super::hooks::HookEnd;
use super::super::next_warden::next_warden;
use super::super::process_tree::{Attempt, Pauses};
use super::super::setbacks::Setbacks;
use super::super::signals::{self, Signals};
use super::super::status_file;
use super::super::tell;
use super::super::warden_handle::{AttachedWarden, IdleWarden};
use super::super::wire::{self, Deadlines, FromWarden, ToWarden};
use super::super::work::Hook;
use super::super::{HOOK_FAILED, Job, LOST, Refusal};
use super::expectation::Expectation;
use super::{Ranks, Runner, TermEnd, attach, sleep_until};

mod alone;

/// How the work of one leadership has ended.
pub(super) struct WorkEnd {
    /// `--on-lost` has succeeded.
    is_stopped: bool,
    /// `--on-elected` has failed by itself.
    failed: bool,
    reason: Option<EndReason>,
}

/// What to say when `--on-lost` has no time.
pub(super) const NO_GRACE_OF_AGENT: &str = "the grace that the agent has for this election is 0s, and leaves no time for --on-lost: \
     give it as long as that may take, as with primacy agent --grace 5s";

/// How long a hook that should have ended may yet be seen running, beside what is usual.
const PATIENCE: Duration = Duration::from_secs(5);

/// As [`cleared`], and the status file says meanwhile that the work may go on, whatever another process has left in it.
pub(super) async fn cleared_and_told(
    warden: IdleWarden,
    job: &Job,
    signals: &mut Signals,
    setbacks: &mut Setbacks,
) -> Result<AttachedWarden, Result<u8, Refusal>> {
    let Some(path) = &job.status_file else { return cleared(warden, job, signals, setbacks).await };
    let write = |standing| status_file::write(path, job.source.election(), &job.candidate.label, &standing);
    let unwritten = |error| Err(Refusal::system("the status file cannot be written", &error));
    let why = "--on-lost is run, since nobody knows whether the work has stopped".to_owned();
    write(Standing::Stops { token: None, why }).map_err(unwritten)?;
    let ended = cleared(warden, job, signals, setbacks).await;
    if let Err(end) = &ended {
        let why = end.as_ref().err().map_or("this process ends", |refusal| &refusal.message).to_owned();
        if let Err(error) = write(Standing::Gone { why }) {
            warn!(%error, "the status file does not say how all has ended");
        }
    }
    ended
}

/// Attaches the warden, and has it run `--on-lost`: after a start nobody knows whether the work goes on. Otherwise how the runner
/// ends.
async fn cleared(
    warden: IdleWarden,
    job: &Job,
    signals: &mut Signals,
    setbacks: &mut Setbacks,
) -> Result<AttachedWarden, Result<u8, Refusal>> {
    logging::start(&job.common, logging::RUNNING);
    let mut warden = attach(warden, job, None, signals, setbacks).await?;
    loop {
        info!("--on-lost is run, since nobody knows whether the work has stopped");
        warden.tell(&ToWarden::Clear { led: None });
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
    let timing = &job.candidate.timing;
    let mut expected = Expectation::default();
    expected.expect(patience);
    loop {
        tokio::select! {
            biased;
            message = warden.next() => match message {
                Some(FromWarden::WorkOver { is_stopped }) => return Clearing::Over { is_stopped },
                Some(FromWarden::HookEnded { hook, end, .. }) => {
                    tell::hook_ended(hook, &end, false);
                    expected.expect(patience);
                }
                Some(FromWarden::HookStarted { .. }) => expected.expect(patience),
                Some(message @ (FromWarden::Immune { .. } | FromWarden::Undying)) => tell::lives_on(&message),
                Some(FromWarden::Waits) => {
                    error!("{}", wire::WAITS);
                    expected.nothing();
                }
                Some(_) => {}
                None => return Clearing::WardenFailed,
            },
            () = sleep_until(expected.next(timing)) => if expected.is_in_vain(timing) {
                return Clearing::WardenFailed;
            },
            signal = signals.next() => if signals::ends(signal) {
                return Clearing::Signal(signal);
            },
        }
    }
}

impl Runner {
    /// Leads until no hook will run any more.
    pub(super) async fn lead_hooks(&mut self, leadership: &Guard) -> TermEnd {
        self.start_log();
        let mut phases = leadership.phases();
        let token = leadership.token().get();
        let first = phases.borrow_and_update().clone();
        let Phase::Leading { until, version, timing } = first else { return TermEnd::NeverBegan };
        if timing.grace().is_zero() {
            return TermEnd::NoGrace;
        }
        self.timing = timing;
        let term = Deadlines::of(until, version, &timing);
        self.term = Some(term);
        self.warden.lead(self.leading(leadership, term), leadership.connection());
        info!("this candidate leads {} with token {token}; --on-elected is run", self.job.source.election());
        match self.follow_work(leadership, phases, Expectation::of_an_answer()).await {
            TermEnd::WardenFailed => self.take_over(leadership).await,
            end => end,
        }
    }

    /// Tells the warden of the leadership, and makes sure that it has the work stopped.
    async fn follow_work(
        &mut self,
        leadership: &Guard,
        mut phases: watch::Receiver<Phase>,
        mut expected: Expectation,
    ) -> TermEnd {
        let token = leadership.token().get();
        self.immune = false;
        let (mut reason, mut failed, mut watching) = (None, false, true);
        let mut leave_at = None;
        loop {
            let leaves = self.immune && self.ending.is_some();
            leave_at = leave_at.filter(|_| leaves).or_else(|| {
                leaves.then(|| expected.overrule_at.unwrap_or_default().max(clock::now()) + FOR_THE_IMMUNE)
            });
            tokio::select! {
                biased;
                message = self.warden.next() => match message {
                    Some(FromWarden::HookStarted { hook, heard_by, .. }) => {
                        self.immune = false;
                        expected.begun |= hook == Hook::Lost;
                        match heard_by {
                            Some(heard_by) => expected.heard_by(heard_by, &self.timing),
                            None => expected.answered(),
                        }
                    }
                    Some(FromWarden::HookEnded { hook, end, heard_by }) => {
                        tell::hook_ended(hook, &end, true);
                        self.immune = false;
                        match heard_by {
                            Some(heard_by) => expected.heard_by(heard_by, &self.timing),
                            None => {
                                expected.nothing();
                                expected.phase(&phases.borrow(), &self.timing);
                            }
                        }
                        match hook {
                            Hook::Elected if end.is_success() => {
                                self.rests.clear();
                                self.tell_led(leadership);
                            }
                            Hook::Elected if end != HookEnd::Killed => {
                                failed = true;
                                self.campaign.resign();
                            }
                            Hook::Elected | Hook::Lost => {}
                        }
                    }
                    Some(FromWarden::WorkOver { is_stopped }) => {
                        return TermEnd::Work(WorkEnd { is_stopped, failed, reason });
                    }
                    Some(message @ (FromWarden::Immune { .. } | FromWarden::Undying)) => {
                        tell::lives_on(&message);
                        self.immune = true;
                        self.led.send_replace(None);
                        // It may be gone a moment later. After longer nobody else could lead for as long as it lives.
                        if message == FromWarden::Undying {
                            self.campaign.resign();
                        }
                    }
                    Some(FromWarden::Waits) => {
                        error!("{}", wire::WAITS);
                        (self.immune, leave_at) = (true, None);
                        expected.nothing();
                    }
                    Some(_) => {}
                    None => return TermEnd::WardenFailed,
                },
                () = sleep_until(expected.next(&self.timing)) => if expected.is_in_vain(&self.timing) {
                    return TermEnd::WardenFailed;
                },
                () = sleep_until(leave_at) => return TermEnd::Immune,
                signal = self.signals.next() => if signals::ends(signal) {
                    if self.ending.replace(signal).is_none() {
                        info!("{signal}: --on-lost is run");
                    }
                    self.campaign.shutdown();
                },
                rank = Ranks::next(&mut self.ranks) => self.prefer(rank),
                changed = phases.changed(), if watching => {
                    watching = changed.is_ok();
                    let phase = phases.borrow_and_update().clone();
                    tell::hooks_ending(token, &phase);
                    reason = self.pass_on(&phase).or(reason);
                    expected.phase(&phase, &self.timing);
                }
            }
        }
    }

    /// Gives the lease back if the work has stopped, and only then. Returns how the runner ends, if it does.
    pub(super) async fn work_over(&mut self, leadership: Guard, end: WorkEnd) -> Option<Result<u8, Refusal>> {
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
        self.campaign.abstain(true);
        let over = tokio::time::sleep(rest);
        tokio::pin!(over);
        loop {
            tokio::select! {
                biased;
                signal = self.signals.next() => if signals::ends(signal) {
                    return Some(Ok(signals::exit_code(signal)));
                },
                message = self.warden.next() => if message.is_none() {
                    let (how, ..) = self.bury(None).await;
                    if let Some(end) = self.renew_warden(how).await {
                        return Some(end);
                    }
                },
                elected = self.campaign.elected() => match elected {
                    // It had asked before. Nothing has begun to work.
                    Ok(leadership) => drop(leadership),
                    Err(reason) => return Some(Err(Refusal::new(super::UNAVAILABLE, reason.to_string()))),
                },
                rank = Ranks::next(&mut self.ranks) => self.prefer(rank),
                () = &mut over => break,
            }
        }
        self.campaign.abstain(false);
        // What it says of itself is older until then: who is told not to wait would give up for it.
        let abstains = |status: &Status| matches!(status, Status::Waiting { why: Why::Abstains, .. });
        let mut status = self.campaign.status();
        let _ = tokio::time::timeout(AFTER_A_REST, status.wait_for(|status| !abstains(status))).await;
        None
    }
}

/// How long a candidate may take to say that it takes part again. One that never leads says nothing else.
const AFTER_A_REST: Duration = Duration::from_secs(1);
/// How long a runner that was asked to end waits for what may not be killed, when nothing else is awaited.
const FOR_THE_IMMUNE: Duration = Duration::from_millis(500);

/// Ends the runner although nobody knows whether the work has stopped. The lease is not given back: nothing may be dropped.
#[expect(clippy::disallowed_methods, reason = "no destructor may run: it would release the lease")]
fn leave_in_doubt() -> ! {
    error!("{}", wire::IN_DOUBT);
    std::process::exit(i32::from(HOOK_FAILED))
}
