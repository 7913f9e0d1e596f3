//! Who is to vote after an exchange of voters, and whether that can be begun.

#[cfg(test)]
mod tests;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

#[cfg(feature = "flaws")]
use super::Flaw;
use super::voter_set::VoterId;

/// How many peers can vote at most.
pub const VOTERS_MAX: usize = 9;

/// Voters by name, each with its identity and where it is.
type Voters<N, P> = BTreeMap<N, (VoterId, P)>;

/// Why a voter cannot come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddError {
    /// It was taken out before, and ends when it hears of that: the next exchange could not be finished without it.
    Removed,
    /// Another voter has its name.
    Taken,
}

/// Why voters are not exchanged. Nothing was changed. `N` is the name of a voter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlanError<N> {
    /// None of the voters has this name.
    Absent(N),
    /// Too many would vote, or nobody.
    Count(usize),
    /// No majority of the new voters can be reached, since these cannot: they could not grant anything.
    Minority(Vec<VoterId>),
}

/// Whether a voter can come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Added {
    /// It can.
    Yes,
    /// It knows of later voters than those that the plan is made for, which have to be known first.
    KnowsLater,
}

/// Which voters come and go. Names are `N`, and `P` is where a voter is: one that is somewhere else by now is exchanged for itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VoterPlan<N, P> {
    number: u64,
    current: Voters<N, P>,
    target: Voters<N, P>,
    unreachable: BTreeSet<VoterId>,
    removed: Vec<N>,
    has_added: bool,
    #[cfg(feature = "flaws")]
    flaw: Option<Flaw>,
}

impl<N: Clone + Ord, P: Clone + Eq> VoterPlan<N, P> {
    /// For those that have these names to go. `current`: who votes, by this number; `unreachable`: those of them that cannot be
    /// asked.
    pub fn new(number: u64, current: Voters<N, P>, unreachable: BTreeSet<VoterId>, removed: Vec<N>) -> Self {
        let mut target = current.clone();
        target.retain(|name, _| !removed.contains(name));
        Self {
            number,
            current,
            target,
            unreachable,
            removed,
            has_added: false,
            #[cfg(feature = "flaws")]
            flaw: None,
        }
    }

    /// The same with a flaw.
    #[cfg(feature = "flaws")]
    #[must_use]
    pub fn flawed(self, flaw: Option<Flaw>) -> Self {
        Self { flaw, ..self }
    }

    /// This voter is to come. It has been reached just now, and knows of voters with the number `known`, or of none.
    ///
    /// # Errors
    /// If it cannot.
    pub fn add(&mut self, name: N, voter: VoterId, place: P, known: Option<u64>) -> Result<Added, AddError> {
        self.has_added = true;
        let votes = self.current.values().any(|(other, _)| *other == voter);
        match known {
            Some(later) if later > self.number => return Ok(Added::KnowsLater),
            Some(_) if !votes => return Err(AddError::Removed),
            _ => {}
        }
        if self.target.get(&name).is_some_and(|(other, _)| *other != voter) {
            return Err(AddError::Taken);
        }
        self.unreachable.remove(&voter);
        self.target.insert(name, (voter, place));
        Ok(Added::Yes)
    }

    /// Who is to vote; `None` if those vote already. `is_later`: voters have been exchanged since they were chosen that are to go, so they
    /// may have gone.
    ///
    /// # Errors
    /// If that cannot be, or could not be undone and not be finished.
    pub fn finish(self, is_later: bool) -> Result<Option<Voters<N, P>>, PlanError<N>> {
        // One that comes in the place of another, and votes already, has come by the same exchange.
        let has_come = self.has_added && self.target == self.current;
        let absent = self.removed.iter().find(|name| !self.current.contains_key(*name));
        if let Some(name) = absent.filter(|_| !is_later && !has_come) {
            return Err(PlanError::Absent(name.clone()));
        }
        if self.target == self.current {
            return Ok(None);
        }
        let count = self.target.len();
        if !(1..=VOTERS_MAX).contains(&count) {
            return Err(PlanError::Count(count));
        }
        let voters: BTreeSet<VoterId> = self.target.values().map(|(voter, _)| *voter).collect();
        let missing: Vec<VoterId> = self.unreachable.intersection(&voters).copied().collect();
        if (count - missing.len()) * 2 <= count && !self.flawed_begins_in_vain() {
            return Err(PlanError::Minority(missing));
        }
        Ok(Some(self.target))
    }

    #[cfg_attr(not(feature = "flaws"), expect(clippy::unused_self, reason = "there is no planted bug to ask for"))]
    fn flawed_begins_in_vain(&self) -> bool {
        #[cfg(feature = "flaws")]
        return self.flaw == Some(Flaw::BeginsInVain);
        #[cfg(not(feature = "flaws"))]
        false
    }
}
