//! Planted bugs of the quorum grant: each drops one of its rules, and each is found.

use alloc::collections::BTreeMap;
use core::time::Duration;

#[cfg(feature = "flaws")]
use super::VoterSet;
use super::{Ask, Configuration, Durable, QuorumClient, ReconfigurationAttempt, Voter};
#[cfg(feature = "flaws")]
use crate::Instant;
use crate::{ElectionName, Token};

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
    /// A voter supports any candidate that asks for a new term, also while it is bound.
    BreaksPromise,
    /// A candidate asks for a term again that it has asked for before.
    ReusesTerms,
    /// A holder counts its lease from when it heard the answers. A flaw of the client's caller.
    CountsFromAnswers,
    /// A holder whose belief has ended believes again by answers that come late. Of the driver of a client.
    RevivesLapsed,
    /// The new voters vote alone as soon as the old ones have agreed on them.
    SkipsJoint,
    /// The new voters are not told what the old ones have granted.
    SkipsHeritage,
    /// The new voters vote alone although leases still hold that only the old ones have granted.
    SkipsSettling,
    /// What a majority may have taken for the next change is not proposed again.
    IgnoresTaken,
    /// Those that go hear of the end of an exchange when those that stay do, and may end before.
    PartsAtOnce,
    /// A voter still answers those who count with the voters before it. A flaw of the voter's caller.
    AdmitsOld,
    /// A voter adopts what anybody says. For the driver of a voter.
    AdoptsAnything,
    /// A voter that was away takes the word of one voter for what it has missed. For the driver of a voter.
    BelievesOne,
    /// A voter forgets when it restarts that it was set free.
    ForgetsRelease,
    /// A voter renews its promise for any candidate that asks, not only for the one to which it made it.
    RenewsAnyone,
    /// A client counts answers to earlier questions.
    CountsOldAnswers,
    /// One voter less than a majority is enough for a client.
    SmallMajority,
    /// A renewal that was withdrawn is asked for again.
    ReusesBeats,
    /// A voter that forgets an election forgets its term too.
    ForgetsTerm,
    /// A voter comes back to a leader although it is bound, or knows that the later term was granted.
    ComesBackBound,
    /// An exchange of voters is begun although no majority of the new ones is there.
    BeginsInVain,
    /// A client waits for an answer for ever.
    WaitsForever,
    /// A voter that comes back to a leader forgets the later term that it has supported somebody in.
    ComesBackBlank,
    /// A voter renews its promise in a term below its floor.
    RenewsBelowFloor,
    /// A voter supports the holder of a granted term below its floor.
    ClaimsBelowFloor,
    /// The new voters are not told the floor.
    SkipsFloor,
    /// The new voters are told the term in which an election was forgotten, and not that it was.
    SkipsForgotten,
    /// A voter that forgets an election supports nobody in that term any more, to whom it may have been granted.
    ClosesForgotten,
    /// An exchange does not wait for new voters that are bound by what was before an election was forgotten.
    LeavesBound,
    /// What was taken in the smallest attempt is proposed again, not what was taken in the largest.
    ProposesSmallest,
}

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

impl QuorumClient {
    /// As [`QuorumClient::new`], with a flaw.
    #[cfg(feature = "flaws")]
    pub fn flawed(voter_set: VoterSet, flaw: Option<Flaw>) -> Self {
        let mut client = Self::new(voter_set);
        client.flaw = flaw;
        client
    }

    pub(super) fn flawed_counts_old_answers(&self) -> bool {
        #[cfg(feature = "flaws")]
        return self.flaw == Some(Flaw::CountsOldAnswers);
        #[cfg(not(feature = "flaws"))]
        false
    }

    pub(super) fn flawed_reuses_beats(&self) -> bool {
        #[cfg(feature = "flaws")]
        return self.flaw == Some(Flaw::ReusesBeats);
        #[cfg(not(feature = "flaws"))]
        false
    }

    pub(super) fn flawed_is_enough(&self) -> bool {
        #[cfg(feature = "flaws")]
        return self.flaw == Some(Flaw::SmallMajority)
            && (self.accepted.len() + 1) * 2 > self.voter_set().voters().count();
        #[cfg(not(feature = "flaws"))]
        false
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
