//! What falls to the process whose candidate leads: to evict the dead, to set the round time, to make way for a better one.

use core::time::Duration;

use super::super::port::{Descriptor, Effect};
use super::{Context, Group};

impl Group {
    /// Everybody has been seen: what follows is done with the next scan, which comes at once if there is anything to
    /// do.
    pub(super) fn scanned(&mut self, descriptors: &[Descriptor], cx: &mut Context<'_>) {
        /// As many as one statement may name. The others follow at once.
        const EVICTED_AT_ONCE: usize = 500;
        let (own, now) = (self.config.process, cx.now);
        self.history.observe(descriptors, self.round(), now);
        // A process that is not there any more has left, or was evicted.
        self.history.forget_all_but(descriptors);
        self.see_line(descriptors);
        self.tell_places(cx);
        let patience = self.patience(now);
        let (Some(lead), Some(vars)) = (&mut self.lead, self.vars) else { return };
        let silent = self.history.silent(patience, now).filter(|(process, ..)| *process != own);
        lead.evict = silent.take(EVICTED_AT_ONCE).collect();
        let alive = || {
            let history = &self.history;
            descriptors
                .iter()
                .filter(move |descriptor| descriptor.process != own && !history.is_silent(descriptor.process, patience))
        };
        let late = alive().map(|descriptor| descriptor.late).max().unwrap_or(Duration::ZERO);
        let round = lead.pace.next(&self.config.rounds, &vars, late, now);
        lead.round = round.map(|round| (round, vars.changes));
        if !lead.evict.is_empty() || lead.round.is_some() {
            self.next_beat = now;
        }
        let (holder, token, chosen) = (lead.holder, lead.token, lead.chosen);
        let own_rank = self.candidates.iter().find(|candidate| candidate.id == holder).and_then(|own| own.rank);
        let Some(rank) = own_rank.filter(|_| !chosen) else { return };
        let better = alive().filter_map(|descriptor| Some((descriptor.process, descriptor.rank.as_ref()?)));
        if let Some(to) = self.watch.observe(now, &rank, better) {
            cx.effects.push(Effect::HandOver { holder, token, to });
        }
    }
}
