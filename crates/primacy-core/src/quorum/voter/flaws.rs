//! The planted bugs of a voter.

#[cfg(feature = "flaws")]
use core::time::Duration;

#[cfg(feature = "flaws")]
use super::super::flaws::Flaw;
use super::super::port::Ask;
#[cfg(feature = "flaws")]
use super::Durable;
use super::Voter;
#[cfg(feature = "flaws")]
use crate::Instant;
use crate::Token;

impl Voter {
    /// As [`Voter::restarted`], with a flaw.
    #[cfg(feature = "flaws")]
    pub fn flawed(durable: Durable, drift_ppm: u32, now: Instant, flaw: Option<Flaw>) -> Self {
        let durable = match flaw {
            Some(Flaw::Forgets) => Durable::default(),
            Some(Flaw::ForgetsRelease) => Durable { released: None, ..durable },
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

    pub(super) fn flawed_renews_anyone(&self) -> bool {
        #[cfg(feature = "flaws")]
        return self.flaw == Some(Flaw::RenewsAnyone);
        #[cfg(not(feature = "flaws"))]
        false
    }

    pub(super) fn flawed_comes_back(&self) -> bool {
        #[cfg(feature = "flaws")]
        return self.flaw == Some(Flaw::ComesBackBound);
        #[cfg(not(feature = "flaws"))]
        false
    }

    /// The highest term that it keeps when it comes to support somebody in this one.
    pub(super) fn flawed_highest(&self, term: Token) -> Token {
        #[cfg(feature = "flaws")]
        if self.flaw == Some(Flaw::ComesBackBlank) {
            return term;
        }
        self.durable().highest.max(term)
    }

    /// Whether it answers this as if it had no floor.
    pub(super) fn flawed_ignores_floor(&self, ask: &Ask) -> bool {
        #[cfg(feature = "flaws")]
        return match ask {
            Ask::Renew { .. } => self.flaw == Some(Flaw::RenewsBelowFloor),
            _ => self.flaw == Some(Flaw::ClaimsBelowFloor),
        };
        #[cfg(not(feature = "flaws"))]
        {
            let _ = ask;
            false
        }
    }

    pub(super) fn flawed_closes_forgotten(&self) -> bool {
        #[cfg(feature = "flaws")]
        return self.flaw == Some(Flaw::ClosesForgotten);
        #[cfg(not(feature = "flaws"))]
        false
    }

    pub(super) fn flawed_forgets_term(&self) -> bool {
        #[cfg(feature = "flaws")]
        return self.flaw == Some(Flaw::ForgetsTerm);
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
