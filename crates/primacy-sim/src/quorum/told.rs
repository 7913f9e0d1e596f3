//! What operators were told, and what must hold from then on.

use std::hash::{Hash, Hasher};

use primacy_core::quorum::{Answer, Ask, GrantProgress, Round, Voter};
use primacy_core::{Instant, Token};

/// What operators were told, and what voters have done of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Told {
    /// Operators have freed voters of holders of terms up to this: two may believe that they lead.
    pub(super) freed: Token,
    /// An operator was told that the holder of this term is deposed, while the candidates' clients were in these rounds.
    pub(super) deposed: Option<(Token, [Round; 2])>,
    /// An operator was told that the election is forgotten in this term.
    pub(super) forgotten: Token,
    /// Terms below this are over, as far as any voter knows: one has forgotten, or its holder gave it back, or was deposed.
    pub(super) over: Token,
    /// A deposed leader has renewed.
    pub(super) is_defied: bool,
    /// A voter that was bound to nobody has refused to support the present leader.
    pub(super) is_ignored: bool,
}

impl Told {
    /// All but the rounds of clients, of which only matters whether they are the present ones.
    pub(super) fn hash_beside(&self, state: &mut impl Hasher) {
        let Self { freed, deposed, forgotten, over, is_defied, is_ignored } = self;
        (freed, deposed.map(|(term, _)| term), forgotten, over, is_defied, is_ignored).hash(state);
    }

    /// What a voter has done.
    pub(super) fn note(&mut self, ask: &Ask, answer: &Answer, by_operator: bool) {
        match ask {
            _ if !answer.accepted => {}
            Ask::Forget { term } => self.over = self.over.max(*term),
            Ask::Release { term, beat: 1.., .. } => {
                self.over = self.over.max(term.next(0));
                if by_operator {
                    self.freed = self.freed.max(*term);
                }
            }
            _ => {}
        }
    }

    /// Whether this is the word of a leader, if it leads, that this voter has no reason to refuse.
    pub(super) fn must_support(&self, ask: &Ask, voter: &Voter, now: Instant) -> bool {
        let Ask::Claim { term, holder, granted: Some(GrantProgress { beat, .. }), .. } = ask else { return false };
        let mut voter = voter.clone();
        let is_free = voter.bound_until(now).is_none();
        let view = voter.handle(&Ask::Read, now).answer.view;
        let is_repeat = view.term == *term && view.holder.is_some_and(|own| own.id == holder.id) && view.beat >= *beat;
        is_free && *term >= self.over && !is_repeat
    }
}
