//! What a voter's process knows of one election: its promise, and who waits.

use super::port::{Answer, Ask};
use super::voter::{Durable, Voter};
use crate::lease::{Standing, WaitQueue};
use crate::select::Rank;
use crate::{CandidateId, Instant, Token};

/// One voter's part in one election, and the candidates that have told it that they wait. `T` is what a candidate tells of
/// itself beside its rank.
#[derive(Clone, Debug)]
pub struct VoterState<T> {
    /// Whom it supports, and until when.
    pub voter: Voter,
    /// Who waits. Lost with the process.
    pub waiting: WaitQueue<T>,
}

/// What follows from an ask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The answer.
    pub answer: Answer,
    /// Where the candidate that asks stands among those that wait.
    pub standing: Standing,
    /// What is kept on disk has changed: it must be flushed before this answer, or any later one, leaves.
    pub must_flush: bool,
    /// Whether those that wait, or watch, should look: who leads, or what operators want, may be another.
    pub is_news: bool,
    /// Whether the voter was bound to a holder before.
    pub was_bound: bool,
    /// Until when it is bound now.
    pub bound_until: Option<Instant>,
    /// If it has come to support another term or candidate: those of before.
    pub supported: Option<(Token, Option<CandidateId>)>,
    /// The term of which this ask proves that it was granted: nobody renews or gives back what it was not granted.
    pub granted: Option<Token>,
}

impl<T> VoterState<T> {
    /// With what the disk has kept, as the process starts: nobody waits ([`Voter::restarted`]).
    pub fn new(voter: Voter) -> Self {
        Self { voter, waiting: WaitQueue::default() }
    }

    /// Nobody has claimed the election, or ordered anything in it.
    pub fn is_unclaimed(&self) -> bool {
        *self.voter.durable() == Durable::default()
    }

    /// To whom the voter is bound at that time.
    pub fn present_holder(&self, now: Instant) -> Option<CandidateId> {
        self.voter.bound_until(now).and(self.voter.durable().holder.as_ref()).map(|holder| holder.id)
    }

    /// Answers what a candidate, operator or observer asks at that time. `announce` is what a candidate that waits says of
    /// itself with it.
    pub fn answer(
        &mut self,
        ask: &Ask,
        asker: CandidateId,
        announce: Option<(CandidateId, Rank, T)>,
        now: Instant,
    ) -> Outcome {
        if let Some((id, rank, told)) = announce {
            let lease = self.voter.durable().lease;
            self.waiting.announce(id, rank, told, (!lease.is_zero()).then_some(lease), now);
        }
        let was_bound = self.voter.bound_until(now).is_some();
        let before = self.voter.durable().support();
        let verdict = self.voter.handle(ask, now);
        let accepted = verdict.answer.accepted;
        let bound_until = self.voter.bound_until(now);
        let supported = (self.voter.durable().support() != before).then_some(before);
        // Who leads, or has led, does not wait, though this voter may have missed that.
        match ask {
            Ask::Claim { holder, .. } if accepted => self.waiting.leave(holder.id),
            Ask::Renew { id, .. } | Ask::Release { id, beat: 1.., .. } => self.waiting.leave(*id),
            _ => {}
        }
        let is_news = match ask {
            Ask::Claim { .. } => accepted && supported.is_some(),
            Ask::Release { .. } => accepted && was_bound,
            Ask::Withdraw { .. } => was_bound && bound_until.is_none(),
            Ask::Order { .. } | Ask::Forget { .. } => verdict.must_flush,
            Ask::Read | Ask::Renew { .. } => false,
        };
        let granted = match ask {
            Ask::Renew { term, .. }
            | Ask::Claim { term, granted: Some(_), .. }
            | Ask::Release { term, beat: 1.., .. } => Some(*term).filter(|_| accepted),
            _ => None,
        };
        let holder = self.present_holder(now);
        Outcome {
            answer: verdict.answer,
            standing: self.waiting.standing_by_id(asker, holder, now),
            must_flush: verdict.must_flush,
            is_news,
            was_bound,
            bound_until,
            supported,
            granted,
        }
    }
}
