//! The registers of an election in memory, and the rounds of its processes.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::super::history::unix_ms;
use super::super::roster::EVENTS_KEPT;
use super::super::{BoxFuture, Member, MemberEvent, Members, Registry, Sighting, Standing, StoreError};
use super::{ElectionState, Shared};
use crate::{ElectionName, Instant, clock};
use primacy_core::registers::{MemberEventKind, ProcessId, Reply, Request, Table, TableMember};

/// What is kept of one election's processes.
#[derive(Debug, Default)]
pub(super) struct Registers {
    table: Table,
    joined_unix_ms: BTreeMap<ProcessId, i64>,
    /// The oldest first.
    events: VecDeque<MemberEvent>,
    happened: u64,
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
            Ok(elections.entry(self.election.clone()).or_default().round(&request, clock::now()))
        })
    }
}

impl ElectionState {
    fn round(&mut self, request: &Request, now: Instant) -> Reply {
        let sighting = self.sighting(Standing::default(), now);
        self.registers.step(request, sighting, now)
    }
}

impl Registers {
    fn step(&mut self, request: &Request, sighting: Sighting, now: Instant) -> Reply {
        let mut events = Vec::new();
        let reply = self.table.step(request, sighting, now, &mut events);
        for kind in events {
            match &kind {
                MemberEventKind::Joined { process, .. } => drop(self.joined_unix_ms.insert(*process, unix_ms())),
                MemberEventKind::Left { process, .. } | MemberEventKind::Evicted { process, .. } => {
                    self.joined_unix_ms.remove(process);
                }
                MemberEventKind::Round { .. } => {}
            }
            self.happened += 1;
            self.events.push_back(MemberEvent { number: self.happened, unix_ms: unix_ms(), kind });
            if self.events.len() > EVENTS_KEPT as usize {
                self.events.pop_front();
            }
        }
        reply
    }

    /// `None` if nobody has ever joined.
    pub(super) fn members(&self, now: Instant) -> Option<Members> {
        let vars = *self.table.vars()?;
        let mut members: Vec<Member> =
            self.table.members().flat_map(|member| self.candidates_of(member, now)).collect();
        members.sort_by_key(|member| (member.descriptor.id, member.candidacy.id));
        Some(Members { vars, members })
    }

    fn candidates_of(&self, member: &TableMember, now: Instant) -> impl Iterator<Item = Member> {
        let joined_unix_ms = self.joined_unix_ms.get(&member.descriptor.process).copied().unwrap_or_default();
        let age = Some(now.since(member.beaten_at));
        member.candidates.iter().map(move |candidacy| Member {
            candidacy: candidacy.clone(),
            descriptor: member.descriptor.clone(),
            age,
            joined_unix_ms,
        })
    }

    pub(super) fn events(&self, limit: u32) -> Vec<MemberEvent> {
        self.events.iter().rev().take(limit as usize).cloned().collect()
    }
}
