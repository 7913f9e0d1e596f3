//! The registers of an election in memory, and the rounds of its processes.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::super::history::unix_ms;
use super::super::registers::{Candidacy, Descriptor, Eviction, ProcessId, Reply, Request, Vars};
use super::super::roster::{self, EVENTS_KEPT};
use super::super::{BoxFuture, Member, MemberEvent, MemberEventKind, Members, Registry, Standing, StoreError};
use super::{Kept, Shared};
use crate::{ElectionName, Instant, clock};
use primacy_core::select::Rank;

/// What is kept of one election's processes.
#[derive(Debug)]
pub(super) struct Registers {
    pub(super) vars: Vars,
    processes: BTreeMap<ProcessId, Process>,
    /// The oldest first.
    events: VecDeque<MemberEvent>,
    happened: u64,
}

#[derive(Debug)]
struct Process {
    descriptor: Descriptor,
    candidates: Vec<Candidacy>,
    seen: Instant,
    joined_unix_ms: i64,
}

pub(super) struct MemoryRegistry {
    pub(super) shared: Arc<Shared>,
    pub(super) election: ElectionName,
}

impl Registry for MemoryRegistry {
    fn round(&mut self, request: Request) -> BoxFuture<'_, Result<Reply, StoreError>> {
        // As a session's step: taken when it is first polled, and then at once.
        Box::pin(async move {
            let mut elections = self.shared.lock();
            Ok(elections.entry(self.election.clone()).or_default().round(request, clock::now()))
        })
    }
}

impl Kept {
    fn round(&mut self, request: Request, now: Instant) -> Reply {
        match request {
            Request::Join { process, candidates, rank, came_back, round } => {
                let registers = self.registers.get_or_insert_with(|| Registers::new(round));
                let id = registers.join(process, candidates, rank, came_back, now);
                Reply::Joined { id, vars: registers.vars }
            }
            Request::Beat { process, late, without, head } => {
                let sighting = self.sighting(Standing::default(), now);
                match self.beat(process, Some(late), now) {
                    Some(registers) => {
                        let head = registers.head(&without, head as usize);
                        Reply::Beaten { vars: registers.vars, head, sighting }
                    }
                    None => self.evicted(process, now),
                }
            }
            Request::Survey { process, holder, token, evict, round } => {
                let record = self.record().filter(|record| record.version.token == token);
                let Some(leader) = record.and_then(|record| record.holder.clone()).filter(|leader| leader.id == holder)
                else {
                    return Reply::NotLeading;
                };
                let Some(registers) = self.beat(process, None, now) else {
                    return self.evicted(process, now);
                };
                registers.vars.leader = Some(process);
                for (process, counter, silent) in evict {
                    registers.evict(process, counter, Eviction { by: leader.label.clone(), token, silent });
                }
                if let Some((round, changes)) = round {
                    registers.pace(round, changes);
                }
                let descriptors = registers.processes.values().map(|process| process.descriptor.clone()).collect();
                Reply::Surveyed { vars: registers.vars, descriptors }
            }
            Request::Leave { process } => {
                if let Some(registers) = &mut self.registers {
                    registers.leave(process);
                }
                Reply::Left
            }
        }
    }

    fn beat(&mut self, process: ProcessId, late: Option<Duration>, now: Instant) -> Option<&mut Registers> {
        let registers = self.registers.as_mut()?;
        registers.beat(process, late, now).then_some(registers)
    }

    fn evicted(&self, process: ProcessId, now: Instant) -> Reply {
        let eviction = self.registers.as_ref().and_then(|registers| registers.eviction_of(process));
        Reply::Evicted { eviction, sighting: self.sighting(Standing::default(), now) }
    }
}

impl Registers {
    fn new(round: Duration) -> Self {
        Self { vars: Vars::new(round), processes: BTreeMap::new(), events: VecDeque::new(), happened: 0 }
    }

