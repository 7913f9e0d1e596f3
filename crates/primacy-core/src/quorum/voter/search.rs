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

    /// Whether this will change nothing here however late it arrives: it claims a term that nobody was granted yet, below one that
    /// this voter has heard of, and those only grow; or it takes such a claim back, whose candidate will never say that it was
    /// granted the term. Where voters are exchanged this does not hold: a voter may inherit whom it had left.
    pub fn is_past(&self, ask: &Ask) -> bool {
        if matches!(self.flaw, Some(Flaw::Forgets | Flaw::ComesBackBlank)) {
            return false;
        }
        match ask {
            Ask::Claim { term, granted: None, .. } => *term < self.durable.highest,
            Ask::Release { term, id, beat: 0, .. } => *term < self.durable.highest && !self.supports(*term, *id),
            _ => false,
        }
    }
}
