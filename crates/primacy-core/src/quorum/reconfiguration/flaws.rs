//! The planted bugs of a reconfiguration.

use alloc::collections::BTreeMap;
use core::time::Duration;

use super::super::config_acceptor::Configuration;
#[cfg(feature = "flaws")]
use super::super::flaws::Flaw;
use super::super::voter::Durable;
use super::ReconfigurationAttempt;
use crate::ElectionName;
#[cfg(feature = "flaws")]
use crate::Token;

impl<C: Configuration> ReconfigurationAttempt<C> {
    /// As [`ReconfigurationAttempt::new`], with a flaw.
    #[cfg(feature = "flaws")]
    pub fn flawed(current: C, wanted: Option<C>, by: u128, flaw: Option<Flaw>) -> Self {
        let mut change = Self::new(current, wanted, by);
        change.flaw = flaw;
        change
    }

    #[cfg(feature = "flaws")]
    fn has(&self, flaw: Flaw) -> bool {
        self.flaw == Some(flaw)
    }

    /// What comes after the present voters, when this was chosen.
    pub(super) fn flawed_successor(&self, chosen: C) -> C {
        #[cfg(feature = "flaws")]
        if self.has(Flaw::SkipsJoint) {
            return chosen.settled().unwrap_or(chosen);
        }
        chosen
    }

    pub(super) fn flawed_ignores_taken(&self) -> bool {
        #[cfg(feature = "flaws")]
        return self.has(Flaw::IgnoresTaken);
        #[cfg(not(feature = "flaws"))]
        false
    }

    pub(super) fn flawed_proposes_smallest(&self) -> bool {
        #[cfg(feature = "flaws")]
        return self.has(Flaw::ProposesSmallest);
        #[cfg(not(feature = "flaws"))]
        false
    }

    /// For how long a voter does not take over that an election was forgotten.
    pub(super) fn flawed_bound(&self, bound: Duration) -> Duration {
        #[cfg(feature = "flaws")]
        if self.has(Flaw::LeavesBound) {
            return Duration::ZERO;
        }
        bound
    }

    pub(super) fn flawed_parts_at_once(&self) -> bool {
        #[cfg(feature = "flaws")]
        return self.has(Flaw::PartsAtOnce);
        #[cfg(not(feature = "flaws"))]
        false
    }

    /// For how long the new voters do not vote alone.
    pub(super) fn flawed_wait(&self, settles_in: Duration) -> Duration {
        #[cfg(feature = "flaws")]
        if self.has(Flaw::SkipsSettling) {
            return Duration::ZERO;
        }
        settles_in
    }

    /// What the new voters are told.
    pub(super) fn flawed_heritage(&self, heritage: BTreeMap<ElectionName, Durable>) -> BTreeMap<ElectionName, Durable> {
        #[cfg(feature = "flaws")]
        match self.flaw {
            Some(Flaw::SkipsHeritage) => return BTreeMap::new(),
            Some(Flaw::SkipsFloor) => {
                return heritage
                    .into_iter()
                    .map(|(name, given)| (name, Durable { floor: Token::NONE, ..given }))
                    .collect();
            }
            Some(Flaw::SkipsForgotten) => {
                let untold =
                    |given: Durable| Durable { released: given.released.filter(|_| !given.is_forgotten()), ..given };
                return heritage.into_iter().map(|(name, given)| (name, untold(given))).collect();
            }
            _ => {}
        }
        heritage
    }
}