    fn join(
        &mut self,
        process: ProcessId,
        candidates: Vec<Candidacy>,
        rank: Option<Rank>,
        came_back: Option<Duration>,
        now: Instant,
    ) -> u64 {
        if let Some(member) = self.processes.get_mut(&process) {
            member.descriptor.rank = rank;
            member.candidates = candidates;
            return member.descriptor.id;
        }
        self.vars = roster::joined(&self.vars, came_back);
        let id = self.vars.max_id;
        let label = roster::label_of(process, &candidates);
        let descriptor = Descriptor { process, id, counter: 1, rank, late: Duration::ZERO };
        let member = Process { descriptor, candidates, seen: now, joined_unix_ms: unix_ms() };
        self.processes.insert(process, member);
        self.happens(MemberEventKind::Joined { process, label, came_back });
        id
    }

    /// `false` if it takes no part.
    fn beat(&mut self, process: ProcessId, late: Option<Duration>, now: Instant) -> bool {
        let Some(member) = self.processes.get_mut(&process) else { return false };
        member.descriptor.counter += 1;
        member.descriptor.late = late.unwrap_or(member.descriptor.late);
        member.seen = now;
        true
    }

    fn head(&self, without: &[(ProcessId, u64)], most: usize) -> Vec<Descriptor> {
        let shown = |descriptor: &&Descriptor| {
            descriptor.rank.is_some() && !without.contains(&(descriptor.process, descriptor.counter))
        };
        let all = self.processes.values().map(|process| &process.descriptor);
        let mut head: Vec<Descriptor> = all.filter(shown).cloned().collect();
        head.sort_by_key(|descriptor| (descriptor.rank, descriptor.id));
        head.truncate(most);
        head
    }

    fn evict(&mut self, process: ProcessId, counter: u64, eviction: Eviction) {
        if self.processes.get(&process).is_some_and(|member| member.descriptor.counter == counter)
            && let Some(label) = self.remove(process)
        {
            self.happens(MemberEventKind::Evicted { process, label, eviction });
        }
    }

    fn leave(&mut self, process: ProcessId) {
        self.vars.leader = self.vars.leader.filter(|leader| *leader != process);
        if let Some(label) = self.remove(process) {
            self.happens(MemberEventKind::Left { process, label });
        }
    }

    /// What people called it.
    fn remove(&mut self, process: ProcessId) -> Option<crate::Label> {
        let member = self.processes.remove(&process)?;
        Some(roster::label_of(process, &member.candidates))
    }

    fn pace(&mut self, round: Duration, changes: u64) {
        let former = self.vars.round;
        if let Some(vars) = roster::paced(&self.vars, round, changes) {
            self.vars = vars;
            if former != round {
                self.happens(MemberEventKind::Round { round });
            }
        }
    }

    fn happens(&mut self, kind: MemberEventKind) {
        self.happened += 1;
        self.events.push_back(MemberEvent { number: self.happened, unix_ms: unix_ms(), kind });
        if self.events.len() > EVENTS_KEPT as usize {
            self.events.pop_front();
        }
    }

    fn eviction_of(&self, whom: ProcessId) -> Option<Eviction> {
        self.events.iter().rev().find_map(|event| match &event.kind {
            MemberEventKind::Evicted { process, eviction, .. } if *process == whom => Some(eviction.clone()),
            _ => None,
        })
    }

    pub(super) fn members(&self, now: Instant) -> Members {
        let mut members: Vec<Member> = self.processes.values().flat_map(|process| process.members(now)).collect();
        members.sort_by_key(|member| (member.descriptor.id, member.candidacy.id));
        Members { vars: self.vars, members }
    }

    pub(super) fn events(&self, limit: u32) -> Vec<MemberEvent> {
        self.events.iter().rev().take(limit as usize).cloned().collect()
    }
}

impl Process {
    fn members(&self, now: Instant) -> impl Iterator<Item = Member> + '_ {
        self.candidates.iter().map(move |candidacy| Member {
            candidacy: candidacy.clone(),
            descriptor: self.descriptor.clone(),
            age: Some(now.since(self.seen)),
            joined_unix_ms: self.joined_unix_ms,
        })
    }
}
