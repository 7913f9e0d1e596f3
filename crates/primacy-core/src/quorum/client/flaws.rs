//! The planted bugs of a quorum client.

#[cfg(feature = "flaws")]
use super::super::flaws::Flaw;
#[cfg(feature = "flaws")]
use super::super::voter_set::VoterSet;
use super::QuorumClient;
use crate::Token;

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
