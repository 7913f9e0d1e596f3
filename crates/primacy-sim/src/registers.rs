//! The registers of an election as primacy's port asks for them, and what a crash of the store takes from them: beats,
//! which commit without waiting for the disk, and nothing else.

use std::collections::BTreeMap;
use std::time::Duration;

use primacy_core::Instant;
use primacy_core::lease::Sighting;
use primacy_core::registers::{Descriptor, MemberEventKind, ProcessId, Reply, Request, Table, TableMember, Vars};

/// The table by the rules of all stores, and what its disk and the checkers know beside it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Registers {
    table: Table,
    beside: BTreeMap<ProcessId, CheckerState>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct CheckerState {
    /// The counter that a crash leaves.
    durable: u64,
    /// The counter now, and since when it is that: what the checkers go by, whatever the table says.
    counter: u64,
    beaten_at: u64,
    joined_at: u64,
    lost_at: Option<u64>,
}

/// What is known of a process that takes part, in real time.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) descriptor: Descriptor,
    /// When the counter last changed.
    pub(crate) beaten_at: u64,
    /// When it got its number.
    pub(crate) joined_at: u64,
    /// When a crash of the store last took beats of this row.
    pub(crate) lost_at: Option<u64>,
}

/// What a step has done beside its reply, for the checkers.
#[derive(Debug, Default)]
pub(crate) struct StepRecord {
    /// A number was given that nobody had.
    pub(crate) numbered: Option<u64>,
    /// Rows that were removed by an eviction.
    pub(crate) evicted: Vec<Row>,
    /// The round time before and after.
    pub(crate) paced: Option<(Duration, Duration)>,
}

impl Registers {
    pub(crate) fn vars(&self) -> Option<&Vars> {
        self.table.vars()
    }

    pub(crate) fn rows(&self) -> impl Iterator<Item = Row> {
        self.table.members().map(|member| self.known(member))
    }

    pub(crate) fn row(&self, process: ProcessId) -> Option<Row> {
        self.table.member(process).map(|member| self.known(member))
    }

    fn known(&self, member: &TableMember) -> Row {
        let CheckerState { beaten_at, joined_at, lost_at, .. } = self.beside[&member.descriptor.process];
        Row { descriptor: member.descriptor.clone(), beaten_at, joined_at, lost_at }
    }

    /// Everything up to now is on disk.
    pub(crate) fn sync(&mut self) {
        for member in self.table.members() {
            if let Some(beside) = self.beside.get_mut(&member.descriptor.process) {
                beside.durable = member.descriptor.counter;
            }
        }
    }

    /// The store crashes. What was acknowledged without waiting for the disk is lost.
    pub(crate) fn lose_beats(&mut self, now: u64) -> bool {
        let mut lost = false;
        for (process, beside) in &mut self.beside {
            let counter = self.table.member(*process).map(|member| member.descriptor.counter);
            if counter.is_some_and(|counter| beside.durable < counter) {
                self.table.lose_beats(*process, beside.durable);
                (beside.counter, beside.lost_at) = (beside.durable, Some(now));
                lost = true;
            }
        }
        lost
    }

    /// Takes one step; `any_counter`: evicts the process that is named, a planted bug.
    pub(crate) fn step(
        &mut self,
        now: u64,
        request: &Request,
        sighting: Sighting,
        any_counter: bool,
    ) -> (Reply, StepRecord) {
        let forged = any_counter.then(|| self.with_present_counters(request));
        let request = forged.as_ref().unwrap_or(request);
        let (mut done, mut events) = (StepRecord::default(), Vec::new());
        let round = self.vars().map(|vars| vars.round);
        let mut named: BTreeMap<ProcessId, Row> = match request {
            Request::MembershipScan { evict, .. } => {
                evict.iter().filter_map(|(process, ..)| Some((*process, self.row(*process)?))).collect()
            }
            _ => BTreeMap::new(),
        };
        let reply = self.table.step(request, sighting, Instant::from_nanos(now), &mut events);
        for event in events {
            match event {
                MemberEventKind::Joined { process, .. } => {
                    let beside = CheckerState { durable: 1, counter: 1, beaten_at: now, joined_at: now, lost_at: None };
                    self.beside.insert(process, beside);
                    done.numbered = self.vars().map(|vars| vars.max_id);
                }
                MemberEventKind::Left { process, .. } => drop(self.beside.remove(&process)),
                MemberEventKind::Evicted { process, .. } => {
                    self.beside.remove(&process);
                    done.evicted.extend(named.remove(&process));
                }
                MemberEventKind::Round { round: next } => done.paced = round.map(|round| (round, next)),
            }
        }
        let members = || self.table.members().map(|member| member.descriptor.process);
        assert!(members().eq(self.beside.keys().copied()), "somebody came or went, and no event tells of it");
        for member in self.table.members() {
            let counter = member.descriptor.counter;
            if let Some(beside) = self.beside.get_mut(&member.descriptor.process)
                && beside.counter != counter
            {
                (beside.counter, beside.beaten_at) = (counter, now);
            }
        }
        let is_durable = match request {
            Request::Join { .. } | Request::Leave { .. } => true,
            Request::MembershipScan { evict, round, .. } => {
                matches!(reply, Reply::Scanned { .. }) && (!evict.is_empty() || round.is_some())
            }
            Request::Beat { .. } => false,
        };
        if is_durable {
            self.sync();
        }
        (reply, done)
    }

    /// The request that a store takes this one for which does not look at counters when it evicts.
    fn with_present_counters(&self, request: &Request) -> Request {
        let mut request = request.clone();
        if let Request::MembershipScan { process: leader, evict, .. } = &mut request {
            for (process, counter, _) in evict {
                // The leader's own beat comes before.
                let own = u64::from(process == leader);
                *counter = self.row(*process).map_or(*counter, |row| row.descriptor.counter + own);
            }
        }
        request
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use primacy_core::Token;
    use primacy_core::lease::Standing;

    fn sighting() -> Sighting {
        let standing = Standing::default();
        Sighting { record: None, remembered: Token::NONE, age: None, holder_gone: false, standing }
    }

    fn join(registers: &mut Registers, process: u128) -> u64 {
        let request = Request::Join {
            process: ProcessId::from_bits(process),
            candidates: Vec::new(),
            rank: None,
            came_back: None,
            round: Duration::from_secs(2),
        };
        match registers.step(0, &request, sighting(), false).0 {
            Reply::Joined { id, .. } => id,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_crash_takes_beats_and_no_numbers() {
        let mut registers = Registers::default();
        assert_eq!((join(&mut registers, 1), join(&mut registers, 2), join(&mut registers, 1)), (1, 2, 1));
        let process = ProcessId::from_bits(1);
        let beat = Request::Beat { process, late: Duration::ZERO, without: Vec::new(), head: 9 };
        registers.step(5, &beat, sighting(), false);
        assert!(registers.lose_beats(6) && !registers.lose_beats(7));
        assert_eq!(registers.row(process).map(|row| row.descriptor.counter), Some(1));
        let leave = Request::Leave { process };
        registers.step(8, &leave, sighting(), false);
        registers.lose_beats(9);
        assert_eq!(join(&mut registers, 1), 3, "a number is never given twice");
    }
}
