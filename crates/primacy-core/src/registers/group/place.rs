//! Where the group stands in line, and each of its candidates with it.

use alloc::vec::Vec;

use super::super::messages::LinePosition;
use super::super::port::{Descriptor, Effect, ProcessId};
use super::{Context, Group, HEIRS};
use crate::lease::Standing;
use crate::{CandidateId, Instant};

impl Group {
    /// Whom the head need not show: silent for too long, with the counter that stands still. A process that beats again
    /// is shown again.
    pub(super) fn silent(&self, now: Instant) -> Vec<(ProcessId, u64)> {
        /// As many as one statement may name: a rack of processes that died at once.
        const MOST: usize = 64;
        let own = self.config.process;
        let silent = self.history.silent(self.patience(now), now).filter(|(process, ..)| *process != own);
        silent.take(MOST).map(|(process, counter, _)| (process, counter)).collect()
    }

    /// Those in line: the live processes of the head, without the one that leads.
    fn line(&self, now: Instant) -> impl Iterator<Item = &Descriptor> {
        let (patience, own) = (self.patience(now), self.config.process);
        let leader = self.vars.and_then(|vars| vars.leader);
        self.head.iter().filter(move |descriptor| {
            let process = descriptor.process;
            Some(process) != leader && (process == own || !self.history.is_silent(process, patience))
        })
    }

    /// How many processes stand before this one, if it is among the first. One whose candidate has led last stands before
    /// all: whether it may ask again is its candidate's to know.
    pub(super) fn place(&self, now: Instant) -> Option<u32> {
        let own = self.config.process;
        if self.vars.is_some_and(|vars| vars.leader == Some(own)) {
            return Some(0);
        }
        let place = self.line(now).position(|descriptor| descriptor.process == own)?;
        u32::try_from(place).ok().filter(|place| *place < HEIRS)
    }

    /// A leader does not ask for the head, but sees everybody: it must know that there are others when it makes way for
    /// them, or it would take the lease back at once.
    pub(super) fn see_line(&mut self, descriptors: &[Descriptor]) {
        let mut head: Vec<&Descriptor> = descriptors.iter().filter(|descriptor| descriptor.rank.is_some()).collect();
        head.sort_by_key(|descriptor| (descriptor.rank, descriptor.id));
        self.head = head.into_iter().take(HEIRS as usize + 1).cloned().collect();
    }

    /// Tells the candidates where they stand, if that has changed. The best of the group stands where the group does; the
    /// others would die with it, and stand with those who are not in line.
    pub(super) fn tell_places(&mut self, cx: &mut Context<'_>) {
        let own = self.config.process;
        let place = self.place(cx.now);
        let elsewhere = self.head.iter().filter(|descriptor| descriptor.process != own).count();
        let others = u32::try_from(elsewhere + self.candidates.len().saturating_sub(1)).unwrap_or(u32::MAX);
        let mut eligible: Vec<_> =
            self.candidates.iter().filter_map(|candidate| Some((candidate.rank?, candidate.id))).collect();
        // Not by identity, which is random: the order in which they were given is their age.
        eligible.sort_by_key(|(rank, _)| *rank);
        let standing = Standing { ahead: place.unwrap_or(self.lot), others };
        let first = LinePosition { standing, in_line: place.is_some() };
        let behind = |index: usize| {
            let ahead = self.lot.saturating_add(u32::try_from(index).unwrap_or(u32::MAX));
            LinePosition { standing: Standing { ahead, others }, in_line: false }
        };
        let positions: Vec<(CandidateId, LinePosition)> = eligible
            .iter()
            .enumerate()
            .map(|(index, (_, id))| (*id, if index == 0 { first } else { behind(index) }))
            .collect();
        if positions != self.placed {
            self.placed.clone_from(&positions);
            cx.effects.push(Effect::PositionsChanged { positions });
        }
    }
}
