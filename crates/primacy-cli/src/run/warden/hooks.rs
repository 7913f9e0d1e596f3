//! The warden of a program that stays warm: it runs hooks, and kills those that are late.

use nix::unistd::Pid;
use primacy::clock;

use super::super::hooks::{HookContext, HookEnd};
use super::super::process_tree::End;
use super::super::wire::{Deadlines, FromWarden};
use super::super::work::{Act, Hook, Moment, Work};
use super::{Lease, Program, Warden};

impl Warden {
    /// The runner begins: nothing is known of the work.
    pub(super) fn clear(&mut self) {
        let (work, act) = Work::in_doubt(self.hello.grace_ns, self.moment());
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
        let (work, act) = Work::elected(self.hello.grace_ns);
        self.work = Some(work);
        self.act(act);
    }

    /// The work must stop, by the lease as it is known.
    pub(super) fn stop_work(&mut self) {
        let moment = self.moment();
        if let Some(work) = &mut self.work {
            let act = work.stop(moment);
            self.act(act);
        }
    }

    /// A hook is gone, with all that it has started.
    pub(super) fn hook_gone(&mut self, hook: Option<Hook>, end: Option<End>, on_purpose: bool) {
        let (Some(hook), end) = (hook, HookEnd::of(end, on_purpose)) else { return };
        self.hook_ended(hook, end);
    }

    fn hook_ended(&mut self, hook: Hook, end: HookEnd) {
        let (moment, is_success) = (self.moment(), end.is_success());
        self.tell(&FromWarden::HookEnded { hook, end });
        let Some(work) = &mut self.work else { return };
        let act = work.hook_gone(is_success, moment);
        let (is_over, is_stopped) = (work.is_over(), work.is_stopped());
        // What follows a failure follows at once, and by the deadlines of now.
        if let Some(lease) = self.lease.as_mut().filter(|_| act == Act::Run(Hook::Lost)) {
            lease.told = true;
        }
        if is_over {
            self.tell(&FromWarden::WorkOver { is_stopped });
        }
        self.act(act);
    }

    /// Does what the clock asks for.
    pub(super) fn enforce_work(&mut self) {
        let now = now();
        if let Some(dying) = self.program.as_ref().and_then(|program| program.dying.as_ref()) {
            if now >= dying.again_at {
                self.kill();
            }
            return;
        }
        let Some(work) = &mut self.work else { return };
        let is_due = self.lease.as_ref().is_some_and(|lease| now >= lease.term.stop_at.min(lease.term.kill_at));
        if work.lasts() && is_due {
            if let Some(lease) = &mut self.lease {
                lease.told = true;
            }
            return self.stop_work();
        }
        let act = work.wake(now);
        self.act(act);
    }

    /// When the clock asks for something next, on the boot clock in nanoseconds.
    pub(super) fn work_deadline(&self) -> Option<u64> {
        let work = self.work.as_ref()?;
        let stop_at = self.lease.as_ref().map(|lease| lease.term.stop_at.min(lease.term.kill_at));
        work.limit().filter(|_| self.program.is_some()).or(stop_at.filter(|_| work.lasts()))
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
                    self.program = Some(Program::new(pid, Some(hook)));
                    let until = self.work.as_ref().and_then(Work::limit);
                    self.tell(&FromWarden::HookStarted { hook, pid: pid.as_raw(), until });
                }
                Err(error) => self.hook_ended(hook, HookEnd::NotStarted(error.to_string())),
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
