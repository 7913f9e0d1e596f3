//! The elections that a voter knows anything of, in bounded memory, and when its promises in them end.

use alloc::collections::{BTreeMap, BTreeSet};
use core::mem;
use core::time::Duration;

use super::{UNCLAIMED_MAX, WAITING_MAX};
#[cfg(feature = "flaws")]
use crate::quorum::Flaw;
use crate::quorum::config_acceptor::VoterPromises;
use crate::quorum::port::Ask;
use crate::quorum::state::{Outcome, VoterState};
use crate::quorum::voter::{Durable, Voter};
use crate::select::Rank;
use crate::{CandidateId, ElectionName, Instant};

/// The least time between two searches for candidates that have said nothing for long.
const SWEEP: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct VoterElections<T> {
    begin: Begin,
    /// Those that somebody has claimed, or ordered something in, or waits in. Nothing is kept of others.
    all: BTreeMap<ElectionName, Election<T>>,
    ends: Ends,
    /// How many candidates wait in all of them.
    waiting: usize,
    /// How many nobody has claimed.
    unclaimed: usize,
    /// When candidates were looked for last that have said nothing for long.
    swept: Instant,
}

/// What each of a voter's promises begins with.
#[derive(Clone, Copy, Debug)]
pub(super) struct Begin {
    pub(super) drift_ppm: u32,
    #[cfg(feature = "flaws")]
    pub(super) flaw: Option<Flaw>,
}

impl Begin {
    fn election<T>(self, durable: Durable, now: Instant) -> Election<T> {
        #[cfg(feature = "flaws")]
        let voter = Voter::flawed(durable, self.drift_ppm, now, self.flaw);
        #[cfg(not(feature = "flaws"))]
        let voter = Voter::restarted(durable, self.drift_ppm, now);
        Election { state: VoterState::new(voter), bound_until: None }
    }
}

/// One of them.
#[derive(Debug)]
struct Election<T> {
    state: VoterState<T>,
    /// Until when the voter is bound in it, as [`Ends`] has it.
    bound_until: Option<Instant>,
}

/// The ends of promises of which nobody was told that they ended, the next one first: so neither a tick nor an answer depends on
/// the number of elections.
#[derive(Debug, Default)]
struct Ends(BTreeSet<(Instant, ElectionName)>);

impl Ends {
    /// The promise in an election ends then, if it is bound.
    fn note<T>(&mut self, name: &ElectionName, election: &mut Election<T>, until: Option<Instant>) {
        let before = mem::replace(&mut election.bound_until, until);
        if before != until {
            if let Some(before) = before {
                self.0.remove(&(before, name.clone()));
            }
            self.0.extend(until.map(|until| (until, name.clone())));
        }
    }

    fn next(&self) -> Option<Instant> {
        self.0.first().map(|(until, _)| *until)
    }

    /// The next one, if it has ended.
    fn pop(&mut self, now: Instant) -> Option<ElectionName> {
        self.next().filter(|until| *until <= now)?;
        self.0.pop_first().map(|(_, name)| name)
    }
}

impl<T> Election<T> {
    /// Nobody has claimed it, and nobody waits.
    fn is_blank(&self) -> bool {
        self.state.is_unclaimed() && self.state.waiting.is_empty()
    }

    /// How many wait in it, and whether nobody has claimed it although somebody waits.
    fn counts(&self) -> (usize, bool) {
        (self.state.waiting.len(), self.state.is_unclaimed() && !self.state.waiting.is_empty())
    }
}

impl<T> VoterElections<T> {
    /// Those that the disk has kept, as the process starts.
    pub(super) fn restarted(begin: Begin, kept: &BTreeMap<ElectionName, Durable>, now: Instant) -> Self {
        let (mut all, mut ends) = (BTreeMap::new(), Ends::default());
        for (name, durable) in kept {
            let mut election = begin.election(durable.clone(), now);
            let until = election.state.voter.bound_until(now);
            ends.note(name, &mut election, until);
            all.insert(name.clone(), election);
        }
        Self { begin, all, ends, waiting: 0, unclaimed: 0, swept: now }
    }

    pub(super) fn bind_anew(&mut self, now: Instant) {
        for (name, election) in &mut self.all {
            election.state.voter.bind_anew(now);
            let until = election.state.voter.bound_until(now);
            self.ends.note(name, election, until);
        }
    }

