//! What each call makes of the registers of an election: the rules that every store follows.
//!
//! The stores in memory and the simulator keep a [`Table`]. A store with a database does the same by statements.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::ToString as _;
use alloc::vec::Vec;
use core::time::Duration;

use super::candidacy::Candidacy;
use super::port::{Descriptor, Eviction, ProcessId, Reply, Request, Vars};
use crate::lease::{Record, Sighting};
use crate::select::Rank;
use crate::{Instant, Label};

/// How many evictions are remembered, so that an evicted process can be told why.
const EVICTIONS_KEPT: usize = 1_000;

/// VARS and DESCRIPTORS of one election, and why those were evicted who are not there any more.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Table {
    vars: Option<Vars>,
    members: BTreeMap<ProcessId, TableMember>,
    /// Those that may lead, in the order in which the head shows them.
    order: BTreeSet<(Rank, u64, ProcessId)>,
    /// The oldest first.
    evictions: Vec<(ProcessId, Eviction)>,
}

/// A process that takes part.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TableMember {
    /// Its register.
    pub descriptor: Descriptor,
    /// What its candidates publish about themselves.
    pub candidates: Vec<Candidacy>,
    /// When it last beat, by the clock of the store.
    pub beaten_at: Instant,
}

/// What happened among the members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemberEventKind {
    /// A process joined, or came back after it had been evicted.
    Joined {
        /// Which.
        process: ProcessId,
        /// What people call its first candidate.
        label: Label,
        /// For how long it had been silent when it found that it had been evicted.
        came_back: Option<Duration>,
    },
    /// A process left.
    Left {
        /// Which.
        process: ProcessId,
        /// What people call its first candidate.
        label: Label,
    },
    /// A process was evicted.
    Evicted {
        /// Which.
        process: ProcessId,
        /// What people call its first candidate.
        label: Label,
        /// By whom and why.
        eviction: Eviction,
    },
    /// The round time has changed.
    Round {
        /// To this.
        round: Duration,
    },
}

impl Table {
    /// VARS, once a process has joined.
    pub fn vars(&self) -> Option<&Vars> {
        self.vars.as_ref()
    }

    /// Those who take part.
    pub fn members(&self) -> impl Iterator<Item = &TableMember> {
        self.members.values()
    }

    /// How many take part.
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Whether nobody takes part.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// One of them.
    pub fn member(&self, process: ProcessId) -> Option<&TableMember> {
        self.members.get(&process)
    }

    /// Sets a counter back, as a crash of the store does that had not put the last beats on disk.
    pub fn lose_beats(&mut self, process: ProcessId, counter: u64) {
        if let Some(member) = self.members.get_mut(&process) {
            member.descriptor.counter = counter;
        }
    }

    /// Takes one call, and adds what has happened to `events`. `sighting` is what a look at the election's record tells,
    /// but for anybody's standing.
    pub fn step(
        &mut self,
        request: &Request,
        sighting: Sighting,
        now: Instant,
        events: &mut Vec<MemberEventKind>,
    ) -> Reply {
        match request {
            Request::Join { process, candidates, rank, came_back, round } => {
                let vars = *self.vars.get_or_insert(Vars::new(*round));
                let (id, vars) = self.join(vars, *process, candidates, *rank, *came_back, now, events);
                self.vars = Some(vars);
                Reply::Joined { id, vars }
            }
            Request::Beat { process, late, without, head } => match self.beat(*process, Some(*late), now) {
                Some(vars) => Reply::Beaten { vars, head: self.head(without, *head as usize), sighting },
                None => self.evicted(*process, sighting),
            },
            Request::MembershipScan { process, holder, token, evict, round } => {
                let leads = |record: &&Record| record.version.token == *token;
                let leader = sighting.record.as_ref().filter(leads).and_then(|record| record.holder.as_ref());
                let Some(leader) = leader.filter(|leader| leader.id == *holder) else { return Reply::NotLeading };
                let by = leader.label.clone();
                let Some(vars) = self.beat(*process, None, now) else { return self.evicted(*process, sighting) };
                for &(whom, counter, silent) in evict {
                    self.evict(whom, counter, Eviction { by: by.clone(), token: *token, silent }, events);
                }
                let vars = Vars { leader: Some(*process), ..vars };
                let paced = round.and_then(|(round, changes)| vars.paced(round, changes));
                if let Some(paced) = paced.filter(|paced| paced.round != vars.round) {
                    events.push(MemberEventKind::Round { round: paced.round });
                }
                let vars = paced.unwrap_or(vars);
                self.vars = Some(vars);
                Reply::Scanned { vars, descriptors: self.members().map(|member| member.descriptor.clone()).collect() }
            }
            Request::Leave { process } => {
                if let Some(vars) = &mut self.vars {
                    vars.leader.take_if(|leader| *leader == *process);
                }
                if let Some(label) = self.remove(*process) {
                    events.push(MemberEventKind::Left { process: *process, label });
                }
                Reply::Left
            }
        }
    }

