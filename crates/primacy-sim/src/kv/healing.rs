//! The healed phase: nothing fails any more, and everything must be answered and settle.

use super::spec::{Ask, When};
use super::tally::Promise;
use super::{Happening, World};

/// How often the end is put off until all replicas have all.
const PATIENCE: u32 = 24;

impl World {
    /// Faults end.
    pub(super) fn heal(&mut self) {
        self.is_healed = true;
        self.note(None, || "faults end".to_owned());
        self.slow_until = 0;
        let lease = self.scenario.lease;
        for node in 0..self.nodes.len() {
            let at = &mut self.nodes[node];
            (at.stalled_until, at.slow_until, at.full_until, at.unheard_until) = (0, 0, 0, 0);
            at.memory = (0, 0);
            at.log.iter_mut().for_each(|log| log.failing = None);
            self.resume(node);
            self.engine.after(1, Happening::Start { node });
            for other in 0..self.nodes.len() {
                if other != node {
                    self.uncut(node, other);
                    self.engine.after(lease / 20, Happening::Connect { one: node, other });
                }
            }
        }
        self.engine.after(lease * 4, Happening::Probe { round: 0 });
    }

    /// Each node is asked for something, and must answer in time.
    pub(super) fn probe(&mut self, round: u32) {
        let lease = self.scenario.lease;
        if self.change.is_some() && self.engine.now < self.scenario.span + lease * 20 {
            // Who is replaced in this moment may be refused.
            return self.engine.after(lease / 2, Happening::Probe { round });
        }
        self.is_over = true;
        for node in self.members() {
            for group in 0..self.scenario.groups {
                let value = self.history.value();
                let set = Ask::Set { key: 0, value, when: When::Always, live: None };
                self.submit(node, None, group, 0, Some(set), None);
                for (family, what) in
                    [(0, Ask::Get(0)), (1, Ask::Get(0)), (2, Ask::Get(0)), (3, Ask::Get(0)), (4, Ask::GetBoth)]
                {
                    self.submit(node, None, group, family, Some(what), None);
                }
            }
        }
        let next = if round == 0 { Happening::Probe { round: 1 } } else { Happening::End { round: 0 } };
        self.engine.after(lease, next);
    }

    /// All is quiet: all replicas must have the same, and nothing is left open.
    pub(super) fn end(&mut self, round: u32) {
        let problem = self.problem();
        if let Some(problem) = problem {
            if round < PATIENCE {
                self.engine.after(self.scenario.lease / 8, Happening::End { round: round + 1 });
            } else {
                self.violate(Promise::Settled, || problem);
            }
            return;
        }
        for group in 0..self.scenario.groups {
            self.compare(group);
            let ledger = &self.ledgers[usize::from(group)];
            let (sent, chunks) = (ledger.sent, ledger.chunks);
            if chunks > 50_000 {
                self.violate(Promise::Traffic, || {
                    format!("{chunks} chunks were sent in group {group}, {sent} bytes in all")
                });
            }
        }
        self.check_histories();
        self.is_done = true;
    }

    fn problem(&self) -> Option<String> {
        if self.change.is_some() {
            return Some("a change of replicas is not done".to_owned());
        }
        let open = self.history.pending.iter().find(|(_, pending)| self.nodes[pending.node].is_up());
        if let Some((tag, pending)) = open {
            return Some(format!("request {tag} is not answered: {pending:?}"));
        }
        for group in 0..self.scenario.groups {
            let Some((leader, status)) = self.leader(group) else { return Some(format!("nobody leads group {group}")) };
            for node in self.members() {
                let other = self.nodes[node].replicas.get(usize::from(group))?.group.status();
                if other.applied != status.applied || other.applied != other.last.index {
                    return Some(format!(
                        "group {group}: n{node} has {other:?}, and n{leader}, which leads, {status:?}"
                    ));
                }
            }
        }
        None
    }
}