    pub(super) fn answer(
        &mut self,
        name: &ElectionName,
        ask: &Ask,
        asker: CandidateId,
        announce: Option<(CandidateId, Rank, T)>,
        now: Instant,
    ) -> Outcome {
        let announce = announce.filter(|(id, ..)| {
            let known = self.all.get(name);
            known.is_some_and(|known| known.state.waiting.has(*id)) || self.has_room(known.is_none(), now)
        });
        self.change(name, now, |state| {
            let outcome = state.answer(ask, asker, announce, now);
            let until = outcome.bound_until;
            (outcome, until)
        })
    }

    /// Does something in an election, and takes note of until when the voter is bound in it after that. Of an election that nobody has
    /// claimed and nobody waits in nothing is left.
    fn change<R>(
        &mut self,
        name: &ElectionName,
        now: Instant,
        does: impl FnOnce(&mut VoterState<T>) -> (R, Option<Instant>),
    ) -> R {
        let mut new = None;
        let election = match self.all.get_mut(name) {
            Some(known) => known,
            None => new.insert(self.begin.election(Durable::default(), now)),
        };
        let before = election.counts();
        let (done, until) = does(&mut election.state);
        self.ends.note(name, election, until);
        let (after, is_blank) = (election.counts(), election.is_blank());
        if let Some(new) = new.filter(|_| !is_blank) {
            self.all.insert(name.clone(), new);
        } else if is_blank {
            self.all.remove(name);
        }
        self.recount(before, after);
        done
    }

    pub(super) fn leave(&mut self, name: &ElectionName, id: CandidateId) {
        let Some(election) = self.all.get_mut(name) else { return };
        let before = election.counts();
        election.state.waiting.leave(id);
        let (after, is_blank) = (election.counts(), election.is_blank());
        if is_blank {
            self.all.remove(name);
        }
        self.recount(before, after);
    }

    fn recount(&mut self, before: (usize, bool), after: (usize, bool)) {
        self.waiting = self.waiting + after.0 - before.0;
        self.unclaimed = self.unclaimed + usize::from(after.1) - usize::from(before.1);
    }

    /// Whether one more candidate may be noted as waiting. Those who have said nothing for long make room for it.
    /// `is_new`: in an election that nobody has claimed, and in which nobody waits yet.
    fn has_room(&mut self, is_new: bool, now: Instant) -> bool {
        let is_full = |own: &Self| own.waiting >= WAITING_MAX || (is_new && own.unclaimed >= UNCLAIMED_MAX);
        if is_full(self) && now.since(self.swept) >= SWEEP {
            self.swept = now;
            self.all.values_mut().for_each(|election| election.state.waiting.remove_old(now));
            self.all.retain(|_, election| !election.is_blank());
            self.waiting = self.all.values().map(|election| election.state.waiting.len()).sum();
            self.unclaimed = self.all.values().filter(|election| election.state.is_unclaimed()).count();
        }
        !is_full(self)
    }

    pub(super) fn get(&self, name: &ElectionName) -> Option<&VoterState<T>> {
        self.all.get(name).map(|election| &election.state)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&ElectionName, &VoterState<T>)> {
        self.all.iter().map(|(name, election)| (name, &election.state))
    }

    pub(super) fn next_end(&self) -> Option<Instant> {
        self.ends.next()
    }

    /// The next promise that has ended by now, of which nobody was told.
    pub(super) fn expire(&mut self, now: Instant) -> Option<ElectionName> {
        let name = self.ends.pop(now)?;
        if let Some(election) = self.all.get_mut(&name) {
            election.bound_until = None;
        }
        Some(name)
    }

    pub(super) fn counts(&self) -> (usize, usize, usize) {
        (self.all.len(), self.waiting, self.ends.0.len())
    }
}

impl<T> VoterPromises for VoterElections<T> {
    fn bound_until(&self, now: Instant) -> Option<Instant> {
        self.all.values().filter_map(|election| election.state.voter.bound_until(now)).max()
    }

    fn kept(&self) -> BTreeMap<ElectionName, Durable> {
        let kept = self.all.iter().map(|(name, election)| (name.clone(), election.state.voter.durable().clone()));
        // Who only looked has left nothing behind.
        kept.filter(|(_, durable)| *durable != Durable::default()).collect()
    }

    fn inherit(&mut self, name: &ElectionName, given: &Durable, now: Instant) -> Option<Duration> {
        if *given == Durable::default() {
            return None;
        }
        self.change(name, now, |state| {
            let bound = state.voter.inherit(given, now);
            (bound, state.voter.bound_until(now))
        })
    }
}
