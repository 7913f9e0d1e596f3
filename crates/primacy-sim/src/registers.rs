//! The registers of an election as primacy's port asks for them, and what a crash of the store takes from them: beats,
//! which commit without waiting for the disk, and nothing else.

use std::collections::BTreeMap;
use std::time::Duration;

use primacy_core::lease::{Record, Sighting};
use primacy_core::registers::{Candidacy, Descriptor, Eviction, ProcessId, Reply, Request, Vars};

/// VARS, DESCRIPTORS, and why who is not there any more.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Registers {
    vars: Option<Vars>,
    rows: BTreeMap<ProcessId, Row>,
    evictions: BTreeMap<ProcessId, Eviction>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Row {
    pub(crate) descriptor: Descriptor,
    candidates: Vec<Candidacy>,
    /// The counter that a crash leaves.
    durable: u64,
    /// When the counter last changed, in real time: the checkers' knowledge.
    pub(crate) beaten_at: u64,
    /// When it got its number.
    pub(crate) joined_at: u64,
    /// When a crash of the store last took beats of this row.
    pub(crate) lost_at: Option<u64>,
}

/// What a step has done beside its reply, for the checkers.
#[derive(Debug, Default)]
pub(crate) struct Done {
    /// A number was given that nobody had.
    pub(crate) numbered: Option<u64>,
    /// Rows that were removed by an eviction.
    pub(crate) evicted: Vec<Row>,
    /// The round time before and after.
    pub(crate) paced: Option<(Duration, Duration)>,
}

impl Registers {
    pub(crate) fn vars(&self) -> Option<&Vars> {
        self.vars.as_ref()
    }

    pub(crate) fn rows(&self) -> impl Iterator<Item = &Row> {
        self.rows.values()
    }

    pub(crate) fn row(&self, process: ProcessId) -> Option<&Row> {
        self.rows.get(&process)
    }

    /// Everything up to now is on disk.
    pub(crate) fn sync(&mut self) {
        self.rows.values_mut().for_each(|row| row.durable = row.descriptor.counter);
    }

    /// The store crashes. What was acknowledged without waiting for the disk is lost.
    pub(crate) fn lose_beats(&mut self, now: u64) -> bool {
        let mut lost = false;
        for row in self.rows.values_mut().filter(|row| row.durable < row.descriptor.counter) {
            row.descriptor.counter = row.durable;
            row.lost_at = Some(now);
            lost = true;
        }
        lost
    }

    /// Takes one step; `any_counter`: evicts whoever is named, a planted bug.
    pub(crate) fn step(
        &mut self,
        now: u64,
        request: &Request,
        record: Option<&Record>,
        sighting: Sighting,
        any_counter: bool,
    ) -> (Reply, Done) {
        let mut done = Done::default();
        let reply = match request {
            Request::Join { process, candidates, rank, came_back, round } => {
                let vars = self.vars.get_or_insert(Vars::new(*round));
                let row = self.rows.entry(*process).or_insert_with(|| {
                    if let Some(silent) = came_back {
                        vars.comebacks += 1;
                        vars.slowest = vars.slowest.max(*silent);
                    }
                    vars.max_id += 1;
                    done.numbered = Some(vars.max_id);
                    let (id, late) = (vars.max_id, Duration::ZERO);
                    let descriptor = Descriptor { process: *process, id, counter: 1, rank: *rank, late };
                    Row {
                        descriptor,
                        candidates: Vec::new(),
                        durable: 1,
                        beaten_at: now,
                        joined_at: now,
                        lost_at: None,
                    }
                });
                row.descriptor.rank = *rank;
                row.candidates.clone_from(candidates);
                let (id, vars) = (row.descriptor.id, *vars);
                self.sync();
                Reply::Joined { id, vars }
            }
            Request::Beat { process, late, without, head } => match self.beat(now, *process, Some(*late)) {
                Some(vars) => Reply::Beaten { vars, head: self.head(without, *head as usize), sighting },
                None => self.evicted(*process, sighting),
            },
            Request::Survey { process, holder, token, evict, round } => {
                let leads = |record: &&Record| record.version.token == *token && record.is_held_by(*holder);
                let Some(leader) = record.filter(leads).and_then(|record| record.holder.as_ref()) else {
                    return (Reply::NotLeading, done);
                };
                let Some(mut vars) = self.beat(now, *process, None) else {
                    return (self.evicted(*process, sighting), done);
                };
                vars.leader = Some(*process);
                for (whom, counter, silent) in evict {
                    let matches = |row: &Row| any_counter || row.descriptor.counter == *counter;
                    if self.rows.get(whom).is_some_and(matches) {
                        done.evicted.extend(self.rows.remove(whom));
                        let (by, token, silent) = (leader.label.clone(), *token, *silent);
                        self.evictions.insert(*whom, Eviction { by, token, silent });
                    }
                }
                if let Some((round, changes)) = round
                    && vars.changes == *changes
                {
                    done.paced = Some((vars.round, *round));
                    let heard = vars.comebacks;
                    vars = Vars { round: *round, changes: changes + 1, heard, slowest: Duration::ZERO, ..vars };
                }
                self.vars = Some(vars);
                if !evict.is_empty() || round.is_some() {
                    self.sync();
                }
                Reply::Surveyed { vars, descriptors: self.rows().map(|row| row.descriptor.clone()).collect() }
            }
            Request::Leave { process } => {
                self.rows.remove(process);
                if let Some(vars) = &mut self.vars {
                    vars.leader.take_if(|leader| *leader == *process);
                }
                self.sync();
                Reply::Left
            }
        };
        (reply, done)
    }

    fn beat(&mut self, now: u64, process: ProcessId, late: Option<Duration>) -> Option<Vars> {
        let row = self.rows.get_mut(&process)?;
        row.descriptor.counter += 1;
        row.descriptor.late = late.unwrap_or(row.descriptor.late);
        row.beaten_at = now;
        self.vars
    }

    fn head(&self, without: &[(ProcessId, u64)], most: usize) -> Vec<Descriptor> {
        let mut head: Vec<Descriptor> = self.rows().map(|row| row.descriptor.clone()).collect();
        head.retain(|row| row.rank.is_some() && !without.contains(&(row.process, row.counter)));
        head.sort_by_key(|row| (row.rank, row.id));
        head.truncate(most);
        head
    }

    fn evicted(&self, process: ProcessId, sighting: Sighting) -> Reply {
        Reply::Evicted { eviction: self.evictions.get(&process).cloned(), sighting }
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
        match registers.step(0, &request, None, sighting(), false).0 {
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
        registers.step(5, &beat, None, sighting(), false);
        assert!(registers.lose_beats(6) && !registers.lose_beats(7));
        assert_eq!(registers.row(process).map(|row| row.descriptor.counter), Some(1));
        let leave = Request::Leave { process };
        registers.step(8, &leave, None, sighting(), false);
        registers.lose_beats(9);
        assert_eq!(join(&mut registers, 1), 3, "a number is never given twice");
    }
}
