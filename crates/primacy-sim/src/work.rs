//! What a leader leads for: work that writes, is told to stop, stops or is killed, and a resource that checks tokens.

use primacy_core::lease::Event;
use primacy_core::{Instant, Token};

use crate::node::Message;
use crate::oracle::Oracle;
use crate::planted::DriverFlaw;
use crate::tally::{Fault, Sometimes};
use crate::world::{Happening, World};

impl World {
    /// The work writes: it looks at the deadline, and then sends.
    pub(crate) fn write(&mut self, n: usize, number: u64) {
        if let Some(until) = self.nodes[n].frozen_until(self.engine.now) {
            return self.at(until, Happening::Write { node: n, work: number });
        }
        let unchecked = self.has(DriverFlaw::UncheckedWork);
        let believes = self.nodes[n].belief(self.engine.now).is_some();
        let was_stopped = self.nodes[n].stall.is_some();
        let Some(process) = &self.nodes[n].process else { return };
        let writer = process.number;
        let Some(token) = process.work.as_ref().filter(|work| work.number == number).map(|work| work.token) else {
            return;
        };
        if believes || unchecked {
            let late = self.engine.rng.chance(self.mix.late_write);
            let lease = crate::nanos(self.scenario.longest);
            let way = if late {
                self.engine.rng.spread(lease / 16, lease * 3)
            } else {
                self.engine.rng.below(self.mix.way_max)
            };
            if late {
                self.fault(Fault::LateWrite);
            }
            self.check_write(n, believes);
            self.after(way, Happening::WriteLands { process: writer, token });
        } else if was_stopped {
            self.saw(Sometimes::StaleChecked);
        }
        let pause = self.engine.rng.between(self.mix.write_every / 2, self.mix.write_every * 2);
        self.after(pause.max(1_000), Happening::Write { node: n, work: number });
    }

    /// A write reaches the resource, whose fence decides; and one without a fence, where it is only observed.
    pub(crate) fn write_lands(&mut self, writer: u64, token: Token) {
        self.tally.writes += 1;
        if token < self.ledger.witness {
            self.saw(Sometimes::StaleWrite);
        }
        self.ledger.witness = self.ledger.witness.max(token);
        let admitted = self.has(DriverFlaw::OpenFence) || self.fence.admit(token).is_ok();
        self.engine.trace.hash(&(self.engine.now, writer, token, admitted));
        if admitted {
            self.check_admitted(writer, token);
        } else {
            self.saw(Sometimes::FenceRefused);
        }
    }

    /// The work is told to stop. It may go on until `by`.
    pub(crate) fn drain(&mut self, n: usize, by: Instant) {
        let grace = crate::nanos(self.nodes[n].timing().grace());
        let stops_after = self.engine.rng.below(grace + grace / 4 + 1);
        let early = self.has(DriverFlaw::DrainedEarly);
        let Some(process) = &mut self.nodes[n].process else { return };
        let kill_at = process.clock.real_at(by);
        let Some(work) = &mut process.work else { return };
        let number = work.number;
        work.kill_by = Some(by);
        if early && !work.reported {
            work.reported = true;
            process.mailbox.push_back(Message::Event(Event::Drained));
        }
        if !work.deaf {
            self.after(stops_after, Happening::WorkGone { node: n, work: number });
        }
        self.at(kill_at.max(self.engine.now), Happening::KillByRunner { node: n, work: number });
    }

    /// The runner's patience with its work is over. If the runner itself is stopped, the warden has to do it.
    pub(crate) fn kill_by_runner(&mut self, n: usize, number: u64) {
        if !self.nodes[n].is_stopped(self.engine.now) && self.nodes[n].work(number).is_some() {
            self.saw(Sometimes::KilledAtLimit);
            self.kill_work(n);
        }
    }

    /// The warden kills so early that the work is dead at the last deadline that it heard of (rule R10).
    pub(crate) fn kill_by_warden(&mut self, n: usize, number: u64) {
        if let Some(until) = self.nodes[n].frozen_until(self.engine.now) {
            return self.at(until, Happening::KillByWarden { node: n, work: number });
        }
        if self.nodes[n].work(number).is_none() {
            return;
        }
        let Some(process) = &self.nodes[n].process else { return };
        let kill = self.nodes[n].part.timing.kill();
        match process.belief {
            Some(belief) if process.clock.read(self.engine.now) < belief.until - kill => {
                let at = process.clock.real_at(belief.until - kill);
                self.at(at, Happening::KillByWarden { node: n, work: number });
            }
            _ => {
                if self.nodes[n].is_stopped(self.engine.now) {
                    self.saw(Sometimes::KilledByWarden);
                }
                self.kill_work(n);
            }
        }
    }

    /// Kills what works on a node, which takes a moment, or long if it is stuck in the kernel.
    pub(crate) fn kill_work(&mut self, n: usize) {
        let lease = crate::nanos(self.scenario.longest);
        let (least, stuck_for) =
            (crate::nanos(self.nodes[n].timing().lease()) / 200, self.engine.rng.spread(lease / 10, lease));
        let prompt = self.engine.rng.below(least);
        let no_kill = self.has(DriverFlaw::NoKill);
        let Some(work) = self.nodes[n].process.as_mut().and_then(|process| process.work.as_mut()) else { return };
        if std::mem::replace(&mut work.dying, true) {
            return;
        }
        let (number, stuck) = (work.number, work.stuck);
        if stuck {
            self.fault(Fault::StuckWork);
        }
        let takes = if no_kill || stuck { stuck_for } else { prompt };
        self.after(takes, Happening::WorkGone { node: n, work: number });
    }

    /// The work is gone: by itself, or killed.
    pub(crate) fn work_gone(&mut self, n: usize, number: u64) {
        if let Some(until) = self.nodes[n].frozen_until(self.engine.now) {
            return self.at(until, Happening::WorkGone { node: n, work: number });
        }
        let Some(work) = self.nodes[n].work(number) else { return };
        let (dying, reported, told) = (work.dying, work.reported, work.kill_by.is_some());
        if self.healing.has_begun() && !dying && !told {
            return; // the adversary wanted it of a machine that stood still
        }
        if !dying {
            self.saw(Sometimes::DrainedInTime);
        }
        self.log(Some(n), || "work is gone".to_owned());
        if let Some(process) = &mut self.nodes[n].process {
            process.work = None;
        }
        if !reported {
            self.deliver(n, Event::Drained);
        }
    }

    /// Writes are sent under belief only.
    fn check_write(&mut self, n: usize, believes: bool) {
        if !believes {
            self.violate(Oracle::Fencing, Some(n), || {
                "a write is sent after the deadline of the leadership".to_owned()
            });
        }
    }

    /// What the fence lets through never goes back, and each token is one leader's.
    fn check_admitted(&mut self, writer: u64, token: Token) {
        let (highest, by) = self.ledger.admitted;
        if token < highest {
            self.violate(Oracle::Fencing, None, || {
                format!("a write with token {token} is applied after one with {highest}")
            });
        } else if token == highest && by != writer && self.scenario.sound() {
            self.violate(Oracle::Fencing, None, || format!("two processes write with token {token}"));
        }
        self.ledger.admitted = (token, writer);
    }
}