    #[expect(clippy::too_many_arguments, reason = "the parts of one request")]
    fn join(
        &mut self,
        vars: Vars,
        process: ProcessId,
        candidates: &[Candidacy],
        rank: Option<Rank>,
        came_back: Option<Duration>,
        now: Instant,
        events: &mut Vec<MemberEventKind>,
    ) -> (u64, Vars) {
        if let Some(member) = self.members.get_mut(&process) {
            let id = member.descriptor.id;
            if let Some(before) = member.descriptor.rank {
                self.order.remove(&(before, id, process));
            }
            self.order.extend(rank.map(|rank| (rank, id, process)));
            member.descriptor.rank = rank;
            member.candidates = candidates.to_vec();
            return (id, vars);
        }
        let vars = vars.joined(came_back);
        let id = vars.max_id;
        events.push(MemberEventKind::Joined { process, label: process_label(process, candidates), came_back });
        let descriptor = Descriptor { process, id, counter: 1, rank, late: Duration::ZERO };
        self.order.extend(rank.map(|rank| (rank, id, process)));
        self.members.insert(process, TableMember { descriptor, candidates: candidates.to_vec(), beaten_at: now });
        (id, vars)
    }

    /// VARS, if the process takes part.
    fn beat(&mut self, process: ProcessId, late: Option<Duration>, now: Instant) -> Option<Vars> {
        let member = self.members.get_mut(&process)?;
        member.descriptor.counter += 1;
        member.descriptor.late = late.unwrap_or(member.descriptor.late);
        member.beaten_at = now;
        self.vars
    }

    fn head(&self, without: &[(ProcessId, u64)], most: usize) -> Vec<Descriptor> {
        let all = self.order.iter().filter_map(|(.., process)| self.members.get(process));
        let shown = all.map(|member| &member.descriptor);
        let shown = shown.filter(|shown| !without.contains(&(shown.process, shown.counter)));
        shown.take(most).cloned().collect()
    }

    fn evict(&mut self, process: ProcessId, counter: u64, eviction: Eviction, events: &mut Vec<MemberEventKind>) {
        if self.members.get(&process).is_none_or(|member| member.descriptor.counter != counter) {
            return;
        }
        let Some(label) = self.remove(process) else { return };
        self.evictions.retain(|(evicted, _)| *evicted != process);
        if self.evictions.len() == EVICTIONS_KEPT {
            self.evictions.remove(0);
        }
        self.evictions.push((process, eviction.clone()));
        events.push(MemberEventKind::Evicted { process, label, eviction });
    }

    /// What people called it.
    fn remove(&mut self, process: ProcessId) -> Option<Label> {
        let TableMember { descriptor, candidates, .. } = self.members.remove(&process)?;
        if let Some(rank) = descriptor.rank {
            self.order.remove(&(rank, descriptor.id, process));
        }
        Some(process_label(process, &candidates))
    }

    fn evicted(&self, process: ProcessId, sighting: Sighting) -> Reply {
        let eviction = self.evictions.iter().find(|(evicted, _)| *evicted == process);
        Reply::Evicted { eviction: eviction.map(|(_, eviction)| eviction.clone()), sighting }
    }
}

impl Vars {
    /// After a process joined that had no number: its own is `max_id`.
    #[must_use]
    pub fn joined(&self, came_back: Option<Duration>) -> Self {
        Self {
            max_id: self.max_id + 1,
            comebacks: self.comebacks + u64::from(came_back.is_some()),
            slowest: self.slowest.max(came_back.unwrap_or_default()),
            ..*self
        }
    }

    /// After a change of the round time, or `None` if it has changed since that was decided.
    #[must_use]
    pub fn paced(&self, round: Duration, changes: u64) -> Option<Self> {
        let next = Self { round, changes: changes + 1, heard: self.comebacks, slowest: Duration::ZERO, ..*self };
        (self.changes == changes).then_some(next)
    }
}

/// What people call a process: as its first candidate, or by its identity if it has none.
pub fn process_label(process: ProcessId, candidates: &[Candidacy]) -> Label {
    let own = || Label::new(process.to_string()).expect("32 digits are a label");
    candidates.first().map_or_else(own, |candidate| candidate.label.clone())
}
