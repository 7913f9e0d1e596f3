//! Past leaderships: the words for why they ended, and the list of them that is kept in the memory of a process.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::{Basis, Holder, Record, Snapshot, Term, Version};
use crate::{CandidateId, ElectionName, Label, Token};

/// Why a term is over that another candidate ended by taking the lease.
pub(crate) const TAKEN_OVER: &str = "taken-over";

/// Why a term is over whose record somebody else has emptied or deleted.
const REMOVED: &str = "removed";

/// Why the term is over that stands in the history for the moment in which an election was forgotten.
pub(crate) const FORGOTTEN: &str = "forgotten";

/// Whose that term is.
pub(crate) const NOBODY: &str = "nobody";

/// How many terms the history keeps of each election.
pub(super) const TERMS_KEPT: u32 = 1_000;

/// Milliseconds since 1970 by the wall clock, for people only.
pub(super) fn unix_ms() -> i64 {
    #[expect(clippy::disallowed_methods, reason = "it only informs people")]
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// The last leaderships of an election, the oldest first. A store that keeps it beside the record remembers the highest token
/// when somebody deletes the record.
#[derive(Clone, Debug, Default)]
pub struct TermHistory {
    terms: Vec<Term>,
    /// The highest token of which it is known that it was granted: a claim alone is no grant among peers.
    #[cfg(feature = "peers")]
    proven: Token,
}

impl TermHistory {
    /// The history that a store has written down, the oldest term first.
    pub fn from_terms(terms: Vec<Term>) -> Self {
        Self {
            terms,
            #[cfg(feature = "peers")]
            proven: Token::NONE,
        }
    }

    /// All terms that are kept, the oldest first.
    pub fn terms(&self) -> &[Term] {
        &self.terms
    }

    /// The history of an election that an operator has had forgotten: only its token is left.
    pub fn forgotten(token: Token) -> Self {
        let nobody = Holder { id: CandidateId::from_bits(0), label: nobody(), data: String::new() };
        let mut history = Self::default();
        history.open(token, &nobody, FORGOTTEN);
        history.close(token, FORGOTTEN);
        history
    }

    /// A leadership begins. That before it, unless it has ended already, was taken over if its holder stood in the record;
    /// else somebody had removed it.
    pub fn grant(&mut self, token: Token, holder: &Holder, was_held: bool) {
        self.open(token, holder, if was_held { TAKEN_OVER } else { REMOVED });
    }

    /// What is left of an election that has no record, as an observer is shown it: the highest token, and the newest term.
    /// `None` if nobody has ever led.
    pub fn remains(&self, election: &ElectionName) -> Option<Snapshot> {
        remains(election, self.highest(), self.terms.last().cloned())
    }

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

    /// The leadership with this token ends, unless it has already. Operators and tools read the reason
    /// ([`EndReason::word`](super::EndReason::word)).
    pub fn close(&mut self, token: Token, reason: &str) {
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
        self.terms.last().filter(|term| term.token > self.proven && !is_of_forgetting(term))
    }

    /// A leadership has never been one.
    #[cfg(feature = "peers")]
    pub(crate) fn strike(&mut self, token: Token) {
        self.terms.retain(|term| term.token != token);
    }

    /// The leadership of this holder goes on: those with later tokens, and those of others with this one, have never been. Gives
    /// their tokens. Nothing is done if a later one is known to have been: then the word of this one is late.
    #[cfg(feature = "peers")]
    pub(crate) fn go_back(&mut self, token: Token, holder: &Holder) -> Vec<Token> {
        if self.proven > token {
            return Vec::new();
        }
        let stays = |term: &Term| term.token < token || (term.token == token && term.id == holder.id);
        let struck = self.terms.iter().filter(|term| !stays(term)).map(|term| term.token).collect();
        self.terms.retain(stays);
        match self.terms.last_mut().filter(|term| term.token == token) {
            Some(term) => term.ended = None,
            None => self.open(token, holder, TAKEN_OVER),
        }
        struck
    }

    /// The highest token among them: what a look gives as [`Sighting::remembered`](super::Sighting::remembered).
    pub fn highest(&self) -> Token {
        self.terms.last().map_or(Token::NONE, |term| term.token)
    }

    /// The newest of them, the newest first.
    pub fn newest(&self, limit: u32) -> impl Iterator<Item = &Term> {
        self.terms.iter().rev().take(limit as usize)
    }
}

/// What is left of an election that has no record: the highest token, and the newest term of the history. `None` if it
/// has never had one. Nobody is shown to wait in it.
pub(crate) fn remains(election: &ElectionName, remembered: Token, newest: Option<Term>) -> Option<Snapshot> {
    let told = newest.as_ref().map_or(Token::NONE, |term| term.token);
    let token = remembered.max(told);
    if token == Token::NONE {
        return None;
    }
    let newest = newest.filter(|term| term.token == token);
    let is_forgotten = newest.as_ref().is_some_and(is_of_forgetting);
    let holder = newest.filter(|term| term.ended.is_none());
    let holder = holder.map(|term| Holder { id: term.id, label: term.label, data: String::new() });
    let version = Version { token, beat: 0 };
    Some(Snapshot {
        election: election.clone(),
        record: Record { version, holder, lease: Duration::ZERO, order_number: 0, handover: None, paused: false },
        age: None,
        held_for: None,
        candidates: Vec::new(),
        basis: if is_forgotten { Basis::Forgotten } else { Basis::Remains },
    })
}

/// Whether a term stands for the moment in which the election was forgotten.
pub(crate) fn is_of_forgetting(term: &Term) -> bool {
    term.ended.as_ref().is_some_and(|(_, reason)| reason == FORGOTTEN)
}

/// Who is named in such a term.
pub(crate) fn nobody() -> Label {
    Label::new(NOBODY).expect("a valid label")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn term(token: u64, ended: Option<&str>) -> Term {
        Term {
            token: Token::new(token).expect("small"),
            id: CandidateId::from_bits(9),
            label: Label::new("a").expect("valid"),
            granted_unix_ms: 1,
            ended: ended.map(|reason| (2, reason.to_owned())),
        }
    }

    fn left(remembered: u64, newest: Option<Term>) -> Option<(u64, Option<String>, Basis)> {
        let election = ElectionName::new("e").expect("valid");
        let left = remains(&election, Token::new(remembered).expect("small"), newest)?;
        let holder = left.record.holder.map(|holder| holder.label.to_string());
        Some((left.record.version.token.get(), holder, left.basis))
    }

    #[test]
    fn what_is_left_tells_what_can_be_proven() {
        assert_eq!(left(0, None), None);
        assert_eq!(left(7, None), Some((7, None, Basis::Remains)));
        assert_eq!(left(7, Some(term(7, None))), Some((7, Some("a".into()), Basis::Remains)));
        assert_eq!(left(7, Some(term(7, Some("withdrawn")))), Some((7, None, Basis::Remains)));
        // A later token was granted to somebody of whom the history does not tell.
        assert_eq!(left(8, Some(term(7, None))), Some((8, None, Basis::Remains)));
        assert_eq!(left(8, Some(term(8, Some(FORGOTTEN)))), Some((8, None, Basis::Forgotten)));
        assert_eq!(left(9, Some(term(8, Some(FORGOTTEN)))), Some((9, None, Basis::Remains)));
    }
}
