//! Within which bounds a leader must come, be replaced, and hand over.

use std::time::Duration;

use primacy_core::Timing;
use primacy_core::lease::Standing;

use super::{LATENESS, PEERS_SETTLE};
use crate::node::Node;
use crate::profile::Profile;
use crate::registers::Row;
use crate::scenario::GroupSetup;
use crate::world::World;

impl World {
    pub(super) fn longest(&self, of: impl Fn(&Timing) -> Duration) -> Duration {
        self.nodes.iter().map(|node| of(&node.timing())).max().unwrap_or_default()
    }

    /// Stretched by the slowest clock that is allowed.
    fn on_slowest_clock(&self, span: Duration) -> u64 {
        let ppm = match self.scenario.profile {
            Profile::Wild => 200_000,
            _ => self.nodes.iter().map(|node| node.part.timing.drift_ppm()).max().unwrap_or_default(),
        };
        (u128::from(crate::nanos(span)) * 1_000_000 / (1_000_000 - u128::from(ppm))) as u64
    }

    fn latency(&self) -> Duration {
        let latency = self.scenario.healed_latency;
        if !self.has_peers() {
            return Duration::from_nanos(latency + LATENESS);
        }
        // A candidate asks voters twice, and they flush. One that does not answer is waited for a little.
        let curiosity = if self.is_complete() { Duration::ZERO } else { Duration::from_millis(20) };
        Duration::from_nanos(latency * 3 + LATENESS) + curiosity
    }

    /// What a candidate leaves to each before it in line.
    fn slot(&self) -> Duration {
        self.longest(Timing::slot).max(self.latency())
    }

    /// From the end of faults to a settled leader: the candidates' longest back-off, the published bound, the windows
    /// that a successor or a cooling leader is granted, and one handing over that was ordered before.
    pub(super) fn settle_bound(&self) -> u64 {
        let mut lease = Duration::from_nanos(self.present_lease());
        let mut rounds = Duration::ZERO;
        if let Some(company) = self.scenario.company {
            // Who was evicted comes back, and makes rounds longer. One round to join, one to be told, one to see the record.
            lease = lease.max(company.rounds.lease(company.rounds.most()));
            rounds = company.rounds.most() * 3 + lease;
        }
        let count = self.nodes.len() as u32;
        let own = self.longest(Timing::renew_every) * 3
            + self.longest(Timing::call_timeout) * 2
            + self.longest(|timing| timing.stretched(lease))
            + self.longest(Timing::look_lag) * 4
            + self.longest(Timing::window) * 3
            + self.longest(|timing| timing.grace() + timing.kill())
            + self.slot() * count * 3
            + rounds
            + lease / 8;
        // Voters that have just restarted are bound for a lease, and connections to them are made again.
        let peers = if self.has_peers() {
            self.longest(|timing| timing.stretched(lease)) + PEERS_SETTLE
        } else {
            Duration::ZERO
        };
        self.on_slowest_clock(own + peers) + crate::nanos(self.latency() * 20) + self.settle_opening()
    }

    /// From when a candidate starts to when it has a connection and has looked: what `Timing` publishes.
    fn opening_bound(&self) -> u64 {
        let Some(opening) = self.scenario.opening else { return 0 };
        let (opening, latency) = (Duration::from_nanos(opening), self.latency());
        self.on_slowest_clock(self.longest(|timing| timing.opening_bound(opening, latency)))
    }

    /// The same from the end of faults: an attempt may have begun before, and may be followed by a pause.
    fn settle_opening(&self) -> u64 {
        match self.scenario.opening {
            Some(opening) => opening + self.on_slowest_clock(Duration::from_secs(2)) + self.opening_bound(),
            None => 0,
        }
    }

    /// From the silent loss of a leader to the next: what `Timing` publishes, if all have one timing.
    pub(super) fn silence_bound(&self) -> u64 {
        let ahead = self.announced_by_dead().max(self.least_ahead());
        if let Some(company) = self.scenario.company {
            return self.succession_bound(&company, ahead);
        }
        if self.scenario.uniform() && self.scenario.profile != Profile::Wild {
            let alone = self.nodes.iter().all(|node| node.process.is_none() || !node.is_eligible());
            let starts = if alone { Duration::from_millis(2) } else { Duration::ZERO };
            let timing = self.nodes.first().map(|node| node.part.timing);
            let bound = timing.map_or(Duration::ZERO, |timing| timing.failover_bound(ahead, self.latency()));
            return crate::nanos(bound + starts) + self.hinted_bound() + self.opening_bound();
        }
        let standing = Standing { ahead, ..Standing::default() };
        let own = self.longest(|timing| timing.stretched(self.scenario.longest))
            + self.longest(|timing| timing.watch_every(standing))
            + self.longest(Timing::look_lag) * 4
            + self.slot() * (ahead + self.nodes.len() as u32);
        self.on_slowest_clock(own) + crate::nanos(self.latency() * 8) + self.hinted_bound() + self.opening_bound()
    }

