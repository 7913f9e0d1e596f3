//! Registers as a store keeps them, in the fewest lines.

use std::collections::BTreeMap;
use std::time::Duration;

use primacy_core::lease::{Sighting, Standing};
use primacy_core::registers::{Candidacy, Descriptor, Eviction, ProcessId, Reply, Request, Vars};
use primacy_core::{CandidateId, Label, Token};

#[derive(Default)]
pub(crate) struct Registers {
    vars: Option<Vars>,
    rows: BTreeMap<ProcessId, (Descriptor, Vec<Candidacy>)>,
    evictions: BTreeMap<ProcessId, Eviction>,
    lease: Option<(CandidateId, Token)>,
}

impl Registers {
    pub(crate) fn vars(&self) -> Vars {
        self.vars.expect("somebody has joined")
    }

    pub(crate) fn lead(&mut self, holder: CandidateId, token: Token) {
        self.lease = Some((holder, token));
    }

    pub(crate) fn processes(&self) -> Vec<u128> {
        self.rows.keys().map(|process| process.to_bits()).collect()
    }

    pub(crate) fn step(&mut self, request: &Request) -> Reply {
        match request {
            Request::Join { process, candidates, rank, came_back, round } => {
                let vars = self.vars.get_or_insert(Vars::new(*round));
                if let Some(silent) = came_back {
                    vars.comebacks += 1;
                    vars.slowest = vars.slowest.max(*silent);
                }
                let (row, members) = self.rows.entry(*process).or_insert_with(|| {
                    vars.max_id += 1;
                    let late = Duration::ZERO;
                    (Descriptor { process: *process, id: vars.max_id, counter: 1, rank: *rank, late }, Vec::new())
                });
                row.rank = *rank;
                members.clone_from(candidates);
                Reply::Joined { id: row.id, vars: *vars }
            }
            Request::Beat { process, late, without, head } => {
                let Some((row, _)) = self.rows.get_mut(process) else { return self.evicted(*process) };
                row.counter += 1;
                row.late = *late;
                let mut line: Vec<_> = self.rows.values().map(|(row, _)| row.clone()).collect();
                line.retain(|row| row.rank.is_some() && !without.contains(&(row.process, row.counter)));
                line.sort_by_key(|row| (row.rank, row.id));
                line.truncate(*head as usize);
                Reply::Beaten { vars: self.vars(), head: line, sighting: sighting() }
            }
            Request::Survey { process, holder, token, evict, round } => {
                if self.lease != Some((*holder, *token)) {
                    return Reply::NotLeading;
                }
                let Some((row, _)) = self.rows.get_mut(process) else { return self.evicted(*process) };
                row.counter += 1;
                for (process, counter, silent) in evict {
                    if self.rows.get(process).is_some_and(|(row, _)| row.counter == *counter) {
                        self.rows.remove(process);
                        let by = Label::new("the leader").expect("valid");
                        self.evictions.insert(*process, Eviction { by, token: *token, silent: *silent });
                    }
                }
                let vars = self.vars.as_mut().expect("somebody has joined");
                vars.leader = Some(*process);
                if let Some((round, changes)) = round
                    && vars.changes == *changes
                {
                    (vars.round, vars.changes) = (*round, changes + 1);
                    (vars.heard, vars.slowest) = (vars.comebacks, Duration::ZERO);
                }
                Reply::Surveyed { vars: *vars, descriptors: self.rows.values().map(|(row, _)| row.clone()).collect() }
            }
            Request::Leave { process } => {
                self.rows.remove(process);
                Reply::Left
            }
        }
    }

    fn evicted(&self, process: ProcessId) -> Reply {
        Reply::Evicted { eviction: self.evictions.get(&process).cloned(), sighting: sighting() }
    }
}

fn sighting() -> Sighting {
    let standing = Standing::default();
    Sighting { record: None, remembered: Token::NONE, age: None, holder_gone: false, standing }
}
