//! Planted bugs of the quorum grant: each drops one of its rules, and each is found.

#[cfg(feature = "flaws")]
use core::time::Duration;

use super::{Clerk, Voter};
#[cfg(feature = "flaws")]
use super::{Durable, Membership};
#[cfg(feature = "flaws")]
use crate::Instant;
use crate::Token;

/// A rule that is dropped.
#[cfg(feature = "flaws")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Flaw {
    /// A voter is free as soon as it has restarted.
    NoBootWait,
    /// A voter forgets its term and whom it supported when it restarts.
    Forgets,
    /// A voter supports two candidates in one term.
    SharesTerms,
    /// A voter supports whoever asks for a new term, also while it is bound.
    BreaksPromise,
    /// A candidate asks for a term again that it has asked for before.
    ReusesTerms,
    /// A holder counts its lease from when it heard the answers. Of whoever drives a clerk.
    CountsFromAnswers,
}

impl Voter {
    /// As [`Voter::restarted`], with a flaw.
    #[cfg(feature = "flaws")]
    pub fn flawed(durable: Durable, drift_ppm: u32, now: Instant, flaw: Option<Flaw>) -> Self {
        let durable = match flaw {
            Some(Flaw::Forgets) => Durable::default(),
            Some(Flaw::NoBootWait) => Durable { lease: Duration::ZERO, ..durable },
            _ => durable,
        };
        let mut voter = Self::restarted(durable, drift_ppm, now);
        voter.flaw = flaw;
        voter
    }

    pub(super) fn flawed_breaks_promise(&self) -> bool {
        #[cfg(feature = "flaws")]
        return self.flaw == Some(Flaw::BreaksPromise);
        #[cfg(not(feature = "flaws"))]
        false
    }

    pub(super) fn flawed_shares_terms(&self) -> bool {
        #[cfg(feature = "flaws")]
        return self.flaw == Some(Flaw::SharesTerms);
        #[cfg(not(feature = "flaws"))]
        false
    }
}

impl Clerk {
    /// As [`Clerk::new`], with a flaw.
    #[cfg(feature = "flaws")]
    pub fn flawed(membership: Membership, flaw: Option<Flaw>) -> Self {
        let mut clerk = Self::new(membership);
        clerk.flaw = flaw;
        clerk
    }

    /// The highest term that it has ever claimed.
    pub(super) fn flawed_asked(&self) -> Token {
        #[cfg(feature = "flaws")]
        if self.flaw == Some(Flaw::ReusesTerms) {
            return Token::NONE;
        }
        self.asked
    }
}