    /// How much later it is noticed that a leader is lost after a renewal that nobody expects: one that a hint has caused, or the
    /// first that is aligned ([`Timing::failover_bound`]).
    fn hinted_bound(&self) -> u64 {
        if self.scenario.bursts.is_none() && !self.scenario.aligned {
            return 0;
        }
        self.on_slowest_clock(self.longest(Timing::renew_every))
    }

    /// From when a leader hears nothing any more to the next: as if it were gone, for it withdraws what nobody has answered. It
    /// may be in the middle of that.
    pub(super) fn deafness_bound(&self) -> u64 {
        self.silence_bound() + crate::nanos(self.latency())
    }

    /// The same where candidates follow the `registers` protocol: a candidate in line looks as in the `lease` protocol;
    /// if nobody is, the record is seen a round later, and asked for within a window.
    fn succession_bound(&self, company: &GroupSetup, announced: u32) -> u64 {
        let mut lease = Duration::from_nanos(self.present_lease());
        let regress = self.scenario.profile == Profile::Regress;
        if regress {
            // A candidate that has seen a later state waits for the longest lease that it has ever seen.
            lease = lease.max(company.rounds.lease(self.longest_round(0)));
        }
        let living = |row: &Row| {
            let process = row.descriptor.process;
            self.process_hosts.iter().any(|host| host.sim_process.as_ref().is_some_and(|own| own.process == process))
        };
        let dead = self.store.registers.rows().filter(|row| !living(row)).count() as u32;
        let spread = self.slot() * (announced + dead);
        let row = self.store.row().map(|row| row.lease);
        let one = self.nodes.first().map(Node::timing);
        let settled = !regress
            && self.scenario.uniform()
            && self.nodes.iter().filter(|node| node.process.is_some()).all(|node| Some(node.timing()) == one)
            && row == one.map(|one| one.lease());
        let own = match one.filter(|_| settled && self.scenario.profile != Profile::Wild) {
            Some(timing) => crate::nanos(timing.failover_bound(announced + dead, self.latency())),
            None => {
                self.on_slowest_clock(
                    self.longest(|timing| timing.stretched(lease))
                        + self.longest(Timing::renew_every) * 2
                        + self.longest(Timing::look_lag) * 4
                        + self.slot() * self.nodes.len() as u32
                        + spread,
                ) + crate::nanos(self.latency() * 8)
            }
        };
        own + self.hinted_bound() + self.reserve_bound(company)
    }

    /// What it takes longer where nobody who lives is in line.
    fn reserve_bound(&self, company: &GroupSetup) -> u64 {
        let in_line = self.nodes.iter().any(|node| {
            node.is_eligible()
                && node.process.as_ref().is_some_and(|process| process.belief.is_none() && !process.is_deaf())
        });
        if in_line {
            return 0;
        }
        let round = self.store.registers.vars().map_or(company.rounds.round(), |vars| vars.round);
        let joins = Duration::from_millis(2);
        self.on_slowest_clock(round + self.longest(Timing::window) + joins) + crate::nanos(self.latency() * 8)
    }

    /// How many announcements count of candidates that do not live: those who wait leave them their turn.
    fn announced_by_dead(&self) -> u32 {
        let live = |id| self.nodes.iter().any(|node| node.process.as_ref().is_some_and(|process| process.id == id));
        if self.has_peers() {
            self.dead_announcements(live)
        } else {
            self.store.stale_announcements(self.engine.now, live)
        }
    }

    /// How many candidates come before the first one that lives and hears of the store, by what each was told when it last
    /// looked: until it looks again, it looks as seldom as that place asks of it.
    fn least_ahead(&self) -> u32 {
        let told = self.nodes.iter().filter(|node| node.is_eligible()).filter_map(|node| {
            let process = node.process.as_ref().filter(|process| !process.is_deaf())?;
            Some(process.candidate.lease().standing()?.ahead)
        });
        told.min().unwrap_or(2)
    }

    /// From an order, or a stop, to the next leader: the time that work may take to stop, and a few calls.
    pub(super) fn hand_over_bound(&self) -> u64 {
        let count = self.nodes.len() as u32 * 2 + self.announced_by_dead();
        let own = self.longest(|timing| timing.grace() + timing.kill()) + self.slot() * count;
        let reserve = self.scenario.company.map_or(0, |company| self.reserve_bound(&company));
        let opening = self.opening_bound();
        self.on_slowest_clock(own) + crate::nanos(self.latency() * 12 + Duration::from_millis(1)) + reserve + opening
    }
}
