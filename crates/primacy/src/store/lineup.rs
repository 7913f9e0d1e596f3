//! Who waits for a lease, in which order, and who has led: as kept in the memory of a process.

use std::time::Duration;

use super::history::{self, FORGOTTEN_AFTER, TERMS_KEPT, unix_ms};
use super::{Announcement, Holder, Standing, Term, Waiting};
use crate::select::Rank;
use crate::{CandidateId, Instant, Token};

/// So many who wait are remembered for each election.
const WAITING_MOST: usize = 10_000;

/// Candidates that wait, in the order in which they came.
#[derive(Debug, Default)]
pub(crate) struct Lineup(Vec<Announced>);

/// What a candidate says of itself.
#[derive(Clone, Debug)]
pub(crate) struct Said {
    pub(crate) note: String,
    pub(crate) rank: Rank,
}

impl From<&Announcement> for Said {
    fn from(said: &Announcement) -> Self {
        Self { note: said.why.to_string(), rank: said.rank }
    }
}

#[derive(Debug)]
struct Announced {
    who: Holder,
    rank: Rank,
    note: String,
    seen: Instant,
    fresh_for: Duration,
}

impl Lineup {
    /// A candidate says that it waits. `lease`: that of the present holder.
    pub(crate) fn announce(&mut self, who: &Holder, said: Said, lease: Option<Duration>, now: Instant) {
        self.forget(now);
        let is_full = self.0.len() >= WAITING_MOST;
        let before = self.0.iter_mut().find(|waiting| waiting.who.id == who.id);
        let fresh_for = history::fresh_for(lease, before.as_ref().map(|waiting| now.since(waiting.seen)));
        let Said { note, rank } = said;
        let announced = Announced { who: who.clone(), rank, note, seen: now, fresh_for };
        match before {
            Some(before) => *before = announced,
            // Who is not in the list is merely not counted.
            None if is_full => {}
            None => self.0.push(announced),
        }
    }

    /// Those who have said nothing for long wait no more.
    pub(crate) fn forget(&mut self, now: Instant) {
        self.0.retain(|waiting| now.since(waiting.seen) <= waiting.fresh_for * FORGOTTEN_AFTER);
    }

    /// Whether this candidate waits.
    #[cfg(feature = "peers")]
    pub(crate) fn has(&self, id: CandidateId) -> bool {
        self.0.iter().any(|waiting| waiting.who.id == id)
    }

    #[cfg(feature = "peers")]
    pub(crate) const fn len(&self) -> usize {
        self.0.len()
    }

    #[cfg(feature = "peers")]
    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A candidate waits no more.
    pub(crate) fn leave(&mut self, id: CandidateId) {
        self.0.retain(|waiting| waiting.who.id != id);
    }

    /// Where one candidate stands among those that have announced themselves lately and do not lead.
    pub(crate) fn standing(&self, me: CandidateId, holder: Option<CandidateId>, now: Instant) -> Standing {
        let own = self.0.iter().enumerate().find(|(_, waiting)| waiting.who.id == me);
        let place = own.map(|(position, waiting)| (waiting.rank, position));
        self.count(me, holder, now, |position, other| place.is_none_or(|place| (other.rank, position) < place))
    }

    /// The same where equals are in the order of identities, which are random: many who keep such lists come to the same order.
    #[cfg(feature = "peers")]
    pub(crate) fn drawn_standing(&self, me: CandidateId, holder: Option<CandidateId>, now: Instant) -> Standing {
        let own = self.0.iter().find(|waiting| waiting.who.id == me).map_or(Rank::LAST, |waiting| waiting.rank);
        self.count(me, holder, now, |_, other| (other.rank, other.who.id) < (own, me))
    }

