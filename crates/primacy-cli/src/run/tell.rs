//! What `run` says by itself: one line for each transition, so that nobody has to guess why it waits or stopped.

use std::time::Duration;

use primacy::store::{EndReason, Why};
use primacy::{Phase, Status};
use tracing::{error, info, warn};

use super::hooks::HookEnd;
use super::process_tree::End;
use super::wire::{self, FromWarden};
use super::work::Hook;
use crate::output::span::span;

/// Says what a waiting candidate waits for, once for each new answer.
#[derive(Default)]
pub(super) struct Waiting {
    told: Option<String>,
}

impl Waiting {
    pub(super) fn tell(&mut self, status: &Status) {
        let Status::Waiting { why, .. } = status else { return };
        if matches!(why, Why::NotLooked | Why::Asking | Why::Unreachable) {
            return;
        }
        let line = why.to_string();
        if self.told.as_ref() != Some(&line) {
            info!("this candidate {line}");
            self.told = Some(line);
        }
    }
}

/// The store, or the agent, has not answered yet, and is tried for longer than anybody would watch in silence.
pub(super) fn not_reached(is_agent: bool, why: &str, wait: Duration) {
    let what = if is_agent { "no hold can be had of the agent yet" } else { "the store does not answer yet" };
    warn!("{what}: {why}; trying for {}", span(wait));
}

/// The leadership ends, or has ended: why, and what that means for the program. `by_warden`: its deadline has come before this
/// process was told of an end, and the warden has told the program already.
pub(super) fn ending(token: u64, phase: &Phase, by_warden: bool) {
    let reason = phase.stop_reason().unwrap_or(&EndReason::Expired);
    match phase {
        _ if by_warden => info!("the leadership with token {token} ends: {reason}; the program was told to stop"),
        Phase::Draining { reason: EndReason::Withdrawn, .. } => {}
        Phase::Draining { .. } => {
            info!("the leadership with token {token} ends: {reason}; the program is told to stop");
        }
        Phase::Ended { .. } => warn!("the leadership with token {token} is over: {reason}; the program is killed"),
        _ => {}
    }
}

/// The program is gone. `late`: its time to stop was over.
pub(super) fn gone(end: End, late: bool) {
    match end {
        End::Code(code) => info!("the program has ended with code {code}"),
        End::Signal(SIGKILL) if late => info!("the program was ended by signal {SIGKILL}: it had not stopped in time"),
        End::Signal(signal) => info!("the program was ended by signal {signal}"),
    }
}

/// Something lives on that was killed.
pub(super) fn lives_on(message: &FromWarden) {
    match message {
        FromWarden::Immune { processes } => error!("{}", wire::immune(processes)),
        FromWarden::Undying => error!("{}", wire::UNDYING),
        _ => {}
    }
}

/// The leadership of a program that stays warm ends, or has ended: why.
pub(super) fn hooks_ending(token: u64, phase: &Phase) {
    let reason = phase.stop_reason().unwrap_or(&EndReason::Expired);
    match phase {
        Phase::Draining { reason: EndReason::Withdrawn, .. } => {}
        Phase::Draining { .. } => info!("the leadership with token {token} ends: {reason}; --on-lost is run"),
        Phase::Ended { .. } => warn!("the leadership with token {token} is over: {reason}"),
        _ => {}
    }
}

/// A hook is gone. `leads`: there is a lease, which is given back if the work has stopped.
pub(super) fn hook_ended(hook: Hook, end: &HookEnd, leads: bool) {
    match (hook, end) {
        _ if end.is_success() => info!("{} has succeeded", hook.option()),
        (Hook::Elected, HookEnd::Killed) => info!("--on-elected was killed, since the leadership ends"),
        (Hook::Elected, _) => warn!("{}; --on-lost is run", wire::hook_failed(hook, end)),
        (Hook::Lost, _) if leads => {
            error!("{}; the lease is not given back before it has succeeded", wire::hook_failed(hook, end));
        }
        (Hook::Lost, _) => error!("{}", wire::hook_failed(hook, end)),
    }
}

const SIGKILL: i32 = nix::sys::signal::Signal::SIGKILL as i32;

/// The lease is given back, unless another one has it.
pub(super) fn giving_back(token: u64, reason: Option<&EndReason>) {
    if !matches!(reason, Some(EndReason::Lost { .. } | EndReason::Removed | EndReason::StoreRegressed)) {
        info!("gives back the lease with token {token}");
    }
}
