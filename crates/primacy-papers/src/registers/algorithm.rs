//! Algorithm 1 as a state machine without I/O: one round is `begin`, `read`, `before_commit`, `committed` or `aborted`.
//!
//! Line numbers are those of Algorithm 1 in "Leader Election using NewSQL Database Systems" (Niazi, Ismail, Berthou,
//! Dowling; DAIS 2015). Time is an argument, as in the protocols that ship.

use std::time::Duration;

use primacy_core::Instant;

use super::choices::{Aborted, AfterAbort, AfterSlow, Choices, Forced, LeaseFrom};
use super::history::{History, Patience};
use super::store::{Descriptors, Id, Lock, Vars, Writes};

/// The constants that all processes share.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    /// `Max_mhb`: how many rounds a process may miss.
    pub(super) max_missed: u32,
    /// μ: what the lease is shorter than the time that it takes to be declared dead.
    pub(super) margin: Duration,
    /// Δ: by how much a round time grows.
    pub(super) growth: Duration,
    /// The first `T_p`; slept by a process that has not read any yet.
    pub(super) period: Duration,
}

impl Settings {
    /// How long a lease is at this round time (line 48).
    pub(super) fn lease(&self, period: Duration) -> Duration {
        period.saturating_mul(self.max_missed).saturating_sub(self.margin)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    NonLeader,
    Leader,
}

/// What the paper calls local variables.
#[derive(Clone, Debug)]
struct Locals {
    id: Option<Id>,
    role: Role,
    leader: Option<Id>,
    force_exclusive: bool,
    /// `T_p`.
    period: Duration,
    /// `L_hbt`.
    lease_start: Option<Instant>,
    history: History,
}

/// What a round made of what it read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Conclusion {
    /// Its row is gone; tries again with the exclusive lock (lines 28 to 31).
    Evicted,
    /// It has the smallest id of all who live; tries again with the exclusive lock (lines 37 to 39).
    Contends,
    /// It leads (lines 40 and 41).
    Leads,
    /// Somebody else may lead (lines 43 and 44).
    Follows(Option<Id>),
}

/// One process.
#[derive(Clone, Debug)]
pub(super) struct Process {
    choices: Choices,
    settings: Settings,
    /// What `is_leader` sees.
    locals: Locals,
    /// During a round: what there was before it, or with [`Aborted::Swapped`] what the round works on.
    other: Locals,
    lock: Lock,
    /// When this round began.
    began: Instant,
}

impl Process {
    /// Line 1.
    pub(super) fn new(choices: Choices, settings: Settings) -> Self {
        let locals = Locals {
            id: None,
            role: Role::NonLeader,
            leader: None,
            force_exclusive: false,
            period: settings.period,
            lease_start: None,
            history: History::new(choices.history),
        };
        Self { choices, settings, other: locals.clone(), locals, lock: Lock::Exclusive, began: Instant::ZERO }
    }

    /// Lines 4 to 9: begins a round and says which lock on VARS it takes.
    pub(super) fn begin(&mut self, now: Instant) -> Lock {
        self.began = now;
        self.other = self.locals.clone();
        let locals = self.round();
        let strong = locals.role == Role::Leader || locals.id.is_none() || locals.force_exclusive;
        if strong {
            locals.force_exclusive = false;
        }
        self.lock = if strong { Lock::Exclusive } else { Lock::Shared };
        self.lock
    }

    /// Lines 10 to 19, with what was read under the lock.
    pub(super) fn read(&mut self, now: Instant, vars: &Vars, rows: &Descriptors) -> (Writes, Conclusion) {
        let (settings, lock) = (self.settings, self.lock);
        let patience = Patience { reads: settings.max_missed, span: vars.period.saturating_mul(settings.max_missed) };
        let locals = self.round();
        let mut view = rows.clone();
        let mut writes = Writes::default();
        let evicted = locals.update_counter(lock, vars, &mut view, &mut writes);
        let conclusion = locals.leader_check(lock, now, patience, &view, &mut writes);
        for id in &writes.removed {
            view.remove(id);
        }
        locals.history.add(&view, now, patience);
        locals.period = vars.period;
        if locals.role == Role::Leader && lock == Lock::Exclusive && vars.evicted {
            locals.period = vars.period.saturating_add(settings.growth);
            writes.period = Some(locals.period);
            writes.evicted = Some(false);
        }
        (writes, if evicted { Conclusion::Evicted } else { conclusion })
    }