    /// Counts the others that wait, and those of them that come `before` this one.
    fn count(
        &self,
        me: CandidateId,
        holder: Option<CandidateId>,
        now: Instant,
        before: impl Fn(usize, &Announced) -> bool,
    ) -> Standing {
        let mut standing = Standing::default();
        for (position, other) in self.0.iter().enumerate() {
            if other.waits(holder, now) && other.who.id != me {
                standing.others += 1;
                standing.ahead += u32::from(before(position, other));
            }
        }
        standing
    }

    /// Those that have announced themselves lately and do not lead.
    pub(crate) fn list(&self, holder: Option<CandidateId>, now: Instant) -> impl Iterator<Item = Waiting> {
        let mut fresh: Vec<_> = self.0.iter().filter(|waiting| waiting.waits(holder, now)).collect();
        fresh.sort_by_key(|waiting| waiting.rank);
        fresh.into_iter().map(move |waiting| Waiting {
            who: waiting.who.clone(),
            note: waiting.note.clone(),
            rank: history::shown_rank(waiting.rank),
            age: Some(now.since(waiting.seen)),
        })
    }
}

impl Announced {
    fn waits(&self, holder: Option<CandidateId>, now: Instant) -> bool {
        holder != Some(self.who.id) && now.since(self.seen) < self.fresh_for
    }
}

/// The last leaderships of an election, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct Past {
    terms: Vec<Term>,
    /// The highest token of which it is known that it was granted: a claim alone is no grant among peers.
    #[cfg(feature = "peers")]
    proven: Token,
}

impl Past {
    /// A leadership begins. That before it has ended for this reason, if it has not already.
    pub(crate) fn open(&mut self, token: Token, holder: &Holder, ended: &str) {
        if let Some(last) = self.terms.last() {
            self.close(last.token, ended);
        }
        self.terms.push(Term {
            token,
            id: holder.id,
            label: holder.label.clone(),
            granted_unix_ms: unix_ms(),
            ended: None,
        });
        if self.terms.len() > TERMS_KEPT as usize {
            self.terms.remove(0);
        }
    }

    /// A leadership ends, unless it has already.
    pub(crate) fn close(&mut self, token: Token, reason: &str) {
        if let Some(term) = self.terms.iter_mut().rev().find(|term| term.token == token && term.ended.is_none()) {
            term.ended = Some((unix_ms(), reason.to_owned()));
        }
    }

    /// What was known of a leadership is known better.
    #[cfg(feature = "peers")]
    pub(crate) fn put(&mut self, term: Term) {
        match self.terms.iter_mut().find(|known| known.token == term.token) {
            Some(known) => *known = term,
            None => self.terms.push(term),
        }
        if self.terms.len() > TERMS_KEPT as usize {
            self.terms.remove(0);
        }
    }

    /// The candidate with this token has led. Returns whether that was not known.
    #[cfg(feature = "peers")]
    pub(crate) fn prove(&mut self, token: Token) -> bool {
        let is_news = token > self.proven;
        self.proven = self.proven.max(token);
        is_news
    }

    /// The last leadership that is known to have been one.
    #[cfg(feature = "peers")]
    pub(crate) fn proven(&self) -> Option<&Term> {
        self.terms.iter().rev().find(|term| term.token <= self.proven)
    }

    /// What was claimed after that, and may have been granted.
    #[cfg(feature = "peers")]
    pub(crate) fn claimed(&self) -> Option<&Term> {
        self.terms.last().filter(|term| term.token > self.proven && !super::is_of_forgetting(term))
    }

    /// A leadership has never been one.
    #[cfg(feature = "peers")]
    pub(crate) fn strike(&mut self, token: Token) {
        self.terms.retain(|term| term.token != token);
    }

    /// The highest token among them.
    pub(crate) fn highest(&self) -> Token {
        self.terms.last().map_or(Token::NONE, |term| term.token)
    }

    /// The newest of them, the newest first.
    pub(crate) fn newest(&self, limit: u32) -> impl Iterator<Item = &Term> {
        self.terms.iter().rev().take(limit as usize)
    }
}
