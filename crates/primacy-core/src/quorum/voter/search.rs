//! What a complete search may take for one: promises that have ended are alike.

use super::Voter;
use crate::Instant;
use crate::quorum::{Ask, Flaw};

impl Voter {
    /// Forgets until when promises lasted that have ended: by rule they bind no more, and the next one is longer.
    pub fn forget_ended(&mut self, now: Instant) {
        for until in [&mut self.bound_until, &mut self.bound_before] {
            if *until <= now {
                *until = Instant::ZERO;
            }
        }
    }

    /// Whether this will change nothing here however late it arrives: its term is below one that this voter has supported
    /// somebody in, and those only grow; or its holder has set this voter free in that term, which is for ever.
    pub fn is_past(&self, ask: &Ask) -> bool {
        if matches!(self.flaw, Some(Flaw::Forgets | Flaw::ForgetsRelease)) {
            return false;
        }
        let (term, id, beat) = match ask {
            Ask::Read | Ask::Order { .. } | Ask::Forget { .. } => return false,
            Ask::Claim { term, holder, .. } => (*term, holder.id, None),
            Ask::Renew { term, id, .. } | Ask::Withdraw { term, id, .. } => (*term, *id, None),
            Ask::Release { term, id, beat, .. } => (*term, *id, Some(*beat)),
        };
        term < self.durable.term
            || (self.supports(term, id) && self.durable.released.is_some() && beat <= self.durable.released)
    }
}