    /// Line 20: right before the commit is asked for.
    pub(super) fn before_commit(&mut self, now: Instant) {
        let start = match self.choices.lease_from {
            LeaseFrom::RoundStart => self.began,
            LeaseFrom::BeforeCommit => now,
            LeaseFrom::AfterCommit => return,
        };
        self.round().lease_start = Some(start);
    }

    /// Line 22, after a commit: for how long to sleep.
    pub(super) fn committed(&mut self, now: Instant) -> Duration {
        if self.choices.aborted == Aborted::Swapped {
            std::mem::swap(&mut self.locals, &mut self.other);
        }
        if self.choices.lease_from == LeaseFrom::AfterCommit {
            self.locals.lease_start = Some(now);
        }
        let slow = now.since(self.began) >= self.locals.period;
        let at_once = self.locals.force_exclusive && self.choices.forced == Forced::AtOnce
            || slow && self.choices.after_slow == AfterSlow::AtOnce;
        if at_once { Duration::ZERO } else { self.locals.period }
    }

    /// Section 4.5, after an abort or an outcome that is not known: for how long to sleep.
    pub(super) fn aborted(&mut self) -> Duration {
        if self.choices.aborted == Aborted::RolledBack {
            self.locals = self.other.clone();
        }
        match self.choices.after_abort {
            AfterAbort::AtOnce => Duration::ZERO,
            AfterAbort::Sleeps => self.locals.period,
        }
    }

    /// Lines 45 to 50.
    pub(super) fn is_leader(&self, now: Instant) -> bool {
        self.lease_end().is_some_and(|end| now < end)
    }

    /// Until when lines 45 to 50 will say yes if nothing changes.
    pub(super) fn lease_end(&self) -> Option<Instant> {
        let start = self.locals.lease_start.filter(|_| self.locals.role == Role::Leader);
        start.map(|start| start + self.settings.lease(self.locals.period))
    }

    /// Lines 51 to 55. A leader whose lease is over names nobody.
    pub(super) fn leader(&self, now: Instant) -> Option<Id> {
        match self.locals.role {
            Role::Leader => self.locals.id.filter(|_| self.is_leader(now)),
            Role::NonLeader => self.locals.leader,
        }
    }

    /// The id under which it is known.
    pub(super) fn id(&self) -> Option<Id> {
        self.locals.id
    }

    /// The variables that a round works on.
    fn round(&mut self) -> &mut Locals {
        match self.choices.aborted {
            Aborted::Swapped => &mut self.other,
            Aborted::Kept | Aborted::RolledBack => &mut self.locals,
        }
    }
}

impl Locals {
    /// Lines 23 to 33. Says whether the round ends here because the process was evicted.
    ///
    /// Line 30 writes VARS under a shared lock, which no database grants. The flag is written with the exclusive retry
    /// instead, as HopsFS does; it decides nothing but the round time.
    fn update_counter(&mut self, lock: Lock, vars: &Vars, view: &mut Descriptors, writes: &mut Writes) -> bool {
        if let Some((id, counter)) = self.id.and_then(|id| view.get_key_value(&id)) {
            writes.counter = Some((*id, counter + 1));
        } else {
            if self.id.is_some() {
                if lock == Lock::Shared {
                    self.force_exclusive = true;
                    return true;
                }
                writes.evicted = Some(true);
            }
            let id = vars.max_id + 1;
            self.id = Some(id);
            writes.max_id = Some(id);
            writes.counter = Some((id, 0));
        }
        view.extend(writes.counter);
        false
    }

    /// Lines 34 to 44.
    fn leader_check(
        &mut self,
        lock: Lock,
        now: Instant,
        patience: Patience,
        view: &Descriptors,
        writes: &mut Writes,
    ) -> Conclusion {
        let is_dead = |id: Id, counter: u64| self.history.is_dead(id, counter, now, patience);
        let smallest = view.iter().find(|(id, counter)| !is_dead(**id, **counter)).map(|(id, _)| *id);
        if smallest.is_none() || smallest != self.id {
            self.role = Role::NonLeader;
            self.leader = smallest;
            return Conclusion::Follows(smallest);
        }
        if lock == Lock::Shared {
            self.force_exclusive = true;
            return Conclusion::Contends;
        }
        writes.removed.extend(view.iter().filter(|(id, counter)| is_dead(**id, **counter)).map(|(id, _)| *id));
        self.role = Role::Leader;
        Conclusion::Leads
    }
}
