//! The warden of a program that stays warm: it runs hooks, and kills those that are late.

use nix::unistd::Pid;
use primacy::clock;

use super::super::hooks::{HookContext, HookEnd};
use super::super::process_tree::{self, End};
use super::super::wire::{Deadlines, FromWarden, Led};
use super::super::work::{Act, Hook, Moment, Spans, Work};
use super::{Lease, Program, Warden};

impl Warden {
    /// The runner begins, or a warden before this one has died: nothing is known of the work.
    pub(super) fn clear(&mut self, led: Option<Led>) {
        if let Some(Led { token, term, grace_ns }) = led {
            self.hello.grace_ns = grace_ns;
            (self.token, self.lease) = (Some(token), Some(Lease { term, told: true }));
        }
        let (work, act) = Work::in_doubt(self.spans(), false, self.moment());
        self.work = Some(work);
        self.act(act);
    }

    /// The runner leads.
    pub(super) fn begin_work(&mut self, token: u64, term: Deadlines) {
        // It must not campaign then.
        if self.work.as_ref().is_some_and(|work| !work.is_stopped()) {
            return self.decline(term);
        }
        self.token = Some(token);
        let (work, act) = Work::elected(self.spans());
        self.work = Some(work);
        self.act(act);
    }

    /// The work must stop, by the lease as it is known.
    pub(super) fn stop_work(&mut self) {
        self.step(Work::stop);
    }

    /// A hook is gone, with all that it has started, and all that was left of others.
    pub(super) fn hook_gone(&mut self, hook: Option<Hook>, end: Option<End>, on_purpose: bool) {
        let (Some(hook), end) = (hook, HookEnd::of(end, on_purpose)) else { return };
        let is_success = end.is_success();
        self.hook_ended(hook, end, |work, moment| work.hook_gone(is_success, moment));
    }

    /// A hook's own process has ended, and not all that must be gone is.
    pub(super) fn hook_left(&mut self, end: End) {
        let (moment, is_success) = (self.moment(), end == End::Code(0));
        let Some(work) = &mut self.work else { return };
        let waited = work.waits_for_the_dying();
        work.hook_left(is_success, moment);
        if work.waits_for_the_dying() && !waited {
            self.tell(&FromWarden::Waits);
        }
    }

    fn hook_ended(&mut self, hook: Hook, end: HookEnd, step: impl FnOnce(&mut Work, Moment) -> Act) {
        let moment = self.moment();
        let was_over = self.work.as_ref().is_none_or(Work::is_over);
        let act = self.work.as_mut().map_or(Act::Nothing, |work| step(work, moment));
        let heard_by = self.work.as_ref().and_then(Work::heard_by);
        self.tell(&FromWarden::HookEnded { hook, end, heard_by });
        self.follow(act, was_over);
    }

    fn step(&mut self, step: impl FnOnce(&mut Work, Moment) -> Act) {
        let moment = self.moment();
        let Some(work) = &mut self.work else { return };
        let was_over = work.is_over();
        let act = step(work, moment);
        self.follow(act, was_over);
    }

    /// Does what follows from a step of the work.
    fn follow(&mut self, act: Act, was_over: bool) {
        // What follows a failure follows at once, and by the deadlines of now.
        if let Some(lease) = self.lease.as_mut().filter(|_| act == Act::Run(Hook::Lost)) {
            lease.told = true;
        }
        if let Some(work) = self.work.as_ref().filter(|work| work.is_over() && !was_over) {
            let is_stopped = work.is_stopped();
            self.tell(&FromWarden::WorkOver { is_stopped });
        }
        self.act(act);
    }

    /// Does what the clock asks for.
    pub(super) fn enforce_work(&mut self) {
        let now = now();
        if self.program.as_ref().and_then(|program| program.dying.as_ref()).is_some_and(|dying| now >= dying.again_at) {
            self.kill();
        }
        let is_due = self.lease.as_ref().is_some_and(|lease| now >= lease.term.stop_at.min(lease.term.kill_at));
        if self.work.as_ref().is_some_and(Work::lasts) && is_due {
            if let Some(lease) = &mut self.lease {
                lease.told = true;
            }
            return self.stop_work();
        }
        self.step(Work::wake);
    }

    /// When the clock asks for something next, on the boot clock in nanoseconds.
    pub(super) fn work_deadline(&self) -> Option<u64> {
        let again_at = self.program.as_ref().and_then(|program| program.dying.as_ref()).map(|dying| dying.again_at);
        let due = self.work.as_ref().and_then(|work| {
            let stop_at = self.lease.as_ref().map(|lease| lease.term.stop_at.min(lease.term.kill_at));
            work.due().or(stop_at.filter(|_| work.lasts()))
        });
        [again_at, due].into_iter().flatten().min()
    }

    /// Whatever is known of the lease: it is over.
    pub(super) fn lease_is_over(&mut self) {
        let now = now();
        if let Some(lease) = &mut self.lease {
            bring_forward(lease, now);
        }
    }

    /// Nobody renews the lease any more: `--on-lost` has a grace, and not what is left of a long lease.
    pub(super) fn bound_by_grace(&mut self) {
        let by = now().saturating_add(self.hello.grace_ns);
        if let Some(lease) = &mut self.lease {
            bring_forward(lease, by);
        }
    }

    fn act(&mut self, act: Act) {
        match act {
            Act::Nothing => {}
            Act::Kill => {
                if let Some(program) = &mut self.program {
                    program.overdue = true;
                }
                self.kill();
            }
            Act::Run(hook) => match self.start_hook(hook) {
                Ok(pid) => {
                    let heard_by = self.work.as_ref().and_then(Work::heard_by);
                    // What is left of the one before is killed again with this one.
                    if let Some(Program { pid, hook: Some(hook), overdue, .. }) = self.program.take() {
                        let end = HookEnd::of(process_tree::end_of_dead(pid), overdue);
                        self.tell(&FromWarden::HookEnded { hook, end, heard_by });
                    }
                    self.program = Some(Program::new(pid, Some(hook)));
                    self.tell(&FromWarden::HookStarted { hook, pid: pid.as_raw(), heard_by });
                }
                Err(error) => {
                    let end = HookEnd::NotStarted(error.to_string());
                    self.hook_ended(hook, end, Work::hook_not_started);
                }
            },
        }
    }

    fn start_hook(&self, hook: Hook) -> std::io::Result<Pid> {
        let hooks = self.hello.hooks.as_ref().ok_or_else(|| std::io::Error::other("there are no hooks"))?;
        let context = HookContext {
            election: &self.hello.election,
            label: &self.hello.label,
            rights: self.hello.rights,
            token: self.token,
        };
        hooks.spawn(hook, context)
    }

    fn spans(&self) -> Spans {
        Spans::of(self.hello.grace_ns)
    }

    fn moment(&self) -> Moment {
        Moment { now: now(), kill_at: self.lease.as_ref().map_or(0, |lease| lease.term.kill_at) }
    }
}

fn bring_forward(lease: &mut Lease, kill_at: u64) {
    lease.told = true;
    lease.term.kill_at = lease.term.kill_at.min(kill_at);
}

/// A clock that cannot be read is past every deadline.
fn now() -> u64 {
    clock::boot_nanos().unwrap_or(u64::MAX)
}
