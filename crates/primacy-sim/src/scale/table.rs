//! The registers of very many processes, with the head in order, as an index of a database has it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use primacy_core::lease::{Sighting, Standing};
use primacy_core::registers::{Descriptor, ProcessId, Reply, Request, Vars};
use primacy_core::select::Rank;
use primacy_core::{CandidateId, Token};

/// VARS and DESCRIPTORS, and who leads, which never changes here.
#[derive(Debug, Default)]
pub(super) struct Table {
    pub(super) vars: Option<Vars>,
    rows: BTreeMap<ProcessId, Descriptor>,
    line: BTreeSet<(Option<Rank>, u64, ProcessId)>,
    pub(super) leader: Option<(CandidateId, Token)>,
}

impl Table {
    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Takes one step. `None`: nobody has joined yet, which no group asks about.
    pub(super) fn step(&mut self, request: &Request) -> Option<Reply> {
        Some(match request {
            Request::Join { process, rank, came_back, round, .. } => {
                let vars = self.vars.get_or_insert(Vars::new(*round));
                if !self.rows.contains_key(process) {
                    vars.max_id += 1;
                    if let Some(silent) = came_back {
                        vars.comebacks += 1;
                        vars.slowest = vars.slowest.max(*silent);
                    }
                    let (id, late) = (vars.max_id, Duration::ZERO);
                    self.line.insert((*rank, id, *process));
                    self.rows.insert(*process, Descriptor { process: *process, id, counter: 1, rank: *rank, late });
                }
                Reply::Joined { id: self.rows.get(process)?.id, vars: *vars }
            }
            Request::Beat { process, late, without, head } => {
                let Some(row) = self.rows.get_mut(process) else { return Some(evicted()) };
                row.counter += 1;
                row.late = *late;
                let shown = self.line.iter().filter_map(|(.., process)| self.rows.get(process));
                let shown = shown.filter(|row| !without.contains(&(row.process, row.counter)));
                let head = shown.take(*head as usize).cloned().collect();
                Reply::Beaten { vars: self.vars?, head, sighting: sighting() }
            }
            Request::Survey { process, holder, token, evict, round } => {
                if self.leader != Some((*holder, *token)) {
                    return Some(Reply::NotLeading);
                }
                let Some(row) = self.rows.get_mut(process) else { return Some(evicted()) };
                row.counter += 1;
                for (process, counter, _) in evict {
                    if self.rows.get(process).is_some_and(|row| row.counter == *counter) {
                        self.remove(*process);
                    }
                }
                let mut vars = Vars { leader: Some(*process), ..self.vars? };
                if let Some((round, _)) = round.filter(|(_, changes)| *changes == vars.changes) {
                    let (changes, heard) = (vars.changes + 1, vars.comebacks);
                    vars = Vars { round, changes, heard, slowest: Duration::ZERO, ..vars };
                }
                self.vars = Some(vars);
                Reply::Surveyed { vars, descriptors: self.rows.values().cloned().collect() }
            }
            Request::Leave { process } => {
                self.remove(*process);
                Reply::Left
            }
        })
    }

    fn remove(&mut self, process: ProcessId) {
        if let Some(row) = self.rows.remove(&process) {
            self.line.remove(&(row.rank, row.id, process));
        }
    }
}

fn evicted() -> Reply {
    Reply::Evicted { eviction: None, sighting: sighting() }
}

/// Nobody here asks for the lease.
fn sighting() -> Sighting {
    let standing = Standing::default();
    Sighting { record: None, remembered: Token::NONE, age: None, holder_gone: false, standing }
}
